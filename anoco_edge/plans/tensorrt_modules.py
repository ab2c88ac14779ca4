"""The two modules that build and run plans: TensorRT, and TensorRT-RTX for desktop GPUs.

An engine that runs plans is named after its module: `tensorrt` or `tensorrt-rtx`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from anoco_edge.errors import EnvironmentMissingError, missing

PlanEngine = Literal["tensorrt", "tensorrt-rtx"]
PLAN_ENGINES: tuple[PlanEngine, ...] = get_args(PlanEngine)

_MAX_MESSAGE = 300  # characters of a message that are worth reading


def title(plan_engine: PlanEngine) -> str:
    """The name as NVIDIA writes it.

    >>> title("tensorrt-rtx")
    'TensorRT-RTX'
    """
    return "TensorRT" if plan_engine == "tensorrt" else "TensorRT-RTX"


def is_installed(plan_engine: PlanEngine) -> bool:
    """Whether the module is installed, found out without importing it."""
    return find_spec(_module(plan_engine)) is not None


def check_installed(plan_engine: PlanEngine) -> None:
    """Raise an error that says how to get the module, if it is not installed."""
    if is_installed(plan_engine):
        return
    if plan_engine == "tensorrt-rtx":
        raise missing(_module(plan_engine), "rtx", "to build and run its plans")
    raise EnvironmentMissingError(
        "tensorrt is needed to build and run its plans and is not installed",
        hint="on a Jetson it comes with JetPack (make the virtual environment with "
        "--system-site-packages); elsewhere: pip install tensorrt",
    )


def load_module(plan_engine: PlanEngine) -> Any:
    """Import `tensorrt` or `tensorrt_rtx`."""
    check_installed(plan_engine)
    try:
        return import_module(_module(plan_engine))
    except (ImportError, OSError, RuntimeError) as error:  # dlopen finds its libraries
        raise EnvironmentMissingError(
            f"{_module(plan_engine)} is installed but does not load: {error}",
            hint="install it again, in a version that fits the NVIDIA driver",
        ) from None


def _module(plan_engine: PlanEngine) -> str:
    return plan_engine.replace("-", "_")


class ErrorLog:
    """The errors that TensorRT logged, in their order."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, text: str) -> None:
        """Keep one error, on one line."""
        self._lines.append(" ".join(text.split()))

    def clear(self) -> None:
        """Forget all errors, before something else is tried."""
        self._lines.clear()

    def first(self) -> str:
        """The first error, because those that follow are mostly its consequences; empty if none."""
        return self._lines[0][:_MAX_MESSAGE] if self._lines else ""

    def mention(self, *words: str) -> bool:
        """Whether any error contains one of these words.

        >>> log = ErrorLog()
        >>> log.add("Error Code 2: OutOfMemory (no further information)")
        >>> log.mention("out of memory", "outofmemory")
        True
        """
        return any(word in line.lower() for line in self._lines for word in words)


def collecting_log(trt: Any) -> Any:
    """Make a logger that prints nothing and keeps errors in `errors_logged`.

    It keeps all other messages, too, once `messages` is a list.
    """

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind asks for this call, not for super()
            self.errors_logged = ErrorLog()
            self.messages: list[str] | None = None

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors_logged.add(msg)
            elif self.messages is not None:
                self.messages.append(msg)

    return Log()
