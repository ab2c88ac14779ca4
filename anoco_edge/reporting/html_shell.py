"""The frame that all pages share: head, security policy, colors and basic elements.

A page is made of `NAME.html` (what stands in its body), `NAME.css` and, where it needs one,
`NAME.js`, which lie beside the module that fills it. Texts such as `{{TITLE}}` in these files are
placeholders for values that `fill` puts in.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.text.plain_text import html_text

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_PLACEHOLDER = re.compile(r"\{\{([A-Z]+)\}\}")


def load_page(package: str, name: str, *, dark: bool = False, local_images: bool = False) -> str:
    """Return the whole page with its placeholders, one of which is always `{{TITLE}}`.

    The page loads nothing from anywhere and runs no script but its own, which its security policy
    names by hash. `dark` lets it follow a screen that is set to dark colors; `local_images` lets it
    show picture files that lie beside it.

    >>> page = load_page("anoco_edge.results", "report_page")
    >>> "script-src 'sha256-" in page, "prefers-color-scheme" in page
    (True, False)
    """
    shell, files = resources.files(__package__), resources.files(package)
    style = _text(shell, "html_shell.css")
    if dark:
        style += _text(shell, "html_shell_dark.css")
    style += _text(files, f"{name}.css") + _text(shell, "html_shell_print.css")
    body = _text(files, f"{name}.html")
    script = _text(files, f"{name}.js") if files.joinpath(f"{name}.js").is_file() else ""
    if script:
        body += f"<script>\n{script}</script>\n"
    parts = {
        "POLICY": _policy(f"\n{script}" if script else "", local_images),
        "SCHEME": "light dark" if dark else "light",
        "STYLE": style,
        "BODY": body,
        "TITLE": "{{TITLE}}",
    }
    return fill(_text(shell, "html_shell.html"), parts)


def fill(page: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder by its value, which must be HTML already.

    All are replaced in one pass, so that a value that looks like a placeholder stays what it is.

    >>> fill("<p>{{TITLE}}</p>", {"TITLE": "{{ROWS}}"})
    '<p>{{ROWS}}</p>'
    """
    return _PLACEHOLDER.sub(lambda found: values[found[1]], page)


def save_page(path: Path, page: str) -> None:
    """Write a page so that a reader of the file sees the old one or the new one, whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_page(Path(folder, "page.html"), "<p>line 3</p>")
    ...     Path(folder, "page.html").read_text()
    '<p>line 3</p>'
    """
    with writing(str(path)):
        # With errors="replace" a file name that is not UTF-8 does not cost the whole page.
        write_atomic(path, page.encode("utf-8", errors="replace"))


def breakable(path: str) -> str:
    """Return a path as HTML in which a line may break behind each slash.

    >>> breakable("good/a<b.png")
    'good/<wbr>a&lt;b.png'
    """
    return html_text(path).replace("/", "/<wbr>")


def _text(folder: Traversable, name: str) -> str:
    return folder.joinpath(name).read_text("utf-8")


def _policy(script: str, local_images: bool) -> str:
    rules = [
        "default-src 'none'",
        "img-src 'self' file: data:" if local_images else "img-src data:",
        "style-src 'unsafe-inline'",
    ]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        rules.append(f"script-src 'sha256-{digest}'")
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])
