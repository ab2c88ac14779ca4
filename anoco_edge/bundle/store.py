"""Opening, checking and creating bundles. See DESIGN section 4 for the layout."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from anoco_edge.bundle.bank import Bank
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.checksum import is_sealed, seal, sha256_bytes, sha256_file
from anoco_edge.bundle.disk import LOCK, TEMPORARY, sync_folder, writing
from anoco_edge.bundle.graph_file import check_graph
from anoco_edge.bundle.schema import (
    SCHEMA_VERSION,
    Backbone,
    FileRecord,
    InputContract,
    Manifest,
    Plan,
    Product,
)
from anoco_edge.errors import BundleError, StorageError, UsageError

SUFFIX = ".anoco"
GRAPH = "backbone.onnx"
LARGE_GRAPH = 256 * 2**20  # bytes; larger ones are not held in memory beside the engine's own copy
DEFAULT_PRODUCT = "default"
_NUMBERED = re.compile(r"(?:product|bank)-([0-9]+)\.(?:json|safetensors)")
_Model = TypeVar("_Model", bound=BaseModel)


class Bundle:
    """A `NAME.anoco` directory: one backbone, many products.

    >>> Bundle.open("missing.anoco")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: there is no bundle at missing.anoco; make one with: ...
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Read the manifest and check that every file it names is there with its size."""
        root = Path(path)
        if not (root / "manifest.json").is_file():
            if root.is_dir():
                raise BundleError(f"{root} has no manifest.json, so it is not a bundle")
            raise BundleError(
                f"there is no bundle at {root}", hint="make one with: anoco-edge export"
            )
        bundle = cls(root, read_sealed(root / "manifest.json", Manifest))
        for record in bundle.manifest.files:
            bundle.locate(record)
        return bundle

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    def locate(self, record: FileRecord, folder: Path | None = None) -> Path:
        """The path of a recorded file; outside, missing or of another size is an error."""
        path = (folder or self.path) / record.path
        with _reading(path):
            if not path.is_file():
                raise _missing(path)
            if not path.resolve().is_relative_to(self.path.resolve()):
                raise BundleError(f"{path} points outside the bundle")
            size = path.stat().st_size
        if size != record.size:
            raise BundleError(
                f"{path} has {size} bytes instead of {record.size}",
                hint="the bundle is damaged: copy or make it again",
            )
        return path

    def read(self, record: FileRecord, folder: Path | None = None) -> bytes:
        """The content of a recorded file, its hash checked."""
        path = self.locate(record, folder)
        with _reading(path):
            data = path.read_bytes()
        if sha256_bytes(data) != record.sha256:
            raise _changed(path)
        return data

    def file(self, name: str) -> FileRecord:
        """The record of one of the bundle's immutable files."""
        for record in self.manifest.files:
            if record.path == name:
                return record
        raise BundleError(f"{self.path / 'manifest.json'} does not list {name}")

    # ---- the backbone

    def graph_files(self) -> tuple[FileRecord, ...]:
        """backbone.onnx, and backbone.onnx.data, which holds the weights of graphs over 2 GB."""
        beside = (r for r in self.manifest.files if _holds_weights(r.path))
        return (self.file(GRAPH), *beside)

    def graph_identity(self) -> str:
        """Graph and weights by their hashes: what was tested or built holds for these only."""
        return "|".join(record.sha256 for record in self.graph_files())

    def graph(self) -> bytes | Path:
        """What to open: the bytes, or a path where they are many or in two files.

        Hashes are checked, and that the graph reaches nothing outside of these files.
        """
        record, *data = self.graph_files()
        graph: bytes | Path
        if not data and record.size <= LARGE_GRAPH:
            graph = self.read(record)
        else:
            graph, *_ = (self._graph_part(part) for part in (record, *data))
        self._check_graph(graph)
        return graph

    def _check_graph(self, graph: bytes | Path) -> None:
        _, *data = self.graph_files()
        sizes = {part.path: part.size for part in data}
        check_graph(graph, str(self.path / GRAPH), self.manifest.input, sizes)

    def _graph_part(self, record: FileRecord) -> Path:
        path = self._verified(record, self.path)
        if path.is_symlink():  # an engine may look for weights beside what it points at
            raise BundleError(f"{path} is a link", hint="put the file itself in its place")
        return path

    # ---- products

    def product_folder(self, name: str) -> Path:
        return self.path / "products" / name

    def products(self) -> list[str]:
        """Names of the products, sorted."""
        folder = self.path / "products"
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if (p / "product.json").is_file())

    def product(self, name: str | None = None) -> Product:
        """A product by name; without one, the only product there is."""
        names = self.products()
        if name is None:
            if not names:
                raise BundleError(
                    f"{self.path} has no references yet",
                    hint=f"teach it with: anoco-edge enroll {self.path} PICTURES",
                )
            if len(names) > 1:
                raise UsageError(
                    f"{self.path} has several products: {', '.join(names)}",
                    hint="say which with --product",
                )
            name = names[0]
        if name not in names:
            known = f"it has: {', '.join(names)}" if names else "it has none yet"
            raise UsageError(f"{self.path} has no product {name!r}", hint=known)
        product = read_sealed(self.product_folder(name) / "product.json", Product)
        if product.name != name:
            path = self.product_folder(name) / "product.json"
            raise BundleError(f"{path} belongs to product {product.name!r}")
        return product

    def bank(self, product: Product) -> Bank:
        """The bank of a product, checked."""
        if product.bank is None:
            raise BundleError(
                f"product {product.name!r} has no references",
                hint=f"teach it with: anoco-edge enroll {self.path} PICTURES",
            )
        folder = self.product_folder(product.name)
        bank = Bank.from_bytes(self.read(product.bank, folder), str(folder / product.bank.path))
        if bank.references.features.shape[1] != self.manifest.input.dim:
            raise BundleError(
                f"{folder / product.bank.path} holds {bank.references.features.shape[1]} numbers "
                f"a patch, the backbone gives {self.manifest.input.dim}",
                hint="enrol the references again",
            )
        contract, path = self.manifest.input.canvas(product.tiles), folder / product.bank.path
        own_views = min((len(r.views) for r in product.references), default=0)
        for column, end, what in (
            (bank.reference, len(product.references), "references"),
            (bank.view, 1 + len(product.views) + own_views, "views"),
            (bank.row, contract.rows, "rows"),
            (bank.col, contract.cols, "columns"),
        ):
            if int(column.min()) < 0 or int(column.max()) >= end:
                raise BundleError(f"{path} names {what} that do not exist", hint="enrol again")
        return bank

    def baseline(self, product: Product) -> BaselineGrid | None:
        """The energy that good parts usually have at each place, if the product takes it off."""
        if product.baseline is None:
            return None
        folder, record = self.product_folder(product.name), product.baseline.file
        contract = self.manifest.input.canvas(product.tiles)
        return BaselineGrid.from_bytes(
            self.read(record, folder),
            product.baseline.sigmas,
            (contract.rows, contract.cols),
            str(folder / record.path),
        )

    def generations(self, name: str) -> list[Product]:
        """Every generation that is still there, oldest first."""
        folder = self.product_folder(name) / "history"
        found = {p: generation_of(p) for p in folder.glob("product-*.json")}
        numbers = {p: number for p, number in found.items() if number is not None}
        return [read_sealed(path, Product) for path in sorted(numbers, key=numbers.__getitem__)]

    # ---- verification

    def verify(self) -> Iterator[Path]:
        """Re-hash everything, yielding each path that is right; the first wrong one raises."""
        yield self.path / "manifest.json"
        for record in self.manifest.files:
            yield self._verified(record, self.path)
        self._check_graph(self.path / GRAPH)
        for name in self.products():
            folder = self.product_folder(name)
            current = self.product(name)
            yield folder / "product.json"
            self.bank(current) if current.bank is not None else None
            seen: set[str] = set()
            generations = self.generations(name)
            kept = {g.generation for g in generations}
            if current.generation not in kept and current.parent is not None:
                raise _missing(folder / history_path(current.generation))
            yield from (folder / history_path(g.generation) for g in generations)
            for product in (current, *generations):
                for record in product_files(product):
                    if record.path not in seen:
                        seen.add(record.path)
                        yield self._verified(record, folder)
        self._check_lost_products()

    def _check_lost_products(self) -> None:
        """History is first written when there is a product.json: without one it was lost."""
        for history in sorted(self.path.glob("products/*/history")):
            name = history.parent.name
            if name not in self.products() and self.generations(name):
                raise _missing(history.parent / "product.json")

    def strangers(self) -> list[Path]:
        """Files that nothing in the bundle speaks of (left by a kill, or put there by hand)."""
        known = {self.path / "manifest.json"}
        known |= {self.path / record.path for record in self.manifest.files}
        for name in self.products():
            folder = self.product_folder(name)
            known.add(folder / "product.json")
            for product in (self.product(name), *self.generations(name)):
                known.add(folder / history_path(product.generation))
                known |= {folder / record.path for record in product_files(product)}
        files = (p for p in self.path.rglob("*") if p.is_file() and p.name != LOCK)
        return sorted(p for p in files if p not in known)

    def _verified(self, record: FileRecord, folder: Path) -> Path:
        path = self.locate(record, folder)
        with _reading(path):
            digest = sha256_file(path)
        if digest != record.sha256:
            raise _changed(path)
        return path


