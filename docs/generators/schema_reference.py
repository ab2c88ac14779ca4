"""The reference of the JSON files, written from their schemas."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_GENERATOR = Path(__file__).parents[1] / "schemas" / "generate.py"

FILES = {
    "results.schema.json": "results.jsonl",
    "manifest.schema.json": "manifest.json",
    "product.schema.json": "product.json",
}
"""The heading of each schema: the file that it describes."""


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
    definitions = schema.get("$defs", {})
    yield from (f"## {file}", "", f"{schema['title']}; as JSON Schema: `docs/schemas/{name}`.", "")
    if "properties" in schema:
        yield from _table(schema, file)
    else:
        kinds = " or ".join(_type(part, file) for part in schema["anyOf"])
        yield from (f"An object of one of these kinds: {kinds}.", "")
    for title, definition in definitions.items():
        yield from (f"### {title} {{ #{_anchor(file, title)} }}", "")
        if text := definition.get("description"):
            yield from (_sentence(text), "")
        if "properties" in definition:
            yield from _table(definition, file)
        else:
            yield from (f"{_type(definition, file)}{_limits(definition)}", "")


def _table(definition: dict[str, Any], file: str) -> Iterator[str]:
    required = definition.get("required", ())
    yield from ("| field | type | |", "|---|---|---|")
    for field, schema in definition["properties"].items():
        notes = [_sentence(schema["description"])] if "description" in schema else []
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
