"""Opening cameras, streams and videos; a live source gives its newest frame."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anoco_edge.errors import (
    AnocoError,
    EnvironmentMissingError,
    PictureError,
    SourceError,
    UsageError,
)
from anoco_edge.images.decode import check_rgb
from anoco_edge.images.frame import Frame
from anoco_edge.sources import av_reader, mjpeg_http
from anoco_edge.sources.base import Closing
from anoco_edge.sources.cv2_reader import Cv2Reader, has_backend, load_cv2, quiet
from anoco_edge.sources.reader import FrameReader, OneSize, Received, StreamEndedError
from anoco_edge.text.address import mask_address

_ADDRESS = re.compile(r"^(https?|rtsps?|rtmps?|rtp|udp|tcp|srt)://", re.IGNORECASE)
_JOIN_SECONDS = 2.0
_LARGEST_CAMERA = 1_000_000  # Linux numbers devices up to 2**20; OpenCV takes 32 bits


def is_address(text: str) -> bool:
    """Whether an input is the address of a stream.

    >>> is_address("rtsp://cam/1"), is_address("clips/a.mp4")
    (True, False)
    """
    return _ADDRESS.match(text) is not None


def has_gstreamer() -> bool:
    """Whether this OpenCV opens GStreamer pipelines: JetPack's and Debian's do, PyPI's does not."""
    cv2 = load_cv2()
    return has_backend(cv2, cv2.CAP_GSTREAMER)


def camera_devices() -> list[str]:
    """The video devices that Linux shows, answering or not.

    >>> all(device.startswith("/dev/video") for device in camera_devices())
    True
    """
    devices = (path for path in Path("/dev").glob("video*") if path.name[5:].isdecimal())
    return [str(path) for path in sorted(devices, key=lambda path: int(path.name[5:]))]


def open_camera(camera: int | str, *, limit: int | None, timeout: float) -> LiveSource:
    """A camera by index, device, address or GStreamer pipeline."""
    text = str(camera).strip()
    if is_address(text):
        return open_address(text, limit=limit, timeout=timeout)
    if " ! " in text:
        return _live(_open_pipeline(text), "camera:gstreamer", limit=limit, timeout=timeout)
    if not text.isdecimal() and not text.startswith("/"):
        raise UsageError(
            f"{camera!r} is not a camera",
            hint="give an index (0), a device (/dev/video0), an address (rtsp://...) or a"
            " GStreamer pipeline ('... ! appsink')",
        )
    if text.startswith("/") and Path(text).exists() and not Path(text).is_char_device():
        raise UsageError(f"{text} is not a device", hint="a video file is named without --camera")
    if text.isdecimal() and int(text) > _LARGEST_CAMERA:
        raise UsageError(f"there is no camera {text}", hint="cameras count from 0: /dev/video0")
    cv2 = load_cv2()
    with quiet(cv2):
        if text.isdecimal():
            capture = cv2.VideoCapture(int(text), cv2.CAP_ANY)
        else:
            capture = cv2.VideoCapture(text, cv2.CAP_V4L2)
    if not capture.isOpened():
        capture.release()
        raise _no_camera(text)
    return _live(capture, f"camera:{text}", limit=limit, timeout=timeout)


def open_address(address: str, *, limit: int | None, timeout: float) -> LiveSource:
    """A network stream: MJPEG over HTTP by ourselves, RTSP and all others by FFmpeg."""
    name = mask_address(address)
    reader: FrameReader | None = None
    if address.lower().startswith(("http://", "https://")):
        reader = mjpeg_http.open_mjpeg(address, name, timeout)
    reader = reader or av_reader.open_stream(address, name, timeout)
    return LiveSource(reader, name, limit=limit, timeout=timeout)


def _live(capture: Any, name: str, *, limit: int | None, timeout: float) -> LiveSource:
    return LiveSource(Cv2Reader(capture), name, limit=limit, timeout=timeout)


