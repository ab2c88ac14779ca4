"""The two-camera test of CUDA graphs fails where the rule between captures and changes is broken.

The rule is runtime/src/gpu/capture_rule.cpp. It is compiled with a mistake and linked into the test
of runtime/tests/gpu in the place of the object; without a mistake the same test passes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import GOLDEN, RUNTIME

RULE = RUNTIME / "src/gpu/capture_rule.cpp"
OBJECT = "CMakeFiles/anoco_objects.dir/src/gpu/capture_rule.cpp.o"
PROGRAM = "tests/gpu/test_gpu_captures"
BUNDLE = GOLDEN / "v1/everything_anoco"
# What a mistake takes out of the rule, and what it puts there.
NO_MISTAKE = ("", "")
CHANGES_DO_NOT_WAIT = (
    "  all.turn.wait(lock, [&] { return !all.capturing && all.waiting == 0; });\n",
    "",
)
CAPTURES_DO_NOT_WAIT = (
    "[&] { return !all.capturing && all.changes == 0; }",
    "[&] { return true; }",
)


def commands(build: Path) -> list[str]:
    """Return the commands that make the test, the one that links it last."""
    ninja = shutil.which("ninja")
    if ninja is None or not (build / "build.ninja").exists():
        pytest.skip("the native library was not built with ninja, which knows its commands")
    listed = subprocess.run(
        [ninja, "-C", build, "-t", "commands", PROGRAM], capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def program_with(mistake: tuple[str, str], build: Path, folder: Path) -> Path:
    """Compile the rule with a mistake, and link the test with it."""
    old, new = mistake
    text = RULE.read_text()
    assert not old or text.count(old) == 1, f"{RULE.name} has changed"
    source, made, program = folder / RULE.name, folder / "rule.o", folder / "captures"
    source.write_text(text.replace(old, new) if old else text)
    listed = commands(build)
    (compiled,) = (line for line in listed if line.endswith(f" -c {RULE}"))
    for command in (compiled.replace(str(RULE), str(source)), listed[-1]):
        command = command.replace(OBJECT, str(made)).replace(f"-o {PROGRAM} ", f"-o {program} ")
        done = subprocess.run(command, shell=True, cwd=build, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return program


def run_part(program: Path, part: str) -> subprocess.CompletedProcess[str]:
    # A capture that takes long meets what other threads do on any machine.
    environment = dict(os.environ, SIMCUDA_CAPTURE_PAUSE="500")
    return subprocess.run([program, BUNDLE, part], capture_output=True, text=True, env=environment)


def test_with_the_rule_two_cameras_break_no_capture(native_build: Path, tmp_path: Path) -> None:
    program = program_with(NO_MISTAKE, native_build, tmp_path)
    done = run_part(program, "cameras")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"two cameras: \d+ captures, none broken\n", done.stdout)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(CHANGES_DO_NOT_WAIT, id="changes-do-not-wait"),
        pytest.param(CAPTURES_DO_NOT_WAIT, id="captures-do-not-wait", marks=pytest.mark.full),
    ],
)
def test_without_the_rule_two_cameras_break_captures(
    mistake: tuple[str, str], native_build: Path, tmp_path: Path
) -> None:
    program = program_with(mistake, native_build, tmp_path)
    done = run_part(program, "cameras")
    assert done.returncode == 1, done.stdout
    found = re.search(r"(\d+) of (\d+) captures broken, the last by cu\w+", done.stderr)
    assert found is not None and int(found[1]) > 0, done.stderr
    if mistake == CHANGES_DO_NOT_WAIT:
        done = run_part(program, "changes")
        assert done.returncode == 1 and "a scorer is made: cu" in done.stderr
