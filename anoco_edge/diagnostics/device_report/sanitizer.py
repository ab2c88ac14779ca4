"""Runs an inspection under NVIDIA's compute-sanitizer, where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from anoco_edge.errors import EnvironmentMissingError

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
_OPTIONS = ("--target-processes", "all", "--tool")
_SECONDS = 3600
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_LINES = 20


class SanitizerRun(BaseModel):
    """What one tool found; `errors` is None if it gave no summary. `said` are its last lines."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    errors: int | None
    said: str = ""


def find_sanitizer() -> str:
    """Return the path of compute-sanitizer; the error says what brings it."""
    for place in (None, *_PLACES):
        if found := shutil.which("compute-sanitizer", path=place):
            return found
    raise EnvironmentMissingError(
        "compute-sanitizer is not installed",
        hint="install it (package cuda-sanitizer-12-6 for CUDA 12.6), or leave out `sanitize`",
    )


def run_sanitizer(arguments: Sequence[str | Path]) -> tuple[SanitizerRun, ...]:
    """Inspect once under each tool; `arguments` are those of `one_inspection`."""
    program = find_sanitizer()
    return tuple(_run(program, tool, arguments) for tool in TOOLS)


def _run(program: str, tool: str, arguments: Sequence[str | Path]) -> SanitizerRun:
    ours = [sys.executable, "-m", f"{__package__}.one_inspection", *map(str, arguments)]
    try:
        done = subprocess.run(
            [program, *_OPTIONS, tool, *ours],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return SanitizerRun(tool=tool, errors=None, said=str(error))
    printed = done.stdout + done.stderr
    found = [int(number) for number in _SUMMARY.findall(printed)]
    said = "\n".join(printed.splitlines()[-_LINES:])
    clean = bool(found) and not any(found) and done.returncode == 0
    return SanitizerRun(tool=tool, errors=sum(found) if found else None, said="" if clean else said)
