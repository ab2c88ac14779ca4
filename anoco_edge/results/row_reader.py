"""Reads the rows of results.jsonl, also those that other versions wrote.

Rows are checked by hand and not by pydantic, because the name of a file need not be UTF-8, and
pydantic refuses the surrogates that such a name has in Python.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar, get_args

from anoco_edge.drift import DriftReading
from anoco_edge.drift.readings import State
from anoco_edge.errors import UsageError
from anoco_edge.pipeline.inspection import Verdict
from anoco_edge.results.rows import (
    SCHEMA_VERSION,
    Box,
    EvidenceRow,
    FailedRow,
    Pair,
    RegionRow,
    ResultRow,
    Row,
    box,
    pair,
)
from anoco_edge.storage.regular_file import open_regular

_T = TypeVar("_T")


def read_results(path: Path) -> Iterator[Row]:
    """Yield the rows of a results.jsonl; UsageError where a line is not a row."""
    with _opened_results(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = row_from_json(json.loads(line))
            except NewerSchemaError as error:
                raise UsageError(
                    f"line {number} of {path} was written by a later version: {error}",
                    hint="update anoco-edge",
                ) from None
            except (ValueError, RecursionError):
                raise UsageError(
                    f"line {number} of {path} is not a result", hint="give a run's results.jsonl"
                ) from None
            yield row


class NewerSchemaError(ValueError):
    """The row has a schema version that this version of anoco-edge does not know."""


def row_from_json(value: object) -> Row:
    """Read an object of results.jsonl; raise ValueError if it is not a row.

    Fields that this version does not know are ignored, so that rows of later versions with the same
    schema version can be read.

    >>> row_from_json({"id": 3, "source": "a.png", "error": "a.png is empty"})
    FailedRow(id=3, source='a.png', error='a.png is empty', drift=None)
    >>> row_from_json({"id": "3"})
    Traceback (most recent call last):
        ...
    ValueError: id is '3', which is not a whole number
    """
    fields = _object(value, "the row")
    version = _get(fields, "schema", _optional(_integer))
    if version is not None and version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema {version}, where {SCHEMA_VERSION} is the latest known here")
    number = _get(fields, "id", _integer)
    drift = _get(fields, "drift", _optional(_drift_from))
    error = _get(fields, "error", _optional(_text))
    if error:
        return FailedRow(number, _get(fields, "source", _optional(_text)) or "", error, drift)
    return ResultRow(
        id=number,
        source=_get(fields, "source", _text),
        product=_get(fields, "product", _text),
        generation=_get(fields, "generation", _integer),
        score=_get(fields, "score", _number),
        threshold=_get(fields, "threshold", _optional(_number)),
        threshold_kind=_get(fields, "threshold_kind", _text),
        ratio=_get(fields, "ratio", _optional(_number)),
        verdict=_get(fields, "verdict", _verdict),
        regions=_get(fields, "regions", _regions_from),
        evidence=_get(fields, "evidence", _optional(_evidence_from)),
        timings=_get(fields, "timings", _timings),
        picture=_get(fields, "picture", _optional(_text)),
        overlay=_get(fields, "overlay", _optional(_text)),
        overlay_error=_get(fields, "overlay_error", _optional(_text)),
        drift=drift,
        cpu_precision=_get(fields, "cpu_precision", _optional(_text)),
    )


@contextmanager
def _opened_results(path: Path) -> Iterator[io.TextIOWrapper]:
    try:
        file = open_regular(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="give a run's results.jsonl"
        ) from None
    with io.TextIOWrapper(file, "utf-8", errors="surrogateescape") as stream:
        yield stream


# Each of the functions below returns a value in its type, or raises a ValueError that names the
# field that is wrong.

_Read: TypeAlias = Callable[[object, str], _T]


def _get(fields: Mapping[str, object], name: str, read: _Read[_T]) -> _T:
    return read(fields.get(name), name)


def _optional(read: _Read[_T]) -> _Read[_T | None]:
    return lambda value, name: None if value is None else read(value, name)


def _wrong(value: object, name: str, expected: str) -> ValueError:
    return ValueError(f"{name} is {repr(value)[:80]}, which is not {expected}")


def _integer(value: object, name: str) -> int:
    if type(value) is not int:  # a bool is an int for isinstance
        raise _wrong(value, name, "a whole number")
    return value


def _number(value: object, name: str) -> float:
    # The comparison also refuses NaN, infinity and integers that no float can hold.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -sys.float_info.max <= value <= sys.float_info.max
    ):
        raise _wrong(value, name, "a finite number")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, name, "a text")
    return value


def _object(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(value, name, "an object")
    return value


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise _wrong(value, name, "a list")
    return value


def _numbers(value: object, name: str, count: int) -> list[float]:
    values = [_number(item, name) for item in _list(value, name)]
    if len(values) != count:
        raise _wrong(value, name, f"a list of {count} numbers")
    return values


def _box(value: object, name: str) -> Box:
    return box(_numbers(value, name, 4))


def _patch(value: object, name: str) -> Pair:
    return pair([_integer(item, name) for item in _numbers(value, name, 2)])


def _verdict(value: object, name: str) -> Verdict:
    for verdict in get_args(Verdict):
        if value == verdict:
            return verdict  # type: ignore[no-any-return]
    raise _wrong(value, name, "a verdict")


def _drift_from(value: object, name: str) -> DriftReading:
    fields = _object(value, name)
    for state in get_args(State):
        if fields.get("state") == state:
            return DriftReading(state, _get(fields, "level", _number))
    raise _wrong(value, name, "a reading of the drift watch")


def _regions_from(value: object, name: str) -> tuple[RegionRow, ...]:
    return tuple(_region_from(item, name) for item in _list(value, name))


def _region_from(value: object, name: str) -> RegionRow:
    fields = _object(value, name)
    return RegionRow(
        box=_get(fields, "box", _box),
        area=_get(fields, "area", _number),
        peak=_get(fields, "peak", _number),
        patch=_get(fields, "patch", _patch),
    )


def _evidence_from(value: object, name: str) -> EvidenceRow:
    fields = _object(value, name)
    return EvidenceRow(
        patch=_get(fields, "patch", _patch),
        box=_get(fields, "box", _box),
        reference=_get(fields, "reference", _text),
        reference_patch=_get(fields, "reference_patch", _patch),
        reference_box=_get(fields, "reference_box", _box),
        similarity=_get(fields, "similarity", _number),
    )


def _timings(value: object, name: str) -> dict[str, float]:
    return {stage: _number(ms, name) for stage, ms in _object(value, name).items()}
