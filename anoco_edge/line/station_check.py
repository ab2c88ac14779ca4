"""What a station would run, and what is missing for it."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.diagnostics.findings import Finding, attempt
from anoco_edge.errors import EnvironmentMissingError, StorageError, missing
from anoco_edge.line.cameras.kinds import check_camera
from anoco_edge.line.capture_check import check_capture
from anoco_edge.line.config.gpio_table import GpioTable
from anoco_edge.line.config.page_table import PageTable
from anoco_edge.line.config.station_config import (
    BusTable,
    HttpTable,
    ListenTable,
    OpcuaTable,
    StationConfig,
    optional_secret,
    read_secret,
)
from anoco_edge.line.signed_bundles import trust_of


@dataclass(frozen=True)
class StationReport:
    """The findings about a station, and whether it would run."""

    revision: str
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Whether nothing is missing or broken."""
        return all(finding.state in ("ok", "absent") for finding in self.findings)


def check_station(config: StationConfig, base: Path) -> StationReport:
    """Look at everything that a station needs; `base` is the folder of its station.toml.

    >>> from anoco_edge.line.config.station_config import EXAMPLE, parse_config
    >>> report = check_station(parse_config(EXAMPLE, "station.toml"), Path("nowhere"))
    >>> [(finding.name, finding.state) for finding in report.findings if finding.state != "ok"]
    [('1 washer, top', 'broken'), ('mqtt', 'absent'), ('webhook', 'absent')]
    """
    return StationReport(config.revision, tuple(_findings(config, base)))


def _findings(config: StationConfig, base: Path) -> Iterator[Finding]:
    yield attempt("station", config.station.name, lambda: _folder(base / config.station.folder))
    line = config.line
    words = f"trigger by {line.trigger}, picture within {line.acquire_ms} ms, verdict within "
    words += f"{line.deadline_ms} ms, fault after {line.fault_after} without a verdict"
    yield Finding("station", "line", "ok", words)
    yield Finding("station", "configuration", "ok", f"revision {config.revision[:12]}")
    for camera in config.cameras:
        yield attempt("cameras", camera.name, _trial(check_camera, camera, base, line.trigger))
    trust = trust_of(config, base)
    for product in config.products:
        for capture in product.captures:
            name = f"{product.number} {product.name}, {capture.camera}"
            trial = _trial(check_capture, capture, base, config.revision, line.runtime, trust)
            yield attempt("products", name, trial)
    for name, bus in config.buses.items():
        yield attempt("buses", name, _trial(_bus, name, bus, base))
    if config.gpio is not None:
        yield attempt("buses", "gpio", _trial(_gpio, config.gpio))
    if (page := config.page) is not None:
        yield attempt("page", f"{page.listen}:{page.port}", _trial(_page, page, base))
    yield _mqtt(config, base)
    yield _webhook(config, base)


def _trial(check: Callable[..., str], *arguments: object) -> Callable[[], str]:
    return lambda: check(*arguments)


def _folder(folder: Path) -> str:
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise StorageError(f"cannot write into {above}", hint="choose another folder")
    for file in sorted(folder.glob("*.db")):
        if not os.access(file, os.R_OK | os.W_OK):
            raise StorageError(f"cannot write into {file}", hint="check who may write there")
    return f"data in {folder}"


def _bus(name: str, bus: ListenTable, base: Path) -> str:
    if name == "modbus" and importlib.util.find_spec("pymodbus") is None:
        raise missing("pymodbus", "line", "to serve Modbus TCP")
    if name == "opcua" and importlib.util.find_spec("asyncua") is None:
        raise missing("asyncua", "opcua", "to serve OPC UA")
    _can_listen(bus.listen, bus.port)
    clients = bus.clients if isinstance(bus, BusTable) else ()
    allowed = ", ".join(clients) or "everybody who can reach it"
    if isinstance(bus, OpcuaTable) and bus.username is not None:
        optional_secret(base, bus.password_file)
        allowed = f"{bus.username}, encrypted"
    if isinstance(bus, HttpTable) and bus.token_file is not None:
        read_secret(base / bus.token_file)
        allowed += f", commands with the token of {bus.token_file}"
    return f"listens on {bus.listen}:{bus.port} for {allowed}"


def _can_listen(host: str, port: int) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(found[0][4])
    except OSError as error:
        raise EnvironmentMissingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another address or port, or end what uses it",
        ) from None


def _page(page: PageTable, base: Path) -> str:
    packages = ("fastapi", "uvicorn", "websockets", "jinja2", "multipart")
    secured = page.tls or page.require_signature
    for package in (*packages, *(("cryptography",) if secured else ())):
        if importlib.util.find_spec(package) is None:
            raise missing(package, "station", "to serve the page")
    _can_listen(page.listen, page.port)
    for path in (page.certificate_file, page.key_file):
        if path is not None and not (base / path).is_file():
            raise StorageError(f"there is no {base / path}", hint="name a PEM file")
    if not page.tls:
        return "without TLS, for this machine alone"
    own = "with the certificate of the station" if page.certificate_file is None else ""
    return f"with TLS, {own or page.certificate_file}"


def _gpio(table: GpioTable) -> str:
    if importlib.util.find_spec("gpiod") is None:
        raise missing("gpiod", "gpio", "to use GPIO lines")
    import gpiod

    if not gpiod.is_gpiochip_device(table.chip):
        raise EnvironmentMissingError(
            f"{table.chip} is not a GPIO chip", hint="list the chips with gpiodetect"
        )
    wires = [*table.inputs, *table.outputs, *(() if table.alive is None else ("ALIVE",))]
    return f"{table.chip}: {', '.join(wires)}"


def _mqtt(config: StationConfig, base: Path) -> Finding:
    table = config.mqtt
    if table is None:
        return Finding("sinks", "mqtt", "absent", "not configured")

    def check() -> str:
        if importlib.util.find_spec("paho") is None:
            raise missing("paho-mqtt", "mqtt", "to speak MQTT")
        optional_secret(base, table.password_file)
        if table.ca_file is not None and not (base / table.ca_file).is_file():
            raise StorageError(f"there is no {base / table.ca_file}", hint="name the broker's CA")
        words = ["with TLS" if table.ca_file else "without TLS"]
        words += ["and takes commands" if table.commands else "and takes no commands"]
        return f"{table.host}:{table.port} {' '.join(words)}"

    return attempt("sinks", "mqtt", check)


def _webhook(config: StationConfig, base: Path) -> Finding:
    hook = config.webhook
    if hook is None:
        return Finding("sinks", "webhook", "absent", "not configured")

    def check() -> str:
        if hook.token_file is None:
            return f"{hook.url}, without a token"
        read_secret(base / hook.token_file)
        return f"{hook.url}, with the token of {hook.token_file}"

    return attempt("sinks", "webhook", check)
