"""What OpenCV reads: video files, and cameras and streams by their newest frame."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import (
    AnocoError,
    EnvironmentMissingError,
    PictureError,
    SourceError,
    UsageError,
    missing,
)
from anoco_edge.pictures import check_rgb
from anoco_edge.sources import Frame
from anoco_edge.sources.address import mask_address
from anoco_edge.sources.closing import Closing

_ADDRESS = re.compile(r"^(https?|rtsps?|rtmps?|rtp|udp|tcp|srt)://", re.IGNORECASE)
_JOIN_SECONDS = 2.0
_LARGEST_CAMERA = 1_000_000  # Linux numbers devices up to 2**20; OpenCV takes 32 bits


def is_address(text: str) -> bool:
    """Whether an input is the address of a stream.

    >>> is_address("rtsp://cam/1"), is_address("clips/a.mp4")
    (True, False)
    """
    return _ADDRESS.match(text) is not None


def load_cv2() -> Any:
    """OpenCV, imported on first use and told to keep quiet: we report in our own words.

    >>> load_cv2().__name__
    'cv2'
    """
    if "cv2" not in sys.modules:
        os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # AV_LOG_QUIET; read at the first open
    try:
        import cv2
    except ModuleNotFoundError as exc:
        if exc.name == "cv2":
            raise missing("cv2", "camera", "to read videos and cameras") from None
        raise EnvironmentMissingError(
            f"cv2 is installed but {exc.name} is not", hint=f"install {exc.name}"
        ) from None
    except ImportError as exc:
        raise EnvironmentMissingError(
            f"cv2 is installed but does not load: {exc}",
            hint="opencv-python needs a desktop's libraries; opencv-python-headless does not",
        ) from None
    return cv2


def has_gstreamer() -> bool:
    """Whether this OpenCV opens GStreamer pipelines: JetPack's and Debian's do, PyPI's does not."""
    cv2 = load_cv2()
    return _has_backend(cv2, cv2.CAP_GSTREAMER)


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
        return LiveSource(_open_pipeline(text), "camera:gstreamer", limit=limit, timeout=timeout)
    if not text.isdecimal() and not text.startswith("/"):
        raise UsageError(
            f"{camera!r} is not a camera",
            hint="give an index (0), a device (/dev/video0), an address (rtsp://...) or a"
            " GStreamer pipeline ('... ! appsink')",
        )
    if text.isdecimal() and int(text) > _LARGEST_CAMERA:
        raise UsageError(f"there is no camera {text}", hint="cameras count from 0: /dev/video0")
    cv2 = load_cv2()
    with _quiet(cv2):
        if text.isdecimal():
            capture = cv2.VideoCapture(int(text), cv2.CAP_ANY)
        else:
            capture = cv2.VideoCapture(text, cv2.CAP_V4L2)
    if not capture.isOpened():
        capture.release()
        raise _no_camera(text)
    return LiveSource(capture, f"camera:{text}", limit=limit, timeout=timeout)


def open_address(address: str, *, limit: int | None, timeout: float) -> LiveSource:
    """A network stream (HTTP MJPEG, RTSP and what else this OpenCV opens)."""
    cv2 = load_cv2()
    name = mask_address(address)
    milliseconds = max(1, int(timeout * 1000))
    with _quiet(cv2):
        # FFmpeg alone takes time limits everywhere; another backend given them refuses to open.
        if _has_backend(cv2, cv2.CAP_FFMPEG):
            limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, milliseconds]
            limits += [cv2.CAP_PROP_READ_TIMEOUT_MSEC, milliseconds]
            capture = cv2.VideoCapture(address, cv2.CAP_FFMPEG, limits)
        else:
            capture = cv2.VideoCapture(address)
    if not capture.isOpened():
        capture.release()
        raise EnvironmentMissingError(
            f"no stream at {name} (tried for at most {timeout:g} s)",
            hint="check the address, the user and password, and that the camera is on the network",
        )
    return LiveSource(capture, name, limit=limit, timeout=timeout)


