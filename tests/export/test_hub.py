"""Weights come from the hub, and errors are clear when nothing comes; a small server plays it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from anoco_edge_export.hub import kept_file

OPEN = "someone/open"
WEIGHTS = b"weights" * 1000
FILES = {
    "model.safetensors": WEIGHTS,
    "LICENSE.md": b"the terms",
    "README.md": b"---\nlicense: mit\n---\n",
    "training.log": b"nobody needs this",
}
CODE = """
import sys
from huggingface_hub import constants
from anoco_edge.errors import AnocoError
from anoco_edge_export import hub
from anoco_edge_export.recipe import HubWeights
hub._WAIT = 2.0
constants.DOWNLOAD_CHUNK_SIZE = 100  # any progress, and the library tries on
for repository in sys.argv[1:]:
    try:
        print(hub.hub_file("part", HubWeights(repository=repository), print))
    except AnocoError as error:
        print(type(error).__name__, error.exit_code, error)
"""
# Only the download runs here; what comes before and after it needs torch, which loads slowly.
EXPORT = """
import sys
from pathlib import Path
from huggingface_hub import constants
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge_export import export
constants.DOWNLOAD_CHUNK_SIZE = 20  # a third of a percent
sys.modules["torch"] = None
export._tools, export.check_memory = dict, lambda *_: None
try:
    export.export_backbone(sys.argv[1], Path(), progress=print)
except EnvironmentMissingError as error:
    assert "torch is needed" in str(error)
"""


class _Hub(BaseHTTPRequestHandler):
    """A server with as much of the protocol as is needed: HEAD, GET and a list of files.

    The name of a repository says how it behaves.
    """

    asked: list[str]  # shared by the requests of one test

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        if self.path.startswith("/api/models/"):
            listed = [{"rfilename": name} for name in FILES]
            return self._send(200, json.dumps({"id": OPEN, "siblings": listed}).encode())
        if "/resolve/" not in self.path:  # other requests, which some versions of the library make
            return self._send(404, b"")
        _, _, behaviour, *_, name = self.path.split("/")
        if behaviour in ("gated-401", "gated-403"):
            return self._send(int(behaviour[-3:]), b"", code="GatedRepo")
        if behaviour == "absent":
            return self._send(404, b"", code="RepoNotFound")
        if behaviour == "empty":
            return self._send(404, b"", code="EntryNotFound")
        if behaviour == "slow":
            time.sleep(4)
        content = FILES[name]
        sent = content[: len(content) // 2] if behaviour == "cut" else content
        return self._send(200, sent if with_body else b"", size=len(content))

    def _send(self, status: int, body: bytes, code: str = "", size: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.send_header("ETag", f'"{self.path.rsplit("/", 1)[-1]}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Print nothing to stderr."""


@pytest.fixture
def hub() -> Iterator[tuple[type[_Hub], str]]:
    handler = type("Hub", (_Hub,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def _ask(endpoint: str, home: Path, *args: str, code: str = CODE, **settings: str) -> list[str]:
    """Return the printed lines of a new process, because the library reads its settings once."""
    proxies = {f"{k}_proxy" for k in ("http", "https", "all", "HTTP", "HTTPS", "ALL")}
    kept = {k: v for k, v in os.environ.items() if k not in proxies and not k.startswith("HF_")}
    environment = kept | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home / "hf"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **settings,
    }
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stderr == ""  # the library's own warnings are never shown
    return done.stdout.splitlines()


def test_the_file_comes_with_its_terms_and_is_asked_for_once(
    hub: tuple[type[_Hub], str], tmp_path: Path
) -> None:
    server, endpoint = hub
    *told, path = _ask(endpoint, tmp_path, OPEN)
    assert Path(path).read_bytes() == WEIGHTS
    assert told[-1] == f"fetching model.safetensors of {OPEN}: 100 %"
    beside = {file.name for file in Path(path).parent.iterdir()}
    assert beside == {"model.safetensors", "LICENSE.md", "README.md"}
    before = len(server.asked)
    assert _ask(endpoint, tmp_path, OPEN, HF_HUB_OFFLINE="1") == [path]
    assert len(server.asked) == before


def test_terms_that_another_program_left_out_are_fetched_afterwards(
    hub: tuple[type[_Hub], str], tmp_path: Path
) -> None:
    server, endpoint = hub
    path = Path(_ask(endpoint, tmp_path, OPEN)[-1])
    licence = path.with_name("LICENSE.md")
    licence.unlink()  # README.md stays, as other programs fetch it, but it does not hold the terms
    # There is no hub, and none is needed.
    assert _ask("http://127.0.0.1:9", tmp_path, OPEN) == [str(path)]
    assert not licence.exists()
    server.asked.clear()
    assert _ask(endpoint, tmp_path, OPEN) == [str(path)]
    assert licence.read_bytes() == b"the terms"
    assert not [line for line in server.asked if line.endswith("/model.safetensors")]


def test_who_exports_sees_the_download_come_along(
    hub: tuple[type[_Hub], str], tmp_path: Path
) -> None:
    first, *told = _ask(hub[1], tmp_path, "dinov3-s", code=EXPORT)
    assert first.startswith("loading DINOv3")
    what = "fetching model.safetensors of timm/vit_small_patch16_dinov3.lvd1689m"
    percents = [int(line.removeprefix(f"{what}: ").removesuffix(" %")) for line in told]
    assert len(percents) > 10 and percents[-1] == 100
    assert percents == sorted(set(percents))


def test_what_to_do_when_the_hub_gives_nothing(hub: tuple[type[_Hub], str], tmp_path: Path) -> None:
    gated = "only to those who accepted its terms; accept them on that repository's page"
    says = {
        "someone/absent": "the hub has no model.safetensors of someone/absent",
        "someone/empty": "the hub has no model.safetensors of someone/empty",
        "someone/gated-401": gated,
        "someone/gated-403": gated,
        "someone/slow": "the hub cannot be reached for model.safetensors of someone/slow",
        "someone/cut": "the hub broke off sending model.safetensors of someone/cut",
    }
    told = [line for line in _ask(hub[1], tmp_path, *says) if not line.startswith("fetching")]
    for line, expected in zip(told, says.values(), strict=True):
        _assert_helpful(line, tmp_path, expected)
    assert not list((tmp_path / "hf").rglob("model.safetensors"))  # no partial file is left


def test_what_to_do_without_a_network(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    started = time.monotonic()
    (told,) = _ask(nobody, tmp_path, OPEN)
    assert time.monotonic() - started < 20  # the library alone would retry for longer
    _assert_helpful(told, tmp_path, f"the hub cannot be reached for model.safetensors of {OPEN}")
    (told,) = _ask(nobody, tmp_path, OPEN, HF_HUB_OFFLINE="1")
    _assert_helpful(told, tmp_path, "HF_HUB_OFFLINE forbids to fetch it")


def _assert_helpful(line: str, home: Path, says: str) -> None:
    """Check exit code 3, and that the message says what to fetch and where to put it."""
    assert line.startswith("EnvironmentMissingError 3 ")
    assert says in line
    place = home / "cache" / "anoco-edge" / "weights" / "part.safetensors"
    assert f"put it at {place}, or pass it with `weights=FILE`" in line


def test_a_file_put_where_the_message_says_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_file("part") is None
    folder = tmp_path / "anoco-edge" / "weights"
    folder.mkdir(parents=True)
    for name in ("part.pth", "part.safetensors"):  # the safer format wins
        (folder / name).touch()
        assert kept_file("part") == folder / name
