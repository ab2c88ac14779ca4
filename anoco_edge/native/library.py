"""Finds and loads libanoco_edge, and turns its status codes into our errors."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from anoco_edge.errors import (
    AnocoError,
    BundleError,
    EngineError,
    EnvironmentMissingError,
    ParityError,
    PictureError,
    ScoringError,
    StorageError,
    UsageError,
)
from anoco_edge.native import interface

VARIABLE = "ANOCO_EDGE_LIBRARY"
"""Names a library to use in place of the one that was installed."""

_FOLDER = Path(__file__).parents[1] / "_lib"

_ERRORS: dict[int, type[AnocoError]] = {
    interface.INVALID_ARGUMENT: UsageError,
    interface.BAD_FEATURES: ScoringError,
    interface.CORRUPT: ScoringError,
    interface.BAD_BUNDLE: BundleError,
    interface.NO_PRODUCT: UsageError,
    interface.BAD_PICTURE: PictureError,
    interface.NO_BACKEND: EnvironmentMissingError,
    interface.PARITY: ParityError,
    interface.ENGINE: EngineError,
    interface.STORAGE: StorageError,
    interface.UNSUPPORTED: UsageError,
}


def find_library() -> Path | None:
    """Find the library that `load_library` loads, without loading it; None if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    # A wheel contains the file by its soname. In an install tree, the name without a number is a
    # link to that file.
    found = sorted(_FOLDER.glob("libanoco_edge.so*"))
    return found[0] if found else None


def why_not() -> str | None:
    """Return why the library cannot be used here, or None if it can."""
    try:
        load_library()
    except EnvironmentMissingError as error:
        return error.what
    return None


def load_library() -> ctypes.CDLL:
    """Load the library and declare its functions.

    It raises `EnvironmentMissingError` where the library is missing or cannot be loaded.
    """
    path = find_library()
    if path is None:
        raise EnvironmentMissingError(
            "the native library libanoco_edge.so is not installed",
            hint="install a wheel that carries it, or build runtime/ with CMake and set "
            f"{VARIABLE} to libanoco_edge.so; without it use `scorer='onnx'`",
        )
    return _load(path)


@cache
def _load(path: Path) -> ctypes.CDLL:
    hint = f"build it again for this machine, or correct {VARIABLE}"
    try:
        library = ctypes.CDLL(str(path))
        version = library.anoco_abi_version()
    except (OSError, AttributeError) as error:
        raise EnvironmentMissingError(
            f"the native library cannot be loaded: {error}", hint=hint
        ) from None
    if version != interface.ABI:
        raise EnvironmentMissingError(
            f"the native library {path} has interface {version}, not {interface.ABI}", hint=hint
        )
    interface.declare(library)
    _name_cublas_folders(library)
    return library


def _name_cublas_folders(library: ctypes.CDLL) -> None:
    """Tell the library where pip put cuBLAS; no loader knows these folders."""
    package = find_spec("nvidia")
    places = (package and package.submodule_search_locations) or ()
    files = (file for place in places for file in Path(place).glob("*/lib/libcublas.so.*"))
    folders = [os.fsencode(folder) for folder in dict.fromkeys(file.parent for file in files)]
    if folders and hasattr(library, "anoco_cuda_add_folders"):
        library.anoco_cuda_add_folders((ctypes.c_char_p * len(folders))(*folders), len(folders))


def last_error(library: ctypes.CDLL) -> str:
    """Return the library's message about the last failed call of this thread."""
    text: bytes = library.anoco_last_error()
    return text.decode(errors="replace")


def error_of(status: int, text: str) -> AnocoError:
    """Turn the status and message of a failed call into one of our errors.

    What follows the last semicolon of the message becomes the hint.

    >>> error = error_of(interface.BAD_PICTURE, "the picture is 3x3; give one of 16x16 or more")
    >>> error.what, error.hint
    ('the picture is 3x3', 'give one of 16x16 or more')
    """
    what, semicolon, hint = text.rpartition("; ")
    if not semicolon:
        what, hint = text, "see anoco-edge doctor" if status == interface.ENGINE else ""
    return _ERRORS.get(status, AnocoError)(what, hint=hint)


def check(library: ctypes.CDLL, status: int) -> None:
    """Raise an error if the status of a call says that it failed."""
    if status != interface.OK:
        raise error_of(status, last_error(library))


def destroy_with(
    owner: object, destroy: Callable[..., object], *arguments: object
) -> weakref.finalize[[], object]:
    """Call `destroy` when `owner` is collected, but only in the process that called this function.

    A forked process inherits the object but not the library's threads, so it would wait forever
    for them to end.

    >>> class Owner: pass
    >>> owner = Owner()
    >>> _ = destroy_with(owner, print, "destroyed")
    >>> del owner
    destroyed
    """
    maker = os.getpid()

    def run() -> None:
        if os.getpid() == maker:
            destroy(*arguments)

    return weakref.finalize(owner, run)
