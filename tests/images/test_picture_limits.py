"""Python and the C interface accept exactly the same pictures."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import MAX_PIXELS, MAX_SIDE, MIN_SIDE, check_size
from anoco_edge.native.interface import BankOptions, Image, ScorerOptions, Struct

OK, INVALID_ARGUMENT, BAD_PICTURE = 0, 1, 9
FEATURES = np.eye(4, 8, dtype=np.float32)


class Input(Struct):
    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("fit", ctypes.c_uint32),
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("fill", ctypes.c_uint8 * 4),
        ("stride", ctypes.c_uint32),
    )


@pytest.fixture(scope="module")
def library(native_library: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(native_library))
    library.anoco_last_error.restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="module")
def room() -> np.ndarray:
    """Reserve the memory that a picture of MAX_PIXELS may need; it is never touched."""
    return np.empty(3 * MAX_PIXELS + 2**20, np.uint8)


@pytest.mark.parametrize(
    ("width", "height", "says"),
    [
        (MIN_SIDE, MIN_SIDE, ""),
        (MIN_SIDE - 1, 100, "too small to inspect"),
        (100, MIN_SIDE - 1, "too small to inspect"),
        (1, 1, f"at least {MIN_SIDE} pixels on each side"),
        (0, 0, "too small to inspect"),
        (MAX_SIDE, MIN_SIDE, ""),
        (MAX_SIDE + 1, MIN_SIDE, f"at most {MAX_SIDE} on a side are read"),
        (10_000, 10_001, "at most 100 million are read"),
    ],
)
def test_python_and_the_library_accept_the_same_sizes(
    library: ctypes.CDLL, room: np.ndarray, width: int, height: int, says: str
) -> None:
    image = Image(format=1, data=room.ctypes.data, width=width, height=height)
    target, out = Input(width=16, height=16, stride=16), (ctypes.c_uint8 * 768)()
    status = library.anoco_preprocess(ctypes.byref(image), ctypes.byref(target), out, None)
    if not says:
        assert status == OK
        check_size(width, height, "picture")
        return
    assert status == BAD_PICTURE and says in library.anoco_last_error().decode()
    with pytest.raises(PictureError) as caught:
        check_size(width, height, "picture")
    assert says in str(caught.value)


def test_reserved_fields_of_what_is_given_are_zero(library: ctypes.CDLL, room: np.ndarray) -> None:
    def refused(name: str, *arguments: object) -> None:
        given = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in arguments]
        assert getattr(library, name)(*given) == INVALID_ARGUMENT
        assert b"reserved field is 1: fill structs with their INIT macro" in (
            library.anoco_last_error()
        )

    image = Image(format=1, data=room.ctypes.data, width=32, height=32)
    target, out = Input(width=16, height=16, stride=16), (ctypes.c_uint8 * 768)()
    assert library.anoco_preprocess(ctypes.byref(image), ctypes.byref(target), out, None) == OK
    image.reserved = 1
    refused("anoco_preprocess", image, target, out, None)
    image.reserved = 0
    target.fill[3] = 1
    refused("anoco_preprocess", image, target, out, None)

    bank = BankOptions(type=1, features=FEATURES.ctypes.data, rows=4, dim=8, directions=-1)
    options = ScorerOptions(lam=1.0, floor=0.05, threads=1, reserved=1)
    query, energy = FEATURES.ctypes.data, (ctypes.c_float * 4)()
    arguments = (ctypes.c_void_p(query), ctypes.c_int64(4), energy, None, None, None)
    refused("anoco_score_patches", bank, options, *arguments)
    options.reserved = 0
    score = library.anoco_score_patches
    assert score(ctypes.byref(bank), ctypes.byref(options), *arguments) == OK
