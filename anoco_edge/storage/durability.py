"""A change that was made, but of which the disk did not say that it has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NOT_DURABLE = "the change is committed but may not survive a power cut: run sync, check the disk"


class NotDurableError(OSError):
    """The rename that commits a change was made, and the sync after it failed."""


@contextmanager
def committed() -> Iterator[None]:
    """From here on the change counts: what fails now does not undo it.

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
