"""Masks passwords in everything that is stored or shown: names of sources, errors, reports.

Cameras take passwords in many places: before the host, in the query, in the path, or as a property
of a GStreamer pipeline. Everything that looks like a password is masked, because masking a harmless
value by mistake does no harm.
"""

from __future__ import annotations

import re

MASK = "***"

# This matches user:password@host. The password may hold any character, even / and @ and :, but it
# ends before the query.
_USER_INFO = re.compile(
    r"(?P<before>://[^/@:\s\"']*?)(?::|%3A)"
    r"(?P<secret>(?:(?!\?[\w.-]+=)[^\s\"'])*)@",
    re.IGNORECASE,
)
# An address such as cam:8080/live@2 has a port, an @ in its path and no password. If the text after
# the @ looks like a host, the text before it is a password nevertheless.
_PORT_AND_PATH = re.compile(r"\d{1,5}/")
_HOST = re.compile(r"[\w-]+[.:][\w.:-]*(?:[/?]|$)|\[")
# This matches a password in the path, as in rtsp://cam:554/0/admin:secret/main.
_PATH_SEGMENT = re.compile(r"(?P<before>://[^\s\"'?]*?/[\w.-]+):(?P<secret>[^/\s\"'?&#]+)")
_SECRET_NAMES = (
    r"[\w.-]*(?:passwor[dt]|passwd|passphrase|passcode|pwd|pass|psw)"
    r"|(?:[\w.-]*[-_.])?(?:pw|psk|pin|key|apikey|sid|sig|signature)"
    r"|[\w.-]*(?:token|secret|credentials?)"
    r"|[\w.-]*auth(?:orization|basic|info|key|token)?"
)
# The value ends before the next one (&next=, or _next= in paths), a space or a frame number.
_FIELD = re.compile(
    rf"(?P<name>(?<![\w.-])(?:{_SECRET_NAMES}))(?P<equals>\s*(?:=|%3D)\s*(?:\([a-z]+\)\s*)?)"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?"
    r"|(?:(?!_[a-z]+=|%26|#\d+(?:\D|$))[^\s&;,!\"'])*)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b(?P<scheme>basic|bearer|digest)\s+[\w+/=.~-]{6,}", re.IGNORECASE)


def mask_address(text: str) -> str:
    """Mask the passwords in the address of a stream, in a GStreamer pipeline or in a text with one.

    >>> mask_address("rtsp://op:secret@cam:554/1"), mask_address("http://cam/v.cgi?usr=op&pwd=x")
    ('rtsp://op:***@cam:554/1', 'http://cam/v.cgi?usr=op&pwd=***')
    >>> mask_address("rtspsrc location=rtsp://cam/1 user-id=op user-pw=secret ! appsink")
    'rtspsrc location=rtsp://cam/1 user-id=op user-pw=*** ! appsink'
    """
    text = _USER_INFO.sub(_without_password, text)
    text = _PATH_SEGMENT.sub(rf"\g<before>:{MASK}", text)
    text = _HEADER.sub(rf"\g<scheme> {MASK}", text)
    return _FIELD.sub(_without_value, text)


def mask_addresses_in(message: str) -> str:
    """Mask the passwords in an error message; a message without an address stays as it is.

    >>> mask_addresses_in("/parts/pass=1/a.png is empty")
    '/parts/pass=1/a.png is empty'
    """
    return mask_address(message) if "://" in message or " ! " in message else message


def _without_password(found: re.Match[str]) -> str:
    follows = found.string[found.end() :]
    if _PORT_AND_PATH.match(found["secret"]) and not _HOST.match(follows):
        return found[0]
    return f"{found['before']}:{MASK}@"


def _without_value(found: re.Match[str]) -> str:
    return f"{found['name']}{found['equals']}{MASK}" if found["value"] else found[0]
