"""What stays in memory after the last reference to an object is dropped."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable


def lives_without(make: Callable[[], object]) -> bool:
    """Return whether what `make` makes still lives when nobody holds it.

    A cycle of references keeps it until the garbage collector comes, with its bank and its device.

    >>> lives_without(set)
    False
    """
    gc.collect()
    gc.disable()
    try:
        held = make()
        looked = weakref.ref(held)
        del held
        return looked() is not None
    finally:
        gc.enable()