def _holds_weights(path: str) -> bool:
    """Whether a file of the manifest lies beside the graph and is named after it."""
    return path.startswith(f"{GRAPH}.") and "/" not in path


def product_files(product: Product) -> Iterator[FileRecord]:
    """Every file that a generation of a product relies on."""
    yield from (reference.file for reference in product.references)
    yield from (record for record in (product.bank, product.mask) if record is not None)
    if product.baseline is not None:
        yield product.baseline.file
    if product.calibration is not None:
        yield from (p.file for p in product.calibration.pictures if p.file is not None)


def history_path(generation: int) -> str:
    """Where a generation is kept, below the product's folder."""
    return f"history/product-{generation}.json"


def generation_of(path: Path) -> int | None:
    """The number in `product-7.json` or `bank-7.safetensors`; None for a file that is not ours.

    >>> generation_of(Path("bank-7.safetensors")), generation_of(Path("bank-copy.safetensors"))
    (7, None)
    """
    number = _NUMBERED.fullmatch(path.name)
    return int(number[1]) if number else None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A file that the operating system does not hand over is a bundle that cannot be used."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BundleError(f"{path} cannot be read: {reason}") from None


def read_sealed(path: Path, model: type[_Model]) -> _Model:
    """Read one of the two kinds of JSON document; anything odd is a BundleError."""
    try:
        raw = path.read_bytes()
        document = json.loads(raw)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be read: {error}") from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BundleError(
            f"{path} has schema version {version}, this program knows {SCHEMA_VERSION}",
            hint="update anoco-edge",
        )
    try:
        # Validated before the seal is checked: "points outside" says more than "was changed".
        parsed = model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BundleError(f"{path} is invalid at {where or 'the top'}: {first['msg']}") from None
    if not is_sealed(raw):
        raise _changed(path)
    return parsed


