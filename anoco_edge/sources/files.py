"""Reads pictures, folders and globs of pictures, and video files, in natural order."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from anoco_edge.errors import AnocoError, PictureError, SourceError, UsageError
from anoco_edge.images.decode import PICTURE_SUFFIXES, read_picture
from anoco_edge.images.frame import Frame
from anoco_edge.sources import av_reader
from anoco_edge.sources.base import Closeable
from anoco_edge.sources.live import make_frame
from anoco_edge.sources.reader import FrameSizeCheck, StreamEndedError

_RESULTS = frozenset({"results.jsonl", "unfinished.jsonl"})
_MAX_FRAMES = 10**8  # 38 days at 30 frames per second; containers that state more are wrong

VIDEO_SUFFIXES = frozenset(
    {".avi", ".mp4", ".m4v", ".mkv", ".mov", ".webm", ".mjpeg", ".mjpg", ".mpg", ".mpeg", ".ts"}
    | {".m2ts", ".wmv", ".flv", ".ogv", ".3gp", ".h264", ".264", ".h265", ".hevc"}
)


def open_source(inputs: Sequence[str], *, limit: int | None, timeout: float) -> FileSource:
    """Open pictures and videos; `timeout` does not concern files."""
    return FileSource(inputs, limit=limit)


def natural_key(path: str) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """Make a sort key that reads digits as numbers, folder by folder.

    >>> sorted(["b/1.png", "a10.png", "a9.png"], key=natural_key)
    ['a9.png', 'a10.png', 'b/1.png']
    """
    return tuple(
        # (0, number, digits) sorts before (1, 0, text), so a number is never compared with a text.
        tuple(
            (0, int(run), run) if run.isdecimal() else (1, 0, run)
            for run in re.findall(r"\d+|\D+", part)
        )
        for part in (*Path(path.casefold()).parts, path)
    )


def find_files(inputs: Sequence[str]) -> list[str]:
    """Find the pictures and videos that the inputs name.

    >>> find_files(["nothing-here-*.png"])
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: no file fits nothing-here-*.png; check the pattern...
    """
    if not inputs:
        raise UsageError(
            "nothing to read", hint="name pictures, a folder, a video, an address or a camera"
        )
    return [path for text in inputs for path in _expand(text)]


def find_pictures(inputs: Sequence[str], hint: str) -> list[str]:
    """Find pictures, where a video is of no use; `hint` says what to do with a video."""
    paths = find_files(inputs)
    for path in filter(is_video, paths):
        raise UsageError(f"{path} is a video", hint=hint)
    return paths


class FileSource(Closeable):
    """Yields pictures and videos one after the other; one that cannot be read is a frame, too.

    A video that cannot be opened is an error at once, before anything is read. A video that ends
    early is an error after everything else was delivered, so that no frame is lost by it.
    """

    live = False
    skipped = 0

    def __init__(self, inputs: Sequence[str], *, limit: int | None = None) -> None:
        self._paths = find_files(inputs)
        self.name = inputs[0] if len(inputs) == 1 else f"{inputs[0]} and {len(inputs) - 1} more"
        counts = [video_length(p) if is_video(p) else 1 for p in self._paths]
        known = [count for count in counts if count is not None]
        total = sum(known) if len(known) == len(counts) else None
        self.total = total if total is None or limit is None else min(total, limit)
        self._limit = limit
        self._closed = False
        self._frames = self._read()

    def __iter__(self) -> Iterator[Frame]:
        return self._frames

    def close(self) -> None:
        """Stop, and close an open video."""
        self._closed = True
        with suppress(ValueError):  # another thread is reading; it stops when it sees the flag
            self._frames.close()

    def _read(self) -> Generator[Frame, None, None]:
        index = 0
        ended_early: SourceError | None = None
        for path in self._paths:
            try:
                for frame in self._frames_of(path, index):
                    if self._closed:
                        return
                    yield frame
                    index += 1
                    if index == self._limit:
                        return
            except SourceError as exc:
                ended_early = ended_early or exc
        if ended_early is not None:
            raise ended_early

    @staticmethod
    def _frames_of(path: str, index: int) -> Iterator[Frame]:
        if is_video(path):
            yield from video_frames(path, index)
        else:
            yield picture_frame(path, index)


def is_video(path: str) -> bool:
    """Whether the name ends as that of a video does.

    >>> is_video("line3.MP4"), is_video("line3.png")
    (True, False)
    """
    return Path(path).suffix.lower() in VIDEO_SUFFIXES


def open_video(path: str) -> av_reader.AvReader:
    """Open a video file, which must be a regular file."""
    # Absolute, because FFmpeg takes the "12:" of a file 12:30.avi for the name of a protocol.
    place = Path(path).absolute()
    try:
        mode = place.stat().st_mode
    except (OSError, ValueError) as exc:
        raise PictureError(f"{path} cannot be opened: {exc}", hint="check the path") from None
    # Opening a pipe would wait until something writes to it, which may be never.
    if not stat.S_ISREG(mode):
        raise PictureError(f"{path} is not a regular file", hint="name a video file")
    if not os.access(place, os.R_OK):
        raise PictureError(
            f"{path} may not be read (permission denied)", hint="allow it (chmod +r)"
        )
    return av_reader.open_video(path, str(place))


def video_length(path: str) -> int | None:
    """Read how many frames a video file says it has; None if it does not say."""
    reader = open_video(path)
    try:
        return _stated_length(reader)
    finally:
        reader.close()


def video_frames(path: str, index: int) -> Iterator[Frame]:
    """Yield every frame of a video, numbered from `index` on; SourceError if it ends early."""
    reader = open_video(path)
    size = FrameSizeCheck()
    count = 0
    try:
        stated = _stated_length(reader)
        with suppress(StreamEndedError):
            while True:
                source = f"{path}#{count}"
                received = reader.read(source)
                yield make_frame(source, index + count, received, size)
                count += 1
        early = stated is not None and _ended_early(
            count, stated, reader.shown_ms, reader.frame_rate
        )
        if count == 0 or early:
            of = "" if stated is None else f" of {stated}"
            raise SourceError(
                f"video {path} ended after {count}{of} frames",
                hint="the file is damaged or incomplete: copy or record it again",
            )
    finally:
        reader.close()


def _stated_length(reader: av_reader.AvReader) -> int | None:
    count = round(reader.stated_length)
    return count if 0 < count < _MAX_FRAMES else None


def _ended_early(count: int, stated: int, shown_ms: float, fps: float) -> bool:
    """Whether there are fewer frames than stated, by more than containers usually miscount.

    Where the length is only estimated from the duration (Matroska, uneven frame rates) the count
    may be far off although no frame is missing. Then the time of the last frame decides.
    """
    few = max(3, stated // 50)
    if count >= stated - few:
        return False
    return not (fps > 0 and shown_ms >= (stated - few) / fps * 1e3)


def picture_frame(path: str, index: int) -> Frame:
    """Read a picture as a frame; one that cannot be read gives a frame with the error."""
    captured = time.monotonic()
    rgb, error = None, None
    try:
        rgb = read_picture(path)
    except AnocoError as exc:
        error = exc
    return Frame(path, index, rgb, error, (time.monotonic() - captured) * 1e3, captured)


def _expand(text: str) -> list[str]:
    try:
        mode = Path(text).stat().st_mode
    except PermissionError:
        raise PictureError(
            f"{text} may not be read (permission denied)", hint="check the folders above it"
        ) from None
    except (OSError, ValueError):
        return _expand_glob(text)
    if stat.S_ISDIR(mode):
        return _expand_folder(text)
    if stat.S_ISCHR(mode):
        raise UsageError(f"{text} is a device, not a file", hint=f"use `camera='{text}'`")
    if not stat.S_ISREG(mode):  # opening a pipe would wait until something writes to it
        raise UsageError(f"{text} is not a regular file", hint="name a picture or a video file")
    return [text]  # a file that is named is read whatever its suffix is


def _expand_folder(folder: str) -> list[str]:
    files = list(_walk(folder))
    found = [path for path in files if _is_picture(path)]
    if not found:
        others = len(files)
        raise UsageError(
            f"no pictures in {folder}" + (f" ({others} other files)" if others else ""),
            hint=f"pictures end in {', '.join(sorted(PICTURE_SUFFIXES))}; name videos one by one",
        )
    return sorted(found, key=natural_key)


def _expand_glob(pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        raise UsageError(f"there is no file or folder {pattern}", hint="check the path")
    found: set[str] = set()
    others = False
    for hit in glob.glob(pattern, recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
        if Path(hit).is_dir():
            files = list(_walk(hit))
            found.update(path for path in files if _is_picture(path))
            others = others or not all(map(_is_picture, files))
        elif is_video(hit):
            found.update(_expand(hit))
        elif _is_picture(hit):
            found.add(hit)
        else:
            others = True
    if not found:
        raise UsageError(
            f"no file fits {pattern}" if not others else f"no picture or video fits {pattern}",
            hint="check the pattern, and the folder it starts from",
        )
    return sorted(found, key=natural_key)


def _walk(folder: str) -> Iterator[str]:
    """Yield the files below a folder; links to folders are followed, but never in a circle."""
    seen: set[tuple[int, int]] = set()
    for where, folders, files in os.walk(folder, onerror=_unreadable, followlinks=True):
        here = Path(where).stat()
        if (here.st_dev, here.st_ino) in seen:
            folders.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        if not _RESULTS.isdisjoint(files):  # a run of ours left these, and overlays are no parts
            folders[:] = [name for name in folders if name not in ("overlays", "frames")]
        for name in files:
            path = os.path.join(where, name)  # noqa: PTH118 - keeps the path as it was given
            if not name.startswith("."):
                yield path


def _is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in PICTURE_SUFFIXES


def _unreadable(exc: OSError) -> None:
    raise PictureError(
        f"folder {exc.filename} cannot be read: {exc.strerror}",
        hint="allow it, or leave the folder out",
    ) from None
