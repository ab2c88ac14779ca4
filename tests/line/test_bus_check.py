"""`station check` looks at what the buses and sinks of a station need."""

from __future__ import annotations

from pathlib import Path

import pytest

from anoco_edge.errors import UsageError
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.station_check import check_station


def findings(text: str, folder: Path) -> dict[str, tuple[str, str]]:
    report = check_station(parse_config(EXAMPLE + text, "station.toml"), folder)
    return {finding.name: (finding.state, finding.detail) for finding in report.findings}


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("http", '[http]\nport = PORT\ntoken_file = "secret"'),
        ("opcua", '[opcua]\nport = PORT\nusername = "plc"\npassword_file = "secret"'),
        ("mqtt", '[mqtt]\nhost = "broker.plant"\nusername = "a"\npassword_file = "secret"'),
    ],
)
def test_a_secret_must_be_there_and_only_for_its_owner(
    name: str, table: str, tmp_path: Path
) -> None:
    text = "\n" + table.replace("PORT", str(free_port()))
    assert findings(text, tmp_path)[name][0] != "ok"
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o644)
    state, detail = findings(text, tmp_path)[name]
    assert state != "ok" and "others than its owner" in detail
    secret.chmod(0o600)
    state, detail = findings(text, tmp_path)[name]
    assert state == "ok" and "s3cret" not in detail


def test_what_mqtt_and_opc_ua_say_of_themselves(tmp_path: Path) -> None:
    found = findings(f'\n[mqtt]\nhost = "broker"\n[opcua]\nport = {free_port()}', tmp_path)
    assert found["mqtt"] == ("ok", "broker:1883 without TLS and takes no commands")
    assert found["opcua"][1].endswith("for everybody who can reach it")
    text = '\n[mqtt]\nhost = "broker"\nca_file = "ca.pem"\ncommands = true'
    assert "ca.pem" in findings(text, tmp_path)["mqtt"][1]
    (tmp_path / "ca.pem").touch()
    assert findings(text, tmp_path)["mqtt"][1] == "broker:1883 with TLS and takes commands"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[mqtt]\nhost = "b"\ntopic = "a/#"', "is not a topic"),
        ('[mqtt]\nhost = "b"\ntopic = "/a"', "is not a topic"),
        ('[opcua]\nport = 4840\nusername = "a"', "go together"),
        ("[http]\nport = 7700", "two buses, or a bus and the page, listen on one port"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_config(f"{EXAMPLE}\n{text}", "station.toml")


def test_a_broker_that_passes_no_commands_on_is_no_bus() -> None:
    alone = EXAMPLE.replace("[tcp]\nport = 7700", '[mqtt]\nhost = "b"')
    with pytest.raises(UsageError, match="nobody could trigger"):
        parse_config(alone, "station.toml")
    assert parse_config(f"{alone}commands = true\n", "station.toml").mqtt is not None
