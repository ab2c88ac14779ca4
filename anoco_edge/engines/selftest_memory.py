"""Remembers in the user's cache which self-tests passed on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import JsonValue

from anoco_edge.bundle import Bundle
from anoco_edge.machine import cache_folder
from anoco_edge.storage.atomic_files import write_atomic
from anoco_edge.storage.hashes import sha256_bytes


class SelfTestMemory:
    """The result of one test; `about` names everything beside the bundle that it depends on."""

    def __init__(self, bundle: Bundle, about: str) -> None:
        record = bundle.file("selftest.safetensors")
        key = f"{bundle.graph_identity()}|{record.sha256}|{about}"
        self._path: Path = cache_folder() / "selftest" / f"{sha256_bytes(key.encode())}.json"

    def read(self) -> dict[str, JsonValue] | None:
        """Return what was measured when the test passed; None if it has to run."""
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None  # it is not there, or damaged
        return found if isinstance(found, dict) else None

    def write(self, measured: dict[str, JsonValue]) -> None:
        """Remember a test that passed; where the cache cannot be written, it runs again."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(measured).encode())
        except OSError:
            pass
