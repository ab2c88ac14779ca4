"""Shows the examples in docstrings as code.

Markdown takes the `>>>` of an example for a quotation, and knows nothing of the two colons before
an indented one. This extension of Griffe, which reads the docstrings, fences both.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_DOCTEST = re.compile(r"^( *)>>> .*\n?(?:^(?!\s*$).*\n?)*", flags=re.M)
_LITERAL = re.compile(r"^(\w[^\n]*):: *\n\n((?:(?:    .*)?\n?)+?)(?=^\S|\Z)", flags=re.M)


class DoctestFences(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)


def with_fences(docstring: str) -> str:
    r"""Fence the examples of a docstring.

    >>> with_fences("Add.\n\n>>> 1 + 1\n2\n\nDone.")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nDone.'
    >>> with_fences("Add.\n\nExample::\n\n    total = 1 + 1\n    print(total)\n\nDone.")
    'Add.\n\n```python\ntotal = 1 + 1\nprint(total)\n```\n\nDone.'
    """
    return _LITERAL.sub(_literal, _DOCTEST.sub(_doctest, docstring))


def _doctest(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0].rstrip()}\n{found[1]}```\n"


def _literal(found: re.Match[str]) -> str:
    lead = "" if found[1] == "Example" else f"{found[1]}:\n\n"
    return f"{lead}```python\n{textwrap.dedent(found[2]).strip()}\n```\n\n"
