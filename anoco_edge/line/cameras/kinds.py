"""Which sources can be cameras of a line: those that know when a frame was exposed.

A part is paired with its picture by exposure time and frame counter (see `pairing`). A source that
cannot bound the time of exposure can show the part before, so it is refused for parts.
"""

from __future__ import annotations

from pathlib import Path

from anoco_edge.demo.render import MATERIALS
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.line.cameras.aravis_device import AravisDevice
from anoco_edge.line.config.station_config import ARAVIS, CameraTable
from anoco_edge.line.core.settings import TriggerMode
from anoco_edge.sources.files import find_pictures
from anoco_edge.sources.registry import SourceSpec, find_camera
from anoco_edge.text.address import mask_address

RENDERED, FOLDER = "rendered:", "folder:"
SIMULATED = (RENDERED, FOLDER)
_HINT = f"use {ARAVIS}ADDRESS, {FOLDER}PICTURES or {RENDERED}{MATERIALS[0]}"
_NO_EXPOSURE = (
    "tells when a frame arrived, not when it was exposed, so a trigger cannot be paired with its "
    "picture"
)


def check_camera(camera: CameraTable, base: Path, trigger: TriggerMode) -> str:
    """Say in words what a camera delivers; what cannot be a camera of a line is a UsageError.

    >>> check_camera(CameraTable(name="top", source="rendered:washer"), Path(), "bus")
    'simulated: rendered washers, one for each trigger'
    >>> check_camera(CameraTable(name="top", source="rtsp://cam/1"), Path(), "bus")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: rtsp://cam/1 tells when a frame arrived, not when it was ...
    """
    words = _check_source(camera, base, trigger)
    if camera.simulate is None:
        return words
    if trigger == "camera":
        raise UsageError(
            f"{camera.name} makes parts by its wire, so nothing asks for stored pictures",
            hint='take simulate away, or use trigger = "bus"',
        )
    if not camera.simulate.startswith(SIMULATED):
        raise UsageError(
            f"{mask_address(camera.simulate)!r} does not name stored pictures",
            hint=f'use simulate = "{FOLDER}PICTURES" or "{RENDERED}{MATERIALS[0]}"',
        )
    return f"{words}; while SIMULATE is high, {_check_simulated(camera.simulate, base)}"


def _check_source(camera: CameraTable, base: Path, trigger: TriggerMode) -> str:
    source = camera.source
    if source.startswith(ARAVIS):
        return _check_aravis(camera, trigger)
    if camera.features or camera.trigger_line is not None:
        raise UsageError(
            f"{camera.name} has features or a trigger_line, and is no machine-vision camera",
            hint=f"take them away, or use {ARAVIS}ADDRESS",
        )
    if source.startswith(SIMULATED):
        words = f"simulated: {_check_simulated(source, base)}"
    else:
        words = _check_stream(camera)
    if trigger == "camera":
        raise UsageError(
            f"{mask_address(source)} cannot be triggered by a wire",
            hint=f'use {ARAVIS}ADDRESS, or trigger = "bus"',
        )
    return words


def _check_aravis(camera: CameraTable, trigger: TriggerMode) -> str:
    if trigger == "camera" and camera.trigger_line is None:
        raise UsageError(
            f"{camera.name} is triggered by a wire, and no input is named",
            hint='name it: trigger_line = "Line0"',
        )
    device = AravisDevice(camera.source.removeprefix(ARAVIS))
    try:
        how = f"by {camera.trigger_line}" if trigger == "camera" else "by software"
        return f"{device.name}, triggered {how}, sets {len(camera.features)} features"
    finally:
        device.close()


def _check_simulated(source: str, base: Path) -> str:
    if source.startswith(FOLDER):
        folder = base / source.removeprefix(FOLDER)
        pictures = find_pictures([str(folder)], "name a folder of pictures")
        return f"{len(pictures)} pictures of {folder}, one for each trigger"
    material = source.removeprefix(RENDERED)
    if material not in MATERIALS:
        raise UsageError(
            f"there is no rendered {material!r}", hint=f"use one of {', '.join(MATERIALS)}"
        )
    return f"rendered {material}s, one for each trigger"


def _check_stream(camera: CameraTable) -> str:
    shown = mask_address(camera.source)
    spec = _spec(camera.source, shown)
    if spec.name in ("mjpeg-http", "network-stream"):
        raise UsageError(
            f"{shown} {_NO_EXPOSURE}",
            hint=f"inspect it without a trigger by anoco-edge infer, or {_HINT}",
        )
    if not camera.latency_ms:
        raise UsageError(
            f"{shown} {_NO_EXPOSURE}",
            hint="state the longest time from exposure to arrival as latency_ms",
        )
    if package := spec.missing_package():
        raise spec.missing_error(package)
    return f"{shown} ({spec.name}), exposed at most {camera.latency_ms} ms before it arrives"


def _spec(source: str, shown: str) -> SourceSpec:
    try:
        return find_camera(source)
    except AnocoError:
        raise UsageError(f"{shown!r} is not a camera of a line", hint=_HINT) from None
