"""Engines turn pixels into patch features. `auto` chooses and says why; a name never falls back."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.errors import UsageError, missing

__all__ = ["ENGINES", "Engine", "EngineSettings", "choose_engine", "open_engine"]

ENGINES = ("onnxruntime",)


@dataclass(frozen=True)
class EngineSettings:
    """Threads (0: all cores) and memory: an arena is faster, and keeps what it once held."""

    threads: int = 0
    arena: bool = True


class Engine(Protocol):
    """`features` takes uint8 [batch, height, width, 3] RGB, gives float32 [batch, patches, dim]."""

    name: str
    fingerprint: str

    def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]: ...


def choose_engine(name: str = "auto") -> tuple[str, str]:
    """The engine that will run, and why.

    >>> choose_engine("onnxruntime")
    ('onnxruntime', 'asked for')
    """
    if name == "auto":
        if find_spec("onnxruntime") is None:
            raise missing("onnxruntime", "cpu", "to run the backbone")
        return "onnxruntime", "the only engine of this version"
    if name not in ENGINES:
        raise UsageError(
            f"unknown engine {name!r}", hint=f"use auto or one of {', '.join(ENGINES)}"
        )
    return name, "asked for"


def open_engine(name: str, bundle: Bundle, settings: EngineSettings | None = None) -> Engine:
    """Load the bundle's backbone into an engine."""
    choose_engine(name)
    from anoco_edge.engines.ort import OnnxRuntimeEngine

    return OnnxRuntimeEngine(bundle, settings or EngineSettings())
