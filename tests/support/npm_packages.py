"""Gives programs of the tests the npm packages that they name, or skips the test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from npm_install import NpmUnavailableError, install


def with_packages(program: Path, folder: Path) -> Path:
    """Copy a program with its package.json to `folder`, and put the packages beside it."""
    try:
        packages = install(program)
    except NpmUnavailableError as error:
        pytest.skip(f"{error}, so {program.name} did not run")
    shutil.copytree(program, folder, dirs_exist_ok=True)
    (folder / "node_modules").symlink_to(packages, target_is_directory=True)
    return folder
