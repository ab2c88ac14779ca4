"""A made-up line: rendered parts with verdicts, and what the pages ask about them."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

import numpy as np
from fastapi import WebSocket
from PIL import Image

from anoco_edge.demo.render import DEFECTS, Part, render
from anoco_edge.station.web.problems import Problem

START = datetime(2026, 3, 2, 8, 0, tzinfo=timezone.utc)
MATERIAL = "washer"
STATUS_WORDS = {
    "STATUS": 8225,
    "HEARTBEAT": 4711,
    "RESULT_SEQ": 60,
    "REASON": 0,
    "SCORE": 2310,
    "PRODUCT": 1,
    "GENERATION": 4,
    "SETTINGS_CHECKSUM": 51966,
    "ACQUIRE_MS": 21,
    "TOTAL_MS": 96,
    "RESERVE_MS": 154,
    "COUNT_TRIGGERS": 1840,
    "COUNT_GOOD": 1790,
    "COUNT_FAIL": 41,
    "COUNT_NO_VERDICT": 6,
    "COUNT_MISSED": 3,
}


@lru_cache(maxsize=64)
def rendered(seed: int, defect: str | None) -> Part:
    """Return a rendered part."""
    return render(MATERIAL, seed, defect)


def jpeg(picture: np.ndarray[Any, Any], width: int = 0) -> bytes:
    """Return a picture as JPEG, scaled to a width if one is given."""
    image = Image.fromarray(picture)
    if width and width < image.width:
        image = image.resize((width, max(1, round(image.height * width / image.width))))
    held = io.BytesIO()
    image.save(held, "JPEG", quality=85)
    return held.getvalue()


class FakeLine:
    """The parts of a line and everything that the pages ask about them."""

    def __init__(self, text: str = "") -> None:
        self.text = text  # put into every name that comes from data
        self.reviews: dict[str, dict[str, str]] = {}
        self.pins: set[str] = set()
        self.bits = ["READY", "ACQ_DONE", "RESULT_VALID", "FAIL", "RESULT_TOGGLE", "PLC_LINK"]
        self.warnings = [f"drift: scores rise since 07:40{text}"]
        self.generation = 4
        self.threshold = 1.6
        corners = [(0.08, 0.06), (0.93, 0.06), (0.96, 0.5), (0.93, 0.95), (0.08, 0.95)]
        self.region = [[x * 384, y * 384] for x, y in corners]
        self.mask: bytes | None = corner_mask()
        self.uploads: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.commands: list[tuple[str, Any]] = []
        self.shadow = True
        self.seen = 312  # of 500 parts that the candidate judged
        self.sockets: set[WebSocket] = set()
        self.parts = [self.make(n) for n in range(1, 61)][::-1]

    def make(self, number: int) -> dict[str, Any]:
        """Return a part; every seventh is anomalous and two have no verdict."""
        verdict = "anomalous" if number % 7 == 4 else "good"
        reason = "NONE"
        ratio = 0.35 + (number * 37 % 50) / 100 if verdict == "good" else 1.4 + number % 5 / 4
        if number in (23, 46):
            verdict, reason, ratio = "no-verdict", ("DEADLINE", "BLURRED")[number == 46], 0.0
        total = 70 + number * 13 % 60 + (300 if number == 46 else 0)
        uid = f"r1-{number:06d}"
        capture = {
            "number": 0,
            "camera": f"top{self.text}",
            "verdict": verdict,
            "reason": reason,
            "ratio": ratio,
            "picture": number != 23,
            "regions": self.regions(number, verdict),
            **dict(zip(("width", "height"), self.picture(number).shape[1::-1], strict=True)),
        }
        return {
            "uid": uid,
            "at": self.moment(number),
            "seq": number,
            "accepted": True,
            "part_code": f"W{number:04d}{self.text}",
            "verdict": verdict,
            "reason": reason,
            "ratio": ratio,
            "product": 1,
            "product_name": f"washer{self.text}",
            "generation": 4,
            "acquire_ms": 18 + number % 6,
            "total_ms": total,
            "reserve_ms": 250 - total,
            "simulated": True,
            "late": False,
            "review": None,
            "pinned": False,
            "captures": [capture],
        }

    def moment(self, number: int) -> str:
        """Return when a part came."""
        return (START + timedelta(seconds=3 * number)).isoformat(timespec="milliseconds")

    def source(self, number: int) -> Part:
        """Return the rendered part behind a number."""
        kinds = DEFECTS[MATERIAL]
        defect = kinds[number // 7 % len(kinds)] if number % 7 == 4 else None
        return rendered(0 if defect else number % 4, defect)

    def picture(self, number: int) -> np.ndarray[Any, Any]:
        """Return the picture of a part."""
        return self.source(number).rgb

    def regions(self, number: int, verdict: str) -> list[dict[str, float]]:
        """Return the box around the rendered defect."""
        mask = self.source(number).mask
        if verdict != "anomalous" or mask is None or not mask.any():
            return []
        rows, columns = np.nonzero(mask)
        return [
            {
                "left": int(columns.min()),
                "top": int(rows.min()),
                "right": int(columns.max()) + 1,
                "bottom": int(rows.max()) + 1,
                "peak": 2.31,
            }
        ]

    def grid(self, number: int) -> list[list[float]]:
        """Return scores over the threshold on a coarse grid."""
        picture = self.source(number)
        noise = np.random.default_rng(number).uniform(0.1, 0.6, (28, 28))
        if picture.mask is not None:
            image = Image.fromarray(picture.mask.astype(np.uint8) * 255).resize((28, 28))
            noise = np.maximum(noise, np.asarray(image) / 255 * 2.2)
        return [[round(float(value), 3) for value in row] for row in noise]

    def part(self, uid: str) -> dict[str, Any]:
        """Return a part as it is now."""
        for part in self.parts:
            if part["uid"] == uid:
                return {**part, "review": self.reviews.get(uid), "pinned": uid in self.pins}
        raise Problem(404, "Not Found", f"there is no part {uid}")

    def state(self) -> dict[str, Any]:
        """Return the state of the line."""
        return {
            "name": f"press-3{self.text}",
            "state": "SingleExecution",
            "bits": self.bits,
            "words": STATUS_WORDS,
            "yield": 0.9744,
            "pace_per_minute": 41,
            "connected": True,
            "product": {"number": 1, "name": f"washer{self.text}", "generation": self.generation},
            "counters": {"triggers": 1840, "good": 1790, "fail": 41, "no_verdict": 6, "missed": 3},
            "deadline_ms": 250,
            "reserve_ms": 154,
            "warnings": self.warnings,
            "cameras": [{"name": f"top{self.text}", "source": "rendered:washer", "up": True}],
        }

    def job(self, kind: str, result: Any) -> dict[str, Any]:
        """Begin a job that is done when it is asked for the second time."""
        made = {"id": f"j{len(self.jobs)}", "kind": kind, "state": "running", "progress": 0.4}
        self.jobs[str(made["id"])] = {**made, "state": "done", "progress": 1.0, "result": result}
        return {**made, "note": f"part 400 of 1000{self.text}", "result": None, "problem": None}

    def promise(self, words: str = "") -> dict[str, Any]:
        """Return what is promised about good parts at thresholds."""
        steps = [
            {
                "threshold": each,
                "false_reject_low": max(0.0, 0.05 - each * 0.03),
                "false_reject_high": 0.09 / (1 + each) ** 2,
            }
            for each in np.linspace(0.2, 4, 77).round(3).tolist()
        ]
        return {
            "at": steps,
            "current": steps[int(self.threshold * 20) - 4],
            "parts": 340,
            "words": words,
            "evidence": f"Set from 340 good parts.{self.text}",
            "doubts": [],
            "more_for_one_percent": 0,
        }

    def flips(self, count: int) -> list[dict[str, Any]]:
        """Return parts that would get another verdict."""
        return [
            {
                "uid": part["uid"],
                "number": 0,
                "verdict": "anomalous",
                "new_verdict": "good",
                "ratio": part["ratio"],
                "new_ratio": 0.82,
                "picture": True,
            }
            for part in [each for each in self.parts if each["verdict"] == "anomalous"][:count]
        ]

    def outcome(self) -> dict[str, Any]:
        """Return what a change made of the product."""
        return {
            "product": f"washer{self.text}",
            "generation": self.generation,
            "before": self.generation - 1,
            "change": "threshold",
            "references": 4,
            "added": [],
            "duplicates": [],
            "threshold": self.threshold,
            "notes": [],
            "threshold_kind": "conformal",
            "promise": self.promise(),
            "more_for_one_percent": 95,
        }

    def dry_run(self) -> dict[str, Any]:
        """Return what a change would do."""
        return {
            "outcome": self.outcome(),
            "method": "inspection",
            "parts": 1000,
            "compared": 1000,
            "left_out": [],
            "before": {"anomalous": 41},
            "after": {"anomalous": 39},
            "flips": self.flips(2),
            "more_flips": 0,
            "words": "",
        }

    def send(self, message: dict[str, Any]) -> None:
        """Push a message to every page, from any thread."""
        for socket in list(self.sockets):
            asyncio.run_coroutine_threadsafe(
                socket.send_text(json.dumps(message)), self.loop
            ).result(10)

    def hang_up(self) -> None:
        """Close the connection of every page."""
        for socket in list(self.sockets):
            asyncio.run_coroutine_threadsafe(socket.close(1001), self.loop).result(10)

    loop: asyncio.AbstractEventLoop


def corner_mask() -> bytes:
    """Return a mask that ignores the lower left corner."""
    image = Image.new("RGB", (384, 384))
    image.paste((255, 255, 255), (8, 310, 76, 376))
    held = io.BytesIO()
    image.save(held, "PNG")
    return held.getvalue()
