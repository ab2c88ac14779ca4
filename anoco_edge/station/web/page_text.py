"""The words of the pages, in the language that the reader's browser asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

Language = Literal["en", "de"]
LANGUAGES: tuple[Language, ...] = ("en", "de")
_PLACE = re.compile(r"\{(\w+)\}")
_FOLDER = Path(__file__).parent / "i18n"


@lru_cache
def texts(language: Language) -> Mapping[str, str]:
    """Return all texts of a language by their keys, which are the same in every language.

    >>> texts("de")["verdict.good"]
    'Gut'
    """
    found: dict[str, str] = json.loads((_FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return found


def text(language: Language, key: str, **values: object) -> str:
    """Return one text with its {places} filled in.

    >>> text("en", "part.number", seq=7)
    'Part 7'
    """
    return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), texts(language)[key])


def choose_language(accepted: str, chosen: str = "") -> Language:
    """Return the language of a page: the one that was chosen, or the best of Accept-Language.

    >>> choose_language("fr;q=0.9, de-AT;q=0.8, en;q=0.7"), choose_language("de", chosen="en")
    ('de', 'en')
    """
    for language in LANGUAGES:
        if chosen == language:
            return language
    best: Language = "en"
    weight = 0.0
    for wish in accepted.split(",")[:32]:
        name, _, quality = wish.partition(";")
        primary = name.strip().lower().partition("-")[0]
        for language in LANGUAGES:
            if primary == language and _quality(quality) > weight:
                best, weight = language, _quality(quality)
    return best


def _quality(text_: str) -> float:
    name, _, value = text_.strip().partition("=")
    try:
        return min(max(float(value), 0.0), 1.0) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
