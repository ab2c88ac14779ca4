"""Formulas as MathML, which browsers show without a script or a font of ours."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.S)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.S)


def with_mathml(page: str) -> str:
    r"""Replace the formulas that the Markdown extension marked.

    >>> with_mathml(r'<p><span class="arithmatex">\(x^2\)</span></p>').count("<msup>")
    1
    """
    page = _BLOCK.sub(lambda found: convert(_latex(found[1]), display="block"), page)
    return _INLINE.sub(lambda found: convert(_latex(found[1])), page)


def _latex(escaped: str) -> str:
    return html.unescape(escaped).strip()
