"""Objects of the native library that Python owns and destroys when they are no longer used."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from anoco_edge.native import interface
from anoco_edge.native.library import check, destroy_with


class WarningLog:
    """Keeps the warnings that the library logs; it must outlive the detector that logs to it."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.function = interface.LOG(partial(_add_warning, self.warnings))


def _add_warning(warnings: list[str], _: int | None, level: int, text: bytes) -> None:
    if level >= interface.LOG_WARNING:
        warnings.append(text.decode(errors="replace"))


class Handle:
    """A pointer that the library made, destroyed when Python drops the last reference to it."""

    def __init__(
        self,
        library: ctypes.CDLL,
        create: Callable[..., int],
        destroy: Callable[[Any], None],
        *arguments: Any,
        keep: object = None,
    ) -> None:
        """Call `create`, and keep `keep` alive as long as the pointer that it returns."""
        self.value = ctypes.c_void_p()
        self._keep = keep
        check(library, create(*arguments, self.value))
        # It is not destroyed when the interpreter exits, because a thread that was stopped then
        # may be in the middle of a picture.
        destroy_with(self, destroy, self.value).atexit = False


def open_bundle(library: ctypes.CDLL, path: str | os.PathLike[str]) -> Handle:
    """Open a bundle by its path."""
    create, destroy = library.anoco_bundle_open, library.anoco_bundle_destroy
    return Handle(library, create, destroy, os.fsencode(path))


def open_detector(
    library: ctypes.CDLL, bundle: Handle, options: interface.DetectorOptions, log: WarningLog
) -> Handle:
    """Open a detector for a product of a bundle; it logs to `log`."""
    create, destroy = library.anoco_detector_open, library.anoco_detector_destroy
    return Handle(library, create, destroy, bundle.value, options, keep=log)


def create_context(
    library: ctypes.CDLL, detector: Handle, options: interface.ContextOptions
) -> Handle:
    """Create a context, with which one thread at a time inspects pictures."""
    create, destroy = library.anoco_context_create, library.anoco_context_destroy
    return Handle(library, create, destroy, detector.value, options)
