"""In which precision the GPU multiplies features, by the precision of the backbone."""

from __future__ import annotations


def half_operands(precision: str) -> bool:
    """Whether features of a backbone in this precision are multiplied as FP16 numbers.

    Features of FP16 and INT8 backbones carry no more digits than FP16 has, and the tensor cores
    multiply FP16 numbers several times faster than FP32. Sums are FP32 in any case. A BF16 backbone
    is chosen for its range, which FP16 has not.

    >>> [name for name in ("fp32", "fp16", "bf16", "int8") if half_operands(name)]
    ['fp16', 'int8']
    """
    return precision in ("fp16", "int8")
