"""Installs the npm packages that programs of the tests name, once for each version of the programs.

`make test` runs this file beside its own installation, with any Python. A test that needs packages
installs what is not there yet. Packages lie in build/npm/PROGRAM-HASH, named after package.json.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAMS = Path(__file__).parent
INSTALLED = PROGRAMS.parents[1] / "build/npm"
_OPTIONS = ("--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock")
_NETWORK = ("--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
# What npm calls its failures when the registry cannot be reached.
_UNREACHABLE = r"npm error code (EAI_AGAIN|ECONN\w+|ENETUNREACH|ENOTCACHED|ENOTFOUND|ETIMEDOUT)"


class NpmUnavailableError(Exception):
    """There is no npm here, or it does not reach its registry."""


def install(program: Path) -> Path:
    """Return the folder node_modules with what the package.json of a program names.

    Processes that want the same packages at the same time wait for the first of them.
    """
    wanted = (program / "package.json").read_bytes()
    folder = INSTALLED / f"{program.name}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            if shutil.which("npm") is None:
                raise NpmUnavailableError("npm is missing")
            _fill(folder, wanted)
    return folder / "node_modules"


def _fill(folder: Path, wanted: bytes) -> None:
    """Install beside the folder, which appears when all packages are there."""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "node_modules").mkdir(parents=True)
    (part / "package.json").write_bytes(wanted)
    command = ["npm", "install", *_OPTIONS, *_NETWORK]
    done = subprocess.run(command, cwd=part, capture_output=True, text=True)
    if done.returncode:
        unreachable = re.search(_UNREACHABLE, done.stderr)
        if unreachable is None:
            raise RuntimeError(done.stderr)
        raise NpmUnavailableError(f"npm cannot reach its registry: {unreachable[1]}")
    part.rename(folder)


def main() -> None:
    """Install the packages of all programs at the same time, and say what cannot be had."""
    programs = sorted(path.parent for path in PROGRAMS.glob("*/package.json"))
    with ThreadPoolExecutor(len(programs)) as pool:
        failures = [
            str(made.exception())
            for made in [pool.submit(install, program) for program in programs]
            if made.exception() is not None
        ]
    for failure in dict.fromkeys(failures):
        print(f"{failure}: tests with programs of npm are skipped or fail")


if __name__ == "__main__":
    main()
