"""A whole station as users start it, with the test as its PLC."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from command_line import environment
from line_client import Client
from station_page import PASSWORD, Browser

from anoco_edge.line.config.station_config import EXAMPLE
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.words.constants import StatusBit
from anoco_edge.station.database import Database
from anoco_edge.station.people import passwords
from anoco_edge.station.people.tokens import Tokens
from anoco_edge.station.people.users import Users

PATIENCE = 240.0
SLOW = """
[line]
deadline_ms = 60000
acquire_ms = 60000
hold_ms = 60000
judge_hang_ms = 120000
alive_ms = 60000
"""  # no test may depend on an idle machine


class RunningStation:
    """A station that runs, its PLC, and a program with a token.

    `folder` holds the bundle line.anoco and the folder `good`, whose pictures the camera takes.
    """

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder, self.port, self.web = folder, free_port(), free_port()
        text = EXAMPLE.replace("rendered:washer", "folder:good").replace("7700", str(self.port))
        page = f"\n[page]\nport = {self.web}\n"
        (folder / "station.toml").write_text(f"{text}{SLOW}{page}{more}")
        passwords.COST = 16
        database = Database(folder / "press-3")
        Users(database).add("ada", "admin", PASSWORD)
        _, self.token = Tokens(database, time.time).add("test", "engineer", "ada", None)
        database.close()
        command = [sys.executable, "-m", "anoco_edge", "serve", str(folder / "station.toml")]
        self.process = subprocess.Popen(
            command, env=environment(), stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait_for(lambda: any("listens on" in line for line in self.said))
        self.plc = Client(self.port)
        self.plc.send("E,1")
        self.plc.wait_for(StatusBit.READY)
        self.seq = 0
        self.program = Browser(self.web, origin=None, token=self.token)
        self.wait_for(self.connected)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(iter(self.process.stderr.readline, ""))

    def wait_for(self, condition: object) -> None:
        assert callable(condition)
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None, self.said
            time.sleep(0.05)

    def connected(self) -> bool:
        """Whether the page answers and reaches the line."""
        try:
            return bool(self.program.get("/health/ready").json["connected"])
        except (OSError, ValueError):
            return False

    def part(self) -> None:
        """Send a good part through; it must pass."""
        self.seq += 1
        self.plc.wait_for(StatusBit.READY)
        answer = self.plc.ask(f"T,{self.seq}")
        assert answer[:3] == ["R", str(self.seq), "PASS"], (answer, self.said)
        self.plc.send(f"A,{self.seq}")

    def pages(self) -> list[int]:
        """The numbers of the web processes that live."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, ValueError):
                continue
            ours = int(stat[1]) == self.process.pid and stat[0] != "Z"
            if ours and b"anoco_edge.station.main" in words:
                found.append(int(folder.name))
        return found

    def stop(self) -> None:
        pages = self.pages()
        self.process.terminate()
        self.process.wait(PATIENCE)
        for page in pages:
            end = time.monotonic() + PATIENCE
            while Path(f"/proc/{page}").exists():
                assert time.monotonic() < end, "the page outlives the line"
                time.sleep(0.05)