class LiveSource(Closing):
    """Frames that come by themselves: a thread reads them all and keeps only the newest.

    The thread starts at once, so that the first frame taken is of now, not of when it was opened.
    """

    live = True
    ignored = 0

    def __init__(self, capture: Any, name: str, *, limit: int | None, timeout: float) -> None:
        self.name = name
        self.total = limit
        self._capture = capture
        self._timeout = timeout
        self._changed = threading.Condition()
        self._slot: tuple[int, Any, float, float] | None = None  # see _put
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
        self._thread.join(_JOIN_SECONDS)

    def _read(self) -> Iterator[Frame]:
        while self._taken != self.total:
            newest = self._take()
            if newest is None:
                return
            number, picture, took, captured = newest
            self._taken += 1
            yield make_frame(f"{self.name}#{number}", number, picture, took, captured)

    def _take(self) -> tuple[int, Any, float, float] | None:
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
        """The reader thread. It alone touches the capture, which is not safe to share."""
        cv2 = load_cv2()
        why = "the connection ended"
        try:
            while not self._closed and self._capture.grab():
                captured = time.monotonic()
                good, picture = self._capture.retrieve()
                if not good:
                    why = "a frame could not be decoded"
                    break
                self._put(picture, time.monotonic() - captured, captured)
        except cv2.error as exc:
            why = f"OpenCV failed ({exc})"
        finally:
            self._capture.release()
            with self._changed:
                self._ended = why
                self._changed.notify_all()

    def _put(self, picture: Any, took: float, captured: float) -> None:
        with self._changed:
            self._drop_slot()
            number = self._delivered
            self._delivered += 1
            self._last_sign = time.monotonic()
            self._slot = (number, picture, took, captured)
            if self._closed:
                self._drop_slot()
            self._changed.notify_all()

    def _drop_slot(self) -> None:
        if self._slot is not None:
            self._skipped += 1
            self._slot = None


def make_frame(source: str, index: int, picture: Any, took: float, captured: float) -> Frame:
    """The one place where OpenCV's BGR becomes our RGB; `took` is what decoding took before."""
    begun = time.monotonic()
    rgb, error = None, None
    try:
        rgb = check_rgb(_to_rgb(picture), source)
    except AnocoError as exc:
        error = exc
    return Frame(source, index, rgb, error, (took + time.monotonic() - begun) * 1e3, captured)


def _to_rgb(picture: Any) -> NDArray[np.uint8]:
    cv2 = load_cv2()
    if picture.dtype == np.uint16:  # as in pictures.py: never stretched
        picture = (picture >> 8).astype(np.uint8)
    channels = 1 if picture.ndim == 2 else picture.shape[2]
    codes = {1: cv2.COLOR_GRAY2RGB, 3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGB}
    rgb: NDArray[np.uint8] = (
        cv2.cvtColor(picture, codes[channels]) if channels in codes else picture
    )
    return rgb


def open_video(path: str) -> Any:
    """An OpenCV capture of a video file."""
    cv2 = load_cv2()
    # Absolute, because FFmpeg takes the "12:" of a file 12:30.avi for the name of a protocol.
    place = str(Path(path).absolute())
    if not os.access(place, os.R_OK):
        raise PictureError(
            f"{path} may not be read (permission denied)", hint="allow it (chmod +r)"
        )
    backend = cv2.CAP_FFMPEG if _has_backend(cv2, cv2.CAP_FFMPEG) else cv2.CAP_ANY
    with _quiet(cv2):
        capture = cv2.VideoCapture(place, backend)
    if not capture.isOpened():
        capture.release()
        raise PictureError(
            f"{path} is not a video that OpenCV can read",
            hint="it is damaged, incomplete or of an unknown kind: play it, or convert it to MP4",
        )
    return capture


def _open_pipeline(pipeline: str) -> Any:
    cv2 = load_cv2()
    if not _has_backend(cv2, cv2.CAP_GSTREAMER):
        raise EnvironmentMissingError(
            "this OpenCV has no GStreamer, which a camera pipeline needs",
            hint="OpenCV from PyPI has none; JetPack's own and Debian's python3-opencv have:"
            " uninstall the one from pip and let the environment see the system's packages",
        )
    with _quiet(cv2):
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


def _has_backend(cv2: Any, backend: int) -> bool:
    """Asks OpenCV to load the backend: being listed is not enough, it may be an absent plugin."""
    registry = cv2.videoio_registry
    if hasattr(registry, "hasBackend"):
        return bool(registry.hasBackend(backend))
    return backend in registry.getBackends()


@contextmanager
def _quiet(cv2: Any) -> Iterator[None]:
    """No chatter while opening, also where somebody else imported cv2 before us."""
    logging = getattr(getattr(cv2, "utils", None), "logging", None)
    if logging is None or os.environ.get("OPENCV_LOG_LEVEL", "SILENT") != "SILENT":
        yield  # the user asked for OpenCV's own messages
        return
    level = logging.getLogLevel()
    logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        logging.setLogLevel(level)
