"""The last line of `anoco-edge doctor` fits the machine."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import ok

from anoco_edge.cli.console import PlainConsole
from anoco_edge.cli.views import doctor as view
from anoco_edge.diagnostics.advice import Board, advise
from anoco_edge.diagnostics.findings import Finding, State

JETSON, RTX = Board(jetson=True), Board(nvidia=True)
CPU = "pip install 'anoco-edge[cpu]'"


def machine(**states: State) -> list[Finding]:
    """What doctor finds where everything for a CPU works and there is no camera; then `states`."""
    found: dict[str, State] = {
        "machine cache": "ok",
        "engines onnxruntime": "ok",
        "engines tensorrt": "absent",
        "engines tensorrt-rtx": "absent",
        "scorers reference": "ok",
        "scorers native": "ok",
        "video PyAV": "ok",
        "video OpenCV": "ok",
        "cameras none": "absent",
    }
    found |= {name.replace("__", " ").replace("_", "-"): state for name, state in states.items()}
    return [Finding(*name.split(), state, "", f"help of {name}") for name, state in found.items()]


@pytest.mark.parametrize(
    ("findings", "board", "command"),
    [
        (machine(engines__onnxruntime="missing"), Board(), CPU),
        (machine(engines__onnxruntime="missing", scorers__native="absent"), JETSON, CPU),
        (machine(engines__onnxruntime="broken"), Board(), "help of engines onnxruntime"),
        (machine(machine__cache="broken"), Board(), "help of machine cache"),
        (machine(), RTX, "pip install 'anoco-edge[rtx]'"),
        (machine(), JETSON, "pip install 'anoco-edge[jetson]'"),
        (machine(scorers__native="absent"), Board(), "install g++ and cmake"),
        (machine(video__OpenCV="missing"), Board(), "pip install 'anoco-edge[camera]'"),
        (machine(engines__tensorrt="ok", video__OpenCV="missing"), JETSON, "JetPack's OpenCV"),
        (machine(engines__tensorrt="ok"), JETSON, "then anoco-edge build line.anoco"),
        (machine(engines__tensorrt_rtx="ok"), RTX, "then anoco-edge build line.anoco"),
        (machine(), Board(), "anoco-edge enroll line.anoco GOOD_PICTURES/"),
    ],
)
def test_the_advice_fits_the_machine(
    findings: Sequence[Finding], board: Board, command: str
) -> None:
    advice = advise(findings, board)
    assert (advice.group, advice.name, advice.state) == ("advice", "next", "ok")
    assert command in advice.help and advice.detail


def test_a_camera_that_answers_is_looked_through_next() -> None:
    findings = [*machine(), Finding("cameras", "/dev/video2", "ok", "answers with 640x480")]
    advice = advise(findings, Board())
    assert advice.help == "anoco-edge infer `camera=/dev/video2` `teach=4`"
    assert last_line(advice) == (
        "next, with a good part in view: anoco-edge infer --camera /dev/video2 --teach 4"
    )
    broken = [*machine(), Finding("cameras", "/dev/video2", "broken", "gave no picture")]
    assert "enroll" in advise(broken, Board()).help


def test_what_kind_of_machine_it_is(tmp_path: Path) -> None:
    assert Board.of(tmp_path) == Board()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.3\n")
    assert Board.of(tmp_path) == JETSON
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert Board.of(tmp_path) == Board(jetson=True, nvidia=True)
    # In a container the release file may be missing; the board's device tree is there.
    (tmp_path / "etc/nv_tegra_release").unlink()
    (tmp_path / "proc/device-tree").mkdir()
    (tmp_path / "proc/device-tree/compatible").write_bytes(b"nvidia,p3971\0nvidia,tegra264\0")
    assert Board.of(tmp_path).jetson


def rendered(monkeypatch: pytest.MonkeyPatch, findings: Sequence[Finding]) -> list[str]:
    stream = io.StringIO()
    monkeypatch.setattr(view, "out", PlainConsole(file=stream, width=80, highlight=False))
    view.show_findings(findings)
    return stream.getvalue().splitlines()


def last_line(advice: Finding) -> str:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "out", PlainConsole(file=stream, width=80, highlight=False))
        view.show_advice(advice)
    return stream.getvalue().splitlines()[-1]


def letters(text: str) -> str:
    return "".join(text.split())


def test_the_table_cuts_nothing_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    name, path = "a-plugin-" + "with-a-long-name-" * 5, "/opt/" + "deep/" * 30
    detail = "it needs a driver that is newer than " + path
    findings = [
        Finding("engines", "onnxruntime", "ok", "ran a graph"),
        Finding("engines", name, "broken", detail, "pip install 'a-package[with,extras]'"),
    ]
    lines = rendered(monkeypatch, findings)
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    names = letters("".join(line[:30] for line in lines))
    details = letters("".join(line[30:] for line in lines))
    assert name in names
    assert letters(detail) in details and letters(findings[1].help) in details


def test_a_usual_name_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = rendered(monkeypatch, [Finding("providers", "TensorrtExecutionProvider", "ok", "x")])
    assert [line.split() for line in lines][1] == ["✓", "TensorrtExecutionProvider", "x"]


def test_doctor_ends_with_its_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = ok("doctor", "--no-camera", "--json").json
    advice = rows[-1]
    assert (advice["group"], advice["name"]) == ("advice", "next")
    *table, usable, line = ok("doctor", "--no-camera").out.splitlines()
    assert usable == "Parts can be inspected on this machine."
    assert line == f"next, {advice['detail']}: {advice['help']}"
    assert "`" not in advice["help"]
    assert max(map(len, table)) <= 80
