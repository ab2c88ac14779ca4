"""One rule for the whole process: no graph is captured while something concerns the whole GPU.

A call that waits for the whole GPU (making or freeing memory, a context of TensorRT, a handle of
cuBLAS) makes CUDA give up the captures of all threads. Such calls therefore hold `device_wide`, and
a capture begins only if nobody holds it. A capture does not wait: a frame is waiting for it, and
the next frame can try again. The native library has the same rule for what it does itself; where it
offers its lock (`anoco_cuda_lock`), that is held as well.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from anoco_edge.errors import AnocoError
from anoco_edge.native.library import load_library

_CHANGE, _CAPTURE = 1, 2  # ANOCO_CUDA_CHANGE and ANOCO_CUDA_CAPTURE of anoco_cuda.h


class _Rule:
    """The lock, which one thread may take twice: a collection can free one engine in another.

    The library's own lock may not be nested, so it is taken by the outermost `with` alone.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def hold(self, kind: int, *, wait: bool) -> Iterator[bool]:
        if not self._lock.acquire(blocking=wait):
            yield False
            return
        try:
            library = _native() if self._depth == 0 else None
            if library is not None:
                library.anoco_cuda_lock(kind)
            self._depth += 1
            try:
                yield True
            finally:
                self._depth -= 1
                if library is not None:
                    library.anoco_cuda_unlock(kind)
        finally:
            self._lock.release()


_RULE = _Rule()


@contextmanager
def device_wide() -> Iterator[None]:
    """Hold off captures for a `with` that makes or frees something on the GPU.

    >>> with device_wide(), device_wide():
    ...     print("nobody captures")
    nobody captures
    """
    with _RULE.hold(_CHANGE, wait=True):
        yield


@contextmanager
def capture_if_free() -> Iterator[bool]:
    """Say whether a graph may be captured in this `with`; nothing is freed meanwhile.

    >>> with capture_if_free() as free:
    ...     free
    True
    """
    with _RULE.hold(_CAPTURE, wait=False) as free:
        collects = free and gc.isenabled()
        if collects:
            gc.disable()  # a collection in this thread could free what another engine left
        try:
            yield free
        finally:
            if collects:
                gc.enable()


def _native() -> ctypes.CDLL | None:
    """The native library if it takes part in the rule; one that is not there captures nothing."""
    try:
        library = load_library()
    except AnocoError:
        return None
    return library if hasattr(library, "anoco_cuda_lock") else None
