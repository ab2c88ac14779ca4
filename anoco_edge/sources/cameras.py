"""Opens cameras by OpenCV: by their index, as V4L2 devices, or through GStreamer pipelines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.sources.cv2_reader import Cv2Reader, has_backend, load_cv2, quiet
from anoco_edge.sources.live import LiveSource

_LARGEST_CAMERA = 1_000_000  # Linux numbers devices up to 2**20; OpenCV takes 32 bits


def has_gstreamer() -> bool:
    """Whether this OpenCV opens GStreamer pipelines: JetPack's and Debian's do, PyPI's does not."""
    cv2 = load_cv2()
    return has_backend(cv2, cv2.CAP_GSTREAMER)


def camera_devices() -> list[str]:
    """List the video devices that Linux shows, whether they answer or not.

    >>> all(device.startswith("/dev/video") for device in camera_devices())
    True
    """
    devices = (path for path in Path("/dev").glob("video*") if path.name[5:].isdecimal())
    return [str(path) for path in sorted(devices, key=lambda path: int(path.name[5:]))]


def open_index(inputs: Sequence[str], *, limit: int | None, timeout: float) -> LiveSource:
    """Open a camera by its index."""
    (index,) = inputs
    if int(index) > _LARGEST_CAMERA:
        raise UsageError(f"there is no camera {index}", hint="cameras count from 0: /dev/video0")
    cv2 = load_cv2()
    with quiet(cv2):
        capture = cv2.VideoCapture(int(index), cv2.CAP_ANY)
    return _camera(capture, index, limit=limit, timeout=timeout)


def open_device(inputs: Sequence[str], *, limit: int | None, timeout: float) -> LiveSource:
    """Open a V4L2 device by its path."""
    (device,) = inputs
    if Path(device).exists() and not Path(device).is_char_device():
        raise UsageError(f"{device} is not a device", hint="a video file is named without `camera`")
    cv2 = load_cv2()
    with quiet(cv2):
        capture = cv2.VideoCapture(device, cv2.CAP_V4L2)
    return _camera(capture, device, limit=limit, timeout=timeout)


def open_pipeline(inputs: Sequence[str], *, limit: int | None, timeout: float) -> LiveSource:
    """Open a GStreamer pipeline that ends in appsink."""
    (pipeline,) = inputs
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
    return LiveSource(Cv2Reader(capture), "camera:gstreamer", limit=limit, timeout=timeout)


def _camera(capture: Any, camera: str, *, limit: int | None, timeout: float) -> LiveSource:
    if not capture.isOpened():
        capture.release()
        raise _no_camera(camera)
    return LiveSource(Cv2Reader(capture), f"camera:{camera}", limit=limit, timeout=timeout)


def _no_camera(camera: str) -> EnvironmentMissingError:
    device = f"/dev/video{camera}" if camera.isdecimal() else camera
    others = camera_devices()
    if Path(device).exists():
        allowed = os.access(device, os.R_OK | os.W_OK)
        return EnvironmentMissingError(
            f"camera {camera} does not open" + ("" if allowed else f": no permission for {device}"),
            hint="another program may hold it: close that program"
            if allowed
            else "add yourself to its group (sudo usermod -aG video $USER) and log in again",
        )
    seen = f"there are {', '.join(others)}" if others else "there is no /dev/video* at all"
    return EnvironmentMissingError(
        f"there is no camera {camera}; {seen}",
        hint="plug it in, or choose another `camera`" if others else "plug a camera in",
    )
