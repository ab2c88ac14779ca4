"""Machine-vision cameras, with the fake GigE Vision camera of Aravis over the loopback."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import ok, run_cli
from fake_gige import ADDRESS, Listener, fake_camera, needs_fake_camera, only_one
from line_client import Client
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.line.cameras.aravis_camera import AravisCamera, AravisSettings
from anoco_edge.line.cameras.aravis_device import AravisDevice, FeatureAnswer, FeatureValue
from anoco_edge.line.config.station_config import EXAMPLE, parse_config
from anoco_edge.line.core.events import CameraDown, CameraProgress, CameraUp, Picture
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.server import LineServer
from anoco_edge.line.words.constants import Reason, StatusBit

pytestmark = needs_fake_camera


@pytest.fixture
def alone() -> Iterator[None]:
    with only_one():
        yield


@contextmanager
def running(listener: Listener, *settings: object) -> Iterator[AravisCamera]:
    """Start a camera, and close it at the end."""
    camera = AravisCamera(AravisSettings(ADDRESS, *settings), listener.outlet)  # type: ignore[arg-type]
    camera.start()
    try:
        yield camera
    finally:
        camera.close()


def asked(camera: AravisCamera, listener: Listener) -> tuple[int, Picture]:
    """Ask for a picture, and return the time of asking with it."""
    now = time.monotonic_ns()
    camera.take()
    return now, listener.next(Picture)


def test_triggers_features_loss_and_return(alone: None) -> None:
    listener = Listener()
    features = {"ExposureTimeAbs": 12000, "GainRaw": 0, "PixelFormat": "Mono8"}
    with fake_camera() as process, running(listener, features) as camera:
        listener.next(CameraUp)
        listener.next(CameraProgress)
        counters = []
        for _ in range(4):
            before, picture = asked(camera, listener)
            assert picture.complete
            assert before <= picture.exposed_from <= picture.exposed_to <= time.monotonic_ns()
            counters.append(picture.counter)
            (slot,) = listener.frames.values()
            pixels = listener.memory.view(slot)
            assert pixels.shape == (512, 512, 3)
            assert len(set(pixels[0, :, 0].tolist())) > 20
            listener.let_go()
        assert counters == list(range(counters[0], counters[0] + 4))
        (note,) = listener.notes
        assert "Aravis Fake GV7" in note and "ExposureTimeAbs=12000," in note
        assert "TriggerMode=On" in note and "TriggerSource=Software" in note
        process.kill()
        process.wait()
        with fake_camera():
            assert listener.next(CameraDown).why
            listener.next(CameraUp)
            before, picture = asked(camera, listener)
            assert before <= picture.exposed_from
            listener.let_go()
            camera.close()  # while it answers


def test_lost_packets_make_a_picture_incomplete(alone: None) -> None:
    listener = Listener()
    with fake_camera("-r", "100"), running(listener) as camera:
        listener.next(CameraUp)
        assert not asked(camera, listener)[1].complete and not listener.frames


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wire at Line0: the fake camera has none, so it runs freely in place of being triggered."""
    really = AravisDevice.set_feature

    def set_feature(self: AravisDevice, name: str, value: FeatureValue) -> FeatureAnswer:
        if value == "Line0":
            really(self, "TriggerMode", "Off")
        return really(self, name, value)

    monkeypatch.setattr(AravisDevice, "set_feature", set_feature)


def test_with_a_wired_trigger_frames_come_by_themselves(alone: None, wire: None) -> None:
    listener = Listener()
    with fake_camera(), running(listener, {}, "Line0"):
        listener.next(CameraUp)
        up = time.monotonic_ns()
        first, second = listener.next(Picture), listener.next(Picture)
        assert second.counter == first.counter + 1 and second.exposed_to > up
        assert 0 <= second.exposed_to - second.exposed_from < 1_000_000_000
        assert "TriggerSource=Line0; exposure is known to" in listener.notes[0]


def test_a_feature_that_is_refused_is_a_reason(alone: None) -> None:
    listener = Listener()
    with fake_camera(), running(listener, {"Brilliance": 3}):
        assert "it refuses Brilliance = 3: " in listener.next(CameraDown).why


