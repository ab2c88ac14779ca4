"""The web process: `python -m anoco_edge.station.main station.toml`.

`serve` starts it, and again when it ends. It has a lower priority than the line, and ends when its
standard input is closed, that is, when `serve` is gone, however that came about.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from anoco_edge.errors import AnocoError
from anoco_edge.line.config.station_config import read_config
from anoco_edge.station.web.app import create_app
from anoco_edge.station.web.context import StationContext, open_context
from anoco_edge.station.web.server import StationServer, quiet_logging, serve_until
from anoco_edge.station.web.tls import Certificate, certificate_for
from anoco_edge.text.plain_text import plain_text

NICENESS = 10


def main(arguments: list[str]) -> int:
    """Serve the page of a station until standard input ends; return the exit code."""
    os.nice(NICENESS)
    quiet_logging()
    try:
        (path,) = map(Path, arguments)
        config = read_config(path)
        context = open_context(config, path.parent)
        certificate = certificate_for(context.page, context.base, context.folder)
        asyncio.run(_serve(context, certificate))
    except AnocoError as error:
        _say(f"the page: {error}")
        return error.exit_code
    return 0


async def _serve(context: StationContext, certificate: Certificate | None) -> None:
    def greet() -> None:
        _say(f"the page of {context.config.station.name}: {context.address}")
        if certificate is not None:
            _say(f"SHA-256 of its certificate: {certificate.fingerprint}")
        if context.users.none:
            _say(f"code to set it up: {context.setup_code.text}")

    server = StationServer(create_app(context), context, certificate, on_start=greet)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    threading.Thread(target=_watch_parent, args=(loop, stop), daemon=True).start()
    await serve_until(server, stop)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # no buffer, whose lock Python would want at its end
        pass
    loop.call_soon_threadsafe(stop.set)


def _say(text: str) -> None:
    sys.stderr.write(plain_text(text) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
