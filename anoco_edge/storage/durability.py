"""Report a change that was made although the disk did not confirm that it stored it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NOT_DURABLE = "the change is committed but may not survive a power cut: run sync, check the disk"


class NotDurableError(OSError):
    """The rename that commits a change succeeded, but the sync after it failed."""


@contextmanager
def committed() -> Iterator[None]:
    """Turn an OSError inside the block into a NotDurableError.

    The block follows the rename that commits a change, so a failure inside it does not undo the
    change.


    >>> with committed():
    ...     raise OSError(5, "Input/output error")
    Traceback (most recent call last):
        ...
    anoco_edge.storage.durability.NotDurableError: [Errno 5] Input/output error
    """
    try:
        yield
    except OSError as error:
        raise NotDurableError(error.errno, error.strerror) from None
