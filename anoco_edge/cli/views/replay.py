"""Shows the verdict of an old part beside the one that was computed again."""

from __future__ import annotations

from anoco_edge.cli.console import out
from anoco_edge.line.core.events import Opinion
from anoco_edge.line.replay import CaptureReplay, PartReplay, RecordedOpinion
from anoco_edge.text.plain_text import plain_text

_RESULT = {
    "same": "The verdict is the same.",
    "different": "The verdict is another one.",
    "not computed": "The verdict cannot be compared.",
}

Values = dict[str, object]


def show_replay(done: PartReplay) -> None:
    """Print the part, a line for each capture, and whether the verdict is the same."""
    verdict = done.verdict if not done.reason else f"{done.verdict} ({done.reason.name})"
    _print(f"{done.uid}, {done.at}, configuration {done.config[:12]}: {verdict}")
    for capture in done.captures:
        _print(f"capture {capture.number + 1}, {capture.camera}: {_words(capture)}")
    _print(_RESULT[done.state])


def replay_values(done: PartReplay) -> Values:
    """Return the same for JSON."""
    return {
        "uid": done.uid,
        "at": done.at,
        "config": done.config,
        "verdict": done.verdict,
        "reason": done.reason.name,
        "state": done.state,
        "captures": [
            {
                "number": each.number,
                "camera": each.camera,
                "state": each.state,
                "recorded": _values(each.recorded),
                "computed": _values(each.computed),
                "problem": each.problem,
            }
            for each in done.captures
        ],
    }


def _words(capture: CaptureReplay) -> str:
    old, new = capture.recorded, capture.computed
    if new is None:
        return capture.problem
    if old is None:
        return f"{capture.problem}; it is {_opinion(new)}"
    late = "late " if old.late else ""
    return f"recorded {late}{_opinion(old)}, computed {_opinion(new)}: {capture.state}"


def _opinion(opinion: Opinion | RecordedOpinion) -> str:
    if opinion.reason:
        return f"{opinion.verdict} ({opinion.reason.name})"
    return f"{opinion.verdict} {opinion.ratio:.6g}"


def _values(opinion: Opinion | RecordedOpinion | None) -> Values | None:
    if opinion is None:
        return None
    found: Values = {"verdict": opinion.verdict, "reason": opinion.reason.name}
    return {**found, "ratio": opinion.ratio, "late": getattr(opinion, "late", False)}


def _print(text: str) -> None:
    out.print(plain_text(text), soft_wrap=True, markup=False)
