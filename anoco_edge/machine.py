"""Read from Linux what machine this is and how much memory this process uses."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

from anoco_edge import __version__

_STATUS = Path("/proc/self/status")
_MEMINFO = Path("/proc/meminfo")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def cpu_model() -> str:
    """Return the name of the processor, or of the board on ARM, where /proc/cpuinfo has none.

    >>> cpu_model() != ""
    True
    """
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    board = "".join(_lines(Path("/proc/device-tree/model"))).strip("\0 ")
    return board or platform.processor() or platform.machine()


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets of the processor by the names that the kernel gives them.

    >>> cpu_flags() != frozenset()
    True
    """
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):  # x86, ARM
            return frozenset(words.split())
    return frozenset()


def is_jetson(root: Path = Path("/")) -> bool:
    """Whether this is a Jetson, also seen from a container that lacks the board's release file.

    >>> is_jetson(Path("/no such folder"))
    False
    """
    compatible = root / "proc/device-tree/compatible"
    return (root / "etc/nv_tegra_release").exists() or "tegra" in "".join(_lines(compatible))


def share_malloc_arenas(most: int = 2) -> bool:
    """Let all threads of this process take memory from at most this many arenas of glibc's malloc.

    By itself glibc gives each thread an arena and keeps what was freed in it, so a process with
    many threads that each use memory now and then grows for hours. It says False where the C
    library is another one. Arenas that are there already stay.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    return set_option is not None and bool(set_option(_ARENA_MAX, most))


def cores() -> int:
    """Return the number of processor cores that this process may use.

    A container may limit it.


    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0))


def total_memory_mb() -> float:
    """Return the size of the machine's memory in MB (10^6 bytes).

    >>> total_memory_mb() > 16
    True
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6


def available_memory_mb() -> float:
    """Return how many MB can be allocated without swapping.

    This is the whole memory of the machine if the kernel does not report it.


    >>> available_memory_mb() > 1
    True
    """
    for line in _lines(_MEMINFO):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 / 1e6
    return total_memory_mb()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of this package, of Python and of those `packages` that are installed.

    The versions are found without importing the packages.


    >>> sorted(versions(["numpy", "no-such-package"]))
    ['anoco-edge', 'numpy', 'python']
    """
    found = {"anoco-edge": __version__, "python": platform.python_version()}
    for package in packages:
        installed = package_version(package)
        if installed is not None:
            found[package] = installed
    return found


def package_version(package: str) -> str | None:
    """Return the version in a package's metadata, or None when it is not installed.

    >>> package_version("no-such-package") is None
    True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class MachineFacts(TypedDict):
    """The facts about a machine that its measured figures depend on."""

    cpu: str
    machine: str
    cores: int
    memory_mb: int


def machine() -> MachineFacts:
    """Return processor, cores and memory, for the settings of a report.

    >>> sorted(machine())
    ['cores', 'cpu', 'machine', 'memory_mb']
    """
    return {
        "cpu": cpu_model(),
        "machine": platform.machine(),
        "cores": cores(),
        "memory_mb": round(total_memory_mb()),
    }


def resident_mb() -> float:
    """Return the resident memory of this process in MB.

    >>> 1 < resident_mb() < total_memory_mb()
    True
    """
    found = _status_mb("VmRSS")
    return found if found is not None else _ru_maxrss_mb()


def peak_mb() -> float:
    """Return the most MB that this process held since its start or since `reset_peak`.

    >>> peak_mb() > 1
    True
    """
    found = _status_mb("VmHWM")
    return found if found is not None else _ru_maxrss_mb()


def reset_peak() -> bool:
    """Reset the peak that `peak_mb` returns; return False if the kernel does not allow it.

    >>> isinstance(reset_peak(), bool)
    True
    """
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def give_back_memory() -> None:
    """Give freed memory back to the system before a measurement.

    Otherwise, a measured call could reuse that memory, and it would not be counted.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
    if trim is not None:
        trim(0)


def cache_folder() -> Path:
    """Return the folder for files that are valid on this machine only, such as TensorRT plans.

    >>> cache_folder().name
    'anoco-edge'
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "anoco-edge"


def _status_mb(field: str) -> float | None:
    for line in _lines(_STATUS):
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6  # a kB of the kernel is 1024 bytes
    return None


def _ru_maxrss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
