"""A pipe, a device or a socket where a file is expected is refused at once, never waited for."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anoco_edge.diagnostics.device_report.report import read_report
from anoco_edge.errors import AnocoError
from anoco_edge.images.decode import read_picture
from anoco_edge.sinks.folder import read_results
from anoco_edge.sources import open_source
from anoco_edge.storage.regular_file import NotRegularFileError, open_regular
from anoco_edge.teaching import NewPicture
from anoco_edge_export.checkpoint import read_checkpoint

READERS: dict[str, Callable[[Path], object]] = {
    "picture": read_picture,
    "reference": NewPicture.from_file,
    "named input": lambda path: open_source([str(path)]),
    "video of a glob": lambda path: open_source([f"{path.parent}/*.mp4"]),
    "results": lambda path: list(read_results(path)),
    "weights": read_checkpoint,
    "device report": read_report,
}


@pytest.fixture(params=["pipe", "socket", "link to a pipe", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "x.mp4"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
            yield path
        return
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    yield path


@pytest.mark.parametrize("reader", READERS)
def test_a_special_file_is_refused_at_once(reader: str, special: Path) -> None:
    outcome: list[AnocoError] = []

    def read() -> None:
        try:
            READERS[reader](special)
        except AnocoError as error:
            outcome.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert outcome, "it waits, or fails without a word"
    assert str(special) in str(outcome[0])


def test_a_file_exchanged_for_a_pipe_in_between_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, regular = tmp_path / "part.png", tmp_path / "regular"
    regular.touch()
    os.mkfifo(path)
    before = regular.stat()
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)
    with pytest.raises(NotRegularFileError, match="not a regular file"):
        open_regular(path)
