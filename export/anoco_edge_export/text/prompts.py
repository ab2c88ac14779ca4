"""The compositional prompt ensemble of WinCLIP (Jeong et al., CVPR 2023, Figure 6).

A prompt puts a state of the object into a template. There are 7 states of a good object, 4 of a
damaged one, and 22 templates: 11 kinds of photo, each with "a" and with "the".
"""

from __future__ import annotations

import re

from anoco_edge.errors import UsageError

NORMAL = (
    "{}",
    "flawless {}",
    "perfect {}",
    "unblemished {}",
    "{} without flaw",
    "{} without defect",
    "{} without damage",
)
ANOMALOUS = ("damaged {}", "{} with flaw", "{} with defect", "{} with damage")
_PHOTOS = (
    "a cropped photo of {article} {state}.",
    "a close-up photo of {article} {state}.",
    "a bright photo of {article} {state}.",
    "a dark photo of {article} {state}.",
    "a jpeg corrupted photo of {article} {state}.",
    "a blurry photo of {article} {state}.",
    "a photo of {article} {state}.",
    "a photo of {article} small {state}.",
    "a photo of {article} large {state}.",
    "a photo of {article} {state} for visual inspection.",
    "a photo of {article} {state} for anomaly detection.",
)
_ARTICLES = ("a", "the")


def prompts_of(name: str) -> tuple[list[str], list[str]]:
    """Return the prompts about a good and about a damaged object of this name.

    >>> normal, anomalous = prompts_of("metal nut")
    >>> len(normal), len(anomalous), normal[0], anomalous[-1]
    (154, 88, 'a cropped photo of a metal nut.', 'a photo of the metal nut with damage for ...')
    """
    check_object(name)
    return _ensemble(NORMAL, name), _ensemble(ANOMALOUS, name)


def check_object(name: str) -> None:
    """Raise UsageError unless this is a name that a prompt can hold."""
    if not re.fullmatch(r"[a-z0-9]+([ '-][a-z0-9]+)*", name, re.IGNORECASE):
        raise UsageError(
            f"{name!r} is not the name of an object",
            hint="write English words as in a sentence: metal nut",
        )


def _ensemble(states: tuple[str, ...], name: str) -> list[str]:
    return [
        photo.format(article=article, state=state.format(name))
        for state in states
        for photo in _PHOTOS
        for article in _ARTICLES
    ]
