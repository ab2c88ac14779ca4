"""Write the JSON schemas of the files that anoco-edge leaves behind.

    python docs/schemas/generate.py

writes them beside this script: results.schema.json (a line of results.jsonl), manifest.schema.json
and product.schema.json (the documents of a bundle). They are made from the types in the code, and a
test compares them with what this script would write.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from anoco_edge.bundle.schema import Manifest, Product
from anoco_edge.results.rows import FailedJson, ResultJson

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, JsonSchemaValue]:
    """Return each schema by the name of its file."""
    kinds: dict[str, tuple[str, TypeAdapter[object]]] = {
        "results.schema.json": ("A line of results.jsonl", TypeAdapter(ResultJson | FailedJson)),
        "manifest.schema.json": ("manifest.json of a bundle", TypeAdapter(Manifest)),
        "product.schema.json": ("product.json of a product", TypeAdapter(Product)),
    }
    found = {}
    for name, (title, adapter) in kinds.items():
        schema = adapter.json_schema(by_alias=True, mode="validation")
        found[name] = {"$schema": DIALECT, **schema, "title": title}
    return found


def main() -> None:
    """Write all schemas."""
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        (Path(__file__).parent / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