class LiveSource(Closing):
    """Frames that come by themselves: a thread reads them all and keeps only the newest.

    The thread starts at once, so that the first frame taken is of now, not of when it was opened.
    """

    live = True
    ignored = 0

    def __init__(
        self, reader: FrameReader, name: str, *, limit: int | None, timeout: float
    ) -> None:
        self.name = name
        self.total = limit
        self._reader = reader
        self._size = OneSize()
        self._timeout = timeout
        self._changed = threading.Condition()
        self._slot: Frame | None = None
        self._skipped = 0
        self._delivered = 0
        self._taken = 0
        self._last_sign = time.monotonic()
        self._ended = ""  # why no more frames will come
        self._closed = False
        self._frames = self._read()
        self._thread = threading.Thread(target=self._pump, name=f"reader of {name}", daemon=True)
        self._thread.start()

    @property
    def skipped(self) -> int:
        """Frames that came and nobody took."""
        with self._changed:
            return self._skipped

    def __iter__(self) -> Iterator[Frame]:
        return self._frames

    def close(self) -> None:
        """Stop the thread, which lets go of the device; a read that hangs is not waited for."""
        with self._changed:
            self._closed = True
            self._drop_slot()
            self._changed.notify_all()
        self._reader.interrupt()
        self._thread.join(_JOIN_SECONDS)

    def _read(self) -> Iterator[Frame]:
        while self._taken != self.total:
            newest = self._take()
            if newest is None:
                return
            self._taken += 1
            yield newest

    def _take(self) -> Frame | None:
        """The newest frame, waited for; None once closed."""
        with self._changed:
            while True:
                if self._closed:
                    return None
                if self._slot is not None:
                    newest, self._slot = self._slot, None
                    return newest
                silence = time.monotonic() - self._last_sign
                if self._ended or silence >= self._timeout:
                    why = self._ended or f"nothing came for {self._timeout:g} s"
                    raise SourceError(
                        f"{self.name} stopped after {self._delivered} frames: {why}",
                        hint="check the camera, its cable and the network, then start again",
                    )
                self._changed.wait(self._timeout - silence)

    def _pump(self) -> None:
        """The reader thread. It alone touches the reader, which is not safe to share."""
        why = "the reader failed"
        try:
            while not self._closed:
                source = f"{self.name}#{self._delivered}"
                received = self._reader.read(source)
                self._put(make_frame(source, self._delivered, received, self._size))
        except StreamEndedError as exc:
            why = str(exc)
        finally:
            self._reader.close()
            with self._changed:
                self._ended = why
                self._changed.notify_all()

    def _put(self, frame: Frame) -> None:
        with self._changed:
            self._drop_slot()
            self._delivered += 1
            self._last_sign = time.monotonic()
            self._slot = frame
            if self._closed:
                self._drop_slot()
            self._changed.notify_all()

    def _drop_slot(self) -> None:
        if self._slot is not None:
            self._skipped += 1
            self._slot = None


def make_frame(source: str, index: int, received: Received, size: OneSize) -> Frame:
    """What a reader received as a frame of a source; refused where its size is another."""
    rgb, error = received.rgb, received.error
    if rgb is not None:
        try:
            rgb = check_rgb(rgb, source)
            error = size.error_of(rgb, source)
        except AnocoError as exc:
            error = exc
    whole = rgb if error is None else None
    return Frame(source, index, whole, error, received.took * 1e3, received.captured)


def open_video(path: str) -> av_reader.AvReader:
    """The reader of a video file."""
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


def _open_pipeline(pipeline: str) -> Any:
    cv2 = load_cv2()
    if not has_backend(cv2, cv2.CAP_GSTREAMER):
        raise EnvironmentMissingError(
            "this OpenCV has no GStreamer, which a camera pipeline needs",
            hint="OpenCV from PyPI has none; JetPack's own and Debian's python3-opencv have:"
            " uninstall the one from pip and let the environment see the system's packages",
        )
    with quiet(cv2):
        capture = cv2.VideoCapture(pipeline, cv2.CAP_GSTREAMER)
    if not capture.isOpened():
        capture.release()
        raise EnvironmentMissingError(
            f"the pipeline '{pipeline}' does not start",
            hint="it must end in appsink; try it with gst-launch-1.0 and fakesink instead",
        )
    return capture


def _no_camera(camera: str) -> EnvironmentMissingError:
    device = f"/dev/video{camera}" if camera.isdecimal() else camera
    there = camera_devices()
    if Path(device).exists():
        allowed = os.access(device, os.R_OK | os.W_OK)
        return EnvironmentMissingError(
            f"camera {camera} does not open" + ("" if allowed else f": no permission for {device}"),
            hint="another program may hold it"
            if allowed
            else "add yourself to its group (sudo usermod -aG video $USER) and log in again",
        )
    seen = f"there are {', '.join(there)}" if there else "there is no /dev/video* at all"
    return EnvironmentMissingError(
        f"there is no camera {camera}; {seen}",
        hint="plug it in, or choose another with --camera" if there else "plug a camera in",
    )
