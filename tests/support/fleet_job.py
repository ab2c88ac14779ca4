"""A job for workers of the fleet's tests: doubles a text, and dies of some."""

from __future__ import annotations

import os
import time


class Doubling:
    """Calls itself busy for a while, so that it can be asked how far it is."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self.steps = 0

    def __call__(self, payload: str) -> str:
        if payload == "poison":
            os._exit(1)
        for self.steps in range(1, 4):
            time.sleep(self._pause)
        return payload * 2
