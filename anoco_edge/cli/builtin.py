"""What commands do with the built-in backbone, where there is no bundle or no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anoco_edge.bundle import Bundle, create_builtin_bundle, open_builtin
from anoco_edge.bundle.builtin import BUILTIN_BACKBONE
from anoco_edge.cli.console import note
from anoco_edge.cli.views.export_progress import export_bundle
from anoco_edge.errors import EnvironmentMissingError, StorageError, UsageError

if TYPE_CHECKING:
    from anoco_edge.cli.requests.export import ExportRequest
    from anoco_edge_export import ExportedBundle

T = TypeVar("T")

EXPORT_PACKAGES = ("torch", "torchvision", "timm", "onnx", "onnxscript")
_INSTALL = "pip install 'anoco-edge[export]'"
_GRAPH_OPTIONS = {
    "size": "--size",
    "layers": "--layers",
    "tap_norm": "--tap-norm",
    "weights": "--weights",
    "precision": "--precision",
    "calibration": "--calib",
    "islands": "--islands",
    "allow_unfused": "--allow-unfused",
    "targets": "--target",
    "fit": "--fit",
    "pixels": "--input",
    "prompts": "--prompts",
    "single_file": "--single-file",
    "triton": "--triton",
}
"""Options of `export` that its packages are needed for, by the name of the parameter."""


def describe_builtin(bundle: Bundle) -> str:
    """Describe the built-in backbone in a few words.

    >>> describe_builtin(open_builtin())
    'the built-in backbone efficientnet-lite0 (256x256, 3.6 MB)'
    """
    contract = bundle.manifest.input
    megabytes = sum(record.size for record in bundle.manifest.files) / 1e6
    return (
        f"the built-in backbone {bundle.manifest.backbone.id} "
        f"({contract.width}x{contract.height}, {megabytes:.1f} MB)"
    )


def change_new_bundle(path: Path, change: Callable[[Bundle], T]) -> tuple[Bundle, T]:
    """Make a bundle from the built-in backbone, and return it with what `change` did to it.

    Bundle and change appear together or not at all. One line says which backbone it has.
    """
    changes: list[T] = []
    try:
        bundle = create_builtin_bundle(path, prepare=lambda new: changes.append(change(new)))
    except UsageError:
        if not path.exists():
            raise
        raise StorageError(
            f"another process made {path} meanwhile", hint="nothing was changed: run this again"
        ) from None
    note(f"{path} was made from {describe_builtin(bundle)}; anoco-edge export gives others")
    return bundle, changes[0]


def missing_export_package() -> str:
    """Return the first package that an export needs and that is not installed, or nothing."""
    return next((name for name in EXPORT_PACKAGES if find_spec(name) is None), "")


def beyond_builtin(backbone: str, options: Mapping[str, Any]) -> str:
    """Return what was asked for that the built-in backbone does not offer, or nothing.

    >>> beyond_builtin("efficientnet-lite0", {"size": (256, 256), "precision": "fp32"})
    ''
    >>> beyond_builtin("efficientnet-lite0", {"size": (384, 384)}), beyond_builtin("wrn50", {})
    ('--size', 'wrn50')
    """
    manifest = open_builtin().manifest
    if backbone != manifest.backbone.id:
        return backbone
    offered = {
        "size": (manifest.input.width, manifest.input.height),
        "precision": manifest.backbone.precision,
        "fit": manifest.input.fit,
        "pixels": manifest.input.pixels,
    }
    for name, option in _GRAPH_OPTIONS.items():
        value = options.get(name)
        if value and value != offered.get(name):
            return option
    return ""


def check_can_make(backbone: str, options: Mapping[str, Any]) -> None:
    """Refuse what is neither built in nor can be exported with the installed packages."""
    package, beyond = missing_export_package(), beyond_builtin(backbone, options)
    if package and beyond:
        raise EnvironmentMissingError(
            f"{package} is needed to export with {beyond} and is not installed",
            hint=f"install it with: {_INSTALL}; {BUILTIN_BACKBONE} with default options is "
            "built in",
        )


def export_or_builtin(
    request: ExportRequest, prepare: Callable[[Bundle], None], **packages: object
) -> ExportedBundle | Bundle:
    """Export a backbone, or take the built-in one where packages of an export are not installed.

    `packages` are the files for other runtimes that are asked for, which need the same packages.
    """
    path, options = request.path, request.options
    package = missing_export_package()
    if not package:
        return export_bundle(request.backbone, path, prepare=prepare, **options)
    check_can_make(request.backbone, {**options, **packages})
    bundle = create_builtin_bundle(path, overwrite=options["overwrite"], prepare=prepare)
    used = describe_builtin(bundle)
    note(f"{package} is not installed, so {path} was made from {used}; {_INSTALL} exports others")
    return bundle
