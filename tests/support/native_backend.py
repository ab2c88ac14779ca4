"""Declares `anoco_backend` of runtime/include/anoco_backend.h, for backends written in Python."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_size_t, c_uint32, c_void_p

from anoco_edge.native import interface

OPEN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
CLOSE = ctypes.CFUNCTYPE(None, c_void_p)
REQUEST = ctypes.CFUNCTYPE(c_int32, c_void_p, ctypes.POINTER(c_void_p), c_void_p, c_size_t)
RUN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, ctypes.POINTER(c_void_p), c_void_p, c_size_t)


class Backend(interface.Struct):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("name", c_char_p),
        ("user", c_void_p),
        ("open", OPEN),
        ("close", CLOSE),
        ("create_request", REQUEST),
        ("destroy_request", CLOSE),
        ("run", RUN),
    )
