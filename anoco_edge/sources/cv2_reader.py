"""Reads cameras by OpenCV: V4L2 devices and GStreamer pipelines."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import AnocoError, EnvironmentMissingError, PictureError
from anoco_edge.images.decode import check_rgb, decode_picture
from anoco_edge.machine import is_jetson
from anoco_edge.plugins.packages import import_package
from anoco_edge.sources.cv2_hints import cv2_hint
from anoco_edge.sources.jpeg_end import START, jpeg_end
from anoco_edge.sources.reader import ReaderFrame, StreamEndedError


class Cv2Reader:
    """Reads the frames of one `cv2.VideoCapture`, which only the reading thread may use."""

    def __init__(self, capture: Any) -> None:
        self._cv2 = load_cv2()
        self._capture = capture
        self._jpeg = _asks_for_jpegs(self._cv2, capture)

    def read(self, name: str) -> ReaderFrame:
        """Wait for the next frame."""
        try:
            if not self._capture.grab():
                raise StreamEndedError("the connection ended")
            captured = time.monotonic()
            good, picture = self._capture.retrieve()
        except self._cv2.error as exc:
            raise StreamEndedError(f"OpenCV failed ({exc})") from None
        if not good:
            raise StreamEndedError("a frame could not be decoded")
        rgb, error = None, None
        try:
            encoded = self._jpeg and (picture.ndim == 1 or 1 in picture.shape[:2])
            rgb = _from_jpeg(picture, name) if encoded else self._to_rgb(picture, name)
        except AnocoError as exc:
            error = exc
        return ReaderFrame(rgb, error, captured, time.monotonic() - captured)

    def interrupt(self) -> None:
        """Do nothing, because OpenCV cannot be interrupted."""

    def close(self) -> None:
        """Release the device."""
        self._capture.release()

    def _to_rgb(self, picture: Any, name: str) -> NDArray[np.uint8]:
        """Convert OpenCV's BGR to RGB; no other place does."""
        cv2 = self._cv2
        if picture.dtype == np.uint16:  # as in images/decode.py, never stretched
            picture = (picture >> 8).astype(np.uint8)
        channels = 1 if picture.ndim == 2 else picture.shape[2]
        codes = {1: cv2.COLOR_GRAY2RGB, 3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGB}
        return check_rgb(
            cv2.cvtColor(picture, codes[channels]) if channels in codes else picture, name
        )


def load_cv2() -> Any:
    """Import OpenCV on first use, without its messages, because our errors say what is wrong.

    >>> load_cv2().__name__
    'cv2'
    """
    if "cv2" not in sys.modules:
        os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # AV_LOG_QUIET; read at the first open
    try:
        # NumPy 2 prints a page about a module that was built for NumPy 1.
        with redirect_stderr(io.StringIO()):
            return import_package("cv2", "camera", "to read cameras")
    except EnvironmentMissingError as error:
        hint = cv2_hint(error.what, jetson=is_jetson()) or error.hint
        raise EnvironmentMissingError(error.what, hint=hint) from None


def has_backend(cv2: Any, backend: int) -> bool:
    """Whether OpenCV loads the backend; a backend that is listed may be a missing plugin."""
    registry = cv2.videoio_registry
    if hasattr(registry, "hasBackend"):
        return bool(registry.hasBackend(backend))
    return backend in registry.getBackends()


@contextmanager
def quiet(cv2: Any) -> Iterator[None]:
    """Silence OpenCV's log while something opens, also if cv2 was imported by another module."""
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


def _asks_for_jpegs(cv2: Any, capture: Any) -> bool:
    """Ask a V4L2 camera that sends JPEGs for the undecoded data; whether it does so.

    OpenCV decodes a JPEG that was cut on its way without an error, so we decode it as files are.
    """
    try:
        if capture.getBackendName() != "V4L2":
            return False
        if int(capture.get(cv2.CAP_PROP_FOURCC)) != cv2.VideoWriter.fourcc(*"MJPG"):
            return False
        return bool(capture.set(cv2.CAP_PROP_CONVERT_RGB, 0))
    except cv2.error:
        return False


def _from_jpeg(buffer: Any, name: str) -> NDArray[np.uint8]:
    """Decode the JPEG in a buffer of the driver, which may be longer than the JPEG."""
    data = np.ascontiguousarray(buffer).tobytes()
    end = jpeg_end(data) if data.startswith(START) else None
    if end is None:
        raise PictureError(
            f"{name} was not received whole: it has no JPEG end",
            hint="check the camera and its cable; a USB hub may be too slow for it",
        )
    return decode_picture(data[:end], name)
