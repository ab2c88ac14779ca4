"""Arrays on a GPU are read as other libraries present them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from anoco_edge.errors import UsageError
from anoco_edge.scoring.device_array import DeviceArray, device_array, on_device


def shown(**changes: Any) -> Any:
    """Present an array as torch or cupy does."""
    interface = {"version": 3, "shape": (4, 8), "typestr": "<f4", "data": (4096, False)}
    return SimpleNamespace(__cuda_array_interface__={**interface, **changes})


def test_what_another_library_shows_is_read() -> None:
    value = shown(stream=7, typestr="<f2")
    found = device_array(value)
    assert (found.pointer, found.shape, found.dtype) == (4096, (4, 8), np.float16)
    assert found.stream == 7 and found.owner is value and found.nbytes == 64
    again = device_array(SimpleNamespace(__cuda_array_interface__=found.__cuda_array_interface__))
    assert again == found
    assert on_device(value) and on_device(found) and not on_device([1.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"typestr": "<f8"}, "is float64; make it float32"),
        ({"typestr": ">f4"}, "is >f4; make it float32"),
        ({"typestr": "<i4"}, "is int32; make it float32"),
        ({"strides": (64, 8)}, "has gaps"),
        ({"strides": (4, 16)}, "has gaps"),  # transposed
        ({"mask": object()}, "has gaps"),
        ({"data": (0, False)}, "has no memory"),
    ],
)
def test_what_we_cannot_read_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        device_array(shown(**changes))


@given(
    array=arrays.arrays(np.float32, arrays.array_shapes(max_dims=3, max_side=4)),
    step=st.sampled_from([1, 2, -1]),
    order=st.sampled_from(["C", "F"]),
)
def test_contiguous_is_what_numpy_calls_so(array: Any, step: int, order: Any) -> None:
    seen = np.asarray(array, order=order)[..., ::step]
    host = seen.__array_interface__
    value = shown(shape=host["shape"], data=host["data"], strides=seen.strides)
    if seen.flags.c_contiguous:
        assert device_array(value).nbytes == seen.nbytes
    else:
        with pytest.raises(UsageError, match="has gaps"):
            device_array(value)


def test_one_entry_of_several() -> None:
    array = DeviceArray(4096, (3, 16, 8), np.dtype(np.float16), 5, "owner")
    assert [one.pointer for one in (array[k] for k in range(3))] == [4096, 4352, 4608]
    assert (array[2].shape, array[2].stream, array[2].owner) == ((16, 8), 5, "owner")
    assert len(array) == 3
    for wrong in (3, -1):
        with pytest.raises(IndexError):
            array[wrong]
