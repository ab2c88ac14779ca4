"""Tells Quick-GELU from GELU by a config file, since no key of a weights file shows it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.errors import UsageError
from anoco_edge.storage.regular_file import read_regular
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import Recipe


@dataclass(frozen=True)
class ActivationRecord:
    """An activation by its name in transformers (`gelu`, `quick_gelu`, `silu`), and its source."""

    name: str
    where: str


def fitting_architecture(recipe: Recipe, names: Collection[str], file: Path) -> tuple[str, str]:
    """Return timm's model for the activation of this file, and the reason if it is another.

    `names` are the keys of the recipe's own model. The reason is empty for that model.
    """
    stated = read_activation(file)
    own = _own(recipe.architecture, names)
    if stated is None and "gelu" in recipe.variants:
        return recipe.architecture, f"nothing beside {file.name} says which GELU: {own} is taken"
    if stated is None or stated.name == own:
        return recipe.architecture, ""
    if stated.name == "gelu" and "gelu" in recipe.variants:
        return recipe.variants["gelu"], f"{stated.where} says gelu, not {own}"
    raise UsageError(
        f"{stated.where} beside {file.name} says its activation is {stated.name}, "
        f"{recipe.id} has {own}",
        hint=f"pass weights of {recipe.architecture}",
    )


def read_activation(file: Path) -> ActivationRecord | None:
    """Read the activation from the config of transformers, timm or open_clip beside a file."""
    names = ["config.json", "open_clip_config.json"]
    if file.name.startswith("open_clip"):  # timm's repositories hold a config for each of two files
        names.reverse()
    for name in names:
        config = _read(file.with_name(name))
        found = _of_transformers(config) or _of_timm(config) or _of_open_clip(config)
        if found is not None:
            return ActivationRecord(found, name)
    return None


def _own(architecture: str, names: Collection[str]) -> str:
    if "quickgelu" in architecture:
        return "quick_gelu"
    return "silu" if "blocks.0.mlp.fc1_g.weight" in names else "gelu"


def _of_transformers(config: Mapping[str, object]) -> str | None:
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return None
    tower = config.get("vision_config")
    stated = (tower if isinstance(tower, dict) else config).get("hidden_act")
    if isinstance(stated, str):
        return stated
    return "quick_gelu" if kind.startswith("clip") else None  # the default of transformers


def _of_timm(config: Mapping[str, object]) -> str | None:
    """Read a config of timm.

    timm's plain name does not mean GELU: it also stores OpenAI's weights under it, with a note.
    """
    name = config.get("architecture")
    if not isinstance(name, str) or "clip" not in name:
        return None
    if "quickgelu" in name:
        return "quick_gelu"
    own = config.get("pretrained_cfg")
    tag = own.get("tag") if isinstance(own, dict) else None
    if not isinstance(tag, str):
        return None
    known = lazy_import("timm.models").get_pretrained_cfg(f"{name}.{tag}")
    notes = known.notes or () if known is not None else ()
    return "quick_gelu" if any("quickgelu" in note for note in notes) else "gelu"


def _of_open_clip(config: Mapping[str, object]) -> str | None:
    model = config.get("model_cfg")
    if not isinstance(model, dict):
        return None
    return "quick_gelu" if model.get("quick_gelu") else "gelu"


def _read(file: Path) -> Mapping[str, object]:
    try:
        config = json.loads(read_regular(file).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
