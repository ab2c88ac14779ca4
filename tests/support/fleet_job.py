"""A job for workers in the fleet's tests, which doubles a text and crashes on one of them."""

from __future__ import annotations

import os
import time


class Doubling:
    """Doubles a text in three slow steps and counts them, so that a test can ask for progress.

    The text "poison" ends the process.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self.steps = 0

    def __call__(self, payload: str) -> str:
        if payload == "poison":
            os._exit(1)
        for self.steps in range(1, 4):
            time.sleep(self._pause)
        return payload * 2
