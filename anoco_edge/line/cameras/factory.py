"""Makes the camera that an entry of [[cameras]] names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anoco_edge.line.cameras.actor import CameraOutlet, LineCamera
from anoco_edge.line.cameras.aravis_camera import AravisCamera, AravisSettings
from anoco_edge.line.cameras.kinds import SIMULATED
from anoco_edge.line.cameras.simulated import SimulatedCamera, picture_loader
from anoco_edge.line.cameras.stream import StreamCamera
from anoco_edge.line.config.station_config import ARAVIS, CameraTable
from anoco_edge.line.core.events import CameraDown, Event, Picture
from anoco_edge.line.core.settings import TriggerMode
from anoco_edge.sources.registry import find_camera

_STREAM_SECONDS = 5.0  # without a frame, after which a device counts as lost


def make_camera(
    camera: CameraTable, base: Path, trigger: TriggerMode, outlet: CameraOutlet
) -> LineCamera:
    """Make a camera, which connects when it is started; `base` is the folder of relative paths."""
    source = camera.source
    if source.startswith(SIMULATED):
        return SimulatedCamera(picture_loader(source, base), outlet, camera.wraps_at)
    if source.startswith(ARAVIS):
        line = camera.trigger_line if trigger == "camera" else None
        address = source.removeprefix(ARAVIS)
        return AravisCamera(AravisSettings(address, camera.features, line), outlet)
    spec = find_camera(source)
    return StreamCamera(
        lambda: spec.open([source], limit=None, timeout=_STREAM_SECONDS), camera.latency_ms, outlet
    )


def make_stored(camera: CameraTable, base: Path, outlet: CameraOutlet) -> LineCamera | None:
    """Make what takes the place of a camera while SIMULATE is high; None where it has nothing.

    Only its pictures reach the core: whether the camera itself is there, it alone can say.
    """
    if camera.simulate is None:
        return None

    def post(event: Event) -> None:
        if isinstance(event, Picture):
            outlet.post(event)
        elif isinstance(event, CameraDown):
            outlet.note(f"there are no stored pictures for camera {camera.name}: {event.why}")

    stored = replace(outlet, post=post, simulated=True)
    return SimulatedCamera(picture_loader(camera.simulate, base), stored, camera.wraps_at)