def _missing(path: Path) -> BundleError:
    return BundleError(f"{path} is missing", hint="the bundle is incomplete: copy it again")


def _changed(path: Path) -> BundleError:
    return BundleError(
        f"{path} is not what was written: its checksum differs",
        hint="the bundle is damaged or was edited: copy or make it again",
    )


def sealed_document(model: BaseModel) -> bytes:
    """The bytes to write for a manifest or a product."""
    document: dict[str, Any] = model.model_dump(mode="json", by_alias=True)
    return seal(document)


def now() -> str:
    """UTC, to the second, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def create_bundle(
    path: Path,
    *,
    backbone: Backbone,
    contract: InputContract,
    parity: Mapping[str, Any],
    tools: Mapping[str, str],
    files: Mapping[str, bytes | Path],
    plans: Sequence[Plan] = (),
    overwrite: bool = False,
) -> Bundle:
    """Write a new bundle without products: built beside its place, moved there by one rename.

    `files` are contents, or paths of files to move in: those too large to hold in memory.
    """
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists already", hint="choose another --out, or pass --overwrite")
    manifest = Manifest(
        created=now(),
        tools=dict(tools),
        backbone=backbone,
        input=contract,
        parity=dict(parity),
        files=tuple(_record(name, data) for name, data in sorted(files.items())),
        plans=tuple(plans),
    )
    building = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        with writing(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            for name, data in {**files, "manifest.json": sealed_document(manifest)}.items():
                target = building / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(data, Path):
                    shutil.move(data, target)
                with target.open("ab") as stream:
                    if isinstance(data, bytes):
                        stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            _replace_folder(building, path)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Bundle.open(path)


def _record(name: str, data: bytes | Path) -> FileRecord:
    if isinstance(data, bytes):
        return FileRecord(path=name, sha256=sha256_bytes(data), size=len(data))
    return FileRecord(path=name, sha256=sha256_file(data), size=data.stat().st_size)


def _replace_folder(building: Path, path: Path) -> None:
    if path.exists():
        if not (path / "manifest.json").exists() and any(path.iterdir()):
            raise StorageError(f"{path} is not a bundle, so it is not overwritten")
        old = path.with_name(f"{TEMPORARY}old-{path.name}-{os.getpid()}")
        path.rename(old)
        building.rename(path)
        shutil.rmtree(old)
    else:
        building.rename(path)
    sync_folder(path.parent)


def find_bundle(folder: Path = Path()) -> Path:
    """The one bundle in the current directory."""
    found = sorted(p for p in folder.glob(f"*{SUFFIX}") if (p / "manifest.json").is_file())
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            "no bundle was named and there is none in this directory",
            hint="name one, or make one with: anoco-edge export --backbone efficientnet-lite0",
        )
    names = ", ".join(p.name for p in found)
    raise UsageError(f"there are several bundles here: {names}", hint="name the one you mean")
