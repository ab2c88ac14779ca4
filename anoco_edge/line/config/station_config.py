"""station.toml: the configuration of a station.

Every key is checked when the file is read: an unknown one is refused with the nearest known name, a
value of another type or out of its range with its place. Paths are relative to the file. Secrets
stand in files of their own, which only their owner may read. The revision is a hash over all
values, so that a part can name the configuration that it was judged under.
"""

from __future__ import annotations

import importlib
import json
import re
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from anoco_edge.bundle.documents import place_of
from anoco_edge.bundle.schema import ProductName
from anoco_edge.errors import StorageError, UsageError, missing
from anoco_edge.line.config.fields import (
    FeatureName,
    FiniteFloat,
    Milliseconds,
    Name,
    PixelBox,
    Port,
    SomePath,
    Table,
    Text,
)
from anoco_edge.line.config.gpio_table import GpioTable
from anoco_edge.line.config.page_table import PageTable
from anoco_edge.line.core.settings import CameraSettings, LineProduct, LineSettings
from anoco_edge.line.judge.alignment import AlignmentSettings
from anoco_edge.line.judge.messages import CaptureSpec
from anoco_edge.line.judge.part_codes import CodeSettings
from anoco_edge.pipeline.runtime_choice import RuntimeName
from anoco_edge.storage.hashes import sha256_bytes

_LARGEST_SECRET = 4096
ARAVIS = "aravis:"  # how the source of a machine-vision camera begins


class StationTable(Table):
    """[station]: the name of the station and the folder of its data base and pictures."""

    name: Name
    folder: SomePath


class LineTable(Table):
    """[line]: times and rules."""

    trigger: Literal["bus", "camera"] = "bus"
    deadline_ms: Milliseconds = 500
    acquire_ms: Milliseconds = 200
    hold_ms: Milliseconds = 1000
    acknowledge: bool = True
    strict_sequence: bool = False
    fault_after: int = Field(default=3, ge=1, le=1000)
    plc_timeout_ms: int = Field(default=0, ge=0, le=600_000)
    judge_hang_ms: Milliseconds = 2000
    prepare_ms: Milliseconds = 120_000
    alive_ms: int = Field(default=1000, ge=200, le=60_000)
    runtime: RuntimeName = "auto"
    blocking_sync: bool = False


class CameraTable(Table):
    """[[cameras]]: where pictures come from."""

    name: Name
    source: Text
    counter_bits: Literal[0, 16] | None = None
    latency_ms: int = Field(default=0, ge=0, le=10_000)
    trigger_line: Name | None = None
    simulate: Text | None = None
    features: dict[FeatureName, bool | int | FiniteFloat | Text] = Field(default_factory=dict)

    @property
    def wraps_at(self) -> Literal[0, 16]:
        """The bits of the frame counter; GigE Vision counts in 16 unless the file says more."""
        if self.counter_bits is not None:
            return self.counter_bits
        return 16 if self.source.startswith(ARAVIS) else 0


class AlignTable(Table):
    """align in [[products.captures]]: what of the first reference is searched for in a picture."""

    boxes: tuple[PixelBox, ...] = Field(strict=False, min_length=1, max_length=16)
    method: Literal["template", "phase", "marks"] = "template"
    search: int = Field(default=32, ge=1, le=2000)
    min_score: float = Field(default=0.6, ge=0, le=1, allow_inf_nan=False)

    def settings(self) -> AlignmentSettings:
        """Return the settings of an aligner."""
        return AlignmentSettings(self.boxes, self.method, self.search, self.min_score)


class CodeTable(Table):
    """code in [[products.captures]]: the code on the part, which becomes the part code."""

    box: PixelBox | None = None
    required: bool = True


class CaptureTable(Table):
    """[[products.captures]]: the camera, and the product of a bundle that judges its picture."""

    camera: Name
    bundle: SomePath
    product: ProductName | None = None
    align: AlignTable | None = None
    code: CodeTable | None = None

    def spec(self, base: Path) -> CaptureSpec:
        """Return what the judge opens; `base` is the folder of relative paths."""
        align = None if self.align is None else self.align.settings()
        code = None if self.code is None else CodeSettings(self.code.box, self.code.required)
        return CaptureSpec(str(base / self.bundle), self.product, align, code)


