"""Errors of the libraries in the words of the command line.

A library names its options as a Python caller writes them, for example `overwrite=True` or
`precision="fp32"`. A command turns them into its own flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from anoco_edge.errors import AnocoError

EXPORT_FLAGS: Mapping[str, str] = {
    "calibration": "--calib DIR",
    "fit": "--fit",
    "islands": "--islands",
    "overwrite": "--overwrite",
    "precision": "--precision",
    "size": "--size",
    "target": "--out",
    "weights": "--weights",
}
EVAL_FLAGS: Mapping[str, str] = {**EXPORT_FLAGS, "layout": "--layout"}


@contextmanager
def named_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Put flags in place of Python options in every AnocoError that passes."""
    try:
        yield
    except AnocoError as error:
        error.what, error.hint = with_flags(error.what, flags), with_flags(error.hint, flags)
        error.args = (f"{error.what}; {error.hint}" if error.hint else error.what,)
        raise


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """Put flags in place of the options that `flags` knows.

    A flag that comes with a word for its value, such as `--calib DIR`, replaces the value too.

    >>> with_flags('use precision="fp16", or pass overwrite=True', EXPORT_FLAGS)
    'use --precision fp16, or pass --overwrite'
    >>> with_flags("pass calibration=SET; write lambda=1", EXPORT_FLAGS)
    'pass --calib DIR; write lambda=1'
    """

    def flag(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip('"')
        if name not in flags:
            return found[0]
        bare = value == "True" or " " in flags[name]
        return flags[name] if bare else f"{flags[name]} {value}"

    return re.sub(r'\b(\w+)=("[^"]*"|\w+)', flag, text)
