"""Splits a multipart/x-mixed-replace stream into parts, and finds what is wrong with each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from anoco_edge.sources.jpeg_end import END, START, jpeg_end

MAX_BYTES = 64 << 20  # of one part: a JPEG of 100 megapixels has about 30 MB
_MAX_HEADER_BYTES = 16 << 10
_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_TYPE = re.compile(rb"^content-type[ \t]*:[ \t]*([^\r\n;]*)", re.IGNORECASE | re.MULTILINE)
_HEADER_END = re.compile(rb"^\r?\n|\r?\n\r?\n")
_LONGEST_DELIMITER = 256


@dataclass(frozen=True)
class Part:
    """What came between two boundaries; `fault` says why it is not a whole picture, or is empty."""

    data: bytes
    fault: str = ""


def boundary_of(content_type: str) -> bytes | None:
    """Read the boundary of a multipart stream, without dashes; None for other kinds of content.

    Cameras write it with and without quotes, and with and without the two dashes that belong to
    the delimiter.

    >>> boundary_of('multipart/x-mixed-replace; boundary="--my boundary"')
    b'my boundary'
    >>> boundary_of("video/mp4") is None
    True
    """
    kind, _, parameters = content_type.partition(";")
    if not kind.strip().lower().startswith("multipart/"):
        return None
    found = re.search(r'boundary\s*=\s*(?:"([^"]*)"|([^\s;]+))', parameters, re.IGNORECASE)
    text = (found[1] or found[2] or "") if found else ""
    return text.strip().lstrip("-").encode("latin-1", "replace")


class MultipartReader:
    """Splits a stream of bytes by boundary and Content-Length; `receive` gives b"" at its end.

    A part ends where the next boundary begins, also when its Content-Length says more: a frame
    that was cut costs only itself. A part without a length ends with its JPEG, so that no frame
    waits for the one after it.

    >>> body = START + bytes.fromhex("ffda0002 1122 ffd9")
    >>> head = b"--b\\r\\nContent-Length: 10\\r\\n\\r\\n"
    >>> stream = iter([head + body, b"\\r\\n--b\\r\\n\\r\\n" + START])
    >>> parts = MultipartReader(lambda: next(stream, b""), b"b")
    >>> parts.next_part().data == body, parts.next_part().fault
    (True, 'the connection ended within it')
    """

    def __init__(self, receive: Callable[[], bytes], boundary: bytes) -> None:
        self._receive = receive
        self._delimiter = _delimiter(boundary)
        self._buffer = bytearray()
        self._ended = False

    def next_part(self) -> Part | None:
        """Read the next part that is or should be a picture; None at the end of the stream."""
        while True:
            junk, found = self._skip_to_delimiter()
            if junk:
                return Part(junk, "bytes came that belong to no frame")
            if not found:
                return None
            header, fault = self._take_header()
            if not self._buffer and self._ended and not header:
                return None  # a boundary, and nothing after it
            part = self._take_body(header, fault)
            if not _is_something_else(header, part):
                return part

    def _skip_to_delimiter(self) -> tuple[bytes, bool]:
        """Consume the next delimiter, or the bytes before it; also whether there was one."""
        while not (found := self._delimiter.search(self._buffer)):
            if len(self._buffer) > MAX_BYTES or not self._fill():
                return self._junk(len(self._buffer)), False
        junk = self._junk(found.start())
        if not junk:
            del self._buffer[: found.end() - found.start()]
        return junk, True

    def _junk(self, count: int) -> bytes:
        """Take out the bytes before a delimiter; empty if they are only line ends and padding."""
        data = self._take(count, "").data
        return data if data.strip(b"\r\n \t\0-") else b""

    def _take_header(self) -> tuple[bytes, str]:
        """Take out the header; also says what is wrong with it."""
        while True:
            end = _HEADER_END.search(self._buffer)
            next_part = self._delimiter.search(self._buffer)
            if end and not (next_part and next_part.start() < end.start()):
                header = bytes(self._buffer[: end.start()])
                del self._buffer[: end.end()]
                return header, ""
            if next_part or len(self._buffer) > _MAX_HEADER_BYTES:
                return b"", "its header has no end"
            if not self._fill():
                return b"", "the connection ended within it"

    def _take_body(self, header: bytes, fault: str) -> Part:
        length, wrong_length = _stated_length(header)
        fault = fault or wrong_length
        searched = 0
        while True:
            cut = self._delimiter.search(self._buffer, searched)
            there = cut.start() if cut else len(self._buffer)
            whole = length or self._jpeg_length(searched)
            if whole is not None and whole <= there:
                return self._take(whole, fault)
            if cut:
                short = f"it has {there} bytes of the {length} announced" if length else ""
                return self._take(there, fault or short)
            if there > MAX_BYTES:
                return self._take(there, f"it has more than {MAX_BYTES >> 20} MB")
            searched = max(0, there - _LONGEST_DELIMITER)
            if not self._fill():
                return self._take(there, "the connection ended within it")

    def _jpeg_length(self, searched: int) -> int | None:
        """Find where the JPEG in the buffer ends; it is parsed only when an end marker has come."""
        if self._buffer.startswith(START) and self._buffer.find(END, searched) >= 0:
            return jpeg_end(self._buffer)
        return None

    def _take(self, count: int, fault: str) -> Part:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return Part(data, fault)

    def _fill(self) -> bool:
        more = b"" if self._ended else self._receive()
        self._ended = not more
        self._buffer += more
        return bool(more)


def _delimiter(boundary: bytes) -> re.Pattern[bytes]:
    """Make the pattern of what separates parts.

    It need not stand at the start of a line, because a frame that was cut has no line end.

    Without a boundary, any line of printable characters that begins with two dashes is one.
    """
    if not boundary:
        return re.compile(rb"(?:^|\n)--[!-~][ -~]{0,69}\r?\n")
    name = re.escape(boundary[: _LONGEST_DELIMITER // 2])
    forms = rb"--+" + name + rb"(?:--)?[ \t]*\r?\n"
    if len(boundary) >= 4:  # some cameras leave the dashes out; a short name may come by chance
        forms += rb"|(?:^|\n)" + name + rb"[ \t]*\r?\n"
    return re.compile(forms)


def _stated_length(header: bytes) -> tuple[int | None, str]:
    """Read the Content-Length; also says what is wrong with it."""
    stated = {text.strip() for text in _LENGTH.findall(header)}
    if not stated:
        return None, ""
    text = stated.pop()
    if stated or not re.fullmatch(rb"\d{1,18}", text):
        return None, "its Content-Length is not one number"
    if int(text) > MAX_BYTES:
        return None, f"its Content-Length is {int(text)}; at most {MAX_BYTES >> 20} MB are read"
    return int(text) or None, ""


def _is_something_else(header: bytes, part: Part) -> bool:
    """Whether a part is sound or text, which some cameras send between the pictures."""
    kind = _TYPE.search(header)
    if kind is None or part.data.startswith(START):
        return False
    return re.fullmatch(rb"(?i)(audio|text|application)/[\w.+-]+", kind[1].strip()) is not None
