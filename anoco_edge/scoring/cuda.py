"""The scorer on an NVIDIA GPU: libanoco_edge through ctypes, for arrays of the host or the GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import EngineError, EnvironmentMissingError, ScoringError, UsageError
from anoco_edge.native import interface
from anoco_edge.native.library import destroy_with, last_error, load_library
from anoco_edge.native.library import why_not as library_why_not
from anoco_edge.scoring.capture_rule import device_wide
from anoco_edge.scoring.device_array import DeviceArray, OnDevice, device_array
from anoco_edge.scoring.types import (
    METRICS,
    Floats,
    Parameters,
    References,
    ScorerOptions,
    Scores,
    check_query,
)

_TYPES = {np.dtype(np.float32): interface.FLOAT32, np.dtype(np.float16): interface.FLOAT16}


def open_scorer(bank: References, parameters: Parameters, options: ScorerOptions) -> CudaScorer:
    """Make a scorer for one bank; it multiplies in FP16 if queries and bank are both in FP16."""
    budget = 0 if options.memory_mb is None else options.memory_mb
    half = options.half and bank.features.dtype == np.float16
    return CudaScorer(bank, parameters, memory_mb=budget, half=half)


@dataclass(frozen=True)
class CudaDeviceInfo:
    """What is known of a CUDA device; `why_not` says why it cannot be used, if it cannot."""

    usable: bool
    built: bool
    simulated: bool
    driver_version: int
    device_count: int
    capability: int
    cublas_version: int
    memory: int
    name: str
    code: str
    why_not: str


def describe(device: int = 0) -> CudaDeviceInfo:
    """Describe the device of this number, counted from 0; loads the driver, if there is one.

    >>> found = describe(9999)
    >>> found.usable, bool(found.why_not)
    (False, True)
    """
    library = load_library()
    if not hasattr(library, "anoco_cuda_describe"):
        why = "the native library is older than this package: build it again"
        return CudaDeviceInfo(False, False, False, 0, 0, 0, 0, 0, "", "", why)
    info = interface.CudaInfo()
    if library.anoco_cuda_describe(device, info) != interface.OK:
        raise UsageError(last_error(library), hint="devices are counted from 0")
    return CudaDeviceInfo(
        usable=bool(info.usable),
        built=bool(info.built),
        simulated=bool(info.simulated),
        driver_version=info.driver_version,
        device_count=info.device_count,
        capability=info.capability,
        cublas_version=info.cublas_version,
        memory=info.memory,
        name=info.name.decode(errors="replace"),
        code=info.code.decode(errors="replace"),
        why_not=info.why_not.decode(errors="replace"),
    )


def memory_mb() -> float:
    """Megabytes of the GPU for similarities by default; the bank and the query come on top."""
    return describe().memory // 16 / 1e6


def why_not(device: int = 0) -> str:
    """Say why the scorer cannot be used here; empty where it can."""
    try:
        found = describe(device)
    except EnvironmentMissingError as error:
        return error.what
    return "" if found.usable else found.why_not


def auto_reason() -> str:
    """Say why `auto` should choose this scorer; empty where the GPU is only simulated."""
    found = describe()
    return f"there is a CUDA device: {found.name}" if found.usable and not found.simulated else ""


def why_absent() -> str:
    """Say why there is nothing to try the scorer with; empty where a driver is installed.

    Without the native library the answer is empty too, because opening the scorer says that.
    """
    if library_why_not() is not None:
        return ""
    found = describe()
    return "" if found.driver_version or found.usable else found.why_not


def describe_trial() -> str:
    """Say what device the scorer ran on, and with which machine code."""
    found = describe()
    return f"on {found.name}, with code {found.code}"


@dataclass(frozen=True)
class ProductTimes:
    """How long a picture takes with cuBLAS and with this library's own kernels, in milliseconds.

    `cublas_ms` is None where there is no cuBLAS.
    """

    cublas_ms: float | None
    own_ms: float
    faster: Literal["cublas", "own"]


def measure_products(
    bank: References, patches: int, *, half: bool = False, device: int = 0
) -> ProductTimes:
    """Measure both ways to multiply pictures of so many patches with a bank, and record the faster.

    Scorers and detectors, this library's and the native one's, choose by the record from then on.
    It lies in the user's cache and holds for this GPU, its driver and this version.
    """
    library = load_library()
    features = _contiguous(bank)
    cuda = interface.CudaOptions(
        device=device,
        operands=interface.FLOAT16 if half else interface.FLOAT32,
        max_rows=patches,
    )
    found = interface.ProductTimes()
    with device_wide():
        status = library.anoco_cuda_measure_products(
            _bank_options(features), interface.ScorerOptions(lam=1.0, floor=0.05), cuda, found
        )
    _check_status(library, status)
    cublas = found.faster == interface.PRODUCTS_CUBLAS
    return ProductTimes(found.cublas_ms or None, found.own_ms, faster="cublas" if cublas else "own")


class CudaScorer:
    """Scores exactly, with sums in float32 and any number of neighbors; one call at a time.

    `half` rounds bank and query to FP16 before they are multiplied, for features that were computed
    in FP16. The query may lie on the GPU, in anything with `__cuda_array_interface__`. `memory_mb`
    limits the memory for similarities; 0 is a sixteenth of the GPU's.
    """

    name = "cuda"

    def __init__(
        self,
        bank: References,
        parameters: Parameters,
        *,
        memory_mb: int = 0,
        half: bool = False,
        device: int = 0,
        max_rows: int = 0,
    ) -> None:
        self._library = load_library()
        reason = why_not(device)
        if reason:
            raise EnvironmentMissingError(
                f"the cuda scorer cannot be used: {reason}",
                hint="see anoco-edge doctor, or use `scorer='native'`",
            )
        features = _contiguous(bank)
        self._dim = features.shape[1]
        settings = interface.ScorerOptions(
            metric=METRICS.index(parameters.metric),
            lam=parameters.lam,
            floor=parameters.floor,
            memory_mb=memory_mb,
        )
        cuda = interface.CudaOptions(
            device=device,
            operands=interface.FLOAT16 if half else interface.FLOAT32,
            max_rows=max_rows,
        )
        self._scorer = ctypes.c_void_p()
        create = self._library.anoco_cuda_scorer_create
        with device_wide():
            self._check(create(_bank_options(features), settings, cuda, self._scorer))
        destroy_with(self, _destroy, self._library, self._scorer)

    def score(self, query: Floats | OnDevice) -> Scores:
        """Score each row of `query`, an array of the host or of the GPU."""
        if not isinstance(query, np.ndarray):
            return self._score_on_device(device_array(query), None)
        fits = query.ndim == 2 and query.shape[1] == self._dim
        if not fits or not np.issubdtype(query.dtype, np.floating):
            check_query(query, self._dim)  # raises with the reason
        with np.errstate(over="ignore"):  # the library refuses what is too large for float32
            kept = np.float16 if query.dtype == np.float16 else np.float32
            rows: Floats = np.ascontiguousarray(query, kept)
        energy, similarity = (np.empty(len(rows), np.float32) for _ in range(2))
        anchor, neighbors = (np.empty(len(rows), np.int64) for _ in range(2))
        status = self._library.anoco_cuda_scorer_score(
            self._scorer,
            rows.ctypes.data,
            _TYPES[rows.dtype],
            len(rows),
            *(array.ctypes.data for array in (energy, anchor, similarity, neighbors)),
        )
        if status == interface.BAD_FEATURES:
            check_query(rows, self._dim)  # names the patch, as the other scorers do
        self._check(status)
        return Scores(energy, anchor, similarity, neighbors)

    def device_mb(self) -> float:
        """Megabytes that it holds on the GPU beside the bank; the first call allocates them."""
        taken = ctypes.c_uint64()
        self._check(self._library.anoco_cuda_scorer_memory(self._scorer, taken))
        return taken.value / 1e6

    def score_rows(self, query: Floats | OnDevice, rows: NDArray[np.int64]) -> Scores:
        """Score some rows of a query on the GPU; the other rows are not read."""
        if isinstance(query, np.ndarray):
            return self.score(query[rows])
        return self._score_on_device(device_array(query), np.ascontiguousarray(rows, np.int32))

    def _score_on_device(self, query: DeviceArray, rows: NDArray[np.int32] | None) -> Scores:
        if len(query.shape) != 2 or query.shape[1] != self._dim or query.dtype not in _TYPES:
            raise ScoringError(
                f"query features on the device are {query.dtype} of shape {query.shape}, the bank "
                f"has {self._dim} features per patch",
                hint="query and bank must come from the same backbone, in float32 or float16",
            )
        patches = interface.DevicePatches(
            type=_TYPES[query.dtype],
            features=query.pointer,
            rows=query.shape[0],
            stream=query.stream,
            chosen=None if rows is None else rows.ctypes.data,
            chosen_count=0 if rows is None else len(rows),
        )
        count = query.shape[0] if rows is None else len(rows)
        energy, similarity = (np.empty(count, np.float32) for _ in range(2))
        anchor, neighbors = (np.empty(count, np.int32) for _ in range(2))
        out = interface.PatchScores(
            memory=interface.HOST,
            energy=energy.ctypes.data,
            anchor=anchor.ctypes.data,
            similarity=similarity.ctypes.data,
            neighbors=neighbors.ctypes.data,
        )
        self._check(self._library.anoco_score_patches_device(self._scorer, patches, out))
        return Scores(energy, anchor.astype(np.int64), similarity, neighbors.astype(np.int64))

    def _check(self, status: int) -> None:
        _check_status(self._library, status)


def _check_status(library: ctypes.CDLL, status: int) -> None:
    if status == interface.OK:
        return
    text = last_error(library)
    if status == interface.INVALID_ARGUMENT:
        raise UsageError(
            f"the cuda scorer refuses: {text}", hint="check bank, parameters and options"
        )
    if status in (interface.BAD_FEATURES, interface.CORRUPT):
        raise ScoringError(text, hint="check the backbone and its input")
    if status == interface.NO_BACKEND:
        raise EnvironmentMissingError(
            f"the cuda scorer cannot be used: {text}",
            hint="see anoco-edge doctor, or use `scorer='native'`",
        )
    raise EngineError(
        f"the cuda scorer failed: {text}",
        hint="free memory of the GPU, or use `scorer='native'`",
    )


def _destroy(library: ctypes.CDLL, scorer: ctypes.c_void_p) -> None:
    with device_wide():  # a handle of cuBLAS waits for the whole GPU when it goes
        library.anoco_cuda_scorer_destroy(scorer)


def _contiguous(bank: References) -> Floats:
    kept = np.float16 if bank.features.dtype == np.float16 else np.float32
    features: Floats = np.ascontiguousarray(bank.features, kept)
    return features


def _bank_options(features: Floats) -> interface.BankOptions:
    rows, dim = features.shape
    return interface.BankOptions(
        type=_TYPES[features.dtype], features=features.ctypes.data, rows=rows, dim=dim
    )
