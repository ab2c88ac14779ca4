"""systemd's notifications arrive on a real socket: ready, a sign of life per frame, stopping."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import network_camera, ok, run_cli, run_process

from anoco_edge.sinks.service_manager import ServiceManager


class Ear:
    """The receiving end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def ear(request: pytest.FixtureRequest) -> Iterator[Ear]:
    # A short path, because sockets allow 107 characters.
    with tempfile.TemporaryDirectory() as folder:
        name = f"{folder}/s" if request.param == "file" else f"@anoco-test-{os.getpid()}"
        ear = Ear(name)
        yield ear
        ear.close()


def manager(ear: Ear, **more: str) -> ServiceManager:
    return ServiceManager.from_environment({"NOTIFY_SOCKET": ear.address, **more})


def test_what_systemd_hears(ear: Ear) -> None:
    ours = manager(ear, WATCHDOG_USEC="400000", WATCHDOG_PID=str(os.getpid()))
    ours.ready("watching camera:0\nfor lids")
    assert ear.heard() == ["READY=1\nSTATUS=watching camera:0 for lids"]
    began = time.monotonic()
    while time.monotonic() - began < 0.45:
        ours.alive()
        time.sleep(0.002)
    signs = ear.heard()
    assert set(signs) == {"WATCHDOG=1"} and 4 <= len(signs) <= 5
    ours.stopping("5 frames, stopped")
    assert ear.heard() == ["STOPPING=1\nSTATUS=5 frames, stopped"]


@pytest.mark.parametrize(
    "without", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}]
)
def test_a_watchdog_that_is_not_ours_hears_nothing(ear: Ear, without: dict[str, str]) -> None:
    manager(ear, **without).alive()
    assert ear.heard() == []


def test_nobody_listens(tmp_path: Path) -> None:
    for given in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}):
        nobody = ServiceManager.from_environment(given)
        assert not nobody.listens
        nobody.ready("")
    gone = ServiceManager.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    gone.ready("still runs")


def test_infer_on_a_camera_tells(ear: Ear, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", ear.address)
    monkeypatch.setenv("WATCHDOG_USEC", "4")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with network_camera(100_000, 0.001) as address:
        ok("infer", "line.anoco", "--camera", address, "--limit", "3")
    first, *signs, last = ear.heard()
    assert first.startswith("READY=1\nSTATUS=watching http://")
    assert signs == ["WATCHDOG=1"] * 3
    assert last == "STOPPING=1\nSTATUS=3 frames, stopped"
    ok("infer", "line.anoco", "parts")
    assert ear.heard() == [], "pictures are no service"


def test_frames_that_all_fail_are_no_sign_of_life(
    ear: Ear, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anoco_edge.errors import AnocoError
    from anoco_edge.pipeline.python import PythonPipeline

    def broken(self: Any, pictures: Any) -> Any:
        return [AnocoError("the GPU is gone") for _ in pictures]

    monkeypatch.setattr(PythonPipeline, "inspect", broken)
    monkeypatch.setenv("NOTIFY_SOCKET", ear.address)
    monkeypatch.setenv("WATCHDOG_USEC", "4")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with network_camera(100_000, 0.001) as address:
        assert run_cli("infer", "line.anoco", "--camera", address, "--limit", "3").code == 1
    assert [text.split("=")[0] for text in ear.heard()] == ["READY", "STOPPING"]


def test_in_a_process_of_its_own_a_lost_camera_ends_it(
    ear: Ear, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", ear.address)
    monkeypatch.setenv("WATCHDOG_USEC", "4")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with network_camera(3) as address:
        ran = run_process("infer", "line.anoco", "--camera", address)
    assert ran.code == 1, "systemd starts it again"
    first, *_, last = ear.heard()
    assert first.startswith("READY=1") and "the connection ended" in last
