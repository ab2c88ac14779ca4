"""Names of files, references and products may contain any character, and work everywhere.

No name controls a terminal, forges a line, breaks a table or starts a formula.
"""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from command_line import Ran, ok, rows_of, run_cli, run_process
from tiny_bundle import write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import PlainConsole
from anoco_edge.diagnostics.bench.tables import csv_text
from anoco_edge.text.plain_text import csv_cell

NAMES = {
    "title": "\x1b]0;owned\x07.png",
    "colour": "\x1b[31mred.png",
    "c1": "\x9b2Jgone.png",
    "delete": "a\x7fb.png",
    "line": "a\nanoco-edge: all parts are good\n.png",
    "return": "a\rb.png",
    "tab": "a\tb.png",
    "bidi": "\u202egnp.trap",
    "isolate": "\u2066a\u2069.png",
    "separator": "a\u2028b.png",
    "zero width": "a\u200bb\ufeff.png",
    "markup": "[red]a[ /].png".replace("/", "b"),
    "bold": "[bold]a[link=x].png",
    "backslash": "a\\.png",
    "emoji": ":key:.png",
    "formula": "=1+1.png",
    "plus": "+1.png",
    "at": "@a.png",
    "not utf-8": os.fsdecode(b"caf\xe9\xff.png"),
    "html": "<script>alert(1)</script>".replace("/", "_") + ".png",
    "japanese": "部品\u3000良.png",
}


def shown(ran: Ran) -> str:
    """Return what the terminal gets, and check that it is only text in lines."""
    text = ran.out + ran.err
    assert "Traceback" not in text and "internal error" not in text, text
    unsafe = {c for c in text if not c.isprintable() and c not in "\n\u3000"}
    assert not unsafe, (unsafe, text)
    return text


def parts(folder: Path) -> list[Path]:
    """Write a good part under each of the names."""
    folder.mkdir()
    made = write_good_pictures(folder.parent / "made", len(NAMES), seed=90)
    endings = [name if name.endswith(".png") else f"{name}.png" for name in NAMES.values()]
    return [path.rename(folder / name) for path, name in zip(made, endings, strict=True)]


