"""The value that every change of the teacher returns."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.bundle import Product
from anoco_edge.errors import UsageError
from anoco_edge.teaching.drafts import Draft


@dataclass(frozen=True)
class ProductChange:
    """What a change did to a product, or would do."""

    product: Product
    before: Product | None = None
    added: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    draft: Draft | None = None

    @staticmethod
    def by(
        draft: Draft,
        before: Product | None,
        added: tuple[str, ...] = (),
        duplicates: tuple[str, ...] = (),
    ) -> ProductChange:
        """The change that a draft makes, or has made."""
        return ProductChange(draft.product, before, added, duplicates, draft.notes, draft)

    def require_draft(self) -> Draft:
        """Return the draft that makes the change. A change that only went back has none."""
        if self.draft is None:
            raise UsageError(
                f"this change of product {self.product.name!r} has no draft to inspect with",
                hint="ask the teacher for the change again with commit=False",
            )
        return self.draft
