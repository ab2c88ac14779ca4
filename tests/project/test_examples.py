"""Every example in examples/ runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from paths import EXAMPLES
from PIL import Image

from anoco_edge.bundle import Bundle
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
