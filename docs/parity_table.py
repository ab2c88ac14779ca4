"""Prints how far exported graphs are from torch in each precision, as a Markdown table.

    python docs/parity_table.py dinov3-s@448 dinov2-s --weights random:0

It needs anoco-edge[export] and no GPU. Every row is one check of the parity gate, as in an export:
what ONNX Runtime computes on a CPU, or the graph with every tensor rounded behind every operation.
Without --calib, INT8 takes its ranges from rendered pictures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from anoco_edge.bundle.parity_report import ParityCheck
from anoco_edge.errors import ParityError
from anoco_edge.sources.files import find_pictures
from anoco_edge.teaching import NewPicture
from anoco_edge_calibration.int8 import CalibrationSet
from anoco_edge_export import ExportOptions, export_backbone
from anoco_edge_export.parity import ORT
from anoco_edge_export.recipe import Precision, load_recipe
from anoco_edge_export.synthetic import synthetic_picture

HEAD = (
    "| backbone, px | precision | check | smallest cosine | mean cosine | norm error | "
    "rank correlation of energies | error of the largest energies |"
)
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")
_RENDERED = 8  # pictures that INT8 takes its ranges from where none are given


def main(arguments: Sequence[str] | None = None) -> None:
    """Export each backbone in each of its precisions and print the checks of the gate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backbones", nargs="+", metavar="NAME[@SIZE]")
    parser.add_argument("--weights", default="random:0", help="a file of weights, or random:SEED")
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--calib", type=Path, help="a folder of good parts for INT8")
    options = parser.parse_args(arguments)
    sys.stdout.write(f"{HEAD}\n{'|---' * (HEAD.count('|') - 1)}|\n")
    for named in options.backbones:
        name, _, side = named.partition("@")
        recipe = load_recipe(name)
        size = (int(side), int(side)) if side else recipe.size
        for precision in options.precision or PRECISIONS:
            if precision in recipe.parity:
                good = _good_parts(options.calib, size) if precision == "int8" else []
                for cells in rows(name, size, options.weights, precision, good):
                    sys.stdout.write(f"| `{name}`, {size[0]} | {cells} |\n")
                    sys.stdout.flush()


def rows(
    name: str,
    size: tuple[int, int],
    weights: str,
    precision: Precision,
    good: Sequence[NewPicture],
) -> Iterator[str]:
    """Export a backbone and yield the cells of each check; one row says why it was refused."""
    options = ExportOptions(
        size=size,
        weights=weights,
        precision=precision,
        calibration=CalibrationSet(tuple(good)) if good else None,
        allow_unfused=True,  # docs/fusion_table.py is about that
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = export_backbone(name, Path(folder), options).parity
        except ParityError as error:
            why = error.what.partition("; ")[0].partition("torch ")[2]
            yield f"{precision} | refused: {why} | | | | |"
            return
    label: str = precision
    if report.int8 is not None:
        layers, left_out = len(report.int8.layers), len(report.int8.left_out)
        label = f"int8, {layers - left_out} of {layers} layers"
    for check in report.checks:
        yield f"{label} | {_cells(check)}"


def _cells(check: ParityCheck) -> str:
    of = check.measured
    how = "ONNX Runtime" if check.runtime == ORT else check.runtime.removeprefix("every tensor ")
    return (
        f"{how} | {of.min_cosine:.7f} | {of.mean_cosine:.7f} | {of.max_norm_error:.1e} | "
        f"{of.energy_spearman:.6f} | {100 * of.top_energy_error:.2g} %"
    )


def _good_parts(folder: Path | None, size: tuple[int, int]) -> list[NewPicture]:
    if folder is not None:
        found = find_pictures([str(folder)], "take pictures out of it first")
        return [NewPicture.from_file(path) for path in found]
    return [
        NewPicture.from_array(f"{k}.png", synthetic_picture(*size, k))
        for k in range(1, _RENDERED + 1)
    ]


if __name__ == "__main__":
    main()
