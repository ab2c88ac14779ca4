"""The unit of examples/jetson runs in a real systemd, with a daemon in place of nvargus-daemon.

What needs a Jetson is replaced in the call: the engine and the camera. User, sandbox, environment,
notifications and the ties to the camera's daemon are those of the unit.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import make_line, network_camera
from paths import PACKAGES, ROOT
from private_systemd import PrivateSystemd, missing_systemd, private_systemd

UNIT = ROOT / "examples/jetson/anoco-edge.service"
STATE = "/var/lib/anoco-edge"
DAEMON = """\
[Unit]
Description=stands for nvargus-daemon

[Service]
ExecStart=/opt/python/bin/python3 /opt/test/daemon.py
Restart=always
RestartSec=1
"""
# Like nvargus-daemon it makes its socket anew at every start, and serves whoever connects.
DAEMON_CODE = """\
import os, socket
if os.path.exists("/tmp/argus_socket"):
    os.unlink("/tmp/argus_socket")
daemon = socket.socket(socket.AF_UNIX)
daemon.bind("/tmp/argus_socket")
os.chmod("/tmp/argus_socket", 0o777)
daemon.listen(100)
while True:
    daemon.accept()[0].send(b"argus")
"""
# What /opt/anoco/bin/anoco-edge does here: it looks around as libargus, CUDA and Python would, and
# then becomes the real `infer`.
CALL = """\
#!/opt/python/bin/python3
import json, os, pwd, socket, sys, tempfile, time
def attempt(work):
    try:
        return work()
    except OSError as error:
        return type(error).__name__
def connect():
    while not os.path.exists("/tmp/argus_socket") and time.monotonic() < patience:
        time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/tmp/argus_socket")
        return client.recv(5).decode()
def write(folder):
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return "written"
patience = time.monotonic() + 20
seen = {
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "argus": attempt(connect),
    "home": os.path.expanduser("~"),
    "cuda cache": attempt(lambda: write(os.environ["CUDA_CACHE_PATH"])),
    "tmp": attempt(lambda: write("/tmp")),
    "opt": attempt(lambda: write("/opt/test")),
    "root's home": attempt(lambda: os.listdir("/root")),
}
with open("seen.jsonl", "a") as file:
    file.write(json.dumps(seen) + "\\n")
words = sys.argv[1:]
words[words.index("--engine") + 1] = "openvino"
words[words.index("--camera") + 1] = open("/opt/test/camera").read()
os.execv(sys.executable, [sys.executable, "-m", "anoco_edge", *words])
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSystemd]:
    if reason := missing_systemd():
        pytest.skip(f"the unit did not run: {reason}")
    folder = tmp_path_factory.mktemp("systemd")
    state, test, program = (folder / name for name in ("state", "test", "program"))
    for made in (state, test, program / "bin"):
        made.mkdir(parents=True)
    make_line(state)
    (test / "daemon.py").write_text(DAEMON_CODE)
    (program / "bin/anoco-edge").write_text(CALL)
    (program / "bin/anoco-edge").chmod(0o755)
    site = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    mounts = {
        Path(sys.base_prefix): "/opt/python",
        site: "/opt/site",
        ROOT: "/opt/src",
        test: "/opt/test",
        program: "/opt/anoco",
        state: STATE,
    }
    paths = ["/opt/src", *(f"/opt/src/{Path(p).relative_to(ROOT)}" for p in PACKAGES), "/opt/site"]
    # Where this Python lies is not part of the unit, and there is no journal here.
    drop_in = (
        f"[Service]\nEnvironment=PYTHONPATH={':'.join(paths)} LD_LIBRARY_PATH=/opt/python/lib\n"
        f"StandardOutput=append:{STATE}/rows.jsonl\nStandardError=append:{STATE}/errors\n"
        "RestartSec=0.1\n"
    )
    units = {
        "anoco-edge.service": UNIT.read_text(),
        "anoco-edge.service.d/test.conf": drop_in,
        "nvargus-daemon.service": DAEMON,
    }
    with network_camera(1_000_000, 0.05) as address:
        (test / "camera").write_text(address)
        with private_systemd(folder, units, mounts, "anoco") as started:
            started.run("chown", "-R", "anoco:anoco", STATE)
            # Enabled as the manual says, so that both ways to start it are there.
            started.systemctl("enable", "anoco-edge")
            yield started


