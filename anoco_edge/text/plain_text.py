"""Makes text from outside (names of files, references and products) safe to show.

A name may hold anything that Linux allows: an escape sequence that rewrites the terminal's screen
or title, a line break that forges a line, a control that turns the direction of reading. Files that
programs read (JSON) hold names exactly; these functions are for people and spreadsheets.
"""

from __future__ import annotations

import html
import re
import unicodedata

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # and their wide forms
# Characters that JSON allows in a string, and that a terminal obeys or shows in another place.
_UNSAFE_IN_JSON = re.compile(
    "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def plain_text(text: str) -> str:
    r"""Write a text on one line, with every character that cannot be seen as an escape.

    >>> print(plain_text("a\x1b[2Jb\u202ecod.png"))
    a\x1b[2Jb\u202ecod.png
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def utf8_text(name: str) -> str:
    r"""Make the name of a file, which need not be UTF-8, fit for JSON, pages and databases.

    >>> print(utf8_text("part\udce9.png"))
    part\udce9.png
    """
    return name.encode("utf-8", "backslashreplace").decode()


def html_text(text: str) -> str:
    r"""Write a text for an HTML page, between tags or in an attribute.

    >>> print(html_text("a<b\u202e.png"))
    a&lt;b\u202e.png
    """
    return html.escape(plain_text(text))


def csv_cell(value: object) -> object:
    """Write a value for a CSV file so that no spreadsheet takes it for a formula; numbers stay.

    >>> csv_cell("=1+1"), csv_cell(-0.5), csv_cell("a.png")
    ("'=1+1", -0.5, 'a.png')
    """
    if not isinstance(value, str):
        return value
    text = plain_text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def plain_json(text: str) -> str:
    r"""Escape characters of a JSON text that a terminal obeys; the text keeps its meaning.

    >>> print(plain_json('{"name": "\u202ea"}'))
    {"name": "\u202ea"}
    """
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) == "Zs":  # a wide or narrow space is harmless
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
