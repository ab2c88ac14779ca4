"""Links between the pages of the site and the other files of the repository.

A page links to a file by its relative path, which works where the repository is browsed. Some pages
of the site lie at the top of the repository, and source files are not part of the site at all: a
link to one leads to the repository's address, or where that is not known becomes the path alone.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.plugins import get_plugin_logger

ROOT = Path(__file__).parents[2]

ROOT_PAGES = {
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site that lie at the top of the repository, where people look for them."""

NOT_PAGES = ("schemas", "devices", "generators")
"""Folders of docs/ that are not part of the site."""

log = get_plugin_logger("repository-links")

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^ *```.*?^ *```)", flags=re.S | re.M)


def with_site_links(markdown: str, page: str, repository: str | None) -> str:
    """Resolve the links of a page of the site, which code blocks do not have.

    >>> with_site_links("[how](docs/architecture.md#layers)", "contributing.md", None)
    '[how](architecture.md#layers)'
    >>> with_site_links("[the header](../runtime/include/anoco_edge.h)", "index.md", None)
    'the header (`runtime/include/anoco_edge.h`)'
    >>> with_site_links("[help](../../CONTRIBUTING.md)", "extending/engine.md", None)
    '[help](../contributing.md)'
    """
    source = ROOT_PAGES.get(page, f"docs/{page}")

    def resolve(found: re.Match[str]) -> str:
        text, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return found[0]
        named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        tail = f"#{anchor}" if anchor else ""
        if inside := _page_of(named):
            return f"[{text}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{tail})"
        if not (ROOT / named).exists():
            log.warning(f"{source} links to {path}, and there is no {named}")
            return found[0]
        if repository:
            return f"[{text}]({repository.rstrip('/')}/blob/main/{named}{tail})"
        plain = text.strip("`")
        if plain == path or named.startswith(plain):
            return f"`{named if plain == path else plain}`"
        return f"{text} (`{named}`)"

    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(resolve, part) for part in parts[::2]]
    return "".join(parts)


def _page_of(named: str) -> str | None:
    """Return where a file of the repository lies in the site, and None where it is not in it."""
    for page, source in ROOT_PAGES.items():
        if named == source:
            return page
    if named == "README.md":
        return "index.md"
    head, _, rest = named.partition("/")
    if head != "docs" or rest.split("/")[0] in NOT_PAGES or rest.endswith((".py", "README.md")):
        return None
    return rest
