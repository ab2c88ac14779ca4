"""A real MQTT broker and its clients, each a process of its own (Debian: mosquitto)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 60.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
MOSQUITTO = shutil.which("mosquitto", path=_PATH)
MISSING = MOSQUITTO is None or shutil.which("mosquitto_rr") is None


def wait_until(true: Callable[[], object]) -> None:
    """Wait until something is so; no test depends on how fast."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


class BrokerProcess:
    """mosquitto on a port of the loopback interface; it can be stopped and started again."""

    def __init__(self, folder: Path, port: int, extra: str = "allow_anonymous true") -> None:
        self.port = port
        self._config = folder / "mosquitto.conf"
        self._config.write_text(f"listener {port} 127.0.0.1\n{extra}\n")
        self._process: subprocess.Popen[bytes] | None = None
        self._listeners: list[Listener] = []

    def start(self) -> None:
        assert MOSQUITTO is not None
        command = [MOSQUITTO, "-c", str(self._config)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.stop()

    def publish(self, topic: str, body: str, *options: str) -> None:
        subprocess.run(self._client("mosquitto_pub", topic, "-m", body, *options), check=True)

    def ask(self, topic: str, body: str) -> Any:
        """Publish a request and return the answer, which comes by a response topic."""
        command = self._client("mosquitto_rr", topic, "-e", "answers/1", "-m", body)
        command += ["-W", str(round(PATIENCE))]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def listen(self, topic: str) -> Listener:
        listener = Listener(self._client("mosquitto_sub", topic, "-q", "1"))
        self._listeners.append(listener)
        return listener

    def _client(self, program: str, topic: str, *options: str) -> list[str]:
        return [program, "-p", str(self.port), "-h", "127.0.0.1", "-V", "5", "-t", topic, *options]


class Listener:
    """A subscriber and the JSON documents that it got."""

    def __init__(self, command: list[str]) -> None:
        self.got: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.got.append(json.loads(line))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
