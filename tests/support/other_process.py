"""Runs code in another process for tests of faults, and shows what it did to the files."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, SUPPORT, python_path

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import commit
from anoco_edge.storage.locks import LOCK

# An AnocoError becomes one line on stderr and its exit code, as on the command line. Any other
# exception gives a traceback, which `finish` looks for.
_PROGRAM = """
import sys, time
from pathlib import Path
from anoco_edge.errors import AnocoError
PRELUDE

def main(path):
    BODY

try:
    main(Path(sys.argv[1]))
except AnocoError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def run_apart(
    prelude: str,
    body: str,
    path: Path,
    *,
    before: Callable[[], None] | None = None,
    wrapper: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """Run `body` (of a function of `path`) in another process, after the imports of `prelude`."""
    indented = textwrap.indent(textwrap.dedent(body), "    ").strip()
    program = _PROGRAM.replace("PRELUDE", prelude).replace("BODY", indented)
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT, SUPPORT)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.Popen(
        [*wrapper, sys.executable, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=before,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a process, which must print no traceback; return its exit code and its output."""
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def snapshot(path: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, without lock files."""
    files = (p for p in path.rglob("*") if p.is_file() and p.name != LOCK)
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in files}


def commit_and_die(
    bundle: Bundle, product: Product, files: dict[str, bytes], step: int, when: str
) -> int:
    """Commit in a forked process that kills itself at the given rename; return its wait status."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    # Collecting an engine of the parent would wait for threads that a fork does not copy.
    gc.disable()
    rename, renames = os.replace, itertools.count()

    def deadly(*names: Any, **folders: Any) -> None:
        dies = next(renames) == step
        if not (dies and when == "before"):
            rename(*names, **folders)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = deadly
    commit(bundle, product, files)
    os._exit(0)


@pytest.fixture
def powerless() -> tuple[str, ...]:
    """Return a command prefix under which permission bits apply to root as to other users."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing: install util-linux")
    prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("setpriv may not drop capabilities here")
    return prefix
