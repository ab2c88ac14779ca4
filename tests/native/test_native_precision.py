"""The native library chooses the processor's precision as Python does."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from native_controller import Controller
from tiny_bundle import textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.engines import CpuPrecision, EngineSettings
from anoco_edge.engines.cpu_precision import VARIABLE, why_not_here
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.native import interface
from anoco_edge.native.handles import WarningLog, open_bundle, open_detector
from anoco_edge.native.library import check, load_library
from anoco_edge.pipeline.native import find_openvino
from anoco_edge.teaching import NewPicture, Teacher

pytestmark = [pytest.mark.xdist_group("native"), pytest.mark.usefixtures("use_native")]
needs_bf16 = pytest.mark.skipif(bool(why_not_here("bf16")), reason=why_not_here("bf16"))
PICTURE = textured_picture(3, 96, 80)


def opened(
    bundle: Bundle, product: str, precision: CpuPrecision = "auto", runtime: str = "native"
) -> Detector:
    settings = EngineSettings(threads=1, cpu_precision=precision)
    return Detector.open(bundle, product, "openvino", runtime=runtime, settings=settings)  # type: ignore[arg-type]


@pytest.fixture
def two_products(tiny_bundle: Bundle) -> Iterator[Bundle]:
    """A bundle with a product that was taught in FP32, and one that was taught in BF16."""
    pictures = [NewPicture.from_array(f"{k}", textured_picture(k, 96, 80)) for k in (1, 2)]
    for precision in ("fp32", "bf16"):
        settings = EngineSettings(cpu_precision=precision)
        Teacher.open(tiny_bundle, "openvino", settings=settings).enroll(pictures, precision)
    yield tiny_bundle


@needs_bf16
@pytest.mark.parametrize("product", ["fp32", "bf16"])
@pytest.mark.parametrize("asked", ["auto", "fp32", "bf16"])
def test_both_runtimes_compute_and_say_the_same(
    two_products: Bundle, product: str, asked: CpuPrecision
) -> None:
    native, python = (
        opened(two_products, product, asked, runtime) for runtime in ("native", "python")
    )
    assert native.choices["cpu_precision"] == python.choices["cpu_precision"]
    assert native.remarks == python.remarks
    assert bool(native.remarks) == (asked not in ("auto", product))
    first, second = native.inspect(PICTURE), python.inspect(PICTURE)
    np.testing.assert_allclose(first.energy, second.energy, rtol=1e-4, atol=1e-6)
    assert first.cpu_precision == second.cpu_precision == (product if asked == "auto" else asked)


@needs_bf16
def test_the_precisions_differ(two_products: Bundle) -> None:
    scores = {
        opened(two_products, "fp32", asked).inspect(PICTURE).score for asked in ("fp32", "bf16")
    }
    assert len(scores) == 2


def test_what_is_not_there_is_an_error(tiny_bundle: Bundle) -> None:
    pictures = [NewPicture.from_array("1", textured_picture(1, 96, 80))]
    Teacher.open(tiny_bundle).enroll(pictures, "part")
    with pytest.raises(BundleError, match=r"INT8 was asked for, and the graph .* is FP32"):
        opened(tiny_bundle, "part", "int8")
    with pytest.raises(UsageError, match=r"cpu_precision is 'half'"):
        opened(tiny_bundle, "part", "half")  # type: ignore[arg-type]


@needs_bf16
def test_a_product_that_the_library_teaches_records_it(
    tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tiny_bundle.path)
    controller.enroll([PICTURE], product="kept")
    controller.close()
    assert tiny_bundle.product("kept").cpu_precision is None, VARIABLE
    monkeypatch.delenv(VARIABLE)
    empty = Controller(_without_products(tiny_bundle))
    empty.enroll([PICTURE], product="new")
    empty.close()
    assert tiny_bundle.product("new").cpu_precision == "bf16"


def _without_products(bundle: Bundle) -> Path:
    import shutil

    shutil.rmtree(bundle.path / "products")
    return bundle.path


@needs_bf16
def test_a_change_to_a_product_of_another_precision_is_said(two_products: Bundle) -> None:
    library, log = load_library(), WarningLog()
    found = find_openvino()
    options = interface.DetectorOptions(
        product=b"fp32", library=found and os.fsencode(found), threads=1, log=log.function
    )
    detector = open_detector(library, open_bundle(library, two_products.path), options, log)
    info = interface.DetectorInfo()
    check(library, library.anoco_detector_describe(detector.value, ctypes.byref(info)))
    assert (info.cpu_precision, info.cpu_precision_reason) == (
        b"fp32",
        b"the product was taught in it",
    )
    assert log.warnings == []
    check(library, library.anoco_detector_select(detector.value, b"bf16"))
    (said,) = log.warnings
    assert "product 'bf16' was taught in BF16 and is judged in FP32" in said
