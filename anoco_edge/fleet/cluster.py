"""Connect to a Ray cluster: one that this process starts on this machine, or a running one."""

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
from urllib.parse import urlsplit

from anoco_edge.errors import EnvironmentMissingError, UsageError, missing
from anoco_edge.machine import cores

CLIENT_PORT = 10001  # Ray's own default
ANSWER_SECONDS = 3.0  # until the machine must answer; Ray itself may take longer
GREETING_SECONDS = 10.0
_STORE_BYTES = 100_000_000  # rows and thumbnails pass through Ray's store, and no frames

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
# With these settings Ray opens its ports on the loopback interface only. Other users of this
# machine would need the token, which only this process and its workers have.
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an HTTP/2 frame: no entries, type 4, stream 0


@dataclass(frozen=True)
class Cluster:
    """Where workers can be started: `workers` at once, each of which takes `resources`."""

    ray: ModuleType
    name: str
    workers: int
    resources: dict[str, float]


def check_address(on: str) -> tuple[str, int] | None:
    """Return host and port of `ray://host:port`; None for `ray`, which starts a cluster here.

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


@contextmanager
def open_cluster(on: str, *, workers: int, threads: int, gpu: bool) -> Iterator[Cluster]:
    """Stay connected to Ray until the block ends; with 0 `workers` take as many as fit."""
    address = check_address(on)
    own = _ALONE | {"RAY_AUTH_TOKEN": secrets.token_hex(32)} if address is None else {}
    for name, value in (_QUIET | own).items():
        os.environ.setdefault(name, value)
    if address is not None:
        _check_answer(on, *address)
    ray = _ray()
    resources = {"CPU": float(threads), **({"GPU": 1.0} if gpu else {})}
    # Ray prints messages of its daemons to standard output, where only results belong.
    with redirect_stdout(io.StringIO()):
        try:
            _start(ray, on, address, max(cores(), workers * threads))
            room = ray.cluster_resources()
            most = min(int(room.get(kind, 0) // need) for kind, need in resources.items())
            if most < 1:
                kinds = " and ".join(f"{need:g} {kind}" for kind, need in resources.items())
                raise EnvironmentMissingError(
                    f"{on} has no room for a worker, which takes {kinds}",
                    hint="give a worker fewer threads, or choose another engine",
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


def _check_answer(on: str, host: str, port: int) -> None:
    """Refuse an address at which nothing answers, or something that is not Ray.

    Ray itself waits for half a minute, which is right for a busy head and too long for a wrong
    address.
    """
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
                _check_protocol(on, connection)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error) or "no answer"
        raise _no_answer(on, reason) from None


def _check_protocol(on: str, connection: socket.socket) -> None:
    """Check that HTTP/2 is spoken, on which gRPC and so Ray's client rest.

    By RFC 9113, section 3.4, either side begins with its settings.
    """
    connection.settimeout(GREETING_SECONDS)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
    answer = connection.recv(len(_SETTINGS))
    if answer[3:4] != _SETTINGS[3:4]:
        raise _no_answer(on, "what listens there is not Ray's client server")


def _start(ray: ModuleType, on: str, address: tuple[str, int] | None, cpus: int) -> None:
    quiet: dict[str, bool | str] = {"log_to_driver": False, "logging_level": "critical"}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address is not None:
            with warnings.catch_warnings():  # the error below says the same
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
            # Ray installs its own handler, which would end this process at once.
            signal.signal(signal.SIGTERM, handler)


def _connect(ray: ModuleType, url: str, quiet: dict[str, bool | str]) -> None:
    """Connect, and try once more if a busy head lost the server that it starts for a client."""
    try:
        ray.init(url, **quiet)
    except ConnectionAbortedError:
        ray.init(url, **quiet)


def reason_of(error: Exception) -> str:
    """Return an error of Ray in one line; of the tracebacks that its servers send, the last line.

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
    """Return where Ray puts its logs; it reads other variables than Python's tempfile does."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
