"""Finds what a patch was compared with: the place in a reference picture that a bank row shows."""

from __future__ import annotations

from anoco_edge.bundle import BankIndex, Bundle, Product
from anoco_edge.images.preprocess import Placement, patch_box, place
from anoco_edge.pipeline.augmentation import IDENTITY, box_in_source, patch_in_source
from anoco_edge.pipeline.inspection import Evidence


class EvidenceLookup:
    """Finds the reference picture, and the place in it, that a row of the bank came from."""

    def __init__(self, bundle: Bundle, product: Product, index: BankIndex) -> None:
        self._contract = bundle.manifest.input.tiled(product.tiles)
        self._folder = bundle.product_folder(product.name)
        self._references = product.references
        self._shared_views = product.views
        self._index = index

    def evidence(
        self, anchor: int, similarity: float, row: int, col: int, placement: Placement
    ) -> Evidence:
        """Describe where the anchor of a query patch comes from.

        The row and the column are those of the reference picture itself, also for a view of it.
        """
        reference = self._references[int(self._index.reference[anchor])]
        there = place(self._contract, reference.width, reference.height)
        view = (IDENTITY, *self._shared_views, *reference.views)[int(self._index.view[anchor])]
        patch = (int(self._index.row[anchor]), int(self._index.col[anchor]))
        box = box_in_source(view, patch_box(self._contract, *patch))
        r, c = patch_in_source(self._contract, box)
        return Evidence(
            reference=reference.name,
            file=self._folder / reference.file.path,
            row=r,
            col=c,
            box=there.to_picture(box),
            similarity=similarity,
            query_row=row,
            query_col=col,
            query_box=placement.to_picture(patch_box(self._contract, row, col)),
        )
