"""station.toml: every wrong field is refused by name, and `station check` says what is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from command_line import fails, ok, run_cli
from pydantic import BaseModel
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.line.config.station_config import (
    EXAMPLE,
    StationConfig,
    parse_config,
    read_config,
    read_secret,
)
from anoco_edge.line.core.settings import LineSettings

CAMERA = """counter_bits = 16
latency_ms = 100
trigger_line = "Line0"
simulate = "folder:stored"
features = { ExposureTimeAbs = 5000.0, GainRaw = 3 }"""
FULL = (
    EXAMPLE
    + """
[line]
trigger = "bus"
deadline_ms = 400
acquire_ms = 150
hold_ms = 900
acknowledge = false
strict_sequence = true
fault_after = 5
plc_timeout_ms = 300
judge_hang_ms = 1500
prepare_ms = 60000
alive_ms = 800
runtime = "native"
blocking_sync = true

[store]
days = 7
max_megabytes = 100
min_free_megabytes = 10
keep_good_every = 10
near_threshold = 0.9

[modbus]
port = 7702

[http]
port = 7703
token_file = "line.token"

[opcua]
port = 7704
username = "plc"
password_file = "opcua.password"

[page]
port = 7705
tls = true
certificate_file = "page.pem"
key_file = "page.key"
hosts = ["press-3.example"]
require_signature = true
public_keys = ["RWTTMJRD1HPm16OCz1FPbAGKkAWewKYGHoEiBeWtcQItZZUNudXpFeD+"]

[mqtt]
host = "broker.example"
port = 1883
topic = "plant/press-3"
username = "press-3"
password_file = "broker.password"
ca_file = "ca.pem"
commands = true

[gpio]
chip = "/dev/gpiochip0"
inputs = { TRIGGER = 22 }
outputs = { PASS = 17 }
alive = 27
pulse_ms = 50
debounce_ms = 2

[webhook]
url = "https://mes.example/parts"
token_file = "mes.token"
timeout_s = 2.5
"""
).replace('source = "rendered:washer"', 'source = "rendered:washer"\n' + CAMERA)
FULL = FULL.replace("port = 7700", 'listen = "127.0.0.1"\nport = 7700\nclients = ["127.0.0.1"]')
ALIGN = "align = { method = 'phase', search = 8, min_score = 0.5, boxes = [[1, 2, 20, 20]] }"
ALIGN += ", code = { required = false, box = [1, 2, 30, 40] }"
FULL = FULL.replace('bundle = "line.anoco"', f'bundle = "line.anoco", product = "nut", {ALIGN}')


def tables(model: type[BaseModel], found: dict[str, type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """Return all tables of the configuration by their name."""
    found[model.__name__] = model
    for field in model.model_fields.values():
        for part in _models(field.annotation):
            tables(part, found)
    return found


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _models(part)


VALUE = r"\[\[.*?\]\]|\[\{.*\}\]|\[[^\[\]\n]*\]|\{[^\n}]*\}|[^,\n}]+"
FIELDS = [
    name
    for table in tables(StationConfig, {}).values()
    if table is not StationConfig
    for name in table.model_fields
]


def test_the_full_example_has_every_field_and_the_core_gets_all_rules() -> None:
    config = parse_config(FULL, "station.toml")
    assert all(f"{name} = " in FULL for name in FIELDS)
    settings = config.line_settings()
    assert isinstance(settings, LineSettings)
    assert (settings.deadline_ms, settings.fault_after, settings.acknowledge) == (400, 5, False)
    assert settings.cameras[0].counter_bits == 16 and settings.products[0].cameras == ("top",)


@pytest.mark.parametrize("name", sorted(set(FIELDS)))
@pytest.mark.parametrize("wrong", ["{ a = 1 }", "nan", '"\\u0000"'])
def test_every_field_with_a_wrong_value_is_refused_by_name(name: str, wrong: str) -> None:
    place = re.compile(rf"(?m)(^|[{{,] )({name}) = ({VALUE})")
    text, count = place.subn(lambda found: f"{found[1]}{found[2]} = {wrong}", FULL)
    assert count
    with pytest.raises(UsageError) as error:
        parse_config(text, "station.toml")
    assert name in str(error.value) and error.value.hint


@pytest.mark.parametrize("name", sorted(set(FIELDS)))
def test_every_misspelled_key_is_refused_with_the_nearest(name: str) -> None:
    text = re.sub(rf"(?m)(^|[{{,] ){name} = ", rf"\1{name}x = ", FULL)
    with pytest.raises(UsageError, match=rf"unknown key '{name}x'; did you mean {name}\?"):
        parse_config(text, "station.toml")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("deadline_ms = 400", "deadline_ms = 100", "acquire_ms 150 is not within deadline_ms 100"),
        ("judge_hang_ms = 1500", "judge_hang_ms = 300", "judge_hang_ms is shorter"),
        ('camera = "top"', 'camera = "side"', "use one or more of: top"),
        ("number = 1", "number = 0", "products.0.number"),
        ("[station]", "[sation]", "unknown key 'sation'; did you mean station?"),
        ("[station]", "[station", "is not TOML"),
    ],
)
def test_values_that_do_not_fit_together(old: str, new: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_config(FULL.replace(old, new), "station.toml")
    assert words in str(error.value)


def test_names_that_come_twice() -> None:
    again = EXAMPLE[EXAMPLE.index("[[products]]") : EXAMPLE.index("[tcp]")]
    with pytest.raises(UsageError, match="the product washer comes twice"):
        parse_config(EXAMPLE + again, "station.toml")


def test_the_revision_follows_values_and_nothing_else() -> None:
    base = parse_config(EXAMPLE, "a.toml").revision
    assert parse_config(EXAMPLE.replace(" = ", "="), "b.toml").revision == base
    assert parse_config(EXAMPLE + "[line]\ndeadline_ms = 500\n", "a.toml").revision == base
    assert parse_config(EXAMPLE + "[line]\ndeadline_ms = 501\n", "a.toml").revision != base


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_config(tmp_path / "gone.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_config(tmp_path / "bad.toml")


def test_a_secret_must_be_one_line_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(StorageError, match="cannot read the secret"):
        read_secret(path)
    path.write_text("s3cret\n")
    path.chmod(0o644)
    with pytest.raises(StorageError, match="chmod 600"):
        read_secret(path)
    path.chmod(0o600)
    assert read_secret(path) == "s3cret"
    for wrong in ("", "a\nb", "x" * 5000):
        path.write_text(wrong)
        with pytest.raises(StorageError):
            read_secret(path)


@pytest.fixture
def station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", "line.anoco", *write_good_pictures(tmp_path / "good", 3))
    Path("station.toml").write_text(EXAMPLE)
    return tmp_path


def test_check_says_what_would_run(station: Path) -> None:
    ran = ok("station", "check", "station.toml")
    assert "rendered washers" in ran.out and "Everything is there." in ran.out
    report = ok("station", "check", "station.toml", "--json").json
    assert report["runs"] and len(report["revision"]) == 64
    (product,) = [f for f in report["findings"] if f["group"] == "products"]
    assert "generation 1, provisional threshold" in product["detail"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rendered:washer", "rtsp://op:secret@cam/1", "not when it was exposed"),
        ("rendered:washer", "http://cam/video", "not when it was exposed"),
        ("rendered:washer", "/dev/video0", "not when it was exposed"),
        ('"rendered:washer"', '"rendered:washer"\ntrigger_line = "Line0"', "no machine-vision"),
        ("[tcp]", '[line]\ntrigger = "camera"\n[tcp]', "cannot be triggered by a wire"),
        ("rendered:washer", "rendered:wsher", "there is no rendered 'wsher'"),
        ("rendered:washer", "folder:nowhere", "nowhere"),
        ("rendered:washer", "toaster", "is not a camera of a line"),
        ('"rendered:washer"', '"rendered:washer"\nsimulate = "0"', "does not name stored pictures"),
        ('"rendered:washer"', '"rendered:washer"\nsimulate = "folder:gone"', "gone"),
        ("line.anoco", "gone.anoco", "there is no bundle"),
        ('"press-3"\n\n', '"station.toml/data"\n\n', "cannot write into"),
    ],
)
def test_check_says_what_is_missing(station: Path, old: str, new: str, words: str) -> None:
    Path("station.toml").write_text(EXAMPLE.replace(old, new))
    ran = run_cli("station", "check", "station.toml", "--json")
    assert ran.code == 3 and not ran.json["runs"]
    wrong = [f for f in ran.json["findings"] if f["state"] not in ("ok", "absent")]
    assert len(wrong) == 1 and words in wrong[0]["detail"] and wrong[0]["help"]
    assert "secret" not in ran.out


def test_check_finds_a_data_base_that_cannot_be_written(
    station: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a backup that was copied back by another user."""
    Path("press-3").mkdir()
    Path("press-3/line.db").touch()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not str(path).endswith("line.db") and access(path, mode)
    )
    ran = run_cli("station", "check", "station.toml")
    assert ran.code == 3 and "press-3/line.db check who may write there" in " ".join(
        ran.out.split()
    )


