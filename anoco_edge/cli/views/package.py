"""The files that hold a packaged detector, in words or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anoco_edge.cli.console import out
from anoco_edge.text.plain_text import plain_text

if TYPE_CHECKING:
    from anoco_edge_export.package import PackageFiles


def package_report(files: PackageFiles) -> dict[str, object]:
    """Return what was written as JSON, without what was not asked for."""
    report: dict[str, object] = {}
    if files.single_file is not None:
        report["single_file"] = str(files.single_file)
    if files.triton:
        report["triton"] = [str(file) for file in files.triton]
    return report


def show_package(files: PackageFiles) -> None:
    """Print what was written, and how it is used."""
    if files.single_file is not None:
        out.print(
            plain_text(str(files.single_file)) + ": pixels in, score, energy and map out; the "
            "threshold and how to prepare a picture are in its metadata",
            soft_wrap=True,
            markup=False,
        )
    if files.triton:
        paths = plain_text(", ".join(str(file) for file in files.triton))
        out.print(f"Triton: {paths}", soft_wrap=True, markup=False)
