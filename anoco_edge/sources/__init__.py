"""Where frames come from: pictures, folders, globs, videos, cameras and network streams.

Every source yields the same `Frame`, one way: a source is read once, and a second `for` over it
goes on where the first one stopped (so the first K frames can be taken as references).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol

from anoco_edge.errors import UsageError
from anoco_edge.images.frame import Frame

__all__ = ["Frame", "Source", "open_source"]


class Source(Protocol):
    """What `open_source` gives back; use it in a `with`, or call `close()`."""

    @property
    def name(self) -> str:
        """What is being read, for people."""

    @property
    def live(self) -> bool:
        """True when frames come by themselves and the newest is taken."""

    @property
    def total(self) -> int | None:
        """How many frames will come, where that is known."""

    @property
    def skipped(self) -> int:
        """Frames that a live source delivered and nobody took."""

    @property
    def ignored(self) -> int:
        """Files in folders and globs that are no pictures and were left out."""

    def __iter__(self) -> Iterator[Frame]:
        """The frames; goes on where an earlier iteration stopped."""

    def close(self) -> None:
        """Stop and let go of the device; may be called twice, and from another thread."""

    def __enter__(self) -> Source: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_source(
    inputs: Sequence[str],
    *,
    camera: int | str | None = None,
    limit: int | None = None,
    timeout: float = 10.0,
) -> Source:
    """The frames of `inputs`, or of a camera; at most `limit`.

    An input is a picture, a folder, a glob, a video or the address of a stream. A camera is an
    index, a device such as /dev/video0, an address or a GStreamer pipeline. A live source that
    sends nothing for `timeout` seconds raises SourceError.

    >>> import tempfile; from pathlib import Path; from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for n in (10, 9):
    ...         Image.new("L", (32, 24)).save(Path(folder, f"part{n}.png"))
    ...     with open_source([folder]) as source:
    ...         source.total, [Path(frame.source).name for frame in source]
    (2, ['part9.png', 'part10.png'])
    """
    from anoco_edge.sources import files, stream
    from anoco_edge.text.address import mask_address

    if isinstance(inputs, str):
        inputs = [inputs]
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} frames reads nothing", hint="give 1 or more")
    if not timeout > 0:
        raise UsageError(f"a timeout of {timeout} s is none", hint="give seconds, more than 0")
    if camera is not None:
        if inputs:
            raise UsageError(
                f"a camera and {inputs[0]} cannot be read at once", hint="give one or the other"
            )
        return stream.open_camera(camera, limit=limit, timeout=timeout)
    addresses = [text for text in inputs if stream.is_address(text)]
    if addresses and len(inputs) > 1:
        raise UsageError(
            f"{mask_address(addresses[0])} is a live source and must stand alone",
            hint="run once for each stream",
        )
    if addresses:
        return stream.open_address(addresses[0], limit=limit, timeout=timeout)
    return files.FileSource(inputs, limit=limit)
