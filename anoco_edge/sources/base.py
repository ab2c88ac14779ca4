"""What every source has in common: the protocol, and closing it at the end of a `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, TypeVar

from anoco_edge.images.frame import Frame

_Self = TypeVar("_Self", bound="Closeable")


class Source(Protocol):
    """The source of frames that `open_source` returns; use it in a `with`, or call `close()`."""

    @property
    def name(self) -> str:
        """The name of what is being read, for people."""

    @property
    def live(self) -> bool:
        """True when frames come by themselves and the newest is taken."""

    @property
    def total(self) -> int | None:
        """The number of frames that will come, if it is known."""

    @property
    def skipped(self) -> int:
        """The number of frames that a live source delivered and nobody took."""

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames; goes on where an earlier iteration stopped."""

    def close(self) -> None:
        """Stop and release the device; may be called twice, and from another thread."""

    def __enter__(self) -> Source: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Closeable(ABC):
    """Something that holds a file, a device or a thread, and releases it at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; may be called twice."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
