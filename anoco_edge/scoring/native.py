"""The native scorer: libanoco_edge through ctypes, which releases the GIL while it runs."""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import cache
from pathlib import Path

import numpy as np

from anoco_edge.errors import AnocoError, EnvironmentMissingError, ScoringError, UsageError
from anoco_edge.machine import cores
from anoco_edge.scoring.types import METRICS, Floats, Parameters, References, Scores, check_query

VARIABLE = "ANOCO_EDGE_LIBRARY"
"""Names a library to use in place of the one that was installed."""

MEMORY_MB = 48
"""Room for intermediate results; the bank is read where it is."""

_ABI = 1
_FOLDER = Path(__file__).parents[1] / "_lib"

# anoco_edge.h
_INVALID_ARGUMENT, _BAD_FEATURES, _CORRUPT = 1, 2, 5
_FLOAT32, _FLOAT16 = 1, 2


class _BankOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("features", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("copy", ctypes.c_uint32),
        ("directions", ctypes.c_int32),
    )


class _ScorerOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("metric", ctypes.c_uint32),
        ("lam", ctypes.c_double),
        ("floor", ctypes.c_double),
        ("threads", ctypes.c_uint32),
        ("memory_mb", ctypes.c_uint32),
        ("pin", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


def find_library() -> Path | None:
    """The library that would be loaded, found without loading it; None where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    # The soname is what a wheel carries; the name without a number is a link in an install tree.
    found = sorted(_FOLDER.glob("libanoco_edge.so*"))
    return found[0] if found else None


def why_not() -> str | None:
    """Why the native scorer cannot run here, or None where it can."""
    try:
        load_library()
    except EnvironmentMissingError as error:
        return error.what
    return None


def load_library() -> ctypes.CDLL:
    """The library with its functions declared; `EnvironmentMissingError` where it cannot be had."""
    path = find_library()
    if path is None:
        raise EnvironmentMissingError(
            "the native library libanoco_edge.so is not installed",
            hint="install a wheel that carries it, or build runtime/ with CMake and set "
            f"{VARIABLE} to libanoco_edge.so; without it use --scorer onnx",
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
    if version != _ABI:
        raise EnvironmentMissingError(
            f"the native library {path} has interface {version}, not {_ABI}", hint=hint
        )
    _declare(library)
    return library


def _declare(library: ctypes.CDLL) -> None:
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    made = ctypes.POINTER(ctypes.c_void_p)
    for name, result, arguments in (
        ("anoco_last_error", ctypes.c_char_p, ()),
        ("anoco_kernels", ctypes.c_char_p, ()),
        ("anoco_bank_create", ctypes.c_int32, (ctypes.POINTER(_BankOptions), made)),
        ("anoco_bank_destroy", None, (pointer,)),
        ("anoco_scorer_create", ctypes.c_int32, (pointer, ctypes.POINTER(_ScorerOptions), made)),
        ("anoco_scorer_destroy", None, (pointer,)),
        ("anoco_scorer_score", ctypes.c_int32, (pointer, pointer, count, *([pointer] * 4))),
        ("anoco_scorer_retrieval_share", ctypes.c_double, (pointer,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


class NativeScorer:
    """Exact in float32, whatever the number of neighbours; the same bits for any `threads`.

    float32 and float16 banks are read where they are. One call at a time; a second one waits.
    `directions` is how many the bank is projected on to leave references out early: -1 lets the
    library choose, 0 computes every product.
    """

    name = "native"

    def __init__(
        self,
        bank: References,
        parameters: Parameters,
        *,
        threads: int = 0,
        memory_mb: int = MEMORY_MB,
        directions: int = -1,
    ) -> None:
        self._library = load_library()
        half = bank.features.dtype == np.float16
        self._features = np.ascontiguousarray(bank.features, np.float16 if half else np.float32)
        rows, self._dim = self._features.shape
        borrowed = _BankOptions(
            ctypes.sizeof(_BankOptions),
            _FLOAT16 if half else _FLOAT32,
            self._features.ctypes.data,
            rows,
            self._dim,
            0,
            directions,
        )
        settings = _ScorerOptions(
            ctypes.sizeof(_ScorerOptions),
            METRICS.index(parameters.metric),
            parameters.lam,
            parameters.floor,
            threads or cores(),
            memory_mb,
        )
        handle, self._scorer = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._library.anoco_bank_create(borrowed, handle))
        try:
            self._check(self._library.anoco_scorer_create(handle, settings, self._scorer))
        finally:
            self._library.anoco_bank_destroy(handle)  # the scorer keeps what it needs
        weakref.finalize(self, _destroy, self._library, self._scorer, self._features)

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        fits = query.ndim == 2 and query.shape[1] == self._dim
        if not fits or not np.issubdtype(query.dtype, np.floating):
            check_query(query, self._dim)  # says what is wrong
        with np.errstate(over="ignore"):  # what is too large for float32 is refused below
            rows = np.ascontiguousarray(query, np.float32)
        energy, similarity = (np.empty(len(rows), np.float32) for _ in range(2))
        anchor, neighbors = (np.empty(len(rows), np.int64) for _ in range(2))
        status = self._library.anoco_scorer_score(
            self._scorer,
            rows.ctypes.data,
            len(rows),
            *(array.ctypes.data for array in (energy, anchor, similarity, neighbors)),
        )
        if status == _BAD_FEATURES:
            check_query(rows, self._dim)  # names the patch, as the other scorers do
        self._check(status)
        share = float(self._library.anoco_scorer_retrieval_share(self._scorer))
        return Scores(energy, anchor, similarity, neighbors, retrieval=share)

    def _check(self, status: int) -> None:
        if status == 0:
            return
        text = self._library.anoco_last_error().decode(errors="replace")
        if status == _INVALID_ARGUMENT:
            raise UsageError(f"the native scorer refuses: {text}", hint="check the arguments")
        if status in (_BAD_FEATURES, _CORRUPT):
            raise ScoringError(text, hint="check the backbone and its input")
        raise AnocoError(
            f"the native scorer failed: {text}", hint="free memory, or use --scorer onnx"
        )


def _destroy(library: ctypes.CDLL, scorer: ctypes.c_void_p, features: object) -> None:
    """`features` comes along so that it lives as long as the scorer that reads it."""
    library.anoco_scorer_destroy(scorer)
