"""The reference of exit codes, written from the exceptions that carry them."""

from __future__ import annotations

from collections.abc import Iterator

from anoco_edge.errors import AnocoError

MEANINGS = {
    1: "It failed: something is unreadable, lost or full. The line on stderr says what.",
    2: "Usage: an unknown option, name or value.",
    3: "Something is not installed or not plugged in.",
    4: "The bundle is broken, incomplete or of another version.",
    5: "A graph does not compute what torch computed, or `replay` not the old verdict.",
    6: "`bench --max-p99` was missed.",
}
"""What the codes of exceptions mean to a shell script."""


def markdown() -> str:
    """Return the table of codes and the table of exceptions."""
    exceptions = sorted(_tree(AnocoError), key=lambda kind: (kind.exit_code, kind.__name__))
    codes = sorted({kind.exit_code for kind in exceptions})
    lines = ["| code | meaning |", "|---:|---|", "| 0 | Done. |"]
    lines += [f"| {code} | {MEANINGS[code]} |" for code in codes]
    lines += [
        "| 10 | `infer --fail-on-anomaly`: a part was anomalous. |",
        "| 11 | `infer --fail-on-anomaly`: no part was anomalous, but one had no verdict. |",
        "| 130 | Stopped by Ctrl-C or SIGTERM before the end. |",
        "",
        "## In Python",
        "",
        "The same errors are exceptions there, all of them below `anoco_edge.AnocoError`.",
        "",
        "| exception of `anoco_edge.errors` | code | raised for |",
        "|---|---:|---|",
    ]
    for kind in exceptions:
        meaning = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        lines.append(f"| `{kind.__name__}` | {kind.exit_code} | {meaning} |")
    return "\n".join(lines)


def _tree(kind: type[AnocoError]) -> Iterator[type[AnocoError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == AnocoError.__module__:
            yield from _tree(below)
