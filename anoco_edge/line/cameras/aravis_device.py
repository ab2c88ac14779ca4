"""A GigE Vision or USB3 Vision camera: its features, its trigger, its frames, its clock."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import SourceError
from anoco_edge.line.cameras.aravis_library import load_aravis

FeatureValue = bool | int | float | str
BUFFERS = 8
_WHOLE, _DISCARDED = 0, (1, 7)  # ARV_BUFFER_STATUS_SUCCESS; _CLEARED and _ABORTED
_LATCH, _LATCHED, _TICKS = 0x944, 0x948, 0x93C  # registers that every GigE Vision device has


@dataclass(frozen=True)
class FeatureAnswer:
    """A feature that was set, and what the camera says about it afterwards."""

    name: str
    asked: FeatureValue
    answered: FeatureValue

    def __str__(self) -> str:
        same = self.answered == self.asked
        return f"{self.name}={self.asked}" + ("" if same else f" (answered {self.answered})")


@dataclass(frozen=True)
class GrabbedFrame:
    """A frame as it arrived. `stamp` is that of the camera in nanoseconds, 0 if it has none;
    `data` lies in a buffer that belongs to the camera again when the frame is given back."""

    counter: int
    stamp: int
    arrival: int
    complete: bool
    width: int
    height: int
    pixel_format: int
    data: NDArray[np.uint8] = field(repr=False)
    buffer: int = field(repr=False)


class AravisDevice:
    """An open camera. One thread controls it; another one may grab frames."""

    def __init__(self, address: str) -> None:
        """Open a camera by its IP address, or by its name in Aravis (vendor-serial)."""
        self._library = load_aravis()
        self._stream: int | None = None
        self._running = False
        self._camera: int | None = self._call("camera_new", address.encode())
        if not self._camera:
            raise SourceError(f"there is no camera {address}", hint="check address and cable")
        self._device = self._call("camera_get_device", self._camera)
        self._is_gige = bool(self._call("camera_is_gv_device", self._camera))
        self._ticks = 0
        names = ("vendor_name", "model_name", "device_serial_number")
        found = (self._call(f"camera_get_{name}", self._camera) for name in names)
        self.name = " ".join(text.decode("utf-8", "replace") for text in found if text)

    def set_feature(self, name: str, value: FeatureValue) -> FeatureAnswer:
        """Set a feature and read it back; one that the camera refuses is a SourceError."""
        key = name.encode()
        if isinstance(value, str):
            self._set("string", key, value.encode())
            read = self._call("device_get_string_feature_value", self._device, key)
            return FeatureAnswer(name, value, (read or b"").decode("utf-8", "replace"))
        kind = {bool: "boolean", int: "integer", float: "float"}[type(value)]
        try:
            self._set(kind, key, value)
        except SourceError:
            if kind != "integer":
                raise
            kind = "float"  # 5000 in a file means 5000.0 where the feature is one
            self._set(kind, key, float(value))
        answered = self._call(f"device_get_{kind}_feature_value", self._device, key)
        return FeatureAnswer(name, value, answered)

    def start(self) -> None:
        """Begin to acquire; nothing is exposed before."""
        payload = self._call("camera_get_payload", self._camera)
        if self._stream is None:
            self._stream = self._call("camera_create_stream", self._camera, None, None)
            for _ in range(BUFFERS):
                buffer = self._call("buffer_new_allocate", payload)
                self._call("stream_push_buffer", self._stream, buffer)
        self._running = True
        self._call("camera_start_acquisition", self._camera)

    def stop(self) -> None:
        """End acquiring."""
        self._running = False
        self._call("camera_stop_acquisition", self._camera)

    def trigger(self) -> None:
        """Let the camera expose one frame now; returns when it has acknowledged."""
        self._call("camera_software_trigger", self._camera)

    def grab(self, seconds: float) -> GrabbedFrame | None:
        """Wait for a frame, which must be given back; None where none came."""
        call = self._call
        buffer = call("stream_timeout_pop_buffer", self._stream, int(seconds * 1e6))
        arrival = time.monotonic_ns()
        if not buffer:
            return None
        status = call("buffer_get_status", buffer)
        if status in _DISCARDED:
            call("stream_push_buffer", self._stream, buffer)
            return None
        size = ctypes.c_size_t()
        start = call("buffer_get_data", buffer, ctypes.byref(size))
        data = np.empty(0, np.uint8)
        if start and size.value:
            data = np.ctypeslib.as_array((ctypes.c_uint8 * size.value).from_address(start))
        return GrabbedFrame(
            call("buffer_get_frame_id", buffer),
            call("buffer_get_timestamp", buffer),
            arrival,
            status == _WHOLE,
            call("buffer_get_image_width", buffer),
            call("buffer_get_image_height", buffer),
            call("buffer_get_image_pixel_format", buffer),
            data,
            buffer,
        )

    def give_back(self, frame: GrabbedFrame) -> None:
        """Let the camera use the buffer of a frame again."""
        self._call("stream_push_buffer", self._stream, frame.buffer)

    def ping(self) -> None:
        """Return when the camera itself has answered; SourceError when it does not, or obeys
        somebody else, as after a restart."""
        four = (ctypes.c_uint8 * 4)()
        self._call("device_read_memory", self._device, 0, 4, ctypes.byref(four))
        if self._is_gige and not self._call("gv_device_is_controller", self._device):
            raise SourceError(
                "it was restarted, or another program controls it", hint="end the other program"
            )

    def latch(self) -> tuple[int, int, int] | None:
        """Let a GigE Vision camera read its clock: our time before, its nanoseconds, our time
        after. None where it has no such clock, and for USB3 Vision."""
        if not self._is_gige:
            return None
        self._ticks = self._ticks or self._read_long(_TICKS)
        before = time.monotonic_ns()
        self._call("device_write_register", self._device, _LATCH, 2)
        after = time.monotonic_ns()
        ticks = self._read_long(_LATCHED)
        if not ticks or not self._ticks:
            return None
        return before, ticks * 1_000_000_000 // self._ticks, after

    def close(self) -> None:
        """Let the camera go; one that is gone already takes a few seconds."""
        if self._running:
            try:
                self.stop()
            except SourceError:
                self._running = False  # it is gone; what is left is ours
        self._library.release(self._stream)
        self._library.release(self._camera)
        self._stream = self._camera = None

    def _call(self, name: str, *arguments: object) -> Any:
        return self._library.call(name, *arguments)

    def _set(self, kind: str, name: bytes, value: object) -> None:
        self._call(f"device_set_{kind}_feature_value", self._device, name, value)

    def _read_long(self, address: int) -> int:
        high, low = ctypes.c_uint32(), ctypes.c_uint32()
        self._call("device_read_register", self._device, address, ctypes.byref(high))
        self._call("device_read_register", self._device, address + 4, ctypes.byref(low))
        return high.value << 32 | low.value
