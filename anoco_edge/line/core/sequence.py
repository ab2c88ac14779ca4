"""The numbers of parts, 1 to 65535, from the PLC or counted here."""

from __future__ import annotations

from typing import Literal

LARGEST = 65535


def next_number(number: int) -> int:
    """Return the number after this one.

    >>> next_number(1), next_number(65535)
    (2, 1)
    """
    return number % LARGEST + 1


class Sequence:
    """Which numbers were seen and accepted; both are forgotten by RESET.

    >>> numbers = Sequence()
    >>> numbers.check(7), numbers.check(0)
    ('in order', 'in order')
    >>> numbers.note(7); numbers.accept(7)
    >>> numbers.check(7), numbers.check(8), numbers.check(9)
    ('decided', 'in order', 'jump')
    """

    def __init__(self) -> None:
        self._seen = 0
        self._known = False
        self._accepted = 0

    def reset(self) -> None:
        """Forget all numbers but the one to count from."""
        self._known = False
        self._accepted = 0

    def number(self, seq: int) -> int:
        """Return the number of the PLC, or count where it gave none."""
        if seq:
            return seq
        number = next_number(self._seen)
        return next_number(number) if number == self._accepted else number

    def check(self, seq: int) -> Literal["in order", "decided", "jump"]:
        """Say whether a number is the next, or that of a part that was decided, or a jump."""
        number = self.number(seq)
        if number == self._accepted:
            return "decided"
        if self._known and number not in (self._seen, next_number(self._seen)):
            return "jump"
        return "in order"

    def note(self, number: int) -> None:
        """Note the number of a trigger, whether accepted or refused."""
        self._seen, self._known = number, True

    def accept(self, number: int) -> None:
        """Note the number of a part that was accepted."""
        self._accepted = number
