"""The unit of examples/station runs in a real systemd; its watchdog follows real progress."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import make_line
from paths import PACKAGES, ROOT
from private_systemd import PrivateSystemd, missing_systemd, private_systemd

from anoco_edge.line.config.station_config import EXAMPLE
from anoco_edge.line.demo_station import free_port

UNIT = ROOT / "examples/station/anoco-station.service"
JETSON = ROOT / "examples/station/jetson.conf"
STATE = "/var/lib/anoco-station"
CALL = """\
#!/opt/python/bin/python3
import os, sys
os.execv(sys.executable, [sys.executable, "-m", "anoco_edge", *sys.argv[1:]])
"""
WATCHDOG = 8


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSystemd]:
    if reason := missing_systemd():
        pytest.skip(f"the unit did not run: {reason}")
    folder = tmp_path_factory.mktemp("systemd")
    state, program = folder / "state", folder / "program"
    state.mkdir()
    (program / "bin").mkdir(parents=True)
    make_line(state)
    text = EXAMPLE.replace("rendered:washer", "folder:good")
    (state / "station.toml").write_text(text.replace("port = 7700", f"port = {free_port()}"))
    (program / "bin/anoco-edge").write_text(CALL)
    (program / "bin/anoco-edge").chmod(0o755)
    site = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    mounts = {
        Path(sys.base_prefix): "/opt/python",
        site: "/opt/site",
        ROOT: "/opt/src",
        program: "/opt/anoco",
        state: STATE,
    }
    paths = ["/opt/src", *(f"/opt/src/{Path(p).relative_to(ROOT)}" for p in PACKAGES), "/opt/site"]
    drop_in = (
        f"[Service]\nEnvironment=PYTHONPATH={':'.join(paths)} LD_LIBRARY_PATH=/opt/python/lib\n"
        f"StandardError=append:{STATE}/errors\nRestartSec=0.1\nWatchdogSec={WATCHDOG}\n"
    )
    units = {
        "anoco-station.service": UNIT.read_text(),
        "anoco-station.service.d/jetson.conf": JETSON.read_text(),
        "anoco-station.service.d/test.conf": drop_in,
    }
    with private_systemd(folder, units, mounts, "anoco") as started:
        started.run("chown", "-R", "anoco:anoco", STATE)
        started.systemctl("start", "anoco-station")
        yield started


def main_process(system: PrivateSystemd) -> str:
    active = system.run("systemctl", "is-active", "anoco-station").stdout.strip() == "active"
    return system.property("anoco-station", "MainPID") if active else ""


@pytest.mark.full
def test_a_station_lives_and_replaces_its_judge_without_a_restart(system: PrivateSystemd) -> None:
    before = main_process(system)
    system.wait("a judge", lambda: judge(system, before) != "")
    first = judge(system, before)
    system.run("kill", "-KILL", first)
    system.wait("another judge", lambda: judge(system, before) not in ("", first))
    time.sleep(WATCHDOG + 1)
    assert main_process(system) == before != ""


def judge(system: PrivateSystemd, process: str) -> str:
    words = system.run("pgrep", "-P", process).stdout.split()
    return words[0] if words else ""


@pytest.mark.full
def test_a_station_that_hangs_is_started_again(system: PrivateSystemd) -> None:
    before = main_process(system)
    system.run("kill", f"-{signal.SIGSTOP.value}", before)
    system.wait("a new process", lambda: main_process(system) not in ("", before))
    log = system.run("cat", f"{STATE}/errors").stdout
    assert "listens on" in log and os.linesep in log


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed, so the unit was not verified")
    (tmp_path / UNIT.name).write_text(
        UNIT.read_text().replace("/opt/anoco/bin/anoco-edge", "/bin/true")
    )
    (tmp_path / f"{UNIT.name}.d").mkdir()
    (tmp_path / f"{UNIT.name}.d/jetson.conf").write_text(JETSON.read_text())
    done = subprocess.run([analyze, "verify", tmp_path / UNIT.name], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    text = UNIT.read_text()
    assert "Type=notify" in text and "WatchdogSec=" in text
    settings = {line.partition("=")[0] for line in text.splitlines()}
    hidden = {"PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"}
    assert not hidden & settings, "these hide the devices of GPU and camera"
