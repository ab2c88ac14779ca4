"""Reads videos and network streams by FFmpeg (PyAV), and finds the frames that are damaged.

FFmpeg conceals what it cannot decode: it fills in from other frames and goes on. What tells such a
frame from a good one is spread over exceptions, flags of packets and frames, and messages. A frame
counts as corrupt when any of them says so. The frames after it, up to the next intra frame, depend
on it and are refused as well.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import (
    AnocoError,
    EnvironmentMissingError,
    PictureError,
    UsageError,
)
from anoco_edge.images.decode import MAX_PIXELS, decode_picture
from anoco_edge.plugins.packages import import_package
from anoco_edge.sources.nal_units import NalCheck
from anoco_edge.sources.reader import ReaderFrame, StreamEndedError

_TRANSPORT = "ANOCO_EDGE_RTSP_TRANSPORT"
_TRANSPORTS = ("tcp", "udp", "udp_multicast", "http", "https")
# Messages below the level of errors which say that a frame is not whole.
_DAMAGE_MESSAGES = re.compile(
    r"missed \d+ packets|dropping old packet|corrupt|concealing|Frame num gap|Error parsing NAL"
    r"|truncat",
    re.IGNORECASE,
)
# HEVC reports most of its errors only with "explode". Concealment stays on, for it sets flags.
_DECODER_OPTIONS = {
    "err_detect": "crccheck+bitstream+buffer+careful+explode",
    "max_pixels": str(MAX_PIXELS),
}
_REORDERED = 16  # where frames are reordered, one is shown at most so many packets late


def load_av() -> Any:
    """Import PyAV on first use, with FFmpeg's messages passed to us instead of a terminal.

    >>> load_av().__name__
    'av'
    """
    load = partial(
        import_package,
        extra="video",
        why="to read videos and streams",
        hint="install it again: pip install --force-reinstall av",
    )
    av = load("av")
    load("av.logging")
    level = av.logging.get_level()
    if level is None:  # an application that asked for messages keeps them
        logging.getLogger("libav").setLevel(logging.CRITICAL + 1)
    if level is None or level < av.logging.DEBUG:
        av.logging.set_level(av.logging.DEBUG)  # gaps in H.264 are reported at this level only
    av.logging.set_skip_repeated(False)
    return av


class AvReader:
    """Reads the frames of one video stream, in the order in which they are shown."""

    def __init__(self, container: Any, *, live: bool) -> None:
        self._av = load_av()
        self._container = container
        self._stream = _video_stream(container)
        self._context = self._stream.codec_context
        self._jpeg = self._context.name == "mjpeg"
        self._context.thread_count = (
            1  # with more threads it is unknown which frame a message is about
        )
        self._context.options = _DECODER_OPTIONS
        self._context.copy_opaque = True
        self._nal_check = NalCheck(self._context.name, self._context.extradata)
        self._packets = container.demux(self._stream)
        self._live = live
        self._ready: deque[Callable[[str], ReaderFrame]] = (
            deque()
        )  # each is called with the frame's name
        self._sent = 0  # packets that were sent; a frame has the number of its packet
        self._corrupt: dict[int, int | None] = {}  # numbers of frames, and when these are shown
        self._doubtful = False  # from a corrupt packet to the next intra frame
        self._awaited: dict[
            int, tuple[int | None, bool]
        ] = {}  # frames not shown yet: when, and whether doubtful
        self._intact_from = 0  # number of the newest intra frame that was shown whole
        self._intact_pts: int | None = None
        self._begun = not live  # a live stream begins with its first intra frame
        self._flushed = False
        self.shown_ms = 0.0  # the time of the last frame in the video

    @property
    def frame_rate(self) -> float:
        """Frames per second, or 0 if the file does not say."""
        return float(self._stream.average_rate or self._stream.guessed_rate or 0)

    @property
    def stated_length(self) -> float:
        """How many frames the container says it has, or 0 if it does not say."""
        if self._stream.frames:
            return float(self._stream.frames)
        if self._container.duration:
            seconds = self._container.duration / self._av.time_base
        elif self._stream.duration:
            seconds = float(self._stream.duration * self._stream.time_base)
        else:
            return 0.0
        return float(seconds * self.frame_rate)

    def read(self, name: str) -> ReaderFrame:
        """Read the next frame; it has an error if it, or a frame that it depends on, is corrupt."""
        while not self._ready:
            if self._flushed:
                raise StreamEndedError("the connection ended")
            self._advance()
        return self._ready.popleft()(name)

    def interrupt(self) -> None:
        """Do nothing, because FFmpeg's own time limit ends a read."""

    def close(self) -> None:
        """Close the file or connection."""
        self._container.close()

    def _advance(self) -> None:
        """Read one packet and decode it."""
        with _messages(self._av) as messages:
            try:
                packet = next(self._packets)
            except StopIteration:
                self._flushed = True
                return
            except self._av.FFmpegError as exc:
                self._flushed = True
                raise StreamEndedError(_words(self._av, exc)) from None
        captured = time.monotonic()
        if not packet.size:
            self._flushed = True
            self._decode(None, False, captured)
            return
        self._begun = self._begun or packet.is_keyframe
        damaged = (
            packet.is_corrupt
            or _reports_damage(self._av, messages)
            or self._nal_check.broken(packet)
        )
        if self._jpeg:
            self._ready.append(partial(_decoded_jpeg, packet, damaged, captured))
        else:
            self._decode(packet, damaged, captured)

    def _decode(self, packet: Any, damaged: bool, captured: float) -> None:
        """Decode a packet, or with None the frames that the decoder still holds."""
        frames = []
        if packet is not None:
            packet.opaque = self._sent
        with _messages(self._av) as messages:
            try:
                frames = self._context.decode(packet)
            except self._av.FFmpegError:
                damaged = True
        if packet is not None:
            self._doubt(packet, damaged or _reports_damage(self._av, messages))
            self._sent += 1
        took = (time.monotonic() - captured) / max(1, len(frames))
        numbers = [self._sent - 1 if one.opaque is None else int(one.opaque) for one in frames]
        for number in numbers:
            self._awaited.pop(number, None)
        for frame, number in zip(frames, numbers, strict=True):
            self._give_up(frame.pts, captured)
            self._ready.append(partial(self._received, frame, number, captured, took))
        self._give_up(None, captured)

    def _doubt(self, packet: Any, corrupt: bool) -> None:
        """Record that a packet was sent; if something is corrupt its frame may never be shown."""
        if not self._begun:
            return
        if corrupt:
            self._corrupt[self._sent] = packet.pts
        self._doubtful = corrupt or (self._doubtful and not packet.is_keyframe)
        self._awaited[self._sent] = (packet.pts, self._doubtful)

    def _give_up(self, shown: int | None, captured: float) -> None:
        """Queue an error for each frame that will not be shown because of damage.

        Frames are shown in the order of their times, so frames before `shown` will not come any
        more; with None, frames that were sent too long ago. Where nothing is corrupt, a packet
        without a frame is nothing unusual.
        """
        late = 0 if self._flushed or (self._live and not self._context.has_b_frames) else _REORDERED
        for number, (pts, doubtful) in list(self._awaited.items()):
            if shown is None:
                over = number + late < self._sent
            else:
                over = pts is not None and pts < shown
            if over:
                del self._awaited[number]
                if doubtful or any(abs(one - number) <= 2 * _REORDERED for one in self._corrupt):
                    self._ready.append(partial(self._lost, number, captured))

    def _lost(self, number: int, captured: float, name: str) -> ReaderFrame:
        corrupt = number in self._corrupt
        return ReaderFrame(
            None, _corrupt_error(name) if corrupt else _dependency_error(name), captured, 0.0
        )

    def _received(
        self, frame: Any, number: int, captured: float, took: float, name: str
    ) -> ReaderFrame:
        begun = time.monotonic()
        if frame.time is not None:
            self.shown_ms = float(frame.time) * 1e3
        rgb, error = None, self._error_of(frame, number, name)
        if error is None:
            try:
                rgb = _upright_rgb(frame)
            except (self._av.FFmpegError, ValueError, MemoryError) as exc:
                error = PictureError(
                    f"{name} cannot be converted to RGB: {exc}",
                    hint="convert the video to another pixel format, or set the camera to one",
                )
        return ReaderFrame(rgb, error, captured, took + time.monotonic() - begun)

    def _error_of(self, frame: Any, number: int, name: str) -> PictureError | None:
        if frame.is_corrupt:
            self._corrupt.setdefault(number, frame.pts)
        if number in self._corrupt:
            return _corrupt_error(name)
        if frame.key_frame and frame.pict_type == self._av.video.frame.PictureType.I:
            # What was corrupt before the intra frame before this one can be forgotten.
            kept = self._corrupt.items()
            self._corrupt = {one: pts for one, pts in kept if one >= self._intact_from}
            self._intact_from, self._intact_pts = number, frame.pts
        return _dependency_error(name) if self._builds_on_corrupt(number) else None

    def _builds_on_corrupt(self, number: int) -> bool:
        """Whether a frame was decoded after a corrupt one that came after the last intra frame.

        No frame that is shown after an intra frame depends on one that is shown before it, though
        that one may have been sent after the intra frame (leading pictures).
        """
        for one, pts in self._corrupt.items():
            leading = None not in (pts, self._intact_pts) and pts < self._intact_pts  # type: ignore[operator]
            if self._intact_from <= one <= number and not leading:
                return True
        return False


