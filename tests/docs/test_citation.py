"""CITATION.cff names this software and its paper, in the version that is installed."""

from __future__ import annotations

import pytest
from paths import ROOT

import anoco_edge

yaml = pytest.importorskip("yaml", reason="it comes with the extra docs")


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = yaml.safe_load(text)
    assert {"cff-version", "message", "title", "authors", "type"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == anoco_edge.__version__
    assert cited["license"] == "Apache-2.0"


def test_the_paper_is_the_preferred_citation() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper = cited["preferred-citation"]
    assert paper["type"] == "conference-paper" and paper["year"] == 2026
    assert paper["title"].startswith("Anomaly as Non-Conformity")
    assert all({"family-names", "given-names"} <= set(author) for author in paper["authors"])
    assert len(paper["authors"]) == 5 and paper["conference"]["name"]
