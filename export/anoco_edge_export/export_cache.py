"""Caches exported bundles: the same recipe, options and weights give the same bundle.

`anoco-edge eval --backbone` measures many data sets with one backbone and exports it only for the
first of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anoco_edge.bundle import Bundle
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.machine import cache_folder, versions
from anoco_edge.storage.hashes import sha256_bytes, sha256_file
from anoco_edge_export.bundle import ExportedBundle, export_bundle
from anoco_edge_export.checkpoint import find_checkpoint
from anoco_edge_export.hub import kept_file
from anoco_edge_export.options import ExportOptions
from anoco_edge_export.recipe import load_recipe

_EXPORTERS = ("torch", "timm", "onnx", "onnxscript")


@dataclass(frozen=True)
class CachedBundle:
    """A bundle in the cache folder, and whether it was there before."""

    bundle: Bundle
    found: bool


def cached_bundle(
    backbone: str,
    options: Mapping[str, Any],
    *,
    folder: Path | None = None,
    export: Callable[..., ExportedBundle] | None = None,
) -> CachedBundle:
    """Open the bundle of a backbone, and export it first unless the very same is there.

    `options` are fields of `ExportOptions`. `export` may be a function that shows progress; it
    takes the fields as keyword arguments. `folder` is the user's cache folder unless another is
    given.

    Example::

        from anoco_edge_export.export_cache import cached_bundle

        cached = cached_bundle("efficientnet-lite0", {"size": (128, 128), "weights": "random:0"})
        print(cached.bundle.path, "was there" if cached.found else "is new")
    """
    folder = cache_folder() / "eval" if folder is None else folder
    path = folder / f"{backbone}-{_digest(backbone, options)[:16]}.anoco"
    try:
        return CachedBundle(Bundle.open(path), found=True)
    except BundleError:
        if export is not None:
            exported = export(backbone, path, overwrite=True, **options)
        else:
            exported = export_bundle(backbone, path, ExportOptions(**options), overwrite=True)
        return CachedBundle(exported.bundle, found=False)


def _digest(backbone: str, options: Mapping[str, Any]) -> str:
    """Hash all that decides the graph: recipe, options, weights, and versions of the tools."""
    decisive = {
        **options,
        "weights": _weights_digests(backbone, options.get("weights")),
        "recipe": load_recipe(backbone).model_dump(mode="json"),
        "versions": versions(_EXPORTERS),
    }
    return sha256_bytes(json.dumps(decisive, sort_keys=True).encode())


def _weights_digests(backbone: str, source: str | None) -> list[str]:
    """Hash the weights file, and the files beside it that may choose a variant of the model."""
    if source is not None and source.startswith("random:"):
        return [source]
    file = kept_file(backbone) if source is None else find_checkpoint(Path(source))
    if file is None:
        return []  # the weights are those that the recipe names, and the recipe is hashed too
    if not file.is_file():
        raise UsageError(f"there is no weights file {file}", hint="check the path")
    beside = (file.with_name(name) for name in ("config.json", "open_clip_config.json"))
    return [sha256_file(path) for path in (file, *beside) if path.is_file()]
