"""The table of sources, and how the right one is found for an input.

To add a source, write its module and one entry of the table. The module has

    open_source(inputs, *, limit, timeout) -> Source

where `inputs` are the texts that the entry matched: one for a live source, one or more for others.
Another package adds its entry through the entry point `anoco_edge.sources` (see
`anoco_edge.plugins`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.plugins import Registry, Spec
from anoco_edge.sources.base import Source
from anoco_edge.sources.cv2_hints import missing_cv2_hint
from anoco_edge.text.address import mask_address

_WEB_ADDRESS = re.compile(r"^https?://", re.IGNORECASE)
_STREAM_ADDRESS = re.compile(r"^(rtsps?|rtmps?|rtp|udp|tcp|srt)://", re.IGNORECASE)


def _nothing(text: str) -> bool:
    return False


@dataclass(frozen=True)
class SourceSpec(Spec):
    """The description of a source, which is known before its module is imported.

    `matches` says whether a text names something that the source reads; entries are asked in the
    order of `rank`. `accepts` describes such a text for people. `as_input` and `as_camera` say
    whether the text may stand among the inputs, or be the camera. Frames of a `live` source come by
    themselves, so it is read alone. `opener` is the function of the module that opens it.
    """

    matches: Callable[[str], bool] = _nothing
    accepts: str = ""
    as_input: bool = False
    as_camera: bool = False
    live: bool = True
    opener: str = "open_source"

    purpose: ClassVar[str] = "to read frames"

    def missing_error(self, package: str) -> EnvironmentMissingError:
        """Make the error for a package that is not installed; on a Jetson nobody needs another cv2.

        >>> SourceSpec("x", "json").missing_error("fastnet").hint
        'install it with: pip install fastnet'
        """
        error = super().missing_error(package)
        hint = missing_cv2_hint() if package == "cv2" else ""
        return EnvironmentMissingError(error.what, hint=hint or error.hint)

    def open(self, inputs: Sequence[str], *, limit: int | None, timeout: float) -> Source:
        """Open what these texts name."""
        opened = getattr(self.load(), self.opener)(inputs, limit=limit, timeout=timeout)
        return cast(Source, opened)


SOURCES = Registry(
    "source",
    "anoco_edge.sources",
    [
        SourceSpec(
            "files",
            "anoco_edge.sources.files",
            needs="for videos: PyAV",
            matches=lambda text: True,
            accepts="a picture, a folder, a glob or a video",
            as_input=True,
            live=False,
            rank=1000,  # it takes every text that is left
        ),
        SourceSpec(
            "camera",
            "anoco_edge.sources.cameras",
            opener="open_index",
            extra="camera",
            needs="OpenCV",
            packages=("cv2",),
            matches=str.isdecimal,
            accepts="an index (0)",
            as_camera=True,
            rank=30,
        ),
        SourceSpec(
            "v4l2",
            "anoco_edge.sources.cameras",
            opener="open_device",
            extra="camera",
            needs="OpenCV",
            packages=("cv2",),
            matches=lambda text: text.startswith("/"),
            accepts="a device (/dev/video0)",
            as_camera=True,
            rank=40,
        ),
        SourceSpec(
            "mjpeg-http",
            "anoco_edge.sources.network",
            opener="open_web_address",
            matches=lambda text: _WEB_ADDRESS.match(text) is not None,
            accepts="an address (rtsp://...)",
            as_input=True,
            as_camera=True,
            rank=10,
        ),
        SourceSpec(
            "network-stream",
            "anoco_edge.sources.network",
            opener="open_stream_address",
            extra="video",
            needs="PyAV",
            packages=("av",),
            matches=lambda text: _STREAM_ADDRESS.match(text) is not None,
            accepts="an address (rtsp://...)",
            as_input=True,
            as_camera=True,
            rank=10,
        ),
        SourceSpec(
            "gstreamer",
            "anoco_edge.sources.cameras",
            opener="open_pipeline",
            extra="camera",
            needs="an OpenCV with GStreamer",
            packages=("cv2",),
            matches=lambda text: " ! " in text,
            accepts="a GStreamer pipeline ('... ! appsink')",
            as_camera=True,
            rank=20,
        ),
    ],
    SourceSpec,
)


def open_source(
    inputs: Sequence[str],
    *,
    camera: int | str | None = None,
    limit: int | None = None,
    timeout: float = 10.0,
) -> Source:
    """Open the frames of `inputs`, or of a camera; at most `limit`.

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
    inputs = [inputs] if isinstance(inputs, str) else list(inputs)
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} frames reads nothing", hint="give 1 or more")
    if not timeout > 0:
        raise UsageError(f"a timeout of {timeout} s is none", hint="give seconds, more than 0")
    if camera is not None:
        if inputs:
            raise UsageError(
                f"a camera and {inputs[0]} cannot be read at once", hint="give one or the other"
            )
        text = str(camera).strip()
        return find_camera(text).open([text], limit=limit, timeout=timeout)
    specs = [find_input(text) for text in inputs]
    for text, spec in zip(inputs, specs, strict=True):
        if spec.live and len(inputs) > 1:
            raise UsageError(
                f"{mask_address(text)} is a live source and must stand alone",
                hint="run once for each stream",
            )
    if len({spec.name for spec in specs}) > 1:
        raise UsageError(
            f"{inputs[0]} and the inputs after it are of different kinds",
            hint="read each kind by itself",
        )
    # Its error says that there is nothing to read.
    spec = specs[0] if specs else SOURCES.get("files")
    return spec.open(inputs, limit=limit, timeout=timeout)


def find_input(text: str) -> SourceSpec:
    """Find the source that reads an input; what no other source takes is a file.

    >>> find_input("rtsp://cam/1").name, find_input("clips/a.mp4").name
    ('network-stream', 'files')
    """
    specs = SOURCES.by_rank()
    return next(spec for spec in specs if spec.as_input and spec.matches(text))


def find_camera(text: str) -> SourceSpec:
    """Find the source that reads a camera.

    >>> find_camera("0").name, find_camera("v4l2src ! appsink").name
    ('camera', 'gstreamer')
    """
    cameras = [spec for spec in SOURCES.by_rank() if spec.as_camera]
    for spec in cameras:
        if spec.matches(text):
            return spec
    accepted = list(dict.fromkeys(spec.accepts for spec in SOURCES if spec.as_camera))
    raise UsageError(
        f"{text!r} is not a camera", hint=f"give {', '.join(accepted[:-1])} or {accepted[-1]}"
    )
