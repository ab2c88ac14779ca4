"""anoco-edge serve: run a station on a line."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.cli.console import note
from anoco_edge.errors import EnvironmentMissingError, UsageError

if TYPE_CHECKING:
    from anoco_edge.line.server import LineServer


def serve(
    config: Annotated[
        Path | None, typer.Argument(help="Configuration of a station (station.toml).")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Simulated camera and PLC; nothing else is needed.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0, help="Stop after this time; 0 runs until it is stopped.")
    ] = 0,
) -> None:
    """Serve a line: one trigger, one picture, one verdict, one answer before the deadline."""
    from anoco_edge.line.config.station_config import read_config
    from anoco_edge.line.demo_station import DemoPlc, page_installed, write_demo_station
    from anoco_edge.line.server import LineServer
    from anoco_edge.line.station_check import check_station
    from anoco_edge.sinks.service_manager import ServiceManager
    from anoco_edge.station.process import PageProcess

    if demo == (config is not None):
        raise UsageError("serve needs a station.toml or the demo", hint="give one of the two")
    with ExitStack() as stack:
        if config is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="anoco-station-"))
            note("rendering washers and teaching four of them")
            config = write_demo_station(Path(folder), page=page_installed())
            if not page_installed():
                note("to see the page of the station: pip install 'anoco-edge[station]'")
        read = read_config(config)
        report = check_station(read, config.parent)
        for finding in report.findings:
            if finding.state not in ("ok", "absent"):
                raise EnvironmentMissingError(
                    f"{finding.name}: {finding.detail}", hint=finding.help or "correct it"
                )
        manager = ServiceManager.from_environment()
        page = PageProcess(config, note) if read.page is not None else None
        server = LineServer(read, config.parent, say=note, alive=manager.alive)
        stack.callback(server.stop)
        stack.callback(manager.stopping, f"{read.station.name} stops")
        server.start()
        for name, bus in read.buses.items():
            note(f"{read.station.name} listens on {bus.listen}:{bus.port} ({name})")
        if page is not None:
            stack.callback(page.close)
            page.start()
        manager.ready(f"{read.station.name} serves its buses")
        if demo and read.tcp is not None:
            plc = DemoPlc(read.tcp.listen, read.tcp.port, note)
            stack.callback(plc.close)
            plc.start()
        try:
            _wait(server, seconds)
        finally:
            note(f"{read.station.name} stops: {server.status.counters.words()}")


def _wait(server: LineServer, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not seconds or time.monotonic() < end:
        if server.failure is not None:
            raise server.failure
        time.sleep(0.2)
