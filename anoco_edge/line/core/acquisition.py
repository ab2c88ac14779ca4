"""The cameras of a line: which are connected and in step, and what they are asked for."""

from __future__ import annotations

from anoco_edge.line.core.events import Picture
from anoco_edge.line.core.pairing import Answer, Pairing, WiredCounter
from anoco_edge.line.core.settings import MS, LineSettings


class Acquisition:
    """All cameras of a line. With a wired trigger a camera is in step as soon as it is connected,
    because its picture makes the part."""

    def __init__(self, settings: LineSettings) -> None:
        self._wired = settings.trigger == "camera"
        self._window = settings.acquire_ms * MS
        self._simulates = {camera.name for camera in settings.cameras if camera.simulates}
        self.simulated = False
        """Whether stored pictures take the place of the cameras that have some."""
        self._pairings = {camera.name: Pairing(camera) for camera in settings.cameras}
        self._counters = {camera.name: WiredCounter(camera) for camera in settings.cameras}

    @property
    def up(self) -> bool:
        """Whether all cameras are connected."""
        return all(pairing.up for pairing in self._pairings.values())

    @property
    def connected(self) -> frozenset[str]:
        """The names of the cameras that are connected."""
        return frozenset(name for name, pairing in self._pairings.items() if pairing.up)

    @property
    def in_step(self) -> bool:
        """Whether all cameras are connected and in step."""
        return all(map(self.camera_in_step, self._pairings))

    def camera_in_step(self, camera: str) -> bool:
        """Whether a camera is connected and in step."""
        pairing = self._pairings[camera]
        return pairing.up if self._wired else pairing.in_step

    def connect(self, camera: str) -> None:
        """Note a camera that was connected, with a counter that starts anywhere."""
        self._pairings[camera].up = True
        self._pairings[camera].lose_step()
        self._counters[camera].reset()

    def disconnect(self, camera: str) -> None:
        """Note a camera that is gone."""
        self._pairings[camera].up = False
        self._pairings[camera].lose_step()

    def lose_step(self) -> None:
        """Let every camera show again that it is in step."""
        for name, pairing in self._pairings.items():
            pairing.lose_step()
            self._counters[name].reset()

    def simulate(self, on: bool) -> None:
        """Change over to stored pictures or back; every camera has to show that it is in step."""
        self.simulated = on
        self.lose_step()

    def takes_stored(self, camera: str) -> bool:
        """Whether a camera is asked for stored pictures now."""
        return self.simulated and camera in self._simulates

    def ask(self, camera: str, now: int, until: int) -> None:
        """Note that a camera is asked for the picture of a part."""
        self._pairings[camera].ask(now, until)

    def ask_between(self, camera: str, now: int) -> bool:
        """Ask for a picture that belongs to no part, if the camera can be asked now."""
        pairing = self._pairings.get(camera)
        busy = pairing is not None and (pairing.waiting_until or 0) > now
        if self._wired or pairing is None or not pairing.in_step or busy:
            return False
        pairing.ask(now, now + self._window)
        return True

    def close(self, now: int) -> None:
        """End the time of all requests: another part has come in front of the cameras."""
        for pairing in self._pairings.values():
            pairing.close(now)

    def answer(self, picture: Picture, now: int) -> Answer:
        """Say which request a picture answers; one of a time to come answers none."""
        if picture.exposed_to > now:
            self._pairings[picture.camera].lose_step()
            return "out of step"
        return self._pairings[picture.camera].answer(picture)

    def lost_before(self, picture: Picture, now: int) -> int | None:
        """With a wired trigger: how many pictures before this one never came; None if its counter
        or its time cannot be right."""
        lost = self._counters[picture.camera].lost(picture.counter)
        return None if picture.exposed_to > now else lost

    def ask_for_tests(self, now: int) -> list[str]:
        """Return the cameras that have to take a test picture now, and note that they are asked."""
        due = [name for name, at in self._tests().items() if at <= now]
        for name in due:
            self._pairings[name].ask(now, now + self._window)
        return due

    def next_test(self) -> int | None:
        """When the next camera has to be asked for a test picture."""
        return min(self._tests().values(), default=None)

    def _tests(self) -> dict[str, int]:
        """When each camera that is not in step is asked next: when its last test has ended."""
        return {
            name: pairing.waiting_until or 0
            for name, pairing in self._pairings.items()
            if pairing.up and not self.camera_in_step(name)
        }
