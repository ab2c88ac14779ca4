"""Engines turn pixels into patch features.

`auto` chooses one of the table and says why. An engine that is asked for by its name is that
engine or an error, never another one.
"""

from anoco_edge.engines.base import CpuPrecision, DeviceEngine, Engine, EngineSettings
from anoco_edge.engines.registry import (
    ENGINES,
    EngineChoice,
    EngineSpec,
    choose_engine,
    needs_gpu,
    open_engine,
)

__all__ = [
    "ENGINES",
    "CpuPrecision",
    "DeviceEngine",
    "Engine",
    "EngineChoice",
    "EngineSettings",
    "EngineSpec",
    "choose_engine",
    "needs_gpu",
    "open_engine",
]
