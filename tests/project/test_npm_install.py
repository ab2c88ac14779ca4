"""Packages of npm are installed once, and a machine that cannot have them skips what needs them."""

from __future__ import annotations

from pathlib import Path

import npm_install
import pytest
from npm_packages import with_packages

NPM = """#!/bin/sh
echo called >> "{calls}"
echo "{says}" >&2
[ -z "{says}" ] && mkdir node_modules/thing
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(npm_install, "INSTALLED", tmp_path / "installed")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    made = tmp_path / "plc"
    made.mkdir()
    (made / "package.json").write_text("{}")
    return made


def put_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str = "") -> Path:
    """Make an npm that installs a package, or fails with these words; it notes its calls."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir(exist_ok=True)
    npm = tmp_path / "bin/npm"
    npm.write_text(NPM.format(calls=tmp_path / "calls", says=says))
    npm.chmod(0o755)
    return tmp_path / "calls"


def test_packages_are_installed_once_for_each_package_json(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = put_npm(tmp_path, monkeypatch)
    for name in ("first", "second"):
        assert (with_packages(program, tmp_path / name) / "node_modules/thing").is_dir()
    assert calls.read_text().count("called") == 1
    (program / "package.json").write_text('{"name": "plc"}')
    with_packages(program, tmp_path / "third")
    assert calls.read_text().count("called") == 2


def test_a_machine_without_npm_or_its_registry_skips_by_name(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pytest.skip.Exception, match="npm is missing, so plc did not run"):
        with_packages(program, tmp_path / "copy")
    put_npm(tmp_path, monkeypatch, "npm error code ENOTFOUND")
    with pytest.raises(pytest.skip.Exception, match="its registry: ENOTFOUND, so plc did not"):
        with_packages(program, tmp_path / "copy")


def test_a_package_that_does_not_exist_is_a_failure(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_npm(tmp_path, monkeypatch, "npm error code E404")
    with pytest.raises(RuntimeError, match="E404"):
        with_packages(program, tmp_path / "copy")
    assert not [each for each in (tmp_path / "installed").iterdir() if not each.suffix]
