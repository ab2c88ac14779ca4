"""The native scorer: libanoco_edge through ctypes, which releases the GIL while it runs."""

from __future__ import annotations

import ctypes

import numpy as np

from anoco_edge.errors import EngineError, ScoringError, UsageError
from anoco_edge.machine import cores
from anoco_edge.native import interface
from anoco_edge.native.library import destroy_with, last_error, load_library
from anoco_edge.native.library import why_not as library_why_not
from anoco_edge.scoring.types import (
    METRICS,
    Floats,
    Parameters,
    References,
    ScorerOptions,
    Scores,
    check_query,
)

MEMORY_MB = 48
"""Megabytes for intermediate results; the bank is read in place."""


def open_scorer(bank: References, parameters: Parameters, options: ScorerOptions) -> NativeScorer:
    """Make a scorer for one bank."""
    budget = MEMORY_MB if options.memory_mb is None else options.memory_mb
    # Finding directions takes as long as scoring three to five pictures against 2304 references.
    directions = 0 if options.once else -1
    return NativeScorer(
        bank, parameters, threads=options.threads, memory_mb=budget, directions=directions
    )


def why_not() -> str:
    """Return why the library cannot be used; loading it to find out takes a millisecond."""
    return library_why_not() or ""


class NativeScorer:
    """Scores exactly in float32, with any number of neighbors; `threads` does not change a bit.

    Banks of float32 and float16 are read in place. It runs one call at a time; a second one waits.
    The library projects the bank on some directions to leave references out early. `directions` is
    their number: -1 lets the library choose, 0 computes every product.
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
        bank_options = interface.BankOptions(
            type=interface.FLOAT16 if half else interface.FLOAT32,
            features=self._features.ctypes.data,
            rows=rows,
            dim=self._dim,
            directions=directions,
        )
        settings = interface.ScorerOptions(
            metric=METRICS.index(parameters.metric),
            lam=parameters.lam,
            floor=parameters.floor,
            threads=threads or cores(),
            memory_mb=memory_mb,
        )
        handle, self._scorer = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._library.anoco_bank_create(bank_options, handle))
        try:
            self._check(self._library.anoco_scorer_create(handle, settings, self._scorer))
        finally:
            self._library.anoco_bank_destroy(handle)  # the scorer holds what it needs
        destroy_with(self, _destroy, self._library, self._scorer, self._features)

    def score(self, query: Floats) -> Scores:
        """Score each row of `query`."""
        fits = query.ndim == 2 and query.shape[1] == self._dim
        if not fits or not np.issubdtype(query.dtype, np.floating):
            check_query(query, self._dim)  # raises with the reason
        with np.errstate(over="ignore"):  # the library refuses what is too large for float32
            rows = np.ascontiguousarray(query, np.float32)
        energy, similarity = (np.empty(len(rows), np.float32) for _ in range(2))
        anchor, neighbors = (np.empty(len(rows), np.int64) for _ in range(2))
        status = self._library.anoco_scorer_score(
            self._scorer,
            rows.ctypes.data,
            len(rows),
            *(array.ctypes.data for array in (energy, anchor, similarity, neighbors)),
        )
        if status == interface.BAD_FEATURES:
            check_query(rows, self._dim)  # names the patch, as the other scorers do
        self._check(status)
        share = float(self._library.anoco_scorer_retrieval_share(self._scorer))
        return Scores(energy, anchor, similarity, neighbors, retrieval=share)

    def _check(self, status: int) -> None:
        if status == 0:
            return
        text = last_error(self._library)
        if status == interface.INVALID_ARGUMENT:
            raise UsageError(
                f"the native scorer refuses: {text}", hint="check bank, parameters and options"
            )
        if status in (interface.BAD_FEATURES, interface.CORRUPT):
            raise ScoringError(text, hint="check the backbone and its input")
        raise EngineError(
            f"the native scorer failed: {text}", hint="free memory, or use `scorer='onnx'`"
        )


def _destroy(library: ctypes.CDLL, scorer: ctypes.c_void_p, features: object) -> None:
    """Destroy the scorer. Holding `features` keeps them alive until then, because it reads them."""
    library.anoco_scorer_destroy(scorer)
