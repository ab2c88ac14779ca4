"""A line controller that teaches through the C interface, and how Python's result compares."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_char_p, c_double, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tiny_bundle import textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.images.decode import read_picture
from anoco_edge.native import interface
from anoco_edge.native.library import check, load_library
from anoco_edge.pipeline.native import find_openvino
from anoco_edge.teaching import NewPicture, Teacher

Pixels = NDArray[np.uint8]


class EnrollOptions(interface.Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("product", c_char_p),
        ("names", ctypes.POINTER(c_char_p)),
    )


class Enrolled(interface.Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("added", c_int64),
        ("duplicates", c_int64),
        ("references", c_int64),
        ("patches", c_int64),
        ("generation", c_int64),
        ("threshold", c_double),
    )


class Controller:
    """A native detector of a bundle, which enrolls pictures."""

    def __init__(self, path: Path, backend: str = "openvino") -> None:
        self.library = load_library()
        engine = find_openvino() if backend == "openvino" else None
        if backend == "openvino" and engine is None:
            pytest.skip("OpenVINO is not installed")
        bundle, self._detector = c_void_p(), c_void_p()
        check(self.library, self.library.anoco_bundle_open(os.fsencode(path), bundle))
        options = interface.DetectorOptions(
            backend=backend.encode(), library=engine and os.fsencode(engine), threads=1
        )
        if products := Bundle.open(path).products():
            options.product = products[0].encode()
        try:
            status = self.library.anoco_detector_open(bundle, options, self._detector)
        finally:
            self.library.anoco_bundle_destroy(bundle)
        check(self.library, status)

    def close(self) -> None:
        self.library.anoco_detector_destroy(self._detector)

    def enroll(
        self,
        pictures: Sequence[Pixels],
        names: Sequence[str | bytes] | None = None,
        product: str | bytes | None = "part",
    ) -> Enrolled:
        """Enroll pictures through `anoco_enroll`, and raise the error that it reports."""
        found = Enrolled(added=-7, threshold=-7.0)
        check(self.library, self.status(pictures, names, product, found))
        return found

    def status(
        self,
        pictures: Sequence[Pixels],
        names: Sequence[str | bytes] | None,
        product: str | bytes | None,
        out: Enrolled | None,
    ) -> int:
        """Call `anoco_enroll` and return its status, as a C program receives it."""
        images = [image_of(p) for p in pictures]
        pointers = (ctypes.POINTER(interface.Image) * len(images))(
            *(ctypes.pointer(image) for image in images)
        )
        options = EnrollOptions(product=None if product is None else _bytes(product))
        if names is not None:
            options.names = (c_char_p * len(names))(*map(_bytes, names))
        call = self.library.anoco_enroll
        call.restype = c_int32
        given = None if out is None else ctypes.byref(out)
        done: int = call(
            self._detector, pointers, c_int64(len(images)), ctypes.byref(options), given
        )
        return done


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def image_of(pixels: Pixels) -> interface.Image:
    """Describe an array to the library: RGB, or grey if it has two dimensions.

    There may be gaps between its rows.
    """
    height, width = pixels.shape[:2]
    return interface.Image(
        format=interface.RGB if pixels.ndim == 3 else interface.GREY,
        data=pixels.ctypes.data,
        width=width,
        height=height,
        stride=pixels.strides[0],
    )


Open = Callable[..., Controller]


@pytest.fixture
def controller() -> Iterator[Open]:
    """Yield a function that opens a controller; all of them are closed after the test."""
    opened: list[Controller] = []

    def make(path: Path, backend: str = "openvino") -> Controller:
        opened.append(Controller(path, backend))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def python(path: Path) -> Teacher:
    return Teacher.open(path, "openvino", "native")


def frames(*seeds: int, size: tuple[int, int] = (96, 80)) -> list[Pixels]:
    return [textured_picture(seed, *size) for seed in seeds]


def names_of(count: int) -> list[str]:
    return [f"frame-{k + 1}.png" for k in range(count)]


def new_pictures(
    pictures: Sequence[Pixels], names: Sequence[str] | None = None
) -> list[NewPicture]:
    named = zip(names or names_of(len(pictures)), pictures, strict=True)
    return [NewPicture.from_array(name, rgb) for name, rgb in named]


def assert_same(ours: Path, theirs: Path, name: str = "part") -> Product:
    """Check that two bundles hold the same product, and return it.

    They may differ in how PNG files are compressed, and by rounding.
    """
    bundles = Bundle.open(ours), Bundle.open(theirs)
    for bundle in bundles:
        list(bundle.verify())
        assert bundle.strangers() == []
    one, other = (bundle.product(name) for bundle in bundles)
    assert _plain(one) == _plain(other)
    assert one.threshold.kind == other.threshold.kind
    assert (one.threshold.value or 0) == pytest.approx(other.threshold.value or 0, rel=1e-6)
    evidence, expected = (p.threshold.evidence.model_dump() for p in (one, other))
    assert list(evidence) == list(expected)
    for key, value in expected.items():
        assert evidence[key] == (pytest.approx(value, rel=1e-6) if key == "scores" else value)
    tensors, wanted = (
        load_file(bundle.product_folder(name) / bundle.product(name).bank.path)  # type: ignore[union-attr]
        for bundle in bundles
    )
    assert list(tensors) == list(wanted)
    for key, tensor in wanted.items():
        assert tensors[key].dtype == tensor.dtype and tensors[key].shape == tensor.shape
        rounding = 1e-7 if key == "norms" else 0
        np.testing.assert_allclose(tensors[key], tensor, rtol=rounding, err_msg=key)
    for reference, same in zip(one.references, other.references, strict=True):
        files = [
            bundle.product_folder(name) / r.file.path
            for bundle, r in zip(bundles, (reference, same), strict=True)
        ]
        np.testing.assert_array_equal(read_picture(files[0]), read_picture(files[1]))
    query = textured_picture(77, one.references[0].width, one.references[0].height)
    scores = [Detector.open(path, name, "openvino").inspect(query).score for path in (ours, theirs)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    return one


def _plain(product: Product) -> dict[str, Any]:
    """Return the fields of a product that must be equal.

    It leaves out times, hashes of files that may be compressed differently, numbers that rounding
    changes, and the limits of picture quality, which the library keeps and does not learn.
    """
    left_out = {"checksum", "changed", "threshold", "bank", "picture_limits"}
    fields = product.model_dump(exclude=left_out)
    for reference in fields["references"]:
        reference["file"] = reference["file"]["path"].split("/")[0]
    return fields
