"""Routes of the station's API with the canned answers of a made-up line."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from datetime import timedelta
from typing import Any

import numpy as np
from fake_line import START, FakeLine, jpeg, rendered
from fastapi import APIRouter, Depends, Request, Response, WebSocket, WebSocketDisconnect
from starlette.routing import BaseRoute

from anoco_edge.station.web.access import find_user, require
from anoco_edge.station.web.problems import Problem


def fake_routes(line: FakeLine) -> list[BaseRoute]:
    """Return the routes of the API with canned answers; who is not signed in gets none."""
    pushes = APIRouter(prefix="/api/v1")
    add_pushes(pushes, line)
    router = APIRouter(prefix="/api/v1", dependencies=[Depends(require("viewer"))])
    add_line_routes(router, line)
    add_part_routes(router, line)
    add_product_routes(router, line)
    add_teach_routes(router, line)
    return [*pushes.routes, *router.routes]


def add_pushes(router: APIRouter, line: FakeLine) -> None:
    """Add the WebSocket."""

    @router.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        if find_user(socket) is None:
            await socket.close(4401)
            return
        line.loop = asyncio.get_running_loop()
        line.sockets.add(socket)
        try:
            while True:
                await socket.send_text(json.dumps({"type": "state", **line.state()}))
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(socket.receive_text(), 2)
        except (WebSocketDisconnect, RuntimeError):
            line.sockets.discard(socket)


def add_line_routes(router: APIRouter, line: FakeLine) -> None:
    """Add state, commands and cameras."""

    @router.get("/state")
    def state() -> dict[str, Any]:
        return line.state()

    @router.post("/line/{command}")
    async def command(command: str, request: Request) -> dict[str, Any]:
        body = await request.json()
        line.commands.append((command, body))
        if command == "maintenance":
            line.bits = [bit for bit in line.bits if bit != "MAINTENANCE"]
            line.bits += ["MAINTENANCE"] if body["on"] else []
        for socket in list(line.sockets):
            await socket.send_text(json.dumps({"type": "state", **line.state()}))
        return {}

    @router.get("/cameras/{name:path}/picture")
    def picture(name: str) -> Response:
        return Response(jpeg(line.picture(int(time.time()) % 50)), media_type="image/jpeg")


def add_part_routes(router: APIRouter, line: FakeLine) -> None:
    """Add the parts, their pictures and reviews, and scores over time."""

    @router.get("/parts")
    def parts(request: Request) -> dict[str, Any]:
        wanted = request.query_params
        found = [line.part(part["uid"]) for part in line.parts]
        if wanted.get("verdict"):
            found = [part for part in found if part["verdict"] == wanted["verdict"]]
        if wanted.get("code"):
            found = [part for part in found if wanted["code"] in part["part_code"]]
        if wanted.get("review") == "none":
            found = [part for part in found if part["review"] is None]
        if wanted.get("min_ratio"):
            found = [part for part in found if part["ratio"] >= float(wanted["min_ratio"])]
        first, limit = int(wanted.get("after", 0)), int(wanted.get("limit", 50))
        more = first + limit < len(found)
        return {"items": found[first : first + limit], "next": str(first + limit) if more else None}

    @router.get("/parts/{uid}")
    def part(uid: str) -> dict[str, Any]:
        return line.part(uid)

    @router.get("/parts/{uid}/captures/{number}/picture")
    def picture(uid: str, number: int, width: int = 0) -> Response:
        if uid.endswith("23"):
            raise Problem(404, "Not Found", "no picture was kept")
        return Response(jpeg(line.picture(int(uid[3:])), width), media_type="image/jpeg")

    @router.get("/parts/{uid}/captures/{number}/explanation")
    def explanation(uid: str, number: int) -> dict[str, Any]:
        part, at = line.part(uid), int(uid[3:])
        capture = part["captures"][0]
        regions = capture["regions"]
        shown = regions[0] if regions else {"left": 40, "top": 40, "right": 80, "bottom": 80}
        box = [shown[name] for name in ("left", "top", "right", "bottom")]
        reference = {"row": 3, "column": 4, "similarity": 0.412, "box": box, "query_box": box}
        size = {"width": capture["width"], "height": capture["height"]}
        whole = [0, 0, size["width"], size["height"]]
        grid = {"rows": 28, "columns": 28, "box": whole, "ratio": line.grid(at)}
        references = [{"digest": f"d{k}", **reference, **size} for k in range(2)]
        nearest = {"digests": ["d0", "d1"], "index": [[0] * 27 + [1]] * 28}
        nearest["similarity"] = [[0.9] * 28] * 28
        return {
            **size,
            "regions": regions,
            "grid": grid,
            "references": references,
            "nearest": nearest,
        }

    @router.put("/parts/{uid}/review")
    async def review(uid: str, request: Request) -> dict[str, Any]:
        body, user = await request.json(), find_user(request)
        assert user is not None
        line.reviews[uid] = {**body, "by": user.name, "at": line.moment(90)}
        return line.part(uid)

    @router.delete("/parts/{uid}/review")
    def forget(uid: str) -> dict[str, Any]:
        line.reviews.pop(uid, None)
        return line.part(uid)

    @router.put("/parts/{uid}/pin")
    async def pin(uid: str, request: Request) -> dict[str, Any]:
        (line.pins.add if (await request.json())["on"] else line.pins.discard)(uid)
        return line.part(uid)

    @router.get("/scores")
    def scores() -> dict[str, Any]:
        times = [(START + timedelta(minutes=k)).isoformat() for k in range(240)]
        rng = np.random.default_rng(3)
        low = rng.uniform(0.25, 0.4, 240).round(3).tolist()
        high = (0.7 + rng.exponential(0.12, 240)).round(3).tolist()
        events = [
            {"at": line.moment(1200), "kind": "generation", "text": f"generation 4{line.text}"},
            {"at": line.moment(3000), "kind": "event", "text": f"camera top was lost{line.text}"},
        ]
        threshold = [1.0] * 240
        return {"t": times, "low": low, "high": high, "threshold": threshold, "events": events}


def add_product_routes(router: APIRouter, line: FakeLine) -> None:
    """Add products, their thresholds, areas and generations, what-if, shadow and jobs."""
    capture = "/products/{number}/captures/{at}"

    def view() -> dict[str, Any]:
        generations = [
            {
                "generation": g,
                "at": line.moment(100 * g),
                "current": g == line.generation,
                "note": f"threshold by mia{line.text}",
                "references": 4,
                "threshold": 1.6,
            }
            for g in range(max(line.generation, 4), 0, -1)
        ]
        references = [{"digest": f"d{k}", "name": "a.png"} for k in range(4)]
        return {
            "number": 1,
            "capture": 0,
            "camera": f"top{line.text}",
            "bundle": "demo.anoco",
            "name": f"washer{line.text}",
            "product": "washer",
            "generation": line.generation,
            "threshold": line.threshold,
            "threshold_kind": "conformal",
            "region": line.region,
            "mask": "mask" if line.mask else None,
            "references": [{**each, "width": 384, "height": 384} for each in references],
            "promise": line.promise(),
            "generations": generations,
            "undo": True,
            "signature": {
                "key": "2F1D8E0C5B7A9346",
                "own": True,
                "at": "2026-11-18T09:30:00+00:00",
                "after": "D7E673D4439430D3",
                "problem": None,
            },
        }

    @router.get("/products")
    def products() -> list[dict[str, Any]]:
        name = f"washer{line.text}"
        captures = [{**view(), "camera": f"top{line.text}", "references": 4}]
        return [
            {"number": 1, "name": name, "current": True, "captures": captures},
            {"number": 2, "name": f"gasket{line.text}", "current": False, "captures": captures},
        ]

    @router.get(capture)
    def one(number: int, at: int) -> dict[str, Any]:
        return view()

    @router.get(capture + "/reference/{digest}")
    def reference(number: int, at: int, digest: str) -> Response:
        return Response(jpeg(rendered(int(digest[1:]), None).rgb), media_type="image/jpeg")

    @router.get(capture + "/histogram")
    def histogram(number: int, at: int) -> dict[str, Any]:
        rng = np.random.default_rng(5)
        bins = np.linspace(0, 4, 41)
        good = rng.gamma(9, 0.09, 340)
        live = np.concatenate([rng.gamma(9, 0.092, 960), rng.uniform(1.7, 3.8, 40)])
        return {
            "bins": bins.tolist(),
            "calibration": np.histogram(good, bins)[0].tolist(),
            "live": np.histogram(live, bins)[0].tolist(),
            "threshold": line.threshold,
            "promise": line.promise(),
            "live_parts": 1000,
            "left_out": 0,
        }

    @router.get(capture + "/mask")
    def mask(number: int, at: int) -> Response:
        assert line.mask is not None
        return Response(line.mask, media_type="image/png")

    @router.post(capture + "/{action}")
    async def act(number: int, at: int, action: str, request: Request) -> dict[str, Any]:
        body = await request.json()
        if action in ("what-if", "references"):
            line.commands.append((action, body))
            return line.job("dry-run", line.dry_run())
        if request.headers.get("if-match") != f'"{line.generation}"':
            raise Problem(412, "Precondition Failed", "somebody else saved meanwhile")
        line.commands.append((action, body))
        if action == "threshold":
            line.threshold = body["value"]
        elif action == "region":
            line.region = body["points"]
        elif action == "mask":
            line.mask = line.uploads[body["upload"]] if body["upload"] else None
        line.generation += -1 if action == "undo" else 1
        return line.job("commit", line.outcome())

    @router.delete(capture + "/references/{digest}")
    def remove(number: int, at: int, digest: str) -> dict[str, Any]:
        return line.job("dry-run", line.dry_run())

    @router.get("/shadow")
    def shadow() -> dict[str, Any] | None:
        if not line.shadow:
            return None
        return {
            "id": 1,
            "state": "running",
            "by": f"mia{line.text}",
            "at": line.moment(9),
            "product": 1,
            "capture": 0,
            "candidate": "j0",
            "parts": 500,
            "seen": line.seen,
            "rule": {"take_at_most": 2, "drop_above": 20},
            "note": f"by mia{line.text}",
            "ended": None,
            "differences": line.flips(3),
            "stricter": 0,
            "laxer": 3,
        }

    @router.post("/shadow")
    async def begin(request: Request) -> dict[str, Any]:
        line.commands.append(("shadow", await request.json()))
        line.shadow = True
        return {}

    @router.post("/shadow/{action}")
    def decide(action: str) -> dict[str, Any]:
        line.shadow = False
        line.commands.append((f"shadow {action}", None))
        return {}

    @router.get("/jobs")
    def jobs() -> list[dict[str, Any]]:
        return [
            {
                "id": "a",
                "kind": f"dry-run{line.text}",
                "state": "done",
                "progress": 1.0,
                "note": f"1000 parts{line.text}",
            }
        ]

    @router.get("/jobs/{name}")
    def job(name: str) -> dict[str, Any]:
        return {"note": "", "problem": None, **line.jobs[name]}


def add_teach_routes(router: APIRouter, line: FakeLine) -> None:
    """Add pictures that are sent or taken, and the teaching of a product."""

    def kept(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()[:32]
        line.uploads[digest] = data
        return {"digest": digest, "width": 384, "height": 384}

    @router.post("/uploads")
    async def upload(request: Request) -> dict[str, Any]:
        return kept(await request.body())

    @router.post("/uploads/camera")
    def take() -> dict[str, Any]:
        return kept(jpeg(rendered(len(line.uploads), None).rgb))

    @router.get("/uploads/{digest}/picture")
    def picture(digest: str) -> Response:
        return Response(line.uploads[digest], media_type="image/jpeg")

    @router.post("/teach")
    async def teach(request: Request) -> dict[str, Any]:
        line.commands.append(("teach", await request.json()))
        return line.job("commit", line.outcome())
