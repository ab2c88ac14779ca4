"""How many blocks of a kernel a multiprocessor runs at the same time, by what each block takes.

The limits are those of the CUDA programming guide ("Technical specifications per compute
capability"), and the units in which registers and shared memory are given out.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 256  # threads of every block, see ANOCO_GPU_BLOCK
_WARP = 32
_REGISTERS = 65536
_REGISTER_UNIT = 256  # registers of a warp come in so many
_SHARED_UNIT = 128


@dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor has: warps, kilobytes of shared memory, and those a block costs."""

    warps: int
    shared: int
    reserved: int = 1


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(32, 64, reserved=0),
    "sm_80": Multiprocessor(64, 164),
    "sm_86": Multiprocessor(48, 100),
    "sm_87": Multiprocessor(48, 164),
    "sm_89": Multiprocessor(48, 100),
    "sm_90": Multiprocessor(64, 228),
    "sm_100": Multiprocessor(64, 228),
    "sm_110": Multiprocessor(48, 228),
    "sm_120": Multiprocessor(48, 100),
}


def occupancy(target: str, registers: int, shared: int) -> float:
    """Return the share of a multiprocessor's warps that run at the same time, from 0 to 1.

    >>> occupancy("sm_87", registers=128, shared=49152)  # 16 of 48 warps
    0.3333333333333333
    """
    has = MULTIPROCESSORS[target]
    warps = BLOCK // _WARP
    taken = warps * _up(registers * _WARP, _REGISTER_UNIT)
    memory = _up(shared, _SHARED_UNIT) + 1024 * has.reserved
    blocks = min(has.warps // warps, _REGISTERS // taken)
    if memory > 0:
        blocks = min(blocks, 1024 * has.shared // memory)
    return blocks * warps / has.warps


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
