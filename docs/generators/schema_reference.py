"""The reference of the JSON files, written from their schemas."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from anoco_edge.bundle import evidence
from anoco_edge.bundle import schema as bundle_schema
from anoco_edge.images import contract

_GENERATOR = Path(__file__).parents[1] / "schemas" / "generate.py"

FILES = {
    "results.schema.json": "results.jsonl",
    "manifest.schema.json": "manifest.json",
    "product.schema.json": "product.json",
}
"""The heading of each schema: the file that it describes."""

ROW_FIELDS = {
    "area": "The area of the region, in pixels of the picture.",
    "box": "Left, top, right and bottom, in pixels of the picture.",
    "cpu_precision": "The precision that the backbone was computed in on a processor.",
    "drift": "What the drift watch says of the run so far; null where it is off.",
    "error": "What is wrong, in one line.",
    "evidence": "The strongest patch and the reference that it was compared with.",
    "generation": "The generation of the product that inspected the picture.",
    "id": "The number of the picture in the run, counted from 0.",
    "level": "How far the sum has come; it warns at 1.",
    "overlay": "The overlay, relative to results.jsonl.",
    "overlay_error": "Why the overlay could not be written.",
    "patch": "Row and column of the patch.",
    "peak": "The highest energy in the region.",
    "picture": "The file, or the frame of a live source that was kept, relative to results.jsonl.",
    "product": "The product that inspected the picture.",
    "ratio": "The score divided by the threshold.",
    "reference": "The name of the reference.",
    "reference_box": "The box of its patch, in pixels of the reference.",
    "reference_patch": "Row and column of its patch.",
    "regions": "The regions over the threshold, strongest first.",
    "schema": "The version of this format.",
    "score": "The score of the picture.",
    "similarity": "The cosine of the two patches.",
    "source": "The file, or the source and number of the frame.",
    "state": "Steady, or how the scores of good parts have moved; blind where all are rejected.",
    "threshold": "The threshold that was used; null where there is none.",
    "threshold_kind": "What the threshold rests on: the references, a calibration, or a person.",
    "timings": "Milliseconds by stage.",
    "verdict": "The verdict; uncalibrated where there is no threshold.",
}
"""What the fields of a row mean. The types have no room for it; a field that is not here is an
error."""


def markdown() -> str:
    """Return the tables of all fields, one file after the other."""
    lines: list[str] = []
    for name, schema in _schemas().items():
        lines += _file(name, schema)
    return "\n".join(lines)


def _schemas() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("schema_generator", _GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.schemas()
    return found


def _file(name: str, schema: dict[str, Any]) -> Iterator[str]:
    file = FILES[name]
    definitions = _first_things_first(schema)
    rows = ROW_FIELDS if file == "results.jsonl" else {}
    yield from (f"## {file}", "", f"{schema['title']}; as JSON Schema: `docs/schemas/{name}`.", "")
    if "properties" in schema:
        yield from _table(schema, file, _meanings(file.removesuffix(".json").capitalize()))
    else:
        kinds = " or ".join(_type(part, file) for part in schema["anyOf"])
        yield from (f"An object of one of these kinds: {kinds}.", "")
    for title, definition in definitions.items():
        yield from (f"### {title} {{ #{_anchor(file, title)} }}", "")
        if text := definition.get("description"):
            yield from (_sentence(text), "")
        if "properties" in definition:
            yield from _table(definition, file, rows or _meanings(title))
        else:
            yield from (f"{_type(definition, file)}{_limits(definition)}", "")


def _first_things_first(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions, those that the file itself consists of before their parts."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    first = [part["$ref"].rsplit("/", 1)[1] for part in schema.get("anyOf", ())]
    return {name: definitions[name] for name in dict.fromkeys([*first, *definitions])}


def _meanings(title: str) -> dict[str, str]:
    """Return what the fields of a type of the bundle mean: the comments beside them."""
    for module in (bundle_schema, evidence, contract):
        if isinstance(getattr(module, title, None), type):
            return _comments(module, title)
    return {}


def _comments(module: ModuleType, name: str) -> dict[str, str]:
    source = inspect.getsource(getattr(module, name))
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", source, flags=re.M))


def _table(definition: dict[str, Any], file: str, meanings: dict[str, str]) -> Iterator[str]:
    required = definition.get("required", ())
    yield from ("| field | type | |", "|---|---|---|")
    for field, schema in definition["properties"].items():
        notes = []
        if text := ROW_FIELDS[field] if meanings is ROW_FIELDS else meanings.get(field, ""):
            notes.append(_sentence(text[0].upper() + text[1:]))
        if limits := _limits(schema):
            notes.append(limits.lstrip(", ").capitalize() + ".")
        if field not in required:
            default = schema.get("default")
            has = "default" in schema and default is not None
            notes.append(f"Optional, `{json.dumps(default)}` by default." if has else "Optional.")
        yield f"| `{field}` | {_type(schema, file)} | {' '.join(notes)} |".replace("\n", " ")
    yield ""


def _type(schema: dict[str, Any], file: str) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{_anchor(file, name)})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(part, file) for part in schema[several])
    kind = schema.get("type", "anything")
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(part, file) for part in schema['prefixItems'])}]"
        return f"list of {_type(schema.get('items', {}), file)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'], file)}"
    return str(kind)


_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "pattern": "matches",
}


def _limits(schema: dict[str, Any]) -> str:
    return "".join(f", {word} `{schema[key]}`" for key, word in _LIMITS.items() if key in schema)


def _sentence(text: str) -> str:
    line = " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
    return line if line.endswith((".", ":")) else f"{line}."


def _anchor(file: str, name: str) -> str:
    return f"{file.split('.')[0]}-{name.lower()}"
