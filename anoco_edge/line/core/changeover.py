"""The product that parts are judged by, and the next one that is prepared beside it."""

from __future__ import annotations

from collections.abc import Container

from anoco_edge.line.core.events import PreparedProduct


class Changeover:
    """The current product and a change that is under way.

    A change that the PLC asked for makes the line wait (`waits`), because the next part may already
    be of the new product. A new generation of the current product does not. Only products in
    `known` are ever prepared: after a change to another number the line waits until it is taken
    back.

    >>> change = Changeover(1, {1, 2})
    >>> change.offer(PreparedProduct(1, 4, 0xBEEF)); change.switch()
    >>> change.current.generation, change.waits
    (4, False)
    >>> change.ask(2); change.waits
    True
    """

    def __init__(self, first: int, known: Container[int]) -> None:
        self.number = first
        self._known = known
        self.current: PreparedProduct | None = None
        self.failure = ""
        self._wanted: int | None = None
        self._next: PreparedProduct | None = None

    @property
    def needed(self) -> int:
        """The number of the product that has to be prepared."""
        return self.number if self._wanted is None else self._wanted

    @property
    def waits(self) -> bool:
        """Whether no part may be accepted before a change has ended."""
        return self._wanted is not None or self.current is None

    @property
    def complete(self) -> bool:
        """Whether the product that is needed is at hand, or cannot be had."""
        return bool(self.failure) or not self.waits or self._next is not None

    def ask(self, number: int) -> PreparedProduct | None:
        """Begin a change to another product, or take one back by asking for the current one.

        Return a product that was prepared and that nobody needs any more.
        """
        self._wanted = None if number == self.number and self.current else number
        self.failure = self._why_never()
        return self._drop_next()

    def reset(self) -> PreparedProduct | None:
        """Give up a change, so that the product before stays; return what was prepared for it."""
        self.failure = ""
        self._wanted = None
        return self._drop_next()

    def _drop_next(self) -> PreparedProduct | None:
        unused = self._next
        if unused is None or unused.number == self.needed:
            return None
        self._next = None
        return unused

    def offer(self, product: PreparedProduct) -> PreparedProduct | None:
        """Take a product that was prepared; return the one that nobody needs any more."""
        if product.number != self.needed or self._why_never():
            return product
        self.failure = ""
        unused, self._next = self._next, product
        return unused

    def fail(self, number: int, why: str) -> None:
        """Note that a product cannot be prepared. The line waits if it is needed for a change."""
        if number == self.needed:
            self.failure = why or "it could not be opened"

    def switch(self) -> PreparedProduct | None:
        """Between two parts: change over if the next product is there; return the one before."""
        if self._next is None:
            return None
        before, self.current, self._next = self.current, self._next, None
        self.number, self._wanted = self.current.number, None
        return before

    def lose(self) -> None:
        """The judge that held the products is gone."""
        self.current = self._next = None
        self.failure = self._why_never()

    def _why_never(self) -> str:
        known = self.needed in self._known
        return "" if known else "the station does not know this number"
