"""The pages of the documentation, their blocks of code, and a reader who types them in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from command_line import PATIENCE, environment, run_cli
from numpy.typing import NDArray
from paths import ROOT
from PIL import Image

from anoco_edge.bundle import create_builtin_bundle
from anoco_edge.demo.render import render
from anoco_edge.teaching import NewPicture, Teacher

FROM_NOTHING = ("README.md", "docs/quick-start.md")
"""Pages that make line.anoco themselves; on all others it is there."""

NO_CAMERA = 3  # the exit code where no camera is plugged in

CHECKED_ONLY = ("make", "pip", "cmake", "git", "docker", "systemctl", "apt-get", "mkdocs")
"""Programs that would change the machine or take minutes: their arguments are looked at."""

_BLOCK = re.compile(
    r"(?P<marks>(?:^ *<!--[^\n]*-->\n+)*)"
    r"^(?P<indent> *)```(?P<kind>[a-z]*)(?P<head>[^\n]*)\n(?P<text>.*?)^(?P=indent)```",
    flags=re.S | re.M,
)
_EXIT = re.compile(r"# exit (\d+)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    kind: str
    text: str
    title: str = ""
    slow: bool = False
    given: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def lines(self) -> list[str]:
        """Return the lines of a shell block, continued ones joined."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]


def pages() -> list[str]:
    """Return every page as its path in the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks(page: str, *kinds: str) -> list[Block]:
    """Return the blocks of a page in their order, all of them or those of some kinds."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [_block(page, text, match) for match in _BLOCK.finditer(text)]
    return [block for block in found if not kinds or block.kind in kinds]


def _block(page: str, text: str, match: re.Match[str]) -> Block:
    title = re.search(r'title="([^"]+)"', match["head"])
    given = re.search(r"<!-- given: (.*?) -->", match["marks"])
    return Block(
        page,
        text.count("\n", 0, match.start("kind")) + 1,
        match["kind"],
        textwrap.dedent(match["text"]),
        title[1] if title else "",
        "<!-- slow -->" in match["marks"],
        given[1] if given else "",
    )


def make_workplace(folder: Path) -> None:
    """Make the folders that pages speak of, and line.anoco, which was taught four good parts."""
    _save(folder / "good", "good-{}", [render("washer", k).rgb for k in range(5)])
    defects = ["scratch", "missing-hole"]
    parts = [render("washer", 50 + k, name).rgb for k, name in enumerate(["scratch", None, "chip"])]
    _save(folder / "parts", "part-{}", parts)
    _save(folder / "more-good", "{:02}", [render("washer", 100 + k).rgb for k in range(20)])
    wrong = [render("washer", 200 + k, name) for k, name in enumerate(defects)]
    _save(folder / "bad", "{:02}", [part.rgb for part in wrong])
    dataset = folder / "dataset"
    shutil.copytree(folder / "good", dataset / "train" / "good")
    _save(dataset / "test" / "good", "{:02}", [render("washer", 400 + k).rgb for k in range(2)])
    _save(dataset / "test" / "defect", "{:02}", [part.rgb for part in wrong])
    _save(dataset / "ground_truth" / "defect", "{:02}", [part.mask for part in wrong])
    good = [NewPicture.from_file(folder / "good" / f"good-{k}.png") for k in range(4)]
    create_builtin_bundle(
        folder / "line.anoco", prepare=lambda bundle: Teacher.open(bundle).enroll(good)
    )


def _save(folder: Path, name: str, pictures: list[NDArray[Any]]) -> None:
    folder.mkdir(parents=True)
    for k, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{name.format(k)}.png")


@dataclass
class Reader:
    """Types what a page says, in a folder like that of a user; the blocks share one Python."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})
    cameras: bool = any(Path("/dev").glob("video*"))

    def follow(self, block: Block) -> None:
        """Do what a block asks for."""
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            self._execute(block)
        elif block.kind == "sh":
            for line in block.lines():
                self._run(line, block)

    def _execute(self, block: Block) -> None:
        # Blank lines before the code: errors then name the line of the page.
        code = compile("\n" * block.line + block.text, block.page, "exec")
        with redirect_stdout(StringIO()), _importing_from(self.folder):
            exec(code, self.names)

    def _run(self, line: str, block: Block) -> None:
        settings, words = split_command(line)
        if self.cameras and "--camera" in words:
            return  # it would run for ever
        wanted = _EXIT.search(line)
        expected = int(wanted[1]) if wanted else NO_CAMERA if "--camera" in words else 0
        if words[0] in CHECKED_ONLY:
            check_tool(words)
            return
        code, said = self._outcome(words, settings)
        assert code == expected, f"{block}: {line}\nended with {code}\n{said}"
        assert "Traceback" not in said, f"{block}: {line}\n{said}"

    def _outcome(self, words: list[str], settings: dict[str, str]) -> tuple[int, str]:
        if words[0] == "anoco-edge" and not settings:
            ran = run_cli(*words[1:])
            return ran.code, ran.out + ran.err
        program = [sys.executable] if words[0] == "python" else [shutil.which(words[0]) or words[0]]
        if words[0] == "anoco-edge":
            program = [sys.executable, "-m", "anoco_edge"]
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=self.folder,
            env={**environment(), **settings},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.returncode, done.stdout + done.stderr


def split_command(line: str) -> tuple[dict[str, str], list[str]]:
    """Split a line as a shell does: settings before the command, and words with names filled in."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    settings: dict[str, str] = {}
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    filled = [_matching(word) if "*" in word else [word] for word in words]
    return settings, [word for each in filled for word in each]


def _matching(pattern: str) -> list[str]:
    return sorted(map(str, Path().glob(pattern))) or [pattern]


def check_tool(words: list[str]) -> None:
    """Check that the target, extra or file exists that a command of another program names."""
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text()
        for target in words[1:]:
            name = target.partition("=")[0]
            assert re.search(rf"^{name}\s*(:|\?=)", makefile, flags=re.M), words
    elif words[0] == "pip":
        project = (ROOT / "pyproject.toml").read_text()
        for extras in re.findall(r"(?:\.|anoco-edge)\[([a-z,]+)\]", " ".join(words)):
            for extra in extras.split(","):
                assert re.search(rf"^{extra} = \[", project, flags=re.M), words
    elif words[0] == "cmake":
        for word, value in zip(words, [*words[1:], ""], strict=True):
            if word in ("-S", "--preset"):
                folder = ROOT / value if word == "-S" else ROOT / "runtime"
                assert folder.is_dir(), words


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and origin.startswith(str(folder) + os.sep):
                del sys.modules[name]  # another page may have a module of this name