def open_stream(address: str, name: str, timeout: float) -> AvReader:
    """Open a network stream; RTSP comes over TCP, where no packet is lost.

    The environment variable ANOCO_EDGE_RTSP_TRANSPORT asks for another transport, such as udp.
    """
    av = load_av()
    options = {}
    if address.lower().startswith("rtsp"):
        transport = os.environ.get(_TRANSPORT, "tcp")
        if transport not in _TRANSPORTS:
            raise UsageError(
                f"{_TRANSPORT} is {transport!r}", hint=f"set it to one of {', '.join(_TRANSPORTS)}"
            )
        options = {"rtsp_transport": transport, "allowed_media_types": "video"}
    with _messages(av):
        try:
            container = av.open(address, options=options, timeout=(timeout, timeout))
            return _reader(container, live=True)
        except (av.FFmpegError, _NoVideoError, ValueError) as exc:
            raise EnvironmentMissingError(
                f"no stream at {name} (tried for at most {timeout:g} s): {_words(av, exc)}",
                hint="check the address, the user and password, and that the camera is on the"
                " network",
            ) from None


def open_video(path: str, place: str) -> AvReader:
    """Open the video file at `place`, which errors call `path`."""
    av = load_av()
    with _messages(av):
        try:
            # Only files, because a playlist that is named like a video must not reach the network.
            container = av.open(place, options={"protocol_whitelist": "file"})
            return _reader(container, live=False)
        except (av.FFmpegError, _NoVideoError, ValueError) as exc:
            raise PictureError(
                f"{path} is not a video that FFmpeg can read ({_words(av, exc)})",
                hint="it is damaged, incomplete or of an unknown kind: play it, or convert it to"
                " MP4",
            ) from None


