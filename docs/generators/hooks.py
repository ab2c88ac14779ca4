"""What the site builder calls while it builds (see `hooks` in mkdocs.yml).

The hooks fill in the generated parts of the reference pages, turn formulas into MathML, add the
pages that lie at the top of the repository, and point links to source files at the repository.
"""

from __future__ import annotations

import c_reference
import cli_reference
import exit_codes
import line_words
import schema_reference
from mathml import with_mathml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository_links import ROOT, ROOT_PAGES, with_site_links

GENERATED = {
    "<!-- generated: command line -->": cli_reference.markdown,
    "<!-- generated: C and C++ -->": c_reference.markdown,
    "<!-- generated: schemas -->": schema_reference.markdown,
    "<!-- generated: exit codes -->": exit_codes.markdown,
    "<!-- generated: line words -->": line_words.markdown,
}
"""The functions that write what a marker in a page stands for."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the pages that lie at the top of the repository to the last section of `nav`."""
    assert config.nav is not None
    (section,) = config.nav[-1].values()
    section += [name for name, source in ROOT_PAGES.items() if (ROOT / source).is_file()]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add these pages themselves."""
    for name, source in ROOT_PAGES.items():
        if (ROOT / source).is_file():
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the generated part of a page and resolve its links to source files."""
    for marker, write in GENERATED.items():
        if marker in markdown:
            markdown = markdown.replace(marker, write())
    return with_site_links(markdown, page.file.src_uri, config.repo_url)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the formulas of a page into MathML."""
    return with_mathml(html)
