"""A Ray of our own on this machine, or one that runs already; quiet either way."""

from __future__ import annotations

import io
import os
import secrets
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from anoco_edge.errors import EnvironmentMissingError, UsageError, missing
from anoco_edge.machine import cores

CLIENT_PORT = 10001  # Ray's own default
ANSWER_SECONDS = 3.0  # of the machine; Ray itself may be busy
GREETING_SECONDS = 10.0
_STORE_BYTES = 100_000_000  # rows and small pictures pass through it, no frames

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
# Ray's word for "this machine alone": every port on the loopback, none on the network. Whoever else
# is on this machine needs a token, which nobody else gets.
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame of HTTP/2: no entries, type 4, stream 0


@dataclass(frozen=True)
class Cluster:
    """Where workers can be started; `workers` says how many at once."""

    ray: ModuleType
    name: str
    workers: int
    resources: dict[str, float]
    """What one worker takes."""


def check_address(on: str) -> tuple[str, int] | None:
    """Host and port of `ray://host:port`; None for `ray`, which starts one here.

    >>> check_address("ray"), check_address("ray://head"), check_address("ray://10.0.0.7:20001")
    (None, ('head', 10001), ('10.0.0.7', 20001))
    >>> check_address("spark")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: 'spark' is nowhere to work on; use ray, or ray://HOST:PORT
    """
    if on == "ray":
        return None
    try:
        parts = urlsplit(on)
        host, port = parts.hostname, parts.port or CLIENT_PORT
    except ValueError:
        host, port = None, 0
    if not on.startswith("ray://") or not host:
        raise UsageError(f"{on!r} is nowhere to work on", hint="use ray, or ray://HOST:PORT")
    return host, port


def needs_gpu(engine: str) -> bool:
    """Whether a worker with this engine takes a GPU of the cluster.

    >>> needs_gpu("tensorrt"), needs_gpu("onnxruntime-cuda"), needs_gpu("auto")
    (True, True, False)
    """
    return "tensorrt" in engine or "cuda" in engine


@contextmanager
def open_cluster(on: str, *, workers: int, threads: int, gpu: bool) -> Iterator[Cluster]:
    """Connected to Ray until the block ends. `workers` 0: as many as there is room for."""
    address = check_address(on)
    own = _ALONE | {"RAY_AUTH_TOKEN": secrets.token_hex(32)} if address is None else {}
    for name, value in (_QUIET | own).items():
        os.environ.setdefault(name, value)
    if address is not None:
        _knock(on, *address)
    ray = _ray()
    resources = {"CPU": float(threads), **({"GPU": 1.0} if gpu else {})}
    # Ray prints what its daemons say to our standard output, where only results belong.
    with redirect_stdout(io.StringIO()):
        try:
            _start(ray, on, address, max(cores(), workers * threads))
            room = ray.cluster_resources()
            most = min(int(room.get(kind, 0) // need) for kind, need in resources.items())
            if most < 1:
                kinds = " and ".join(f"{need:g} {kind}" for kind, need in resources.items())
                raise EnvironmentMissingError(
                    f"{on} has no room for a worker, which takes {kinds}",
                    hint="give fewer `threads`, or another `engine`",
                )
            yield Cluster(ray, on, min(workers or most, most), resources)
        finally:
            ray.shutdown()


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise missing("ray", "fleet", "to work on more than one machine") from None
    found: ModuleType = ray
    return found


def _knock(on: str, host: str, port: int) -> None:
    """Ray itself waits for half a minute: right for a busy head, too long where nobody is, or
    somebody else."""
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as door:
            if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
                _greet(on, door)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error) or "no answer"
        raise _no_answer(on, reason) from None


def _greet(on: str, door: socket.socket) -> None:
    """Ray's client speaks gRPC, so HTTP/2 (RFC 9113, 3.4): either side begins with its settings."""
    door.settimeout(GREETING_SECONDS)
    door.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
    answer = door.recv(len(_SETTINGS))
    if answer[3:4] != _SETTINGS[3:4]:
        raise _no_answer(on, "what listens there is not Ray's client server")


def _start(ray: ModuleType, on: str, address: tuple[str, int] | None, cpus: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address is not None:
            with warnings.catch_warnings():  # the error below says it
                warnings.simplefilter("ignore")
                _connect(ray, f"ray://{address[0]}:{address[1]}", quiet)
        else:
            ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                **quiet,
            )
    except ImportError as error:  # Ray without what its client needs
        raise missing(str(error.name), "fleet", "to reach a Ray cluster") from None
    except Exception as error:  # noqa: BLE001 - gRPC's, Ray's and the system's own kinds
        raise _no_answer(on, reason_of(error)) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray takes it, and would end us at once


def _connect(ray: ModuleType, url: str, quiet: dict[str, Any]) -> None:
    """A head starts a server for each of us, and a busy one may lose it: it is asked once more."""
    try:
        ray.init(url, **quiet)
    except ConnectionAbortedError:
        ray.init(url, **quiet)


def reason_of(error: Exception) -> str:
    """What Ray says, in one line. Its servers send tracebacks, of which the end says it.

    >>> reason_of(OSError("Traceback (most recent call last):\\n  File...\\nRuntimeError: no"))
    'RuntimeError: no'
    """
    text = str(error).strip() or type(error).__name__
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return " ".join(text.split())


def _no_answer(on: str, reason: str) -> EnvironmentMissingError:
    if on == "ray":
        return EnvironmentMissingError(
            f"no Ray could be started on this machine: {reason}",
            hint=f"look into {_temporary()}/ray",
        )
    return EnvironmentMissingError(
        f"no Ray answers at {on}: {reason}",
        hint=f"start one there with: ray start --head (its client port is {CLIENT_PORT}), or, if "
        "it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here",
    )


def _temporary() -> str:
    """Where Ray puts its logs: it looks at these, and not where Python's tempfile does."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