def test_a_free_running_camera_needs_a_stated_latency(station: Path) -> None:
    source = 'source = "/dev/video0"\nlatency_ms = 80'
    Path("station.toml").write_text(EXAMPLE.replace('source = "rendered:washer"', source))
    said = " ".join(ok("station", "check", "station.toml").out.split())
    assert "exposed at most 80 ms before it arrives" in said


def test_the_counter_of_a_machine_vision_camera_has_16_bits() -> None:
    text = EXAMPLE.replace("rendered:washer", "aravis:10.0.0.7")
    assert parse_config(text, "a").line_settings().cameras[0].counter_bits == 16
    wide = text.replace('10.0.0.7"', '10.0.0.7"\ncounter_bits = 0')
    assert parse_config(wide, "a").line_settings().cameras[0].counter_bits == 0


def test_a_product_without_a_threshold_is_missing_one(station: Path) -> None:
    from anoco_edge.bundle import Bundle

    make_tiny_bundle(station / "bare.anoco")
    assert not Bundle.open("bare.anoco").products()
    Path("station.toml").write_text(EXAMPLE.replace("line.anoco", "bare.anoco"))
    ran = run_cli("station", "check", "station.toml", "--json")
    assert ran.code == 3 and "has no references yet" in ran.out


def test_the_secret_of_a_sink_is_looked_at(station: Path) -> None:
    hook = '\n[webhook]\nurl = "https://mes.example/x"\ntoken_file = "mes.token"\n'
    Path("station.toml").write_text(EXAMPLE + hook)
    assert "mes.token" in run_cli("station", "check", "station.toml").out
    Path("mes.token").write_text("t0ken")
    Path("mes.token").chmod(0o600)
    ran = ok("station", "check", "station.toml")
    assert "with the token of mes.token" in " ".join(ran.out.split()) and "t0ken" not in ran.out


def test_a_wrong_configuration_is_one_line(station: Path) -> None:
    Path("station.toml").write_text(EXAMPLE.replace("folder", "foldr"))
    said = fails(2, "station", "check", "station.toml")
    assert said.endswith("station.toml, station: unknown key 'foldr'; did you mean folder?")