def main_process(system: PrivateSystemd) -> str:
    """Return the process of the service if the service is ready, else nothing."""
    active = system.run("systemctl", "is-active", "anoco-edge").stdout.strip() == "active"
    return system.property("anoco-edge", "MainPID") if active else ""


@pytest.mark.full
def test_the_service_inspects_in_its_sandbox(system: PrivateSystemd) -> None:
    system.systemctl("start", "anoco-edge")  # returns when infer has said that it is ready
    assert system.property("nvargus-daemon", "ActiveState") == "active"
    rows = ("head", "-n", "1", f"{STATE}/rows.jsonl")
    system.wait("a row", lambda: "\n" in system.run(*rows).stdout)
    assert json.loads(system.run(*rows).stdout)["verdict"] in ("good", "anomalous")
    seen = system.run("tail", "-n", "1", f"{STATE}/seen.jsonl").stdout
    assert json.loads(seen) == {
        "user": "anoco",
        "argus": "argus",
        "home": STATE,
        "cuda cache": "written",
        "tmp": "written",
        "opt": "OSError",
        "root's home": "PermissionError",
    }


@pytest.mark.full
@pytest.mark.parametrize("how", ["restarted", "killed", "stopped and started"])
def test_a_daemon_that_comes_back_finds_a_new_client(system: PrivateSystemd, how: str) -> None:
    system.systemctl("start", "anoco-edge")
    before = main_process(system)
    if how == "restarted":
        system.systemctl("restart", "nvargus-daemon")
    elif how == "killed":
        system.systemctl("kill", "--signal=KILL", "nvargus-daemon")
    else:
        system.systemctl("stop", "nvargus-daemon")
        assert not main_process(system), "a client without its daemon does not run"
        system.systemctl("start", "nvargus-daemon")
    system.wait("a new client", lambda: main_process(system) not in ("", before))
    last = system.run("tail", "-n", "1", f"{STATE}/seen.jsonl").stdout
    assert json.loads(last)["argus"] == "argus"


@pytest.mark.full
def test_infer_that_dies_is_started_again(system: PrivateSystemd) -> None:
    system.systemctl("start", "anoco-edge")
    before = main_process(system)
    system.systemctl("kill", "--signal=KILL", "anoco-edge")
    system.wait("a new process", lambda: main_process(system) not in ("", before))


@pytest.mark.full
def test_what_a_restart_cannot_cure_stays_ended(system: PrivateSystemd) -> None:
    system.run("mv", f"{STATE}/line.anoco/manifest.json", f"{STATE}/away")
    try:
        assert system.run("systemctl", "restart", "anoco-edge").returncode != 0
        system.wait("the end", lambda: system.property("anoco-edge", "ActiveState") == "failed")
        assert system.property("anoco-edge", "ExecMainStatus") == "4"
    finally:
        system.run("mv", f"{STATE}/away", f"{STATE}/line.anoco/manifest.json")


# ---- what systemd says of the text of the unit


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed, so the unit was not verified")
    (tmp_path / UNIT.name).write_text(
        UNIT.read_text().replace("/opt/anoco/bin/anoco-edge", "/bin/true")
    )
    done = subprocess.run([analyze, "verify", tmp_path / UNIT.name], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_unit_waits_longer_than_infer_does() -> None:
    lines = (line.partition("=") for line in UNIT.read_text().splitlines() if "=" in line)
    settings = {name: value for name, _, value in lines if name[0] != "#"}
    assert settings["Type"] == "notify" and settings["Restart"] == "on-failure"
    command = shlex.split(settings["ExecStart"])
    timeout = float(command[command.index("--timeout") + 1])
    assert float(settings["WatchdogSec"]) > 2 * timeout
    hidden = {"PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"}
    assert not hidden & set(settings), "these hide the devices of GPU and camera"
