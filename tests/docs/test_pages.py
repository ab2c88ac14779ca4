"""Every command and snippet of every page runs, in the order of the page, in a user's folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_pages import FROM_NOTHING, Block, Reader, blocks, make_workplace, pages, split_command
from paths import ROOT, RUNTIME

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = pages()
RUN = ("sh", "python")
OPENCV = Path("/usr/include/opencv4")
COMPILED = {"c": ("cc", "-std=c11"), "cpp": ("c++", "-std=c++17")}
GIVEN = """
#include <cstdint>
#include <vector>
#include <anoco_edge.hpp>
extern const uint8_t* pixels;
extern int64_t width, height;
void reject(const std::vector<anoco_region>& regions);
void stop_the_line();
"""
"""What the short C++ snippets take from the program around them."""


def all_blocks(*kinds: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, *kinds)]


@pytest.fixture(scope="session")
def workplace_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "template"
    make_workplace(folder)
    return folder


@pytest.fixture
def workplace(workplace_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template as the current directory."""
    folder = tmp_path / "here"
    shutil.copytree(workplace_template, folder)
    monkeypatch.chdir(folder)
    return folder


def follow(page: str, workplace: Path, *, slow: bool) -> None:
    if page in FROM_NOTHING:
        shutil.rmtree(workplace / "line.anoco")
    reader = Reader(workplace)
    for block in blocks(page):
        if slow or not block.slow:
            reader.follow(block)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, *RUN)])
def test_the_page_runs(page: str, workplace: Path) -> None:
    follow(page, workplace, slow=False)


@pytest.mark.full
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.slow for b in blocks(page))])
def test_the_page_runs_with_its_slow_blocks(page: str, workplace: Path) -> None:
    follow(page, workplace, slow=True)


@pytest.mark.parametrize("block", all_blocks("c", "cpp"), ids=str)
def test_native_snippets_compile(block: Block, tmp_path: Path) -> None:
    compiler, standard = COMPILED[block.kind]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    if "opencv" in block.text and not OPENCV.is_dir():
        pytest.skip("the headers of OpenCV are not installed")
    source = tmp_path / f"snippet.{block.kind}"
    source.write_text(as_program(block))
    folders = ("-I", RUNTIME / "include", "-I", OPENCV)
    done = subprocess.run(
        [compiler, standard, "-fsyntax-only", "-Wall", *folders, source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{block}\n{done.stderr}"


def as_program(block: Block) -> str:
    """A block that is a whole file, or statements in a function after what they are given."""
    if re.search(r"^[\w:<>*& ]+\([^;]*\) \{$", block.text, flags=re.M):
        return f"{block.given}\n{block.text}"
    includes = "\n".join(re.findall(r"^#include .*$", block.text, flags=re.M))
    statements = re.sub(r"^#include .*$", "", block.text, flags=re.M)
    known = GIVEN if block.kind == "cpp" else "#include <anoco_edge.h>"
    return f"{includes}\n{known}\n{block.given}\nvoid snippet(void) {{\n{statements}\n}}\n"


@pytest.mark.parametrize("block", all_blocks("toml", "json"), ids=str)
def test_documents_parse(block: Block) -> None:
    if block.kind == "toml":
        tomllib.loads(block.text)
    else:
        json.loads(block.text)


@cache
def application() -> Any:
    from anoco_edge.cli.app import make_app

    return typer.main.get_command(make_app())


def check_command(line: str) -> None:
    """Refuse a command or an option that anoco-edge does not have."""
    words = split_command(line)[1][1:]
    command, name = application(), "anoco-edge"
    while words and hasattr(command, "commands"):
        if words[0].startswith("-") or words[0].isupper():
            break  # --version, or COMMAND --help
        name = words.pop(0)
        assert name in command.commands, f"{line!r}: anoco-edge has no command {name!r}"
        command = command.commands[name]
    if words and words[0].isupper() and hasattr(command, "commands"):
        return
    known = {option for parameter in command.params for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts}
    for word in words:
        option = word.partition("=")[0]
        if re.match(r"--?[a-z]", option):
            assert option in known | {"--help", "-h"}, f"{line!r}: {name} has no {option}"


def test_commands_that_are_only_shown_exist() -> None:
    shown = [line.strip() for block in all_blocks("text", "console") for line in block.lines()]
    for line in shown:
        if re.match(r"(\$ )?anoco-edge ", line):
            check_command(line)
    inline = re.compile(r"`(anoco-edge [^`\n]+)`")
    for page in PAGES:
        for line in inline.findall((ROOT / page).read_text(encoding="utf-8")):
            if "..." not in line:
                check_command(line)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    check_command("anoco-edge infer line.anoco --camera 0  # a comment")
    check_command("anoco-edge COMMAND --help")
    with pytest.raises(AssertionError, match="no command 'inspect'"):
        check_command("anoco-edge inspect line.anoco")
    with pytest.raises(AssertionError, match="has no --kamera"):
        check_command("anoco-edge infer --kamera 0")


def test_every_block_says_what_it_is() -> None:
    kinds = {*RUN, *COMPILED, "text", "console", "toml", "json", "cmake"}
    untold = [str(block) for block in all_blocks() if block.kind not in kinds and not block.title]
    assert not untold, f"blocks of an unknown kind, see docs/README.md: {untold}"


def test_pages_are_counted(record_property: Callable[[str, object], None]) -> None:
    commands = [line for block in all_blocks("sh") for line in block.lines()]
    slow = [line for block in all_blocks("sh") if block.slow for line in block.lines()]
    snippets = all_blocks("python", "c", "cpp", "toml", "json")
    assert len(commands) > 20 and len(snippets) > 5
    record_property(
        "figure",
        f"documentation: {len(commands)} commands ({len(slow)} of them in test-full) and "
        f"{len(snippets)} snippets of {len(PAGES)} pages ran",
    )
