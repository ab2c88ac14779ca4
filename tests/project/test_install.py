"""A fresh environment made from the wheel works without torch and is small, as a device needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from tiny_bundle import make_tiny_bundle, write_good_pictures

LIMIT_MB = 400


def megabytes(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


@pytest.mark.full
def test_a_fresh_cpu_environment_is_small_and_inspects(tmp_path: Path) -> None:
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, f"{ROOT}[cpu]"], check=True)
    size = megabytes(environment)
    print(f"a fresh [cpu] environment: {size:.0f} MB")
    assert size < LIMIT_MB

    bundle = make_tiny_bundle(tmp_path / "tiny.anoco").path
    pictures = [str(path) for path in write_good_pictures(tmp_path / "good", 5)]
    command = str(environment / "bin" / "anoco-edge")
    subprocess.run([command, "enroll", str(bundle), *pictures[:4]], check=True)
    out = tmp_path / "out"
    subprocess.run([command, "infer", str(bundle), pictures[4], "--out", str(out)], check=True)
    assert (out / "report.html").stat().st_size > 1000

    export = subprocess.run(
        [command, "export", "--backbone", "efficientnet-lite0"], capture_output=True, text=True
    )
    assert export.returncode == 3
    assert "pip install 'anoco-edge[export]'" in export.stderr
