"""Translates texts of the library into the words of the command line.

The library knows nothing of options. Where one of its errors or notes tells the reader to pass
something, it names the Python parameter in backticks, alone or with a value: `product`,
`threshold=0`, `engine='openvino'`. This module turns such a name into the option that sets the
parameter. Everything that the command line prints goes through it, and a test checks that the table
below and the options of the commands agree.
"""

from __future__ import annotations

import re

OPTIONS = {
    "accept_fewer": "--accept-fewer",
    "allow_random": "--allow-random",
    "allow_unfused": "--allow-unfused",
    "any_size": "--any-size",
    "backbone": "--backbone",
    "bank_dtype": "--bank-dtype",
    "batch": "--batch",
    "blocking_sync": "--blocking-sync",
    "calibration": "--calib",
    "camera": "--camera",
    "categories": "--categories",
    "cpu_precision": "--cpu-precision",
    "device": "--device",
    "engine": "--engine",
    "fit": "--fit",
    "flips": "--flips",
    "folder": "--out",
    "force": "--force",
    "islands": "--islands",
    "keep": "--keep",
    "key": "--key",
    "lam": "--lambda",
    "layout": "--layout",
    "mask": "--mask",
    "max_patches": "--max-patches",
    "merge_distance": "--merge-distance",
    "new_key": "--new-key",
    "overlap": "--overlap",
    "overwrite": "--overwrite",
    "picture_limits": "--picture-limits",
    "pictures": "--pictures",
    "pixels": "--input",
    "precision": "--precision",
    "product": "--product",
    "prompts": "--prompts",
    "rival_python": "--rival-python",
    "rotations": "--rotations",
    "runtime": "--runtime",
    "sanitize": "--sanitize",
    "save": "--save",
    "scorer": "--scorer",
    "scorers": "--scorers",
    "shots": "--shots",
    "sigmas": "--baseline",
    "size": "--size",
    "target": "--out",
    "targets": "--target",
    "threads": "--threads",
    "teach": "--teach",
    "threshold": "--threshold",
    "tile_size": "--tile-size",
    "tiles": "--tiles",
    "tta": "--augment",
    "weights": "--weights",
    "workers": "--workers",
    "wrong_pictures": "--wrong-pictures",
}
"""The option of each parameter that the library may name."""

_PARAMETER = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")


def with_flags(text: str) -> str:
    """Replace the parameters that a text names by the options that set them.

    >>> with_flags("pass `threshold=0`, or another engine (`engine='openvino'`)")
    'pass --threshold 0, or another engine (--engine openvino)'
    >>> with_flags("accept pictures of any shape with `any_size=True`")
    'accept pictures of any shape with --any-size'
    >>> with_flags("run `ls`")
    'run `ls`'
    """
    return _PARAMETER.sub(_flag, text)


def _flag(found: re.Match[str]) -> str:
    name, value = found.groups()
    if name not in OPTIONS:
        return found[0]
    if value in (None, "True"):
        return OPTIONS[name]
    return f"{OPTIONS[name]} {value.strip(chr(39))}"
