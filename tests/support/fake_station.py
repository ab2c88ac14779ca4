"""The station's web application, with canned answers where the line and its history would be.

Pages, signing in, guards and headers are the real ones, served by the real server; a line that
waits for nothing gives every page the same parts each time. `python tests/support/fake_station.py`
serves it to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fake_api import fake_routes
from fake_line import FakeLine

from anoco_edge.line.config.station_config import read_config
from anoco_edge.line.demo_station import free_port
from anoco_edge.station.web.app import create_app
from anoco_edge.station.web.context import StationContext, open_context
from anoco_edge.station.web.server import StationServer, serve_until

CONFIG = """
[station]
name = "press-3"
folder = "data"

[[cameras]]
name = "top"
source = "rendered:washer"

[[products]]
number = 1
name = "washer"
captures = [{{ camera = "top", bundle = "demo.anoco" }}]

[tcp]
port = 7301

[page]
port = {port}
"""
USERS: Mapping[str, str] = {
    "mia": "admin",
    "otto": "operator",
    "vera": "viewer",
    "emil": "engineer",
}
PASSWORD = "correct horse battery"


def make_context(folder: Path, port: int, users: Mapping[str, str]) -> StationContext:
    """Return the context of a station with these users."""
    path = folder / "station.toml"
    path.write_text(CONFIG.format(port=port), encoding="utf-8")
    (folder / "data").mkdir(exist_ok=True)
    context = open_context(read_config(path), folder)
    for user, role in users.items():
        context.users.add(user, role, PASSWORD)
    return context


@contextlib.contextmanager
def serving(
    folder: Path, line: FakeLine | None, users: Mapping[str, str] = USERS
) -> Iterator[StationContext]:
    """Serve the application in a thread; without a line its own routes answer."""
    context = make_context(folder, free_port(), users)
    app = create_app(context)
    if line is not None:
        app.router.routes[0:0] = fake_routes(line)
    server = StationServer(app, context)
    stop, started = asyncio.Event(), threading.Event()
    held: dict[str, Callable[[], None]] = {}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        held["stop"] = lambda: loop.call_soon_threadsafe(stop.set)
        serving_ = asyncio.create_task(serve_until(server, stop))
        while not server.started:
            await asyncio.sleep(0.01)
        started.set()
        await serving_

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield context
    finally:
        held["stop"]()
        thread.join(20)
        context.close()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as held_, serving(Path(held_), FakeLine()) as context_:
        print(context_.address, flush=True)
        threading.Event().wait()
