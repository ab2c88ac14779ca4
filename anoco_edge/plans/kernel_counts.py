"""Reads from the log of a build which kernels TensorRT-RTX made of a graph.

A builder that is asked for details logs every kernel of the engine in one verbose message, as its
inspector prints them. Names tell what a kernel does: `_gemm_mha_v2` is a whole attention block (two
products and the softmax between them), `__myl_CastTran` casts and transposes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from anoco_edge.bundle.parity_report import KernelCounts

_LISTING = "Layers:\n"
_ATTENTION = re.compile(r"_mha(_|$)")
_GENERATED = re.compile(r"__myl_((?:[A-Z][a-z]*)+)_myl")
# What the names of generated kernels call operations that only move or cast numbers.
_MOVES = frozenset({"Cast", "Conc", "Move", "Repl", "Resh", "Slic", "Squz", "Tran"})
_EVENTS = frozenset({"signal", "wait"})  # streams wait for each other; these are not kernels
_MEMORY = re.compile(r"Total Activation Memory: (\d+) bytes")


def read_kernel_counts(log: Iterable[str]) -> KernelCounts | None:
    """Count the kernels that the messages of a build list; None where they list none.

    >>> kernels = ["__myl_CastTran_myl0_0", "node_linear_myl0_1", "_gemm_mha_v2_myl0_2"]
    >>> listing = "Layers:\\n" + "\\n".join(f"Name: {k}, LayerType: kgen" for k in kernels)
    >>> read_kernel_counts(["Total Activation Memory: 512 bytes", listing])
    KernelCounts(fused=1, kernels=3, copies=1, activation_bytes=512)
    """
    names: list[str] | None = None
    memory = 0
    for message in log:
        if message.startswith(_LISTING):
            kernels, _, _ = message.partition("\n\n")  # inputs and outputs of the engine follow
            listed = re.findall(r"^Name: ([^,\n]+), LayerType: (\w+)", kernels, re.MULTILINE)
            names = [name for name, kind in listed if kind not in _EVENTS]
        elif found := _MEMORY.search(message):
            memory = int(found[1])
    if names is None:
        return None
    return KernelCounts(
        fused=sum(bool(_ATTENTION.search(name)) for name in names),
        kernels=len(names),
        copies=sum(_only_moves(name) for name in names),
        activation_bytes=memory,
    )


def _only_moves(name: str) -> bool:
    generated = _GENERATED.match(name)
    return generated is not None and set(re.findall("[A-Z][a-z]*", generated[1])) <= _MOVES