class ProductTable(Table):
    """[[products]]: a product that the PLC knows by its number."""

    number: int = Field(ge=1, le=65535)
    name: Name
    captures: tuple[CaptureTable, ...] = Field(strict=False, min_length=1, max_length=16)


class StoreTable(Table):
    """[store]: which pictures are kept, and for how long."""

    days: int = Field(default=30, ge=1, le=3650)
    max_megabytes: int = Field(default=20_000, ge=10)
    min_free_megabytes: int = Field(default=2_000, ge=0)
    keep_good_every: int = Field(default=100, ge=0)
    near_threshold: float = Field(default=0.8, ge=0, le=1, allow_inf_nan=False)


class WebhookTable(Table):
    """[webhook]: an address that every part result is posted to."""

    url: str = Field(pattern=r"^https?://[^\s/]+")
    token_file: SomePath | None = None
    timeout_s: float = Field(default=5.0, gt=0, le=60, allow_inf_nan=False)


def _topic(text: str) -> str:
    if re.search(r"[+#\0]|^[/$]|/$", text):
        raise ValueError(f"{text!r} is not a topic: no '+', no '#', no '/' at its ends")
    return text


class MqttTable(Table):
    """[mqtt]: the broker that gets state and results, and may pass commands on."""

    host: Text
    port: Port = 1883
    topic: Annotated[Text, AfterValidator(_topic)] | None = None
    username: Text | None = None
    password_file: SomePath | None = None
    ca_file: SomePath | None = None
    commands: bool = False


class ListenTable(Table):
    """Where a bus is served."""

    listen: Text = "127.0.0.1"
    port: Port


class OpcuaTable(ListenTable):
    """[opcua]: without a user everybody is served and nothing is encrypted."""

    username: Text | None = None
    password_file: SomePath | None = None

    @model_validator(mode="after")
    def _user_has_password(self) -> OpcuaTable:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file go together; give both or none")
        return self


class BusTable(ListenTable):
    """[tcp] and [modbus]: where a bus is served; an empty list of clients allows everybody."""

    clients: tuple[Text, ...] = Field(default=(), strict=False)


class HttpTable(BusTable):
    """[http]: a bus whose commands may need a token."""

    token_file: SomePath | None = None


