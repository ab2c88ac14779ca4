"""A cache of features: those of a window are computed once, and later read from a folder.

Deleting the folder, or a folder in it, costs nothing but time.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bundle
from anoco_edge.engines import Engine
from anoco_edge.errors import StorageError
from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.storage.hashes import sha256_bytes

Pixels = NDArray[np.uint8]
Features = NDArray[np.float32]

MEMORY_BYTES = 256_000_000  # enough for all 26 views of a picture with DINOv3-L at 768 px


@dataclass
class CacheUse:
    """How many windows were computed and loaded; a damaged entry counts as computed too."""

    computed: int = 0
    loaded: int = 0
    damaged: int = 0


class CachedEngine:
    """An `Engine` that wraps another one; the latest features also stay in memory."""

    def __init__(
        self,
        engine: Engine,
        folder: Path | None,
        key: str,
        shape: tuple[int, int],
        *,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Wrap `engine`.

        `key` names everything beside the pixels that decides the features, and `shape` is the
        shape of the features. Without a folder nothing is kept on disk. If the folder cannot be
        written, `warn` is called once.
        """
        self.name = engine.name
        self.fingerprint = engine.fingerprint
        self.use = CacheUse()
        self._engine = engine
        self._shape = shape
        self._key = sha256_bytes(key.encode())
        self._folder = None if folder is None else folder / self._key[:16]
        self._writable = folder is not None
        self._warn = warn
        self._recent: OrderedDict[str, Features] = OrderedDict()
        self._recent_bytes = 0

    def features(self, pixels: Pixels) -> Features:
        """Return the patch features of a batch of prepared pictures."""
        names = [self._name(window) for window in pixels]
        found: dict[str, Features] = {}
        absent: dict[str, int] = {}
        for row, name in enumerate(names):
            if name in found or name in absent:
                continue
            if (features := self._recall(name)) is not None:
                found[name] = features
            else:
                absent[name] = row
        if absent:
            rows = list(absent.values())
            computed = self._engine.features(np.ascontiguousarray(pixels[rows]))
            self.use.computed += len(rows)
            for name, features in zip(absent, computed, strict=True):
                found[name] = self._keep(name, features)
        return np.stack([found[name] for name in names])

    def _name(self, window: Pixels) -> str:
        digest = hashlib.sha256(f"{self._key}|{window.dtype}|{window.shape}|".encode())
        digest.update(np.ascontiguousarray(window).data)
        return digest.hexdigest()

    def _recall(self, name: str) -> Features | None:
        features = self._recent.get(name)
        if features is not None:
            self._recent.move_to_end(name)
            return features
        features = self._load(name)
        if features is not None:
            self.use.loaded += 1
            self._remember(name, features)
        return features

    def _keep(self, name: str, features: Features) -> Features:
        features = features.copy()  # a view would keep the whole batch in memory
        # Features that are not finite are not kept, so that the scorer refuses them each time.
        if np.isfinite(features).all():
            self._remember(name, features)
            self._store(name, features)
        return features

    def _remember(self, name: str, features: Features) -> None:
        self._recent[name] = features
        self._recent_bytes += features.nbytes
        while self._recent_bytes > MEMORY_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= oldest.nbytes

    def _load(self, name: str) -> Features | None:
        if self._folder is None:
            return None
        try:
            data = (self._folder / f"{name}.safetensors").read_bytes()
        except OSError:
            return None
        features = _decode(data, self._shape)
        self.use.damaged += features is None
        return features

    def _store(self, name: str, features: Features) -> None:
        if not self._writable or self._folder is None:
            return
        try:
            with writing(f"to the feature cache {self._folder}"):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_atomic(self._folder / f"{name}.safetensors", _encode(features))
        except StorageError as error:
            self._writable = False
            self._warn(f"{error.what}: features are computed, and not kept")


def cache_key(bundle: Bundle, engine: Engine) -> str:
    """Return what decides the features of a window: the graph with its weights, and the engine."""
    return f"{bundle.graph_identity()}|{engine.name}|{engine.fingerprint}"


def size_mb(folder: Path) -> float:
    """Return the size of a cache on disk in megabytes.

    >>> size_mb(Path("no-such-folder"))
    0.0
    """
    size = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # another process may have removed the file meanwhile
                size += (Path(inside) / name).stat().st_size
    return size / 1e6


def _encode(features: Features) -> bytes:
    from safetensors.numpy import save

    features = np.ascontiguousarray(features)
    # Atomic writing prevents half entries; the checksum detects those that the disk has changed.
    tensors = {"features": features, "crc32": np.array([zlib.crc32(features.data)], np.uint32)}
    data: bytes = save(tensors)
    return data


def _decode(data: bytes, shape: tuple[int, int]) -> Features | None:
    """Return the features, or None if the entry is not what was written."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)
        features, crc = tensors["features"], int(tensors["crc32"][0])
    except (SafetensorError, LookupError, ValueError):
        return None
    if features.dtype != np.float32 or features.shape != shape or zlib.crc32(features.data) != crc:
        return None
    return features if np.isfinite(features).all() else None
