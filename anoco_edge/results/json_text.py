"""Writes rows and summaries as text."""

from __future__ import annotations

import json

from anoco_edge.text.plain_text import plain_json


def json_line(value: object) -> str:
    r"""Return JSON on one line with its line break, in which nothing controls a terminal.

    >>> json_line({"source": "a\x1b.png"})
    '{"source": "a\\u001b.png"}\n'
    """
    return plain_json(json.dumps(value, ensure_ascii=False, allow_nan=False)) + "\n"
