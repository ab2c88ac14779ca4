"""The web process as `serve` starts it: what it prints, its certificate, and when it ends."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import environment

from anoco_edge.errors import StorageError, UsageError
from anoco_edge.line.config.page_table import PageTable
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.demo_station import free_port
from anoco_edge.station.database import NAME, VERSION, Database
from anoco_edge.station.process import PageProcess
from anoco_edge.station.web.tls import certificate_for, fingerprint

PATIENCE = 240.0


def web_process(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "anoco_edge.station.main", str(path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_config(folder: Path, port: int, more: str = "") -> Path:
    path = folder / "station.toml"
    path.write_text(f"{EXAMPLE}\n[page]\nport = {port}\n{more}")
    return path


def test_the_page_is_served_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    process = web_process(write_config(tmp_path, port, "tls = true"))
    assert process.stderr is not None and process.stdin is not None
    said = [process.stderr.readline() for _ in range(3)]
    assert f"https://127.0.0.1:{port}/" in said[0]
    assert re.search(r"code to set it up: (\w{4}-){2}\w{4}", said[2])
    made = tmp_path / "press-3" / "tls" / "certificate.pem"
    context = ssl.create_default_context(cafile=str(made))
    # Whoever reads the address can open it at once.
    link = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE)
    link.request("GET", "/api/v1/session")
    assert isinstance(link.sock, ssl.SSLSocket)
    shown = link.sock.getpeercert(binary_form=True)
    assert shown is not None
    assert said[1].split()[-1].replace(":", "").lower() == hashlib.sha256(shown).hexdigest()
    assert b'"setup_needed":true' in link.getresponse().read()
    link.close()
    assert os.getpriority(os.PRIO_PROCESS, process.pid) >= min(
        os.getpriority(os.PRIO_PROCESS, 0) + 10, 19
    )
    process.stdin.close()  # whoever started it is gone
    assert process.wait(PATIENCE) == 0
    process.stderr.close()


def test_a_newer_data_base_is_said_and_the_page_does_not_start(tmp_path: Path) -> None:
    Database(tmp_path / "press-3").close()
    data = sqlite3.connect(tmp_path / "press-3" / NAME)
    data.execute(f"PRAGMA user_version = {VERSION + 1}")
    data.close()
    process = web_process(write_config(tmp_path, free_port()))
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == StorageError.exit_code
    (line,) = said.splitlines()
    assert f"has version {VERSION + 1}" in line and "update anoco-edge" in line


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = web_process(write_config(tmp_path, port))
        # Standard input stays open, as while the line runs.
        assert process.stderr is not None and process.wait(PATIENCE) == 3
        said = process.stderr.read().splitlines()
    assert process.stdin is not None
    process.stdin.close()
    process.stderr.close()
    assert said == [
        f"the page: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another port, or end what uses it"
    ]


def test_what_ends_again_and_again_is_started_again_with_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anoco_edge.station.process.FIRST_PAUSE", 0.01)
    said: list[str] = []
    page = PageProcess(tmp_path / "missing.toml", said.append)
    page.start()
    end = time.monotonic() + PATIENCE
    while len(said) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    page.close()
    assert page.pid is None
    assert all("the page ended (2); it starts again in" in line for line in said)


def test_a_certificate_is_made_once_and_its_key_is_secret(tmp_path: Path) -> None:
    page = PageTable(tls=True, hosts=("press-3.plant.example", "192.0.2.7"))
    made = certificate_for(page, tmp_path, tmp_path)
    assert made is not None and made == certificate_for(page, tmp_path, tmp_path)
    assert made.key.stat().st_mode & 0o777 == 0o600
    info = ssl._ssl._test_decode_cert(str(made.certificate))  # type: ignore[attr-defined]
    names = {value for _, value in info["subjectAltName"]}
    assert {"press-3.plant.example", "192.0.2.7", "localhost", socket.gethostname()} <= names
    assert info["notBefore"].endswith("2020 GMT"), "valid where the clock was never set"
    assert int(info["notAfter"].split()[3]) >= 2035


def test_a_certificate_of_the_plant_is_checked(tmp_path: Path) -> None:
    own = certificate_for(PageTable(tls=True), tmp_path, tmp_path / "a")
    other = certificate_for(PageTable(tls=True), tmp_path, tmp_path / "b")
    assert own is not None and other is not None
    page = PageTable(tls=True, certificate_file=own.certificate, key_file=own.key)
    given = certificate_for(page, tmp_path, tmp_path)
    assert given is not None and given.fingerprint == own.fingerprint != other.fingerprint
    for key in (other.key, tmp_path / "missing.pem", own.certificate):
        page = PageTable(tls=True, certificate_file=own.certificate, key_file=key)
        with pytest.raises(StorageError, match="cannot use"):
            certificate_for(page, tmp_path, tmp_path)
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(StorageError, match="cannot read the certificate"):
        fingerprint(tmp_path / "no.pem")
    assert certificate_for(PageTable(), tmp_path, tmp_path) is None


def test_a_page_changes_nothing_that_a_part_names() -> None:
    plain, shown = (
        parse_config(EXAMPLE + more, "a").revision for more in ("", "[page]\nport = 8080\n")
    )
    assert plain == shown
    other = EXAMPLE.replace("number = 1", "number = 2")
    assert parse_config(other, "a").revision != plain


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('listen = "0.0.0.0"', "can be reached from other machines; set tls = true"),
        ('listen = "press-3"', "set tls = true"),
        ('certificate_file = "a.pem"\ntls = true', "go together"),
        ('certificate_file = "a.pem"\nkey_file = "b.pem"', "without TLS is of no use"),
        ("port = 7700", "listen on one port"),
        ("prot = 8080", "did you mean port"),
    ],
)
def test_a_page_that_would_be_unsafe_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_config(f"{EXAMPLE}\n[page]\n{text}\n", "station.toml")
    assert words in str(refused.value)
