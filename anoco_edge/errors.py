"""All exceptions of the package.

Every error says what is wrong and what to do, and has the exit code of the command line.

The reader of an error may have called a Python function or typed a command. A hint to pass a value
therefore names the Python parameter in backticks, perhaps with a value, such as `product` or
`threshold=0`. The command line replaces it by the name of its own option (see
`anoco_edge.cli.flags`). No module outside of `anoco_edge.cli` names an option itself.
"""

from __future__ import annotations

from typing import ClassVar

from anoco_edge.text.address import mask_addresses_in


class AnocoError(Exception):
    """The base class of every error that the package raises for a user.

    >>> str(AnocoError("picture a.png is empty", hint="take it again"))
    'picture a.png is empty; take it again'
    """

    exit_code = 1
    default_hint: ClassVar[str] = ""
    """What to do where an error does not say it itself."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        self.what = _one_line(what)
        self.hint = _one_line(hint or self.default_hint)
        super().__init__(f"{self.what}; {self.hint}" if self.hint else self.what)


def _one_line(text: str) -> str:
    # Libraries put the addresses of streams into their errors, and an address can hold a password.
    return mask_addresses_in(" ".join(text.split()))


class PictureError(AnocoError):
    """A picture that cannot be read or does not fit the product."""


class ScoringError(AnocoError, ValueError):
    """Features that cannot be scored (NaN, zero norm, no references)."""


class EngineError(AnocoError):
    """An engine or a scorer that was opened and then failed while it ran."""


class SourceError(AnocoError):
    """A stream or video that stopped delivering frames."""


class StorageError(AnocoError):
    """A write that failed: the disk is full or read-only, or another process holds the lock."""


class ConflictError(AnocoError):
    """A change that was planned for a generation which is not the current one any more."""


class UsageError(AnocoError, ValueError):
    """A call with a wrong argument, such as an unknown name or a value out of range."""

    exit_code = 2


class EnvironmentMissingError(AnocoError):
    """A package or a device that is needed and is not installed or not connected."""

    exit_code = 3


class BundleError(AnocoError):
    """A bundle that is damaged, incomplete or made for another purpose.

    The native library gives the same advice (`fail_damaged` in runtime/src/failure.hpp).

    >>> BundleError("product.json is not JSON").hint
    'the bundle is damaged or was edited: copy or make it again'
    """

    exit_code = 4
    default_hint = "the bundle is damaged or was edited: copy or make it again"


class SignatureError(BundleError):
    """A bundle that is not signed by an accepted key, or that was changed after it was signed."""


class ParityError(AnocoError):
    """A graph whose output differs from that of torch, or from what the self-test expects."""

    exit_code = 5


class BudgetMissedError(AnocoError):
    """A benchmark that ran and was slower than allowed."""

    exit_code = 6


def missing(package: str, extra: str, why: str) -> EnvironmentMissingError:
    """Return the error for an optional package that is not installed.

    >>> missing("cv2", "camera", "to read a camera").hint
    "install it with: pip install 'anoco-edge[camera]'"
    """
    return EnvironmentMissingError(
        f"{package} is needed {why} and is not installed",
        hint=f"install it with: pip install 'anoco-edge[{extra}]'",
    )
