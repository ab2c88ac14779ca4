"""The built-in backbone: a bundle without products that is part of this package.

It is EfficientNet-Lite0 as `anoco-edge export` writes it with default options. Bundles made from it
need neither torch nor a network. `python -m anoco_edge_export.builtin` writes its files again, and
a test compares them with torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from anoco_edge.bundle.creation import create_bundle
from anoco_edge.bundle.store import SUFFIX, Bundle
from anoco_edge.errors import BundleError
from anoco_edge.storage.staging import complete_replacement

BUILTIN_BACKBONE = "efficientnet-lite0"
BUILTIN_FOLDER = Path(__file__).parent / BUILTIN_BACKBONE
BUILTIN_LAYERS = (5, 7)
"""How many layers are in the graph, and how many the model has."""


def open_builtin() -> Bundle:
    """Open the bundle of the built-in backbone in this installation, only to read it.

    >>> bundle = open_builtin()
    >>> bundle.manifest.backbone.id, bundle.manifest.input.width, bundle.products()
    ('efficientnet-lite0', 256, [])
    """
    try:
        return Bundle.open(BUILTIN_FOLDER)
    except BundleError as error:
        raise _damaged(error) from None


def create_builtin_bundle(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    prepare: Callable[[Bundle], object] | None = None,
) -> Bundle:
    """Write a new bundle with the built-in backbone, and return it opened.

    `prepare` gets the new bundle before it takes its place, to add products to it. The bundle
    appears complete, by one rename, or not at all.

    Example::

        from anoco_edge.bundle import create_builtin_bundle
        from anoco_edge.teaching import NewPicture, Teacher

        good = [NewPicture.from_file(f"good/good{k}.png") for k in range(4)]
        bundle = create_builtin_bundle(
            "new.anoco", prepare=lambda new: Teacher.open(new).enroll(good)
        )
        print(bundle.products())
    """
    packaged = open_builtin()
    manifest = packaged.manifest
    try:
        files = {record.path: packaged.read(record) for record in manifest.files}
    except BundleError as error:
        raise _damaged(error) from None
    return create_bundle(
        Path(path),
        backbone=manifest.backbone,
        contract=manifest.input,
        parity=manifest.parity,
        tools=manifest.tools,
        files=files,
        overwrite=overwrite,
        prepare=prepare,
    )


def can_create(path: str | os.PathLike[str]) -> bool:
    """Whether a new bundle may be made at `path` without hiding a mistyped name.

    There must be nothing at `path`, its name must end in .anoco, and its folder must exist.

    >>> can_create("no-such-folder/line.anoco"), can_create("line")
    (False, False)
    """
    target = Path(path)
    if target.suffix != SUFFIX or not target.parent.is_dir() or target.is_symlink():
        return False
    # A process that was killed while it replaced a bundle may have left the bundle beside.
    return not complete_replacement(target)


def _damaged(error: BundleError) -> BundleError:
    return BundleError(
        f"the built-in backbone of this installation is damaged: {error.what}",
        hint="install anoco-edge again: pip install --force-reinstall --no-deps anoco-edge",
    )
