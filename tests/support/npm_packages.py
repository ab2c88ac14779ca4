"""Installs the packages that a program of the tests names, from the registry of npm's settings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_OPTIONS = ("--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock")


def with_packages(program: Path, folder: Path) -> Path:
    """Copy a program with its package.json to `folder` and install what it needs there."""
    if shutil.which("npm") is None:
        pytest.skip(f"npm is missing, so {program.name} did not run")
    shutil.copytree(program, folder, dirs_exist_ok=True)
    subprocess.run(["npm", "install", *_OPTIONS], cwd=folder, check=True, capture_output=True)
    return folder
