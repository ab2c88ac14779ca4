"""Connecting to Ray gives clear errors: nothing listens, something else listens, or Ray fails."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import fails

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.fleet.cluster import open_cluster

ON = ("infer", "line.anoco", "parts", "--on")


def test_an_address_that_does_not_answer(here: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    line = fails(3, *ON, f"ray://127.0.0.1:{port}", "--out", "out")
    assert f"no Ray answers at ray://127.0.0.1:{port}: Connection refused" in line
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "what listens there is not Ray's client server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what listens there is not Ray's client server"),
        (b"", "what listens there is not Ray's client server"),
        (None, "timed out"),
    ],
)
def test_a_port_that_is_open_but_no_ray_is_one_line_at_once(
    here: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, said: str
) -> None:
    """The listener answers something else, hangs up, or stays silent; Ray would retry for 30 s."""
    monkeypatch.setattr("anoco_edge.fleet.cluster.GREETING_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            guest, _ = other.accept()
            with guest:
                guest.recv(64)  # unread bytes would reset the connection
                guest.sendall(answer or b"")
                if answer is None:
                    guest.recv(64)

        served = threading.Thread(target=serve)
        served.start()
        began = time.monotonic()
        line = fails(3, *ON, f"ray://127.0.0.1:{other.getsockname()[1]}", "--out", "out")
        assert said in line and "its client port is 10001" in line
        assert time.monotonic() - began < 10
        served.join(60)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({}, "/tmp/ray"),
        ({"TMPDIR": "/t"}, "/t/ray"),
        ({"TMPDIR": "/t", "RAY_TMPDIR": "/r"}, "/r/ray"),
    ],
)
def test_a_ray_that_does_not_start_says_where_its_logs_are(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str
) -> None:
    ray = pytest.importorskip("ray")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the raylet\n died")

    own = {k: v for k, v in os.environ.items() if k not in ("TMPDIR", "RAY_TMPDIR")}
    # Ray also stores its token in the environment.
    monkeypatch.setattr(os, "environ", own | variables)
    monkeypatch.setattr(ray, "init", broken)
    from ray._common.utils import get_default_ray_temp_dir

    assert get_default_ray_temp_dir() == folder  # Ray uses the same folder
    with (
        pytest.raises(EnvironmentMissingError, match=f"the raylet died; look into {folder}$"),
        open_cluster("ray", workers=1, threads=1, gpu=False),
    ):
        pass


@pytest.mark.parametrize("failures", [1, 2])
def test_a_head_that_lost_its_server_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    ray = pytest.importorskip("ray")
    asked: list[object] = []

    def init(url: str, **_: object) -> None:
        asked.append(url)
        if len(asked) <= failures:
            text = "Traceback (most recent call last):\n  File ...\nZombieProcess: it is gone"
            raise ConnectionAbortedError(f"Initialization failure from server:\n{text}")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr("anoco_edge.fleet.cluster._check_answer", lambda *_: None)
    opened = open_cluster("ray://head:20001", workers=0, threads=1, gpu=False)
    if failures == 1:
        with opened as cluster:
            assert cluster.workers == 2
    else:
        with pytest.raises(EnvironmentMissingError, match="20001: ZombieProcess: it is gone; "):
            opened.__enter__()
    assert asked == ["ray://head:20001"] * 2


def test_ray_that_is_not_installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'anoco-edge[fleet]'" in fails(3, *ON, "ray", "--out", "out")