def test_pictures_are_inspected_and_shown(here: Path) -> None:
    pictures = parts(here / "odd")
    ran = ok("infer", "line.anoco", "odd", "--out", "out", "--save", "all")
    assert f"{len(NAMES)} inspected" in shown(ran)
    rows = rows_of(Path("out"))
    assert {Path(row["picture"]).resolve() for row in rows} == {path.resolve() for path in pictures}
    with Path("out/results.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(NAMES)
    page = Path("out/report.html").read_text("utf-8")
    assert "<script>alert" not in page and not {"\x1b", "\u202e", "\x9b"} & set(page)
    found = ok("infer", "line.anoco", "odd", "--json")
    assert found.out.isascii() or not {"\x9b", "\u202e", "\x7f"} & set(found.out)
    assert [row["picture"] for row in found.json["results"]] == [row["picture"] for row in rows]


@pytest.mark.parametrize("name", ["=1+1.png", "+1.png", "-1.png", "@a.png", "\uff1da.png"])
def test_no_cell_of_a_table_is_a_formula(name: str) -> None:
    assert csv_cell(name) == f"'{name}"
    assert csv_cell("\t=1") == r"\t=1" and csv_cell("\r=1") == r"\r=1"
    assert csv_cell(-0.5) == -0.5 and csv_cell(None) is None
    text = csv_text([{"picture": name, "score": -0.5}])
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row == {"picture": f"'{name}", "score": "-0.5"}


def test_references_are_added_shown_and_removed(here: Path) -> None:
    pictures = parts(here / "odd")
    ok("infer", "line.anoco", "odd", "--out", "out", "--save", "all")
    shown(ok("enroll", "line.anoco", "--from-results", "out/results.jsonl", "--id", 0))
    shown(ok("enroll", "line.anoco", "odd"))
    shown(ok("references", "list", "line.anoco"))
    listed = ok("references", "list", "line.anoco", "--json").json["references"]
    names = [reference["name"] for reference in listed]
    assert len(names) == 4 + len(NAMES)
    shown(ok("infer", "line.anoco", "parts"))  # names the closest reference
    shown(ok("verify", "line.anoco"))
    shown(ok("references", "remove", "line.anoco", "--dry-run", "--", *names[4:]))
    # The name is given as the shell completes it, and as it was listed.
    shown(ok("references", "remove", "line.anoco", "--", *(path.name for path in pictures)))


def test_calibration_takes_and_shows_them(here: Path) -> None:
    parts(here / "odd")
    shown(ok("calibrate", "line.anoco", "odd", "--accept-fewer", "--group", "(.*)[.]png"))
    shown(ok("calibrate", "line.anoco", "odd", "--accept-fewer", "--out", "report"))
    shown(ok("info", "line.anoco"))


def test_broken_pictures_are_named_in_one_line_each(here: Path) -> None:
    Path("odd").mkdir()
    broken = [Path("odd", f"{name}.png") for name in NAMES.values()]
    for path in broken:
        path.write_bytes(b"no picture")
    ran = run_cli("infer", "line.anoco", "odd", "--out", "out")
    assert ran.code == 1 and "not a picture" in shown(ran)
    # And lines for threshold, report and summary.
    assert len(ran.err.splitlines()) == len(NAMES) + 3
    for path in broken:
        for command in (
            ("enroll", "line.anoco", path),
            ("infer", "line.anoco", f"gone{path.name}"),
            ("info", f"gone{path.name}"),
            ("info", "line.anoco", path.name),  # an error message of Typer itself
            ("product", "set", "line.anoco", "--mask", path),
        ):
            ran = run_cli(*command)
            assert ran.code in (1, 2, 4) and shown(ran)


@pytest.mark.parametrize("kind", ["title", "line", "bidi", "markup", "not utf-8"])
def test_a_bundle_may_be_called_so(kind: str, here: Path) -> None:
    bundle = f"{NAMES[kind]}.anoco"
    Path("line.anoco").rename(bundle)
    for command in (("info",), ("verify",), ("references", "list")):
        shown(ok(*command, bundle))
        shown(ok(*command, bundle, "--json"))
    shown(ok("infer", bundle, "parts", "--out", f"out{NAMES[kind]}"))


def test_text_of_a_manifest_is_no_markup(here: Path) -> None:
    """The texts of a received bundle are shown literally."""
    bundle = Bundle.open(Path("line.anoco"))
    odd = "[/red]\x1b[2J[bold]x"
    weights = bundle.manifest.backbone.weights.model_copy(update={"license": odd, "source": odd})
    backbone = bundle.manifest.backbone.model_copy(update={"weights": weights, "tap": odd})
    document = bundle.manifest.model_copy(update={"backbone": backbone})
    from anoco_edge.bundle.documents import sealed_document

    Path("line.anoco/manifest.json").write_bytes(sealed_document(document))
    text = shown(ok("info", "line.anoco"))
    assert r"[/red]\x1b[2J[bold]x" in text


def test_what_was_forgotten_does_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    console = PlainConsole(force_terminal=True, color_system=None, emoji=False)
    console.print("a\x1b[2Jb [/red] \u202e\x9b")
    text = capsys.readouterr().out
    assert text == "a\\x1b[2Jb [/red] \\u202e\\x9b\n"


def test_in_a_process_of_its_own(here: Path) -> None:
    """Standard output is a pipe with an encoding there."""
    picture = here / NAMES["not utf-8"]
    next(Path("parts").iterdir()).rename(picture)
    for options in ((), ("--json",)):
        ran = run_process("infer", "line.anoco", picture, *options)
        assert ran.code == 0, ran.err
    assert Path(json.loads(ran.out)["results"][0]["picture"]).samefile(picture)