class _NoVideoError(Exception):
    """The container has no pictures, or none that can be decoded."""


def _reader(container: Any, *, live: bool) -> AvReader:
    try:
        return AvReader(container, live=live)
    except BaseException:
        container.close()
        raise


def _video_stream(container: Any) -> Any:
    if not container.streams.video:
        raise _NoVideoError("it has no pictures")
    stream = container.streams.best("video") or container.streams.video[0]
    if stream.codec_context is None:
        raise _NoVideoError("nothing here decodes its pictures")
    return stream


def _corrupt_error(name: str) -> PictureError:
    return PictureError(
        f"{name} is corrupt: it was not received or stored whole",
        hint="check the file, or the camera, its cable and the network",
    )


def _dependency_error(name: str) -> PictureError:
    return PictureError(
        f"{name} depends on a corrupt frame before it",
        hint="frames are inspected again from the next intra frame on",
    )


def _decoded_jpeg(packet: Any, damaged: bool, captured: float, name: str) -> ReaderFrame:
    """Decode a JPEG as picture files are, because FFmpeg completes one that was cut."""
    rgb, error = None, None
    try:
        if damaged:
            raise _corrupt_error(name)
        rgb = decode_picture(bytes(packet), name)
    except AnocoError as exc:
        error = exc
    return ReaderFrame(rgb, error, captured, time.monotonic() - captured)


def _upright_rgb(frame: Any) -> NDArray[np.uint8]:
    rgb: NDArray[np.uint8] = frame.to_ndarray(format="rgb24", interpolation="BICUBIC")
    turns = round(frame.rotation / 90) % 4
    return np.ascontiguousarray(np.rot90(rgb, turns)) if turns else rgb


@contextmanager
def _messages(av: Any) -> Iterator[list[tuple[int, str, str]]]:
    """Collect what FFmpeg says in this thread."""
    with av.logging.Capture(local=True) as messages:
        yield messages


def _reports_damage(av: Any, messages: list[tuple[int, str, str]]) -> bool:
    """Whether a message says that something is not whole."""
    return any(
        level <= av.logging.ERROR or _DAMAGE_MESSAGES.search(text) for level, _, text in messages
    )


def _words(av: Any, exc: Exception) -> str:
    if isinstance(exc, av.error.ExitError):
        return "nothing came any more"
    text = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
    return str(text)
