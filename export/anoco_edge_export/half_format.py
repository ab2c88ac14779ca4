"""The two 16-bit number formats that a graph can be typed in: FP16 and BF16.

FP16 has 11 significant bits and ends at 65504. BF16 has 8 significant bits and the range of FP32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anoco_edge_export.lazy_import import lazy_import

HalfPrecision = Literal["fp16", "bf16"]


@dataclass(frozen=True)
class HalfFormat:
    """A 16-bit format: its names, the number that TensorProto gives it, and its range.

    >>> BF16.title, BF16.largest > 1e38, BF16.tensor
    ('BF16', True, 'tensor(bfloat16)')
    """

    name: HalfPrecision
    kind: int
    tensor: str
    """The format as the definitions of ONNX operators write it."""
    largest: float
    tiny: float
    """The smallest number above 0 that is not subnormal."""

    @property
    def title(self) -> str:
        return self.name.upper()

    @property
    def dtype(self) -> Any:
        """NumPy's type; that of BF16 comes with onnx, which is imported late."""
        return lazy_import("onnx").helper.tensor_dtype_to_np_dtype(self.kind)


FP16_MAX = 65504.0
FP16 = HalfFormat("fp16", 10, "tensor(float16)", FP16_MAX, 2.0**-14)
BF16 = HalfFormat("bf16", 16, "tensor(bfloat16)", (2 - 2.0**-7) * 2.0**127, 2.0**-126)
HALF_FORMATS: Mapping[str, HalfFormat] = {half.name: half for half in (FP16, BF16)}


def half_format(graph: Any) -> HalfFormat | None:
    """Return the 16-bit format that weights of the graph have, or None."""
    kinds = {tensor.data_type for tensor in graph.graph.initializer}
    return next((half for half in HALF_FORMATS.values() if half.kind in kinds), None)
