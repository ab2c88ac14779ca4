"""SIGTERM, as a service manager sends it, gives one line and exit code 130, and leaves no rubbish.

Each process is stopped within a write, not at a random moment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import PATIENCE, environment, run_cli, tree

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.storage.beneath import TEMPORARY

# Both waits are longer than PATIENCE, so a stop that waited for them would be noticed.

# The graph is never written to its end. Tracing it takes seconds, and the test does not stop that.
STUCK_EXPORT = """
import time
from anoco_edge_export import export

def save_graph(graph, path):
    path.write_bytes(b"half a graph")
    print("stuck", flush=True)
    time.sleep(100_000)

export.trace, export.save_graph = lambda *_: None, save_graph
"""

# Writing a file whose path contains MOMENT never ends.
STUCK_DISK = """
import os, time
fsync = os.fsync

def sync(handle):
    if "MOMENT" in os.readlink(f"/proc/self/fd/{handle}"):
        print("stuck", flush=True)
        time.sleep(100_000)
    fsync(handle)

os.fsync = sync
"""


@contextmanager
def stopped_when(stuck: str, *args: object) -> Iterator[None]:
    """Run `anoco-edge` in a process of its own; the block runs while it hangs, then it is ended."""
    program = stuck + "\nfrom anoco_edge.cli import main\nmain()\n"
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stuck\n", process.communicate()
            yield
            process.terminate()
            out, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out) == (130, ""), err
            assert err == "anoco-edge: stopped\n"
        finally:
            process.kill()


def test_a_stopped_export_leaves_the_old_bundle_and_nothing_else(tiny_bundle: Bundle) -> None:
    target, before = tiny_bundle.path, tree(tiny_bundle.path)
    small = ("--backbone", "mobilenetv2", "--size", 64)
    with stopped_when(STUCK_EXPORT, "export", *small, "--out", target, "--overwrite"):
        (graph,) = target.parent.glob(f"{TEMPORARY}*/backbone.onnx")
        assert graph.read_bytes() == b"half a graph"
    assert list(target.parent.iterdir()) == [target]
    assert tree(target) == before


@pytest.mark.parametrize("moment", ["references/.tmp-", "default/.tmp-product.json"])
def test_a_stopped_enrolment_changes_nothing(here: Path, moment: str) -> None:
    """It is stopped within the first file, and within the last, when all others are already
    written.
    """
    before = tree(here)
    stuck = STUCK_DISK.replace("MOMENT", moment)
    asked = ("enroll", "line.anoco", "parts/good0.png", "parts/good1.png", "--augment", "none")
    with stopped_when(stuck, *asked):
        assert any(moment in path for path in tree(here))
    assert tree(here) == before


def test_a_command_that_says_itself_that_it_was_stopped_says_it_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Detector, "inspect_frames", stopped)
    ran = run_cli("infer", "line.anoco", "parts")
    assert ran.code == 130 and ran.err.splitlines()[-1] == "stopped before the end"
