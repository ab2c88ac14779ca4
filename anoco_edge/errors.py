"""One exception tree. Every error says what is wrong and what to do, and knows its exit code.

The reader of an error may have called a Python function or typed a command. A hint that tells them
to pass something therefore names the Python parameter, in backticks and perhaps with a value, such
as `product` or `threshold=0`. The command line shows the name of its own option in its place (see
`anoco_edge.cli.flags`). No module outside of `anoco_edge.cli` names an option itself.
"""

from __future__ import annotations


class AnocoError(Exception):
    """Base of every error a user can meet.

    >>> str(AnocoError("picture a.png is empty", hint="take it again"))
    'picture a.png is empty; take it again'
    """

    exit_code = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        self.what = _one_line(what)
        self.hint = _one_line(hint)
        super().__init__(f"{self.what}; {self.hint}" if self.hint else self.what)


def _one_line(text: str) -> str:
    # Here and not above: sources imports this module. Libraries put addresses into their errors.
    from anoco_edge.text.address import mask_addresses_in

    return mask_addresses_in(" ".join(text.split()))


class PictureError(AnocoError):
    """A picture that cannot be read or does not fit the product."""


class ScoringError(AnocoError, ValueError):
    """Features that must not be turned into a score (NaN, zero norm, no references)."""


class EngineError(AnocoError):
    """An engine or a scorer that was opened and then failed while it ran."""


class SourceError(AnocoError):
    """A stream or video that stopped delivering frames."""


class StorageError(AnocoError):
    """Writing failed: disk full, read-only place, someone else holds the lock."""


class UsageError(AnocoError, ValueError):
    """The call itself is wrong: an unknown name, a value out of range."""

    exit_code = 2


class EnvironmentMissingError(AnocoError):
    """Something is not installed or not plugged in."""

    exit_code = 3


class BundleError(AnocoError):
    """The bundle is broken, incomplete or made for something else."""

    exit_code = 4


class ParityError(AnocoError):
    """A graph does not compute what torch (or the self-test) says it should."""

    exit_code = 5


class BudgetMissedError(AnocoError):
    """A benchmark ran, and was slower than allowed."""

    exit_code = 6


def missing(package: str, extra: str, why: str) -> EnvironmentMissingError:
    """The message for an optional package that is not there.

    >>> missing("cv2", "camera", "to read a camera").hint
    "install it with: pip install 'anoco-edge[camera]'"
    """
    return EnvironmentMissingError(
        f"{package} is needed {why} and is not installed",
        hint=f"install it with: pip install 'anoco-edge[{extra}]'",
    )
