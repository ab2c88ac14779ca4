"""A GigE Vision or USB3 Vision camera of a line, with software or wired trigger.

One thread controls the camera (features, triggers, signs of life), another takes its frames, so
that a trigger waits for neither. A camera that is lost is connected again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from anoco_edge.errors import AnocoError, SourceError
from anoco_edge.line.cameras.actor import PROGRESS_SECONDS, CameraOutlet, Reconnection
from anoco_edge.line.cameras.aravis_device import AravisDevice, FeatureValue, GrabbedFrame
from anoco_edge.line.cameras.clock import CameraClock, Exposure
from anoco_edge.line.cameras.pixel_formats import to_rgb
from anoco_edge.line.core.events import CameraProgress, CameraUp, Picture
from anoco_edge.line.core.settings import MS

_GRAB_SECONDS = 0.1
_CALIBRATION_FRAMES = 3
_CALIBRATION_SECONDS = 2.0
_SOFTWARE = {
    "AcquisitionMode": "Continuous",
    "TriggerSelector": "FrameStart",
    "TriggerMode": "On",
    "TriggerSource": "Software",
}


@dataclass(frozen=True)
class AravisSettings:
    """The camera's address, its features, and the input of a wired trigger (None: software)."""

    address: str
    features: Mapping[str, FeatureValue] = field(default_factory=dict)
    trigger_line: str | None = None


class AravisCamera:
    """Threads that trigger a camera and deliver its frames."""

    def __init__(self, settings: AravisSettings, outlet: CameraOutlet) -> None:
        self._settings, self._outlet = settings, outlet
        self._name = outlet.camera
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._clock_lock = threading.Lock()
        self._clock = CameraClock(0)
        self._trouble = ""
        self._thread = threading.Thread(target=self._work, name=f"camera {self._name}", daemon=True)

    def start(self) -> None:
        """Connect, in a thread of its own."""
        self._thread.start()

    def take(self) -> None:
        """Ask for one frame; a camera with a wired trigger is not asked."""
        self._requests.put(True)

    def close(self) -> None:
        """End the threads and let the camera go."""
        self._closing.set()
        self._requests.put(False)
        self._thread.join(5)

    # ---- the thread that controls the camera

    def _work(self) -> None:
        Reconnection(self._outlet, self._closing).run(self._session)

    def _session(self) -> None:
        device = AravisDevice(self._settings.address)
        stop = threading.Event()
        grabber = threading.Thread(
            target=self._grab_all, args=(device, stop), name=f"frames of {self._name}", daemon=True
        )
        try:
            self._begin(device)
            grabber.start()
            self._outlet.post(CameraUp(self._name))
            self._control(device)
        finally:
            stop.set()
            if grabber.ident is not None:
                grabber.join()
            if self._closing.is_set():
                device.close()
            else:  # one that is gone answers nothing for many seconds
                threading.Thread(target=device.close, daemon=True).start()

    def _begin(self, device: AravisDevice) -> None:
        """Set the features, start, and learn the camera's clock where its own frames cannot."""
        line = self._settings.trigger_line
        answers = [
            self._set(device, *feature)
            for feature in {**self._settings.features, **_SOFTWARE}.items()
        ]
        while not self._requests.empty():  # what was asked before belongs to nobody
            self._requests.get()
        self._trouble = ""
        with self._clock_lock:
            self._clock = CameraClock(time.monotonic_ns())
        device.start()
        words = ""
        if line is not None:
            words = f"; exposure is known to {self._calibrate(device) / MS:.1f} ms"
            device.stop()
            answers.append(self._set(device, "TriggerSource", line))
            device.start()
        text = ", ".join(answers)
        self._outlet.note(f"camera {self._name} is {device.name}, set {text}{words}")

    def _set(self, device: AravisDevice, name: str, value: FeatureValue) -> str:
        try:
            return str(device.set_feature(name, value))
        except SourceError as error:
            raise SourceError(
                f"it refuses {name} = {value!r}: {error.what}", hint="see the camera's manual"
            ) from None

    def _calibrate(self, device: AravisDevice) -> int:
        """Take frames by software, so that the clock is known before the wire triggers."""
        exposure: Exposure | None = None
        for _ in range(_CALIBRATION_FRAMES):
            with self._clock_lock:
                self._clock.request(time.monotonic_ns())
            device.trigger()
            frame = device.grab(_CALIBRATION_SECONDS)
            if frame is not None:
                exposure = self._exposure(frame)
                device.give_back(frame)
        self._latch(device)
        if exposure is None:
            raise SourceError(
                "it sends no frame when it is triggered by software",
                hint="check its settings and the network",
            )
        return exposure.uncertainty

    def _control(self, device: AravisDevice) -> None:
        while not self._closing.is_set():
            if self._trouble:
                raise SourceError(self._trouble, hint="it is connected again")
            try:
                if not self._requests.get(timeout=PROGRESS_SECONDS):
                    return
            except queue.Empty:
                device.ping()
                self._latch(device)
                self._outlet.post(CameraProgress(self._name))
                continue
            if self._settings.trigger_line is None:
                with self._clock_lock:
                    self._clock.request(time.monotonic_ns())
                device.trigger()

    def _latch(self, device: AravisDevice) -> None:
        found = device.latch()
        if found is not None:
            with self._clock_lock:
                self._clock.latch(*found)

    # ---- the thread that takes frames

    def _grab_all(self, device: AravisDevice, stop: threading.Event) -> None:
        while not stop.is_set() and not self._trouble:
            frame = device.grab(_GRAB_SECONDS)
            if frame is None:
                continue
            try:
                self._deliver(frame)
            except AnocoError as error:
                self._trouble = str(error)
            finally:
                device.give_back(frame)

    def _exposure(self, frame: GrabbedFrame) -> Exposure:
        with self._clock_lock:
            found = self._clock.frame(frame.stamp, frame.arrival)
        if found is None:
            raise SourceError("its clock was stepped", hint="it is connected again")
        return found

    def _deliver(self, frame: GrabbedFrame) -> None:
        exposure = self._exposure(frame)
        if not frame.complete:
            self._outlet.post(
                Picture(
                    self._name, frame.counter, exposure.earliest, exposure.latest, complete=False
                )
            )
            return
        rgb = to_rgb(frame.data, frame.width, frame.height, frame.pixel_format)
        self._outlet.deliver(rgb, frame.counter, exposure.earliest, exposure.latest)
