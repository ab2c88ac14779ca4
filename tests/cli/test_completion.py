"""Shells complete commands, options and values; `--version` says which version this is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PATIENCE, environment, ok

from anoco_edge import __version__

COMMAND = [sys.executable, "-m", "anoco_edge"]


def run(*args: str, **variables: str) -> str:
    ran = subprocess.run(
        [*COMMAND, *args],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_version() -> None:
    assert ok("--version").out == f"anoco-edge {__version__}\n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("anoco-edge en", ["enroll"]),
        ("anoco-edge references ", ["list", "remove", "undo", "prune"]),
        ("anoco-edge enroll --pro", ["--product"]),
        ("anoco-edge infer --save ", ["anomalous", "all", "none"]),
    ],
)
def test_bash_completes(words: str, completed: list[str]) -> None:
    place = str(len(words.split(" ")) - 1)
    found = run(_ANOCO_EDGE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place)
    assert found.split() == completed


def test_zsh_shows_complete_help_texts() -> None:
    words = {"_TYPER_COMPLETE_ARGS": "anoco-edge enroll --eng"}
    found = run(_ANOCO_EDGE_COMPLETE="complete_zsh", **words)
    assert "--engine" in found and "openvino" in found and "{engines}" not in found


def test_completion_is_installed_for_a_shell(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    # The shell is the nearest one among the processes above, so bash must be the one that asks.
    installed = subprocess.run(
        ["bash", "-c", '"$@"; exit $?', "bash", *COMMAND, "--install-completion"],
        env={**environment(), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert ".bash_completions/anoco-edge.sh" in (tmp_path / ".bashrc").read_text()
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/anoco-edge"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m anoco_edge "$@"\n')
    command.chmod(0o755)
    ask = (
        'source "$HOME/.bashrc"; COMP_WORDS=(anoco-edge doc); COMP_CWORD=1; '
        f'_anoco_edge_completion "{command}"; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask],
        env={**environment(), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.split() == ["doctor"], done.stderr
