"""Reading and writing the JSON documents of a bundle, by one strict definition of JSON.

The native reader (runtime/src/bundle/json_read.cpp) follows the same definition: UTF-8 without a
byte order mark, no key twice, integers of 64 bits, numbers that a double holds, whole surrogate
pairs, at most 64 lists and objects inside each other, at most 16 MiB. A value of another type than
the schema asks for is refused: `true` is not a number, "1" is not 1 and 1.0 is not an integer; but
an integer may stand where a number is asked for.
"""

from __future__ import annotations

import json
import math
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from anoco_edge.bundle.checksum import is_sealed, seal
from anoco_edge.bundle.schema import SCHEMA_VERSION
from anoco_edge.errors import BundleError, StorageError

MOST_BYTES = 1 << 24  # of a document; one of thousands of pictures has one or two million
MOST_LEVELS = 64
_INTEGERS = range(-(2**63), 2**63)
_MOST_DIGITS = 20  # no integer of 64 bits has more; int() is slow for a million of them

Model = TypeVar("Model", bound=BaseModel)


def parse_json(raw: bytes, name: str) -> object:
    """Parse a JSON text; `name` is its name in errors.

    >>> parse_json(b'{"a": [1, 2.5]}', "a.json")
    {'a': [1, 2.5]}
    >>> parse_json(b'{"a": 1, "a": 2}', "a.json")
    Traceback (most recent call last):
    anoco_edge.errors.BundleError: a.json is not JSON: the key 'a' comes twice; the bundle is...
    """
    try:
        text = raw.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
        _check_levels(value)
        # JSON can escape half a surrogate pair, which no UTF-8 text can hold.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{name} is not JSON: the text is not UTF-8") from None
    except UnicodeEncodeError:
        raise BundleError(f"{name} is not JSON: half a surrogate pair") from None
    except RecursionError:
        raise BundleError(f"{name} is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise BundleError(f"{name} is not JSON: {error}") from None
    return value


def read_document(raw: bytes, model: type[Model], name: str) -> Model:
    """Read a manifest or a product from its bytes; a document that is not valid is a BundleError.

    >>> from anoco_edge.bundle.schema import Product
    >>> read_document(b"{}", Product, "product.json")
    Traceback (most recent call last):
    anoco_edge.errors.BundleError: product.json is invalid at name: Field required; the bundle...
    """
    if len(raw) > MOST_BYTES:
        raise BundleError(f"{name} has more than {MOST_BYTES} bytes")
    document = parse_json(raw, name)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is int and version > SCHEMA_VERSION:
        raise BundleError(
            f"{name} has schema version {version}, this program knows {SCHEMA_VERSION}",
            hint="update anoco-edge",
        )
    try:
        # The fields are checked before the checksum: what is wrong with a field says more than
        # that some byte was changed.
        found = model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = place_of(first["loc"])
        raise BundleError(f"{name} is invalid at {where or 'the top'}: {first['msg']}") from None
    if not is_sealed(raw):
        raise changed(name)
    return found


def place_of(location: tuple[str | int, ...]) -> str:
    """The place in a document where pydantic found an error, written as a path of keys.

    Evidence may be of several types. There pydantic adds the name of a type, which is not a key.

    >>> place_of(("threshold", "evidence", "HeldOutEvidence")), place_of(("views", 0))
    ('threshold.evidence', 'views.0')
    """
    return ".".join(str(part) for part in location if not str(part).endswith("Evidence"))


def sealed_document(model: BaseModel) -> bytes:
    """Write a manifest or a product as bytes, checksum included.

    >>> from anoco_edge.bundle.schema import Product
    >>> part = Product(name="part", generation=1, changed="today", change="made")
    >>> read_document(sealed_document(part), Product, "product.json").name
    'part'
    """
    raw = seal(model.model_dump(mode="json", by_alias=True))
    if len(raw) > MOST_BYTES:  # no reader would take it
        raise StorageError(
            f"a document of {len(raw)} bytes is too large, at most {MOST_BYTES} are read",
            hint="take fewer references or calibration pictures; nothing was changed",
        )
    return raw


def changed(name: str) -> BundleError:
    """Make the error for a file whose content differs from its recorded hash."""
    return BundleError(f"{name} is not what was written: its checksum differs")


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} comes twice")
    return members


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS or int(text) not in _INTEGERS:
        raise ValueError("an integer that 64 bits do not hold")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    vanished = value == 0 and text.lower().partition("e")[0].strip("-0.") != ""
    if vanished or not math.isfinite(value):
        raise ValueError("a number that a double does not hold")
    return value


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _check_levels(value: object) -> None:
    """Refuse a document that is nested too deeply. It is walked level by level, because recursion
    would exhaust the stack."""
    level, containers = 0, [value]
    while containers := [c for c in containers if isinstance(c, (dict, list))]:
        level += 1
        if level > MOST_LEVELS:
            raise RecursionError
        containers = [
            inner for c in containers for inner in (c.values() if isinstance(c, dict) else c)
        ]