def test_station_check_opens_the_camera(
    alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", "line.anoco", *write_good_pictures(tmp_path / "good", 3))
    text = EXAMPLE.replace("rendered:washer", f"aravis:{ADDRESS}")
    Path("station.toml").write_text(text)
    with fake_camera():
        said = " ".join(ok("station", "check", "station.toml").out.split())
        assert "Aravis Fake GV7, triggered by software" in said
        Path("station.toml").write_text(text + '[line]\ntrigger = "camera"\n')
        assert "no input is named" in run_cli("station", "check", "station.toml").out


@pytest.mark.full
def test_a_camera_that_is_not_there(alone: None, tmp_path: Path) -> None:
    (tmp_path / "station.toml").write_text(EXAMPLE.replace("rendered:washer", f"aravis:{ADDRESS}"))
    ran = run_cli("station", "check", tmp_path / "station.toml")
    assert ran.code == 3 and "Can't connect" in ran.out


@pytest.mark.full
def test_the_frame_counter_wraps(alone: None) -> None:
    listener = Listener()
    with fake_camera(), running(listener) as camera:
        listener.next(CameraUp)
        counters = []
        for _ in range(140):  # the fake begins to count at 65400
            counters.append(asked(camera, listener)[1].counter)
            listener.let_go()
    wrap = counters.index(65535)
    assert counters[wrap + 1 : wrap + 3] == [1, 2]


STATION = """
[station]
name = "press-3"
folder = "press-3"

[line]
deadline_ms = 60000
acquire_ms = 2000
hold_ms = 60000
judge_hang_ms = 120000
alive_ms = 10000
fault_after = 1000

[[cameras]]
name = "top"
source = "aravis:{address}"
features = {{ ExposureTimeAbs = 11000.0 }}

[[cameras]]
name = "side"
source = "folder:good"

[[products]]
number = 1
name = "washer"
captures = [
  {{ camera = "top", bundle = "line.anoco", product = "top" }},
  {{ camera = "side", bundle = "line.anoco", product = "side" }},
]

[tcp]
port = {port}
"""


@pytest.mark.full
def test_a_station_with_two_cameras_over_the_wrap_and_a_loss(alone: None, tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "line.anoco").path
    files = write_good_pictures(tmp_path / "good", 3)
    ok("enroll", bundle, *files, "--product", "side")
    # The fake draws a moving ramp, which any picture stands for: it is only to be judged.
    square = write_good_pictures(tmp_path / "square", 2, width=512, height=512)
    ok("enroll", bundle, *square, "--product", "top", "--picture-limits", "none")
    ok("product", "set", bundle, "--product", "top", "--threshold", "1e9")
    said: list[str] = []
    text = STATION.format(address=ADDRESS, port=free_port())
    with fake_camera() as process:
        server = LineServer(parse_config(text, "a"), tmp_path, say=said.append)
        server.start()
        assert server._config.tcp is not None
        client = Client(server._config.tcp.port)
        client.send("E,1")
        client.wait_for(StatusBit.READY)
        for seq in range(1, 146):
            answer = client.ask(f"T,{seq}")
            assert answer[2] == "PASS", (answer, said)
            client.send(f"A,{seq}")
            client.wait_for(StatusBit.READY)
        os.kill(process.pid, signal.SIGSTOP)
        answer = client.ask("T,146")
        assert answer[2:4] == ["NOVERDICT", str(int(Reason.NO_PICTURE))], said
        client.send("A,146")
        process.kill()
        client.wait_for(StatusBit.READY, high=False)
    with fake_camera():
        client.wait_for(StatusBit.READY)
        assert client.ask("T,147")[2] == "PASS", said
        server.stop()
    data = sqlite3.connect(tmp_path / "press-3/line.db")
    rows = data.execute("SELECT counter FROM capture WHERE camera = 'top' ORDER BY uid").fetchall()
    assert (65535,) in rows and (1,) in rows
    products = data.execute("SELECT DISTINCT camera, product FROM capture ORDER BY 1").fetchall()
    assert products == [("side", "side"), ("top", "top")]
    events = " ".join(text for (text,) in data.execute("SELECT text FROM io_event"))
    assert "camera top is Aravis Fake GV7, set ExposureTimeAbs=11000.0" in events
    assert "camera top is gone" in events


@pytest.mark.full
def test_a_wired_camera_makes_the_parts_of_a_station(
    alone: None, wire: None, tmp_path: Path
) -> None:
    bundle = make_tiny_bundle(tmp_path / "line.anoco").path
    square = write_good_pictures(tmp_path / "square", 2, width=512, height=512)
    ok("enroll", bundle, *square, "--picture-limits", "none")
    ok("product", "set", bundle, "--threshold", "1e9")
    port = free_port()
    text = EXAMPLE.replace(
        '"rendered:washer"',
        f'"aravis:{ADDRESS}"\ntrigger_line = "Line0"',
    ).replace("port = 7700", f"port = {port}")
    text += '[line]\ntrigger = "camera"\ndeadline_ms = 5000\nacquire_ms = 4000\n'
    text += "acknowledge = false\njudge_hang_ms = 60000\nalive_ms = 10000\nfault_after = 1000\n"
    with fake_camera():
        server = LineServer(parse_config(text, "a"), tmp_path, say=print)
        server.start()
        client = Client(port)
        client.send("E,1")
        end = time.monotonic() + 120
        while server.core.counters.good < 5:
            assert time.monotonic() < end, server.core.counters
            time.sleep(0.1)
        server.stop()
