"""Reads cameras that send JPEGs over HTTP, one after the other (multipart/x-mixed-replace).

FFmpeg completes a frame that was cut with the rows of the frame before it and reports nothing. Here
every part is decoded by itself, as a picture file is, and a part that is not whole is an error.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from anoco_edge.errors import AnocoError, EnvironmentMissingError, PictureError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.sources.jpeg_end import START, jpeg_end
from anoco_edge.sources.multipart import MultipartReader, Part, boundary_of
from anoco_edge.sources.reader import ReaderFrame, StreamEndedError

_CHUNK = 64 << 10
_MAX_REDIRECTIONS = 3
_FAILURES = (OSError, http.client.HTTPException, ValueError)


class MjpegHttpReader:
    """Reads the frames of one connection."""

    def __init__(self, response: Any, boundary: bytes, interrupt: Callable[[], None]) -> None:
        self._response = response
        self._interrupt = interrupt
        self._parts = MultipartReader(self._receive, boundary)
        self._failure = ""

    def read(self, name: str) -> ReaderFrame:
        """Wait for the next part and decode it; it has an error if it is not whole."""
        part = self._parts.next_part()
        if part is None:
            raise StreamEndedError(self._failure or "the connection ended")
        captured = time.monotonic()
        try:
            rgb, error = _decode(part, name), None
        except AnocoError as exc:
            rgb, error = None, exc
        return ReaderFrame(rgb, error, captured, time.monotonic() - captured)

    def interrupt(self) -> None:
        """End the connection, on which another thread may be waiting."""
        self._interrupt()

    def close(self) -> None:
        """Close the connection."""
        with suppress(*_FAILURES):
            self._response.close()

    def _receive(self) -> bytes:
        try:
            return bytes(self._response.read1(_CHUNK))
        except TimeoutError:
            self._failure = "nothing came any more"
        except _FAILURES as exc:
            self._failure = f"the connection broke ({exc})"
        return b""


def open_mjpeg(address: str, name: str, timeout: float) -> MjpegHttpReader | None:
    """Open an HTTP address, which errors call `name`; None if it does not send MJPEG."""
    deadline = _Deadline(timeout)
    opener, bare = deadline.opener(address), _without_user(address)
    try:
        with deadline:
            response = opener.open(bare, timeout=timeout)
    except urllib.error.HTTPError as exc:
        exc.close()
        raise _no_stream(name, f"it answers {exc.code} {exc.reason}") from None
    except _FAILURES as exc:
        raise _no_stream(name, _reason(exc, deadline, timeout)) from None
    if deadline.passed:  # the part of the header that came by then looks like a whole one
        response.close()
        raise _no_stream(name, f"no answer within {timeout:g} s")
    content_type = response.headers.get("Content-Type", "")
    boundary = boundary_of(content_type)
    if boundary is not None:
        return MjpegHttpReader(response, boundary, deadline.shut_down)
    response.close()
    if content_type.partition(";")[0].strip().lower().startswith(("image/", "text/")):
        raise UsageError(
            f"{name} is not a stream: it answers with {content_type.partition(';')[0]}",
            hint="give the address of the camera's video; save a single picture to a file first",
        )
    return None


def _decode(part: Part, name: str) -> Any:
    fault = part.fault
    if not fault and part.data.startswith(START) and jpeg_end(part.data) is None:
        fault = "it has no JPEG end"
    if fault:
        raise PictureError(
            f"{name} was not received whole: {fault}",
            hint="check the camera, its cable and the network",
        )
    return decode_picture(part.data, name)


def _no_stream(name: str, why: str) -> EnvironmentMissingError:
    return EnvironmentMissingError(
        f"no stream at {name}: {why}",
        hint="check the address, the user and password, and that the camera is on the network",
    )


def _reason(exc: Exception, deadline: _Deadline, timeout: float) -> str:
    inner = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    if deadline.passed or isinstance(inner, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(inner, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({inner.verify_message}); name a file that holds it"
            " with SSL_CERT_FILE"
        )
    return str(inner) or type(inner).__name__


def _without_user(address: str) -> str:
    parts = _split(address)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _split(address: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(address)
        if not parts.hostname or (parts.port is not None and parts.port < 1):
            raise ValueError
    except ValueError:
        raise UsageError(
            "this is not a web address that can be read",
            hint="write it as http://user:password@host:port/path, special characters in user and"
            " password as %40 for @, %2F for / and so on",
        ) from None
    return parts


class _Deadline:
    """Ends the connection that is being opened when the time is up, however slowly it answers."""

    def __init__(self, seconds: float) -> None:
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self.passed = False

    def opener(self, address: str) -> urllib.request.OpenerDirector:
        """Make an opener for `address`, with its user and password by basic or digest login."""
        parts = _split(address)
        passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        if parts.username is not None:
            user, password = (
                urllib.parse.unquote(text or "") for text in (parts.username, parts.password)
            )
            host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
            passwords.add_password(None, host, user, password)
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            _Http(self._sockets),
            _Https(self._sockets),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirections(),
            _Basic(passwords),
            urllib.request.HTTPDigestAuthHandler(passwords),
            urllib.request.UnknownHandler(),
        ):
            opener.add_handler(handler)
        return opener

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        self.passed = True
        self.shut_down()

    def shut_down(self) -> None:
        """End every connection, so that a read that waits on one returns."""
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    """Plain HTTP that records its sockets."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_recording(http.client.HTTPConnection, self._sockets), req)


class _Https(urllib.request.HTTPSHandler):
    """HTTPS that records its sockets; certificates are checked."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_recording(http.client.HTTPSConnection, self._sockets), req)


def _recording(kind: type[http.client.HTTPConnection], sockets: list[socket.socket]) -> Any:
    """Make a kind of connection that adds its socket to a list when it connects."""

    class RecordingConnection(kind):  # type: ignore[valid-type, misc]
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    return RecordingConnection


class _Basic(urllib.request.HTTPBasicAuthHandler):
    """Ignores schemes other than basic; the base class raises a ValueError for them."""

    def http_error_401(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        try:
            return super().http_error_401(req, fp, code, msg, headers)
        except ValueError:
            return None


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follows a few redirections, and only to other web addresses."""

    max_redirections = _MAX_REDIRECTIONS
    max_repeats = 1

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.lower().startswith(("http://", "https://")):
            raise urllib.error.URLError("it redirects to something that is not a web address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
