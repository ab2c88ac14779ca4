"""The two modules that build and run plans: TensorRT, and TensorRT-RTX for desktop GPUs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from anoco_edge.errors import EnvironmentMissingError, missing

Flavour = Literal["tensorrt", "tensorrt-rtx"]
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)

_LONGEST = 300  # characters of a message that are worth reading


def title(flavour: Flavour) -> str:
    """As its maker writes it.

    >>> title("tensorrt-rtx")
    'TensorRT-RTX'
    """
    return "TensorRT" if flavour == "tensorrt" else "TensorRT-RTX"


def is_installed(flavour: Flavour) -> bool:
    """Whether the module is there, found without importing it."""
    return find_spec(_module(flavour)) is not None


def check_installed(flavour: Flavour) -> None:
    """An error that says how to get the module, when it is not there."""
    if is_installed(flavour):
        return
    if flavour == "tensorrt-rtx":
        raise missing(_module(flavour), "rtx", "to build and run its plans")
    raise EnvironmentMissingError(
        "tensorrt is needed to build and run its plans and is not installed",
        hint="on a Jetson it comes with JetPack (make the virtual environment with "
        "--system-site-packages); elsewhere: pip install tensorrt",
    )


def load_module(flavour: Flavour) -> Any:
    """`tensorrt` or `tensorrt_rtx`."""
    check_installed(flavour)
    try:
        return import_module(_module(flavour))
    except (ImportError, OSError, RuntimeError) as error:  # its libraries are found by dlopen
        raise EnvironmentMissingError(
            f"{_module(flavour)} is installed but does not load: {error}", hint="install it again"
        ) from None


def _module(flavour: Flavour) -> str:
    return flavour.replace("-", "_")


class ErrorLog:
    """Errors that TensorRT logged, in their order."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, text: str) -> None:
        self._lines.append(" ".join(text.split()))

    def clear(self) -> None:
        self._lines.clear()

    def first(self) -> str:
        """The first one: what follows is mostly its consequence."""
        return self._lines[0][:_LONGEST] if self._lines else ""

    def mention(self, *words: str) -> bool:
        """Whether any error holds one of these words.

        >>> said = ErrorLog()
        >>> said.add("Error Code 2: OutOfMemory (no further information)")
        >>> said.mention("out of memory", "outofmemory")
        True
        """
        return any(word in line.lower() for line in self._lines for word in words)


def collecting_log(trt: Any) -> Any:
    """A logger that prints nothing and keeps errors in `errors_logged`."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind wants its own called, not super()'s
            self.errors_logged = ErrorLog()

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors_logged.add(msg)

    return Log()
