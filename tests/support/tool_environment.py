"""An environment of its own for a Python tool that is no dependency of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def install_tool(folder: Path, requirement: str) -> Path:
    """Install a tool into a new environment and return the folder of its programs."""
    quiet = ("-q", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", *quiet, requirement]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"{requirement} cannot be installed: {ran.stderr.strip()[-300:]}")
    return folder / "bin"
