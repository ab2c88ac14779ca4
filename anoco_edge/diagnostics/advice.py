"""The one thing to do next on this machine, from what doctor found on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.diagnostics.findings import Finding
from anoco_edge.machine import is_jetson

GROUP = "advice"
_TEACH = "anoco-edge enroll line.anoco GOOD_PICTURES/"
_JETPACK = "python3 -m venv --system-site-packages ENV"


@dataclass(frozen=True)
class Board:
    """What kind of machine this is, as far as the advice depends on it."""

    jetson: bool = False
    nvidia: bool = False

    @staticmethod
    def of(root: Path = Path("/")) -> Board:
        """Look for a Jetson and for NVIDIA's driver in the files of Linux.

        >>> Board.of(Path("/no such folder"))
        Board(jetson=False, nvidia=False)
        """
        return Board(
            jetson=is_jetson(root),
            nvidia=(root / "proc/driver/nvidia/version").exists(),
        )


class _Report:
    """The findings, by what works and what does not."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._by_name = {(finding.group, finding.name): finding for finding in findings}

    def works(self, group: str, *names: str) -> bool:
        """Whether one of these works; without names, whether anything of the group does."""
        working = {n for (g, n), f in self._by_name.items() if g == group and f.state == "ok"}
        return bool(working & set(names) if names else working)

    def working(self, group: str) -> str:
        """Return the name of the first of a group that works, or nothing."""
        found = ((n, f) for (g, n), f in self._by_name.items() if g == group)
        return next((name for name, finding in found if finding.state == "ok"), "")

    def help(self, group: str, name: str) -> str:
        """Return what helps against something that is broken, or nothing."""
        finding = self._by_name.get((group, name))
        return finding.help if finding is not None and finding.state == "broken" else ""


Advice = tuple[str, str]
"""Why, as part of a sentence, and what to do."""


def advise(findings: Sequence[Finding], board: Board | None = None) -> Finding:
    """Return the one thing to do next: `help` is what to type, `detail` says why.

    The first rule that fits decides: what inspecting needs comes first, then what makes it faster,
    then cameras. Where nothing is missing, it is the command that teaches the first product.

    >>> advise([Finding("scorers", "reference", "ok")], Board()).help
    "pip install 'anoco-edge[cpu]'"
    """
    report, board = _Report(findings), board or Board.of()
    why, what = next(found for rule in _RULES if (found := rule(report, board)))
    return Finding(GROUP, "next", "ok", why, what)


def _engine(report: _Report, board: Board) -> Advice | None:
    if report.works("engines"):
        return None
    install = "pip install 'anoco-edge[cpu]'"
    return "because no engine runs here", report.help("engines", "onnxruntime") or install


def _cache(report: _Report, board: Board) -> Advice | None:
    repair = report.help("machine", "cache")
    return ("so that a start does not repeat the self-test", repair) if repair else None


def _gpu(report: _Report, board: Board) -> Advice | None:
    if report.works("engines", "tensorrt", "tensorrt-rtx", "onnxruntime-cuda"):
        return None
    why = "because no engine uses the GPU of this machine"
    if board.jetson:
        install = "pip install 'anoco-edge[jetson]'"
        return why, f"{_JETPACK} sees JetPack's TensorRT; in it, {install}"
    return (why, "pip install 'anoco-edge[rtx]'") if board.nvidia else None


def _native(report: _Report, board: Board) -> Advice | None:
    if report.works("scorers", "native"):
        return None
    build = "install g++ and cmake, then pip install --force-reinstall --no-deps anoco-edge"
    return "to score faster with the native library", build


def _video(report: _Report, board: Board) -> Advice | None:
    if report.works("video", "OpenCV"):
        return None
    if board.jetson:
        return "to read cameras", f"{_JETPACK} sees JetPack's OpenCV"
    return "to read cameras and videos", "pip install 'anoco-edge[camera]'"


def _start(report: _Report, board: Board) -> Advice | None:
    if report.works("engines", "tensorrt", "tensorrt-rtx"):
        return "to inspect on the GPU", f"{_TEACH}, then anoco-edge build line.anoco"
    if camera := report.working("cameras"):
        why = "with a good part in view"
        return why, f"anoco-edge infer `camera={camera}` `teach=4`"
    return "with a few pictures of good parts", _TEACH


_RULES: tuple[Callable[[_Report, Board], Advice | None], ...] = (
    _engine,
    _cache,
    _gpu,
    _native,
    _video,
    _start,
)
