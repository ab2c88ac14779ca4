"""What `anoco-edge eval` measures: a bundle that is there, or a backbone, exported once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anoco_edge.cli import console
from anoco_edge.cli.options import parse_layers, parse_size
from anoco_edge.errors import UsageError, missing
from anoco_edge.machine import cache_folder, versions

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle, Product
    from anoco_edge.engines import Engine
    from anoco_edge_calibration.feature_cache import CachedEngine

_EXPORTERS = ("torch", "timm", "onnx", "onnxscript")


def open_bundle(
    context: typer.Context,
    backbone: str | None,
    size: str | None,
    layer: int | None,
    layers: str | None,
    weights: str | None,
    path: Path | None,
    product: str | None,
) -> tuple[Bundle, Product | None]:
    """The bundle to measure, and the product whose settings hold."""
    from anoco_edge.bundle import Bundle, find_bundle

    if backbone is not None:
        if path is not None or product is not None:
            raise UsageError(
                "--backbone exports anew: --bundle and --product do not go with it",
                hint="pass --backbone, or --bundle",
            )
        options = {
            "size": parse_size(size),
            "layers": parse_layers(layer, layers),
            "weights": weights,
            "precision": context.params["precision"],
        }
        return _exported(backbone, options), None
    for name in ("size", "layer", "layers", "weights", "precision"):
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise UsageError(f"--{name} is for --backbone", hint="pass that, or leave it out")
    opened = Bundle.open(path or find_bundle())
    taught = product is not None or opened.products()
    return opened, opened.product(product) if taught else None


def _exported(backbone: str, options: dict[str, Any]) -> Bundle:
    """From the cache folder, where it is exported to unless the very same is there."""
    from anoco_edge.bundle import Bundle
    from anoco_edge.cli.commands.export import export_bundle
    from anoco_edge.errors import BundleError

    name = f"{backbone}-{_recipe_digest(backbone, options)[:16]}.anoco"
    path = cache_folder() / "eval" / name
    try:
        bundle = Bundle.open(path)
        console.note(f"{backbone} was exported before: {path}")
    except BundleError:
        bundle = export_bundle(backbone, path, overwrite=True, **options).bundle
        console.note(f"exported {backbone} to {path}, where later runs find it")
    return bundle


def _recipe_digest(backbone: str, options: dict[str, Any]) -> str:
    """Of all that decides the graph: recipe, options, weights, and the versions of the tools."""
    from anoco_edge.bundle.checksum import sha256_bytes

    try:
        from anoco_edge_export import load_recipe
    except ImportError:
        raise missing("anoco_edge_export", "export", "to export a backbone") from None
    decides = {
        **options,
        "weights": _weights_digests(backbone, options["weights"]),
        "recipe": load_recipe(backbone).model_dump(mode="json"),
        "versions": versions(_EXPORTERS),
    }
    return sha256_bytes(json.dumps(decides, sort_keys=True).encode())


def _weights_digests(backbone: str, source: str | None) -> list[str]:
    """Of the weights file, and of what lies beside it and may choose a variant of the model."""
    from anoco_edge.bundle.checksum import sha256_file
    from anoco_edge_export.hub import kept_file
    from anoco_edge_export.state_file import find_file

    if source is not None and source.startswith("random:"):
        return [source]
    file = kept_file(backbone) if source is None else find_file(Path(source))
    if file is None:
        return []  # the recipe's own, which it names
    if not file.is_file():
        raise UsageError(f"there is no weights file {file}", hint="check the path")
    beside = (file.with_name(name) for name in ("config.json", "open_clip_config.json"))
    return [sha256_file(path) for path in (file, *beside) if path.is_file()]


def open_cached_engine(
    bundle: Bundle, name: str, device: str, threads: int, folder: Path | None
) -> tuple[CachedEngine, str]:
    """The engine behind its cache, and what was chosen and why."""
    from anoco_edge.engines import EngineSettings, choose_engine, open_engine
    from anoco_edge.engines.selftest import check_engine
    from anoco_edge_calibration.feature_cache import CachedEngine, cache_key

    chosen, why = choose_engine(name, bundle)
    engine: Engine = open_engine(chosen, bundle, EngineSettings(threads=threads, device=device))
    check_engine(bundle, engine)
    contract = bundle.manifest.input
    shape = (contract.rows * contract.cols, contract.dim)
    cached = CachedEngine(engine, folder, cache_key(bundle, engine), shape, warn=console.warn)
    return cached, f"{chosen} ({why})"
