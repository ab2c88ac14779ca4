"""The lines of the report of `anoco-edge doctor`, and how something is tried for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anoco_edge.errors import AnocoError

State = Literal["ok", "missing", "broken", "absent"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    The state `missing` means that something can be installed, `broken` that it is there and fails,
    and `absent` that it is not there and need not be.
    """

    group: str
    name: str
    state: State
    detail: str = ""
    help: str = ""


def attempt(group: str, name: str, trial: Callable[[], str]) -> Finding:
    """Run a trial that says what works; what it raises becomes the finding.

    >>> attempt("engines", "json", lambda: "reads").detail
    'reads'
    """
    try:
        return Finding(group, name, "ok", trial())
    except AnocoError as error:
        return failed(group, name, error)
    except Exception as error:  # noqa: BLE001 (a trial may fail in any way, which is the finding)
        return Finding(
            group, name, "broken", _one_line(error), "install it again, or another version of it"
        )


def failed(group: str, name: str, error: AnocoError) -> Finding:
    """Make the finding of an error: something is missing, or is there and fails."""
    state: State = "missing" if "is not installed" in error.what else "broken"
    return Finding(group, name, state, error.what, error.hint.removeprefix("install it with: "))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
