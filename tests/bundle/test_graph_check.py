"""Both readers accept a graph only if its weights are in the bundle and its nodes are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graph_corpus import (
    BROKEN,
    DATA,
    DATA_SIZE,
    changed,
    corpus,
    mutations,
    native_verdicts,
    outside,
    python_verdict,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT, SUPPORT
from tiny_bundle import tiny_backbone

CORPUS = list(corpus())
GOOD = tiny_backbone(64, 64, 8)


@pytest.fixture(scope="session")
def program(native_library: Path) -> Path:
    """Return the path of runtime/tests/read_bundle, which is built beside the library."""
    return native_library.parent / "tests/read_bundle"


@pytest.mark.parametrize(("content", "said"), [c[1:] for c in CORPUS], ids=[c[0] for c in CORPUS])
def test_what_a_graph_may_hold(content: bytes, said: str, tmp_path: Path) -> None:
    verdict = python_verdict(content, "backbone.onnx")
    if not said:
        assert verdict == "accepted"
        return
    assert verdict.startswith("backbone.onnx ") and said in verdict
    assert "\n" not in verdict and "\x1b" not in verdict and len(verdict) < 400
    (tmp_path / "graph").write_bytes(content)
    assert python_verdict(tmp_path / "graph", "backbone.onnx") == verdict


def test_both_readers_say_the_same_of_the_corpus(program: Path, tmp_path: Path) -> None:
    for number, (_, content, _) in enumerate(CORPUS):
        (tmp_path / str(number)).write_bytes(content)
    found = native_verdicts(program, tmp_path)
    for number, (name, content, _) in enumerate(CORPUS):
        ours = python_verdict(content, str(tmp_path / str(number)))
        assert found[str(number)].replace("\\x0a", "\\n") == ours, name


def test_both_readers_agree_on_mutated_graphs(program: Path, tmp_path: Path) -> None:
    graphs = list(mutations(np.random.default_rng(11), 400))
    for number, content in enumerate(graphs):
        (tmp_path / str(number)).write_bytes(content)
    found = native_verdicts(program, tmp_path)
    verdicts = {"accepted": 0, "refused": 0}
    for number, content in enumerate(graphs):
        ours = python_verdict(content, str(tmp_path / str(number)))
        assert (found[str(number)] == "accepted") == (ours == "accepted"), (number, ours)
        verdicts["accepted" if ours == "accepted" else "refused"] += 1
    # a mutation may change a weight or a name that no check reads
    assert min(verdicts.values()) > 20


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(GOOD)), st.integers(0, 200))
def test_whatever_the_bytes_are_there_is_a_verdict(inserted: bytes, at: int, removed: int) -> None:
    verdict = python_verdict(GOOD[:at] + inserted + GOOD[at + removed :], "graph")
    assert verdict == "accepted" or verdict.startswith("graph ")


def test_every_cut_graph_is_refused() -> None:
    for length in range(len(GOOD)):
        verdict = python_verdict(GOOD[:length], "graph")
        assert BROKEN in verdict, length


def test_weights_of_gigabytes_are_skipped_not_read(tmp_path: Path) -> None:
    """The file has 2 GB and no blocks on disk; reading it would take memory and seconds."""
    size = 2**31
    length = bytes([(size >> shift & 0x7F) | 0x80 for shift in (0, 7, 14, 21)]) + bytes(
        [size >> 28]
    )
    path = tmp_path / "large.onnx"
    with path.open("wb") as stream:
        stream.write(GOOD + b"\x4a" + length)  # field 9 is not defined in the format
        stream.truncate(stream.tell() + size)
    program = (
        "import resource, sys; sys.path[:0] = sys.argv[1:3]; import graph_corpus\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(graph_corpus.python_verdict(graph_corpus.Path(sys.argv[3]), 'graph'))\n"
        "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ROOT, SUPPORT, path], capture_output=True, text=True
    )
    assert done.stdout == "accepted\n", done.stderr


def test_a_file_that_cannot_be_read_or_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "graph cannot be read" in python_verdict(tmp_path / "none", "graph")
    (tmp_path / "graph").write_bytes(GOOD)
    monkeypatch.setattr("os.pread", lambda *_: b"")
    assert "became shorter while it was read" in python_verdict(tmp_path / "graph", "graph")


def test_the_corpus_has_room_for_its_data() -> None:
    assert len(changed(outside(DATA))) < len(GOOD) and DATA_SIZE > 1536
