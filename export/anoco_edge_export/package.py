"""Packages a product's detector for other runtimes: one ONNX file, or a Triton model repository."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle
from anoco_edge.errors import UsageError


@dataclass(frozen=True)
class PackageFiles:
    """The files that `package_bundle` wrote; what was not asked for is None or empty."""

    single_file: Path | None = None
    triton: tuple[Path, ...] = ()


def check_package_paths(
    single_file: Path | None, triton: Path | None, *, overwrite: bool = False
) -> None:
    """Refuse a path that cannot be written as asked, before any work is done.

    >>> check_package_paths(Path("."), None)
    Traceback (most recent call last):
        ...
    anoco_edge.errors.UsageError: . is a folder; name a file, such as detector.onnx
    """
    for path in (single_file, triton):
        if path is None:
            continue
        if any((folder / "manifest.json").is_file() for folder in path.absolute().parents):
            raise UsageError(f"{path} lies inside a bundle", hint="choose a place outside")
    if single_file is not None and single_file.is_dir():
        raise UsageError(f"{single_file} is a folder", hint="name a file, such as detector.onnx")
    if single_file is not None and single_file.exists() and not overwrite:
        raise UsageError(
            f"{single_file} exists already", hint="choose another, or pass `overwrite=True`"
        )
    if triton is not None and triton.exists() and not triton.is_dir():
        raise UsageError(f"{triton} is a file", hint="name a folder")


def package_bundle(
    bundle: Bundle,
    product: str | None = None,
    *,
    single_file: Path | None = None,
    triton: Path | None = None,
    overwrite: bool = False,
) -> PackageFiles:
    """Write the detector of a product as one ONNX file, as a Triton model repository, or as both.

    Example::

        from pathlib import Path

        from anoco_edge import Bundle
        from anoco_edge_export.package import package_bundle

        files = package_bundle(Bundle.open("line.anoco"), single_file=Path("line.onnx"))
        print(files.single_file)
    """
    from anoco_edge_export.single_file import metadata, write_single_file
    from anoco_edge_export.triton import write_triton_repository

    check_package_paths(single_file, triton, overwrite=overwrite)
    with tempfile.TemporaryDirectory() as scratch:
        graph = write_single_file(bundle, product, single_file or Path(scratch) / "model.onnx")
        files: tuple[Path, ...] = ()
        if triton is not None:
            chosen = bundle.product(product)
            files = tuple(
                write_triton_repository(
                    triton,
                    graph,
                    name=chosen.name,
                    contract=bundle.manifest.input,
                    parameters=metadata(bundle, chosen),
                )
            )
    return PackageFiles(graph if single_file is not None else None, files)
