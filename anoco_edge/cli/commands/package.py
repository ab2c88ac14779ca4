"""export --single-file and --triton: a product's detector for runtimes that are not ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anoco_edge.cli.console import out
from anoco_edge.cli.flag_names import EXPORT_FLAGS, named_flags
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.errors import UsageError, missing
from anoco_edge.text.plain_text import plain_text

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle


def check_hand_over(single_file: Path | None, triton: Path | None, overwrite: bool) -> None:
    """Refuse a place that cannot be meant, before anything is done."""
    for path in (single_file, triton):
        if path is None:
            continue
        if any((folder / "manifest.json").is_file() for folder in path.absolute().parents):
            raise UsageError(f"{path} lies inside a bundle", hint="choose a place outside")
    if single_file is not None and single_file.is_dir():
        raise UsageError(f"{single_file} is a folder", hint="name a file, such as detector.onnx")
    if single_file is not None and single_file.exists() and not overwrite:
        raise UsageError(f"{single_file} exists already", hint="choose another, or --overwrite")
    if triton is not None and triton.exists() and not triton.is_dir():
        raise UsageError(f"{triton} is a file", hint="name a folder")


def hand_over(
    bundle: Bundle, product: str | None, single_file: Path | None, triton: Path | None
) -> dict[str, Any]:
    """Write what was asked for; paths by what they are."""
    try:
        from anoco_edge_export.single_file import metadata, write_single_file
        from anoco_edge_export.triton import write_triton_repository
    except ImportError:
        raise missing("anoco_edge_export", "export", "to write a single file") from None
    warn_if_random(bundle)
    handed: dict[str, Any] = {}
    with named_flags(EXPORT_FLAGS), tempfile.TemporaryDirectory() as scratch:
        path = single_file or Path(scratch) / "model.onnx"
        written = write_single_file(bundle, product, path)
        if single_file is not None:
            handed["single_file"] = str(written)
        if triton is not None:
            chosen = bundle.product(product)
            files = write_triton_repository(
                triton,
                written,
                name=chosen.name,
                contract=bundle.manifest.input,
                parameters=metadata(bundle, chosen),
            )
            handed["triton"] = [str(file) for file in files]
    return handed


def show_handed_over(handed: dict[str, Any]) -> None:
    """What was written, and how it is used."""
    if "single_file" in handed:
        out.print(
            plain_text(handed["single_file"]) + ": pixels in, score, energy and map out; the "
            "threshold and how to prepare a picture are in its metadata",
            soft_wrap=True,
            markup=False,
        )
    if "triton" in handed:
        files = plain_text(", ".join(handed["triton"]))
        out.print(f"Triton: {files}", soft_wrap=True, markup=False)
