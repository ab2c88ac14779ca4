"""libaravis by ctypes: the functions that the line calls, and its errors as ours.

Aravis (LGPL) speaks GigE Vision and USB3 Vision. It is a package of the system
(`apt-get install libaravis-0.8-0`), loaded when a camera needs it. Calls release the interpreter's
lock, so that a camera that does not answer stops nobody else.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import lru_cache
from typing import Any

from anoco_edge.errors import EnvironmentMissingError, SourceError

_NAMES = ("libaravis-0.8.so.0", "libgobject-2.0.so.0", "libglib-2.0.so.0")


class _GError(ctypes.Structure):
    _fields_ = (("domain", c_uint32), ("code", c_int), ("message", c_char_p))


_ErrorPointer = POINTER(_GError)
# The result and the arguments of each function; those of _FAILING get a place for an error last.
_PLAIN: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "arv_camera_get_device": (c_void_p, (c_void_p,)),
    "arv_camera_is_gv_device": (c_int, (c_void_p,)),
    "arv_gv_device_is_controller": (c_int, (c_void_p,)),
    "arv_stream_push_buffer": (None, (c_void_p, c_void_p)),
    "arv_stream_timeout_pop_buffer": (c_void_p, (c_void_p, c_uint64)),
    "arv_buffer_new_allocate": (c_void_p, (c_size_t,)),
    "arv_buffer_get_status": (c_int, (c_void_p,)),
    "arv_buffer_get_frame_id": (c_uint64, (c_void_p,)),
    "arv_buffer_get_timestamp": (c_uint64, (c_void_p,)),
    "arv_buffer_get_image_width": (c_int, (c_void_p,)),
    "arv_buffer_get_image_height": (c_int, (c_void_p,)),
    "arv_buffer_get_image_pixel_format": (c_uint32, (c_void_p,)),
    "arv_buffer_get_data": (c_void_p, (c_void_p, POINTER(c_size_t))),
}
_FAILING: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "arv_camera_new": (c_void_p, (c_char_p,)),
    "arv_camera_get_vendor_name": (c_char_p, (c_void_p,)),
    "arv_camera_get_model_name": (c_char_p, (c_void_p,)),
    "arv_camera_get_device_serial_number": (c_char_p, (c_void_p,)),
    "arv_camera_get_payload": (c_uint, (c_void_p,)),
    "arv_camera_create_stream": (c_void_p, (c_void_p, c_void_p, c_void_p)),
    "arv_camera_start_acquisition": (None, (c_void_p,)),
    "arv_camera_stop_acquisition": (None, (c_void_p,)),
    "arv_camera_software_trigger": (None, (c_void_p,)),
    "arv_device_set_string_feature_value": (None, (c_void_p, c_char_p, c_char_p)),
    "arv_device_get_string_feature_value": (c_char_p, (c_void_p, c_char_p)),
    "arv_device_set_integer_feature_value": (None, (c_void_p, c_char_p, c_int64)),
    "arv_device_get_integer_feature_value": (c_int64, (c_void_p, c_char_p)),
    "arv_device_set_float_feature_value": (None, (c_void_p, c_char_p, c_double)),
    "arv_device_get_float_feature_value": (c_double, (c_void_p, c_char_p)),
    "arv_device_set_boolean_feature_value": (None, (c_void_p, c_char_p, c_bool)),
    "arv_device_get_boolean_feature_value": (c_bool, (c_void_p, c_char_p)),
    "arv_device_read_register": (c_int, (c_void_p, c_uint64, POINTER(c_uint32))),
    "arv_device_write_register": (c_int, (c_void_p, c_uint64, c_uint32)),
    "arv_device_read_memory": (c_int, (c_void_p, c_uint64, c_uint32, c_void_p)),
}


class AravisLibrary:
    """The loaded library. `call` raises SourceError where Aravis reports an error."""

    def __init__(self) -> None:
        try:
            aravis, gobject, glib = (ctypes.CDLL(name) for name in _NAMES)
        except OSError as error:
            raise EnvironmentMissingError(
                f"libaravis is needed for GigE Vision and USB3 Vision cameras: {error}",
                hint="install it with: apt-get install libaravis-0.8-0",
            ) from None
        self._functions: dict[str, Any] = {}
        for name, (result, arguments) in (*_PLAIN.items(), *_FAILING.items()):
            function = getattr(aravis, name)
            extra = (POINTER(_ErrorPointer),) if name in _FAILING else ()
            function.restype, function.argtypes = result, (*arguments, *extra)
            self._functions[name] = function
        self._free_error = glib.g_error_free
        self._free_error.argtypes, self._free_error.restype = (_ErrorPointer,), None
        self._unref = gobject.g_object_unref
        self._unref.argtypes, self._unref.restype = (c_void_p,), None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of Aravis."""
        function = self._functions[f"arv_{name}"]
        if f"arv_{name}" in _PLAIN:
            return function(*arguments)
        error = _ErrorPointer()
        result = function(*arguments, ctypes.byref(error))
        if error:
            text = error.contents.message.decode("utf-8", "replace")
            self._free_error(error)
            raise SourceError(text, hint="check the camera, its cable and its settings")
        return result

    def release(self, handle: int | None) -> None:
        """Let go of an object of Aravis; None is nothing."""
        if handle:
            self._unref(handle)


@lru_cache(maxsize=1)
def load_aravis() -> AravisLibrary:
    """Load the library once; where it is missing, an EnvironmentMissingError says what to do."""
    return AravisLibrary()
