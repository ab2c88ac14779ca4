"""anoco-edge package: the detector of a product for runtimes that are not ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, warn
from anoco_edge.cli.options import (
    BundleArgument,
    JsonOption,
    ProductOption,
    check_product_name,
)
from anoco_edge.cli.views.package import package_report, show_package
from anoco_edge.cli.views.randomness import warn_if_random
from anoco_edge.engines.cpu_precision import mismatch
from anoco_edge.errors import UsageError, missing

if TYPE_CHECKING:
    from anoco_edge_export.package import PackageFiles

SingleFileOption = Annotated[
    Path | None, typer.Option(help="Write the whole detector of the product as one ONNX file.")
]
TritonOption = Annotated[
    Path | None, typer.Option(help="Write a Triton model repository around that file.")
]


def package(
    bundle: BundleArgument,
    product: ProductOption = None,
    single_file: SingleFileOption = None,
    triton: TritonOption = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
    json_: JsonOption = False,
) -> None:
    """Write the detector of a product as one ONNX file or as a Triton model repository.

    The file holds the backbone, the bank and the scoring; pixels go in, score and map come out.
    """
    check_product_name(product)
    if single_file is None and triton is None:
        raise UsageError(
            "there is nothing to package", hint="say --single-file out.onnx or --triton DIR"
        )
    check_paths(single_file, triton, overwrite)
    opened = Bundle.open(bundle)
    files = write_package(opened, product, single_file, triton)
    if json_:
        emit_json({"bundle": str(bundle), **package_report(files)})
    else:
        show_package(files)


def check_paths(single_file: Path | None, triton: Path | None, overwrite: bool) -> None:
    """Refuse a path that cannot be written as asked, before any work is done."""
    if single_file is None and triton is None:
        return
    try:
        from anoco_edge_export.package import check_package_paths
    except ImportError:
        raise missing("anoco_edge_export", "export", "to write a single file") from None
    check_package_paths(single_file, triton, overwrite=overwrite)


def write_package(
    bundle: Bundle, product: str | None, single_file: Path | None, triton: Path | None
) -> PackageFiles:
    """Write what was asked for, to places that `check_paths` has accepted."""
    try:
        from anoco_edge_export.package import package_bundle
    except ImportError:
        raise missing("anoco_edge_export", "export", "to write a single file") from None
    warn_if_random(bundle)
    if remark := mismatch(bundle.product(product), None, "by other runtimes"):
        warn(remark)
    return package_bundle(bundle, product, single_file=single_file, triton=triton, overwrite=True)
