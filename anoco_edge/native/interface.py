"""Declares the structs and functions of anoco_edge.h and anoco_cuda.h in the headers' order."""

from __future__ import annotations

import ctypes
from ctypes import (
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

ABI = 1

OK = 0
INVALID_ARGUMENT, BAD_FEATURES, OUT_OF_MEMORY, NO_THREADS, CORRUPT, INTERNAL = range(1, 7)
BAD_BUNDLE, NO_PRODUCT, BAD_PICTURE, NO_BACKEND, PARITY, ENGINE = range(7, 13)
STORAGE, UNSUPPORTED, NO_RESULT = range(13, 16)

FLOAT32, FLOAT16 = 1, 2
RGB, BGR, RGBA, BGRA, GREY, NV12 = range(1, 7)
BT601, BT709 = 0, 1
LIMITED_RANGE, FULL_RANGE = 0, 1
HOST, DEVICE = 0, 1
PRODUCTS_AUTO, PRODUCTS_CUBLAS, PRODUCTS_OWN = 0, 1, 2


class Struct(ctypes.Structure):
    """A struct of the interface, which begins with its own size.

    Fields that are not given are 0.

    >>> Region(x0=2.5).struct_size == ctypes.sizeof(Region)
    True
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class BankOptions(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("type", c_uint32),
        ("features", c_void_p),
        ("rows", c_int64),
        ("dim", c_int64),
        ("copy", c_uint32),
        ("directions", c_int32),
    )


class ScorerOptions(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("metric", c_uint32),
        ("lam", c_double),
        ("floor", c_double),
        ("threads", c_uint32),
        ("memory_mb", c_uint32),
        ("pin", c_uint32),
        ("reserved", c_uint32),
    )


class Image(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("format", c_uint32),
        ("data", c_void_p),
        ("width", c_int64),
        ("height", c_int64),
        ("stride", c_int64),
        ("chroma", c_void_p),
        ("chroma_stride", c_int64),
        ("memory", c_uint32),
        ("reserved", c_uint32),
        ("matrix", c_uint32),
        ("range", c_uint32),
    )


LOG_WARNING = 2
LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class DetectorOptions(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_uint32),
        ("product", c_char_p),
        ("backend", c_char_p),
        ("device", c_char_p),
        ("library", c_char_p),
        ("threshold", c_double),
        ("log", LOG),
        ("log_user", c_void_p),
        ("allow_random", c_uint32),
        ("gpu", c_uint32),
        ("scorer", c_char_p),
        ("cpu_precision", c_char_p),
        ("blocking_sync", c_uint32),
        ("reserved", c_uint32),
    )


class DetectorInfo(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("cpu_precision", c_char_p),
        ("cpu_precision_reason", c_char_p),
        ("backend", c_char_p),
        ("backend_reason", c_char_p),
        ("scorer", c_char_p),
        ("scorer_reason", c_char_p),
    )


class ContextOptions(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_uint32),
        ("memory_mb", c_uint32),
        ("pin", c_uint32),
        ("max_width", c_int64),
        ("max_height", c_int64),
    )


class Result(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("verdict", c_int32),
        ("score", c_double),
        ("threshold", c_double),
        ("ratio", c_double),
        ("product", c_char_p),
        ("generation", c_int64),
        ("rows", c_int64),
        ("cols", c_int64),
        ("energy", ctypes.POINTER(c_float)),
        ("anchor", ctypes.POINTER(c_int64)),
        ("similarity", ctypes.POINTER(c_float)),
        ("counted", ctypes.POINTER(c_uint8)),
        ("map_width", c_int64),
        ("map_height", c_int64),
        ("map", ctypes.POINTER(c_float)),
        ("outline", ctypes.POINTER(c_uint8)),
        ("region_count", c_int64),
        ("peak_row", c_int64),
        ("peak_col", c_int64),
        ("picture_left", c_int64),
        ("picture_top", c_int64),
        ("picture_width", c_int64),
        ("picture_height", c_int64),
        ("threshold_kind", c_int32),
        ("reserved", c_uint32),
    )


class Region(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("x0", c_double),
        ("y0", c_double),
        ("x1", c_double),
        ("y1", c_double),
        ("area", c_double),
        ("peak", c_double),
        ("row", c_int64),
        ("col", c_int64),
    )


class Evidence(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("reference", c_char_p),
        ("file", c_char_p),
        ("row", c_int64),
        ("col", c_int64),
        ("x0", c_double),
        ("y0", c_double),
        ("x1", c_double),
        ("y1", c_double),
        ("query_x0", c_double),
        ("query_y0", c_double),
        ("query_x1", c_double),
        ("query_y1", c_double),
        ("similarity", c_double),
    )


class Timings(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("preprocess", c_double),
        ("backbone", c_double),
        ("scoring", c_double),
        ("map", c_double),
        ("total", c_double),
    )


class CudaInfo(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("usable", c_uint32),
        ("built", c_uint32),
        ("simulated", c_uint32),
        ("driver_version", c_int32),
        ("device_count", c_int32),
        ("capability", c_int32),
        ("cublas_version", c_int32),
        ("memory", c_uint64),
        ("name", c_char * 128),
        ("code", c_char * 64),
        ("why_not", c_char * 512),
        ("cublas_file", c_char * 256),
    )


class CudaOptions(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("device", c_uint32),
        ("operands", c_uint32),
        ("products", c_uint32),
        ("max_rows", c_int64),
    )


class ProductTimes(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("faster", c_uint32),
        ("cublas_ms", c_double),
        ("own_ms", c_double),
    )


class DevicePatches(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("type", c_uint32),
        ("features", c_void_p),
        ("rows", c_int64),
        ("stream", c_void_p),
        ("chosen", c_void_p),
        ("chosen_count", c_int64),
    )


class PatchScores(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("memory", c_uint32),
        ("energy", c_void_p),
        ("anchor", c_void_p),
        ("similarity", c_void_p),
        ("neighbors", c_void_p),
    )


CUDA_CHANGE, CUDA_CAPTURE = 1, 2


class GraphInfo(Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("given_up", c_uint32),
        ("made", c_int64),
        ("failed", c_int64),
        ("postponed", c_int64),
        ("reason", c_char * 256),
    )


_MADE = ctypes.POINTER(c_void_p)
_STATUS = c_int32


def _to(struct: type[Struct]) -> Any:
    return ctypes.POINTER(struct)


_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("anoco_abi_version", c_uint32, ()),
    ("anoco_version", c_char_p, ()),
    ("anoco_kernels", c_char_p, ()),
    ("anoco_last_error", c_char_p, ()),
    ("anoco_bank_create", _STATUS, (_to(BankOptions), _MADE)),
    ("anoco_bank_destroy", None, (c_void_p,)),
    ("anoco_scorer_create", _STATUS, (c_void_p, _to(ScorerOptions), _MADE)),
    ("anoco_scorer_destroy", None, (c_void_p,)),
    ("anoco_scorer_score", _STATUS, (c_void_p, c_void_p, c_int64, *[c_void_p] * 4)),
    ("anoco_scorer_retrieval_share", c_double, (c_void_p,)),
    (
        "anoco_count_values",
        _STATUS,
        (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_void_p),
    ),
    ("anoco_bundle_open", _STATUS, (c_char_p, _MADE)),
    ("anoco_bundle_destroy", None, (c_void_p,)),
    ("anoco_detector_open", _STATUS, (c_void_p, _to(DetectorOptions), _MADE)),
    ("anoco_detector_destroy", None, (c_void_p,)),
    ("anoco_detector_select", _STATUS, (c_void_p, c_char_p)),
    ("anoco_detector_describe", _STATUS, (c_void_p, _to(DetectorInfo))),
    ("anoco_context_create", _STATUS, (c_void_p, _to(ContextOptions), _MADE)),
    ("anoco_context_destroy", None, (c_void_p,)),
    ("anoco_inspect", _STATUS, (c_void_p, _to(Image), _to(Result))),
    ("anoco_result_region", _STATUS, (c_void_p, c_int64, _to(Region))),
    ("anoco_result_evidence", _STATUS, (c_void_p, c_int64, c_int64, _to(Evidence))),
    ("anoco_result_map", _STATUS, (c_void_p, c_void_p)),
    ("anoco_result_timings", _STATUS, (c_void_p, _to(Timings))),
    ("anoco_cuda_describe", _STATUS, (c_uint32, _to(CudaInfo))),
    ("anoco_cuda_add_folders", _STATUS, (ctypes.POINTER(c_char_p), c_int64)),
    (
        "anoco_cuda_scorer_create",
        _STATUS,
        (_to(BankOptions), _to(ScorerOptions), _to(CudaOptions), _MADE),
    ),
    ("anoco_cuda_scorer_destroy", None, (c_void_p,)),
    (
        "anoco_cuda_measure_products",
        _STATUS,
        (_to(BankOptions), _to(ScorerOptions), _to(CudaOptions), _to(ProductTimes)),
    ),
    ("anoco_cuda_scorer_memory", _STATUS, (c_void_p, ctypes.POINTER(ctypes.c_uint64))),
    (
        "anoco_cuda_scorer_score",
        _STATUS,
        (c_void_p, c_void_p, c_uint32, c_int64, *[c_void_p] * 4),
    ),
    (
        "anoco_score_patches_device",
        _STATUS,
        (c_void_p, _to(DevicePatches), _to(PatchScores)),
    ),
    ("anoco_context_graphs", _STATUS, (c_void_p, _to(GraphInfo))),
    ("anoco_cuda_scorer_graphs", _STATUS, (c_void_p, _to(GraphInfo))),
    ("anoco_cuda_lock", _STATUS, (c_uint32,)),
    ("anoco_cuda_unlock", _STATUS, (c_uint32,)),
)


def declare(library: ctypes.CDLL) -> None:
    """Declare the arguments and results of the library's functions to ctypes."""
    for name, result, arguments in _FUNCTIONS:
        # An older library with the same interface number lacks functions that were added later. It
        # still loads; calling a missing function raises an error that names it.
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
