"""The site is built strictly, reads and searches without a network, and lacks nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from command_line import environment
from doc_pages import pages
from paths import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning of the builder is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        # Without --quiet, which hides warnings from --strict too.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**environment(), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class LoadedResources(HTMLParser):
    """Collects what a browser loads to show a page, without links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.addresses.append(named.get("src") or "")
        if tag == "link" and named.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(named.get("href") or "")


def html_pages(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def test_every_page_of_the_folder_is_in_the_site(site: Path) -> None:
    sources = [page.removeprefix("docs/") for page in pages() if page.startswith("docs/")]
    sources += [page.lower() for page in pages() if "/" not in page]
    expected = {
        page.removesuffix(".md") + ".html" for page in sources if "readme" not in page.lower()
    }
    assert {"contributing.html", "extending/sink.html"} <= expected
    assert expected <= {str(path.relative_to(site)) for path in html_pages(site)}


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    for page in html_pages(site):
        text = page.read_text(encoding="utf-8")
        loaded = LoadedResources()
        loaded.feed(text)
        outside = [address for address in loaded.addresses if re.match(r"(https?:)?//", address)]
        assert not outside, f"{page.relative_to(site)}: {outside}"
        # The theme fetches a program from the network to draw such a block.
        assert 'class="mermaid"' not in text, page.relative_to(site)
        for address in loaded.addresses:
            if address and not address.startswith("data:"):
                assert (page.parent / address.partition("#")[0].partition("?")[0]).exists(), address
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(.?https?:|@import .?https?:", style.read_text()), style


def test_formulas_are_mathml(site: Path) -> None:
    left = [str(page) for page in html_pages(site) if "arithmatex" in page.read_text()]
    assert not left


def test_generated_parts_are_filled_in(site: Path) -> None:
    for page, words in {
        "cli": ("--fail-on-anomaly", "references undo", "device-report"),
        "c": ("anoco_inspect", "anoco_cuda_scorer_create", "CudaScorer"),
        "schemas": ("threshold_kind", "generation", "sha256"),
        "exit-codes": ("EnvironmentMissingError", "130"),
        "python": ("inspect_batch", "score_patches", "Teacher"),
    }.items():
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        assert "<!-- generated" not in text
        missing = [word for word in words if word not in text]
        assert not missing, f"{page}: {missing}"


def test_the_search_index_holds_every_page_for_readers_without_a_server(site: Path) -> None:
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("var __index = "))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {str(page.relative_to(site)) for page in html_pages(site)} <= places | {"index.html"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_readme_links_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        path = ROOT / name
        if not path.exists():
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if "://" in target or target.startswith("mailto:"):
                continue
            file, _, anchor = target.partition("#")
            named = ROOT / file if file else path
            assert named.exists(), f"{name} links to {target}"
            if anchor:
                assert anchor in anchors(named), f"{name} links to {target}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_have_no_trace_of_this_machine(site: Path) -> None:
    home = os.fspath(ROOT)
    found = [str(page) for page in html_pages(site) if home in page.read_text(encoding="utf-8")]
    assert not found
