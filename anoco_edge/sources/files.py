"""Sources on a disk: pictures, folders and globs of them, and video files, in natural order."""

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
from anoco_edge.sources import stream
from anoco_edge.sources.av_reader import AvReader
from anoco_edge.sources.base import Closing
from anoco_edge.sources.reader import OneSize, StreamEndedError

_RESULTS = frozenset({"results.jsonl", "unfinished.jsonl"})
_MOST_FRAMES = 10**8  # 38 days at 30 a second: more is a container that does not know

VIDEO_SUFFIXES = frozenset(
    {".avi", ".mp4", ".m4v", ".mkv", ".mov", ".webm", ".mjpeg", ".mjpg", ".mpg", ".mpeg", ".ts"}
    | {".m2ts", ".wmv", ".flv", ".ogv", ".3gp", ".h264", ".264", ".h265", ".hevc"}
)


def natural_key(path: str) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """A sort key that reads digits as numbers, folder by folder.

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


def find_files(inputs: Sequence[str]) -> tuple[list[str], int]:
    """Pictures and videos that the inputs name, and how many other files were left out.

    >>> find_files(["nothing-here-*.png"])
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: no file fits nothing-here-*.png; check the pattern...
    """
    if not inputs:
        raise UsageError(
            "nothing to read", hint="name pictures, a folder, a video, an address or a camera"
        )
    found: list[str] = []
    ignored: set[str] = set()
    for text in inputs:
        found += _expand(text, ignored)
    return found, len(ignored)


def find_pictures(inputs: Sequence[str], hint: str) -> list[str]:
    """Pictures alone, for what cannot use a video; `hint` says what to do with one."""
    paths, _ = find_files(inputs)
    for path in filter(is_video, paths):
        raise UsageError(f"{path} is a video", hint=hint)
    return paths


class FileSource(Closing):
    """Pictures and videos one after the other; a picture that cannot be read is a Frame too.

    A video that cannot be opened is refused here, before anything is read. One that ends early is
    reported after everything else was delivered, so that nothing is lost by it.
    """

    live = False
    skipped = 0

    def __init__(self, inputs: Sequence[str], *, limit: int | None = None) -> None:
        self._paths, self.ignored = find_files(inputs)
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
        """Stop; an open video is let go of."""
        self._closed = True
        with suppress(ValueError):  # another thread is inside: it sees the flag and stops there
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
    """Whether the name ends like a video's.

    >>> is_video("line3.MP4"), is_video("line3.png")
    (True, False)
    """
    return Path(path).suffix.lower() in VIDEO_SUFFIXES


def video_length(path: str) -> int | None:
    """How many frames a video file says it has; None when it does not know."""
    reader = stream.open_video(path)
    try:
        return _stated_length(reader)
    finally:
        reader.close()


def video_frames(path: str, index: int) -> Iterator[Frame]:
    """Every frame of a video file, numbered from `index` on; SourceError if it ends too early."""
    reader = stream.open_video(path)
    size = OneSize()
    count = 0
    try:
        stated = _stated_length(reader)
        with suppress(StreamEndedError):
            while True:
                source = f"{path}#{count}"
                received = reader.read(source)
                yield stream.make_frame(source, index + count, received, size)
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


def _stated_length(reader: AvReader) -> int | None:
    count = round(reader.stated_length)
    return count if 0 < count < _MOST_FRAMES else None


def _ended_early(count: int, stated: int, shown_ms: float, fps: float) -> bool:
    """Fewer frames than stated, by more than the few that containers miscount.

    Where the length is only estimated from the duration (Matroska, uneven frame rates) the count
    may be far off although the last frame shown is the last one there is: then the clock decides.
    """
    few = max(3, stated // 50)
    if count >= stated - few:
        return False
    return not (fps > 0 and shown_ms >= (stated - few) / fps * 1e3)


def picture_frame(path: str, index: int) -> Frame:
    """A picture as a frame, whether it can be read or not."""
    captured = time.monotonic()
    rgb, error = None, None
    try:
        rgb = read_picture(path)
    except AnocoError as exc:
        error = exc
    return Frame(path, index, rgb, error, (time.monotonic() - captured) * 1e3, captured)


def _expand(text: str, ignored: set[str]) -> list[str]:
    try:
        mode = Path(text).stat().st_mode
    except PermissionError:
        raise PictureError(
            f"{text} may not be read (permission denied)", hint="check the folders above it"
        ) from None
    except (OSError, ValueError):
        return _expand_glob(text, ignored)
    if stat.S_ISDIR(mode):
        return _expand_folder(text, ignored)
    if stat.S_ISCHR(mode):
        raise UsageError(f"{text} is a device, not a file", hint=f"use: --camera {text}")
    if not stat.S_ISREG(mode):  # opening a pipe would wait for somebody who writes to it
        raise UsageError(f"{text} is not a regular file", hint="name a picture or a video file")
    return [text]  # what is named by its name is read, whatever its suffix: the content decides


def _expand_folder(folder: str, ignored: set[str]) -> list[str]:
    before = len(ignored)
    found = list(_walk(folder, ignored))
    if not found:
        others = len(ignored) - before
        raise UsageError(
            f"no pictures in {folder}" + (f" ({others} other files)" if others else ""),
            hint=f"pictures end in {', '.join(sorted(PICTURE_SUFFIXES))}; name videos one by one",
        )
    return sorted(found, key=natural_key)


def _expand_glob(pattern: str, ignored: set[str]) -> list[str]:
    if not glob.has_magic(pattern):
        raise UsageError(f"there is no file or folder {pattern}", hint="check the path")
    found: set[str] = set()
    before = len(ignored)
    for hit in glob.glob(pattern, recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
        if Path(hit).is_dir():
            found.update(_walk(hit, ignored))
        elif is_video(hit):
            found.update(_expand(hit, ignored))
        elif _is_picture(hit):
            found.add(hit)
        else:
            ignored.add(hit)
    if not found:
        others = len(ignored) - before
        raise UsageError(
            f"no file fits {pattern}" if not others else f"no picture or video fits {pattern}",
            hint="check the pattern, and the folder it starts from",
        )
    return sorted(found, key=natural_key)


def _walk(folder: str, ignored: set[str]) -> Iterator[str]:
    """Pictures below a folder; links to folders are followed, but never in a circle."""
    seen: set[tuple[int, int]] = set()
    for where, folders, files in os.walk(folder, onerror=_unreadable, followlinks=True):
        here = Path(where).stat()
        if (here.st_dev, here.st_ino) in seen:
            folders.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        if not _RESULTS.isdisjoint(files):  # a run of ours left these: overlays are no parts
            folders[:] = [name for name in folders if name not in ("overlays", "frames")]
        for name in files:
            path = os.path.join(where, name)  # noqa: PTH118 - keeps the path as it was given
            if name.startswith("."):
                continue
            if _is_picture(name):
                yield path
            else:
                ignored.add(path)


def _is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in PICTURE_SUFFIXES


def _unreadable(exc: OSError) -> None:
    raise PictureError(
        f"folder {exc.filename} cannot be read: {exc.strerror}",
        hint="allow it, or leave the folder out",
    ) from None
