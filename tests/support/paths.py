"""The paths of the repository's parts, for tests that read them or start processes in them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"
EXAMPLES = ROOT / "examples"
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
GOLDEN = TESTS / "golden"
PACKAGES = (ROOT, ROOT / "export", ROOT / "calibration")
"""The folders from which Python imports our three packages."""


def python_path(*folders: Path | str) -> str:
    """Return the PYTHONPATH with which a process imports from these folders, in this order."""
    return os.pathsep.join(map(str, folders))
