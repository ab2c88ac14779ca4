"""Makes a tiny bundle whose fill has a color that no part has, to test letterboxes and warps."""

from __future__ import annotations

from pathlib import Path

from tiny_bundle import make_tiny_bundle

from anoco_edge.bundle import Bundle, create_bundle

SIZE = 96  # pixels of the model's input, 6 x 6 patches
FILL = (255, 0, 255)


def make_filled_bundle(
    path: Path, *, fit: str = "stretch", stride: int = 16, dim: int = 8
) -> Bundle:
    """Make a bundle of SIZE x SIZE pixels whose fill is magenta, which no part has.

    With another stride or dim its backbone does not fit the contract, and only an engine that the
    test itself supplies can run it.
    """
    made = make_tiny_bundle(path.with_suffix(".plain"), size=(SIZE, SIZE))
    patches = SIZE // stride
    grid = {"stride": stride, "rows": patches, "cols": patches, "dim": dim}
    change = {"fit": fit, "fill": FILL, **grid}
    return create_bundle(
        path,
        backbone=made.manifest.backbone,
        contract=made.manifest.input.model_copy(update=change),
        parity={},
        tools={},
        files={f.path: (made.path / f.path).read_bytes() for f in made.manifest.files},
    )