class StationConfig(Table):
    """The whole file."""

    station: StationTable
    line: LineTable = LineTable()
    cameras: tuple[CameraTable, ...] = Field(strict=False, min_length=1, max_length=16)
    products: tuple[ProductTable, ...] = Field(strict=False, min_length=1, max_length=1000)
    tcp: BusTable | None = None
    modbus: BusTable | None = None
    http: HttpTable | None = None
    opcua: OpcuaTable | None = None
    gpio: GpioTable | None = None
    mqtt: MqttTable | None = None
    store: StoreTable = StoreTable()
    webhook: WebhookTable | None = None
    page: PageTable | None = None

    @model_validator(mode="after")
    def _names_fit(self) -> StationConfig:
        names: dict[str, list[object]] = {
            "camera": [camera.name for camera in self.cameras],
            "product": [product.name for product in self.products],
            "number": [product.number for product in self.products],
        }
        for what, values in names.items():
            twice = [value for value in values if values.count(value) > 1]
            if twice:
                raise ValueError(f"the {what} {twice[0]} comes twice")
        for product in self.products:
            cameras = [capture.camera for capture in product.captures]
            if len(set(cameras)) < len(cameras):
                raise ValueError(f"product {product.name} takes two captures with one camera")
        buses = self.buses
        if not (buses or (self.mqtt and self.mqtt.commands) or self._has_trigger_wire):
            raise ValueError(
                "there is no [tcp], [modbus], [http] or [opcua], so nobody could trigger"
            )
        places = [(bus.listen, bus.port) for bus in buses.values()]
        places += [] if self.page is None else [(self.page.listen, self.page.port)]
        if len(set(places)) < len(places):
            raise ValueError("two buses, or a bus and the page, listen on one port")
        if self.line.judge_hang_ms < self.line.deadline_ms:
            raise ValueError("judge_hang_ms is shorter than deadline_ms")
        self.line_settings()
        return self

    @property
    def _has_trigger_wire(self) -> bool:
        return self.gpio is not None and "TRIGGER" in self.gpio.inputs

    @property
    def buses(self) -> dict[str, ListenTable]:
        """The buses that clients connect to, by name."""
        found = {"tcp": self.tcp, "modbus": self.modbus, "http": self.http, "opcua": self.opcua}
        return {name: bus for name, bus in found.items() if bus is not None}

    def line_settings(self) -> LineSettings:
        """Return the settings of the core."""
        cameras = tuple(
            CameraSettings(each.name, each.wraps_at, each.simulate is not None)
            for each in self.cameras
        )
        products = tuple(
            LineProduct(each.number, each.name, tuple(c.camera for c in each.captures))
            for each in self.products
        )
        rules = self.line.model_dump(exclude={"runtime", "blocking_sync"})
        return LineSettings(cameras, products, **rules)

    @property
    def revision(self) -> str:
        """The SHA-256 over all values, in an order that does not depend on the file's. Those of
        [page] are left out: no verdict depends on them.

        >>> text = parse_config(EXAMPLE, "station.toml").revision
        >>> len(text), text == parse_config("# a remark\\n" + EXAMPLE, "station.toml").revision
        (64, True)
        """
        values = self.model_dump(mode="json", exclude={"page"})
        return sha256_bytes(json.dumps(values, sort_keys=True).encode())


EXAMPLE = """
[station]
name = "press-3"
folder = "press-3"

[[cameras]]
name = "top"
source = "rendered:washer"

[[products]]
number = 1
name = "washer"
captures = [{ camera = "top", bundle = "line.anoco" }]

[tcp]
port = 7700
"""


def read_config(path: Path) -> StationConfig:
    """Read a station.toml; what is wrong is a UsageError of one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"cannot read {path}: {reason}", hint="name the station.toml of your station"
        ) from None
    return parse_config(text, str(path))


def parse_config(text: str, name: str) -> StationConfig:
    """Parse the text of a station.toml; `name` is its name in errors.

    >>> parse_config(EXAMPLE, "station.toml").cameras[0].name
    'top'
    >>> parse_config(EXAMPLE.replace("folder", "foldr"), "station.toml")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: station.toml, station: unknown key 'foldr'; did you mean folder?
    """
    toml = _toml_reader()
    try:
        values = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}", hint="correct the file") from None
    try:
        return StationConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = place_of(first["loc"])
        what, _, hint = first["msg"].removeprefix("Value error, ").partition("; ")
        raise UsageError(
            f"{name}{', ' if where else ''}{where}: {what}", hint=hint or "correct the file"
        ) from None


def read_secret(path: Path) -> str:
    """Read a secret from a file of one line that only its owner may read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_SECRET:
            raise StorageError(
                f"{path} is not a small file", hint="put the secret into a file of one line"
            )
        if status.st_mode & 0o077:
            raise StorageError(
                f"others than its owner may read {path}", hint=f"change that: chmod 600 {path}"
            )
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StorageError(
            f"cannot read the secret {path}: {error.strerror}", hint="create it: one line, mode 600"
        ) from None
    if not text or "\n" in text:
        raise StorageError(f"{path} is not one line", hint="put the secret alone into the file")
    return text


def optional_secret(base: Path, path: Path | None) -> str:
    """Read a secret that need not be configured; without one it is empty."""
    return "" if path is None else read_secret(base / path)


def _toml_reader() -> ModuleType:
    try:
        return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        raise missing("tomli", "line", "to read station.toml") from None
