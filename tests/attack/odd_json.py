"""Puts odd values in every place of a JSON document, with a correct checksum."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anoco_edge.storage.hashes import sha256_bytes

Place = tuple[str | int, ...]

_HOLE = "@hole@"
_CHECKSUM = re.compile(rb'"checksum": "[0-9a-f]{64}"')

# These replace a value; most are not JSON, have another type, or are out of range.
FRAGMENTS: tuple[bytes, ...] = (
    *(b"null", b"true", b"false", b"[]", b"{}", b"[1]", b'""', b'"x"', b'"1"', b'"true"'),
    *(
        b"0",
        b"-0",
        b"-0.0",
        b"-1",
        b"1",
        b"2",
        b"7",
        b"16",
        b"255",
        b"256",
        b"1.0",
        b"0.5",
        b"-0.5",
    ),
    *(b"32768", b"1048576", b"1048577", b"1099511627776", b"100000000", b"10000"),
    *(b"1e300", b"1e999", b"-1e999", b"1e-999", b"5e-324", b"1e400", b"0e999", b"1e2", b"1E+2"),
    *(
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nan",
        b"inf",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"0x10",
        b"1_0",
    ),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"),
    *(b"-9223372036854775809", b"18446744073709551616", b"1" * 5000, b"-", b"--1", b"1e", b"1e+"),
    *(
        b'"../x"',
        b'"/etc/hostname"',
        b'"a\\\\..\\\\x"',
        b'"a\\u0000b"',
        b'"."',
        b'"a//b"',
        b'"a/./b"',
    ),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\\ud800\\u0041"', b'"\\uD8"'),
    *(b'"\x01"', b'"\n"', b'"\t"', b'"\x7f"', b'"\xc2\x9b31m"', b'"\\u001b[31mred"', b'"\\x41"'),
    *(b'"\xff"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"'),
    *(b'"[/red]"', b'"[bold"', b'"[link=x]"', b'"\xe2\x86\x92"', b'"\xc2\xa0"', b'"\xe2\x80\xae"'),
    *(b'"' + b"x" * 300 + b'"', b'"' + b"y" * 200_000 + b'"', b'{"a": 1, "a": 2}', b'{"": 0}'),
    *(b"[" * n + b"]" * n for n in (10, 60, 61, 62, 63, 64, 65, 66, 500, 100_000)),
    *(b'{"a":' * n + b"1" + b"}" * n for n in (60, 63, 64, 65, 5000)),
    *(b"[" * 200_000, b"// x\n1", b"1 // x", b"'x'", b"tru", b"True", b"None", b"undefined", b""),
    *(b"[1,]", b"[,1]", b'{"a"}', b'{"a":}', b"{1: 2}", b'{"a": 1,}', b'"unfinished'),
    *(b"[[0, 0], [1, 0], [1, 1]]", b"[1, 0, 0, 0, 1, 0]", b'["x", "y"]', b"[0, 64]", b"[0.0]"),
)

# These replace a whole document.
WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "UTF-16": lambda raw: raw.decode().encode("utf-16"),
    "UTF-16 without mark": lambda raw: raw.decode().encode("utf-16-le"),
    "something follows": lambda raw: raw + b"{}",
    "a NUL follows": lambda raw: raw + b"\0",
    "spaces around": lambda raw: b" \t\r\n" + raw + b"\r\n\t ",
    "a form feed before": lambda raw: b"\f" + raw,
    "no-break space after": lambda raw: raw + "\u00a0".encode(),
    "17 million spaces": lambda raw: raw + b" " * 17_000_000,
    "15 million spaces": lambda raw: raw + b" " * 15_000_000,
    "in a list": lambda raw: b"[" + raw + b"]",
    "nothing": lambda raw: b"",
    "spaces alone": lambda raw: b"  \n",
    "empty object": lambda raw: b"{}",
}


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """List the path to every value in a document, except for the document itself."""
    inside: Any = ()
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in inside:
        yield (*path, key)
        yield from places(member, (*path, key))


def with_fragment(raw: bytes, place: Place, fragment: bytes) -> bytes:
    """Return the document with these bytes in place of a value."""
    document = json.loads(raw)
    owner = _owner(document, place)
    owner[place[-1]] = _HOLE
    return reseal(_dumped(document).replace(f'"{_HOLE}"'.encode(), fragment))


def without(raw: bytes, place: Place) -> bytes:
    """Return the document without one member or item."""
    document = json.loads(raw)
    del _owner(document, place)[place[-1]]
    return reseal(_dumped(document))


def with_key(raw: bytes, place: Place, key: str) -> bytes:
    """Return the document with another member beside a place; a key may occur twice."""
    document = json.loads(raw)
    owner = _owner(document, place)
    if not isinstance(owner, dict):
        owner.append(0)
        return reseal(_dumped(document))
    value = json.dumps(owner[place[-1]]).encode()
    owner[place[-1]] = _HOLE
    twice = value + b", " + json.dumps(key).encode() + b": " + value
    return reseal(_dumped(document).replace(f'"{_HOLE}"'.encode(), twice))


def renamed(raw: bytes, place: Place, key: str) -> bytes:
    """Return the document with another name for a member."""
    document = json.loads(raw)
    owner = _owner(document, place)
    if isinstance(owner, dict):
        owner[key] = owner.pop(place[-1])
    return reseal(_dumped(document))


def reseal(raw: bytes) -> bytes:
    """Set the checksum that fits the bytes, if they have a field for it."""
    zeroed = _CHECKSUM.sub(b'"checksum": "' + b"0" * 64 + b'"', raw, count=1)
    digest = sha256_bytes(zeroed).encode()
    return _CHECKSUM.sub(b'"checksum": "' + digest + b'"', zeroed, count=1)


def mutate(raw: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Make one random change of a document; return it with its name."""
    every = list(places(json.loads(raw)))
    place = every[rng.integers(len(every))]
    where, kind = ".".join(map(str, place)), rng.random()
    if kind < 0.70:
        fragment = FRAGMENTS[rng.integers(len(FRAGMENTS))]
        return f"{where} = {shortened(fragment)}", with_fragment(raw, place, fragment)
    if kind < 0.77:
        return f"{where} missing", without(raw, place)
    if kind < 0.84:
        key = str(rng.choice(["invented", "", str(place[-1]), "checksum", "lam", "[/red]"]))
        return f"{where} and {key!r}", with_key(raw, place, key)
    if kind < 0.90:
        last = str(place[-1])
        key = str(rng.choice([last.upper(), last + " ", last + "\0", "lam", "\ufeff" + last]))
        return f"{where} called {key!r}", renamed(raw, place, key)
    name = str(rng.choice(list(WRAPPINGS)))
    return name, reseal(WRAPPINGS[name](raw))


def shortened(fragment: bytes) -> str:
    """Shorten a fragment for the name of a case."""
    text = ascii(fragment)[2:-1]
    return text if len(text) <= 40 else f"{text[:30]}... ({len(fragment)} bytes)"


def _owner(document: Any, place: Place) -> Any:
    for part in place[:-1]:
        document = document[part]
    return document


def _dumped(document: Any) -> bytes:
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")
