"""Every example in examples/ runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from paths import EXAMPLES
from PIL import Image
from tiny_dataset import make_category

from anoco_edge.bundle import Bundle
from anoco_edge.engines.cpu_precision import why_not_here
from anoco_edge.teaching import NewPicture, Teacher


def test_watch_folder(
    tiny_bundle: Bundle, good_pictures: Callable[[int], list[Path]], tmp_path: Path
) -> None:
    pictures = good_pictures(5)
    Teacher.open(tiny_bundle.path).enroll([NewPicture.from_file(p) for p in pictures[:4]])
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.png").write_bytes(pictures[0].read_bytes())
    command = [sys.executable, str(EXAMPLES / "watch_folder.py"), str(tiny_bundle.path), str(inbox)]

    calm = subprocess.run([*command, "--once"], capture_output=True, text=True)
    assert calm.returncode == 0, calm.stderr
    assert calm.stdout.startswith("a.png\tgood\t")

    defective = np.asarray(Image.open(pictures[4])).copy()
    defective[20:60, 20:60] = [250, 20, 20]
    Image.fromarray(defective).save(inbox / "b.png")
    (inbox / "c.png").write_text("not a picture")
    alarm = subprocess.run([*command, "--once"], capture_output=True, text=True)
    assert alarm.returncode == 1
    lines = alarm.stdout.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["good", "anomalous", "no verdict"]
    assert "unlike good" in lines[1]


@pytest.mark.skipif(bool(why_not_here("bf16")), reason=why_not_here("bf16"))
def test_compare_precisions(tiny_bundle: Bundle, tmp_path: Path) -> None:
    make_category(tmp_path / "sets" / "disc", seed=0)
    command = [sys.executable, str(EXAMPLES / "compare_precisions.py"), str(tmp_path / "sets")]
    bundle = ("--bundle", str(tiny_bundle.path), "--shots", "2", "--false-reject", "0.5")
    ran = subprocess.run([*command, *bundle], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (row,) = [line for line in ran.stdout.splitlines() if line.startswith("| disc |")]
    assert len(row.split("|")) == 12
    lowest = float(row.split("|")[3].split(",")[0])
    assert 0.9 < lowest < 1, "features are close, and not the same"
