"""Opening and checking a bundle: its manifest, its backbone, and its products with their banks."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from anoco_edge.bundle.bank import Bank, BankIndex
from anoco_edge.bundle.baseline import BaselineGrid
from anoco_edge.bundle.documents import MOST_BYTES, Model, changed, parse_json, read_document
from anoco_edge.bundle.graph_file import check_graph
from anoco_edge.bundle.schema import (
    FileRecord,
    Manifest,
    Product,
)
from anoco_edge.bundle.signatures.names import is_signature_file
from anoco_edge.errors import BundleError, StorageError, UsageError
from anoco_edge.storage.beneath import Directory, read_below
from anoco_edge.storage.hashes import sha256_bytes, sha256_stream
from anoco_edge.storage.locks import LOCK
from anoco_edge.storage.staging import complete_replacement, sweep_stagings

if TYPE_CHECKING:
    from anoco_edge.bundle.signatures.commits import CommitSigner

SUFFIX = ".anoco"
GRAPH = "backbone.onnx"
PROMPTS = "prompts.safetensors"
"""The features of texts about named objects, which a bundle may have; no detector reads them."""
LARGE_GRAPH = 256 * 2**20  # bytes; a larger graph is not held in memory beside the engine's copy
DEFAULT_PRODUCT = "default"
_NUMBERED = re.compile(r"(?:product|bank)-([0-9]+)\.(?:json|safetensors)")


class Bundle:
    """A bundle: a directory `NAME.anoco` with one backbone and any number of products.

    >>> Bundle.open("missing.anoco")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: there is no bundle at missing.anoco; make one with: ...
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.signer: CommitSigner | None = None
        """What signs every change that is committed through this object."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Read the manifest and check that every file it names is there with its size."""
        root = Path(path)
        if not root.exists():
            complete_replacement(root)  # for a process that was killed while it replaced a bundle
        if not root.is_dir():
            raise _no_bundle(root)
        with _reading(root), Directory.open(root) as top:
            if not top.exists("manifest.json"):
                raise BundleError(
                    f"{root} has no manifest.json, so it is not a bundle",
                    hint="name a bundle, or copy this one again if it was one",
                )
        bundle = cls(root, read_sealed(root / "manifest.json", Manifest, root))
        for record in bundle.manifest.files:
            bundle.locate(record)
        return bundle

    @property
    def name(self) -> str:
        """The name of the bundle's directory without its suffix."""
        return self.path.name.removesuffix(SUFFIX)

    def locate(self, record: FileRecord, folder: Path | None = None) -> Path:
        """The path of a recorded file. A missing file, a link or another size is an error."""
        with self._opened(record, folder):
            return (folder or self.path) / record.path

    def read(self, record: FileRecord, folder: Path | None = None) -> bytes:
        """Read a recorded file and check its hash."""
        with self._opened(record, folder) as stream:
            data = stream.read()
        if sha256_bytes(data) != record.sha256:
            raise changed(str((folder or self.path) / record.path))
        return data

    @contextlib.contextmanager
    def _opened(self, record: FileRecord, folder: Path | None) -> Iterator[BinaryIO]:
        """Open a recorded file without following links, and check its size."""
        path = (folder or self.path) / record.path
        with _reading(path), Directory.open(self.path) as top:
            try:
                stream = top.open_file(self._below(path))
            except FileNotFoundError:
                raise _missing(path) from None
            with stream:
                size = os.fstat(stream.fileno()).st_size
                if size != record.size:
                    raise BundleError(
                        f"{path} has {size} bytes instead of {record.size}",
                    )
                yield stream

    def _below(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    @contextlib.contextmanager
    def _folder(self, path: Path) -> Iterator[Directory | None]:
        """Open a folder of the bundle to read it; None where there is none."""
        with _reading(path), Directory.open(self.path) as top:
            try:
                opened = top.folder(self._below(path))
            except FileNotFoundError:
                yield None
                return
            with opened:
                yield opened

    def file(self, name: str) -> FileRecord:
        """The record of one of the bundle's immutable files."""
        for record in self.manifest.files:
            if record.path == name:
                return record
        raise BundleError(
            f"{self.path / 'manifest.json'} does not list {name}",
            hint="the bundle is incomplete: export it again",
        )

    # ---- the backbone

    def graph_files(self) -> tuple[FileRecord, ...]:
        """The records of backbone.onnx and, for a graph over 2 GB, of its weights beside it."""
        beside = (r for r in self.manifest.files if _holds_weights(r.path))
        return (self.file(GRAPH), *beside)

    def graph_identity(self) -> str:
        """The hashes of graph and weights; a self-test or a plan is valid for these only."""
        return "|".join(record.sha256 for record in self.graph_files())

    def graph(self) -> bytes | Path:
        """The graph for an engine to open: its bytes, or its path where it is large or has its
        weights in a second file.

        The hashes are checked, and that the graph names no other file.
        """
        record, *data = self.graph_files()
        if data or record.size > LARGE_GRAPH:
            return self.graph_file()
        graph = self.read(record)
        self._check_graph(graph)
        return graph

    def graph_file(self) -> Path:
        """The path of the graph, checked in the same way, for what should not hold it in memory."""
        graph, *_ = (self._verified(part, self.path) for part in self.graph_files())
        self._check_graph(graph)
        return graph

    def _check_graph(self, graph: bytes | Path) -> None:
        _, *data = self.graph_files()
        sizes = {part.path: part.size for part in data}
        check_graph(graph, str(self.path / GRAPH), self.manifest.input, sizes)

    # ---- products

    def product_folder(self, name: str) -> Path:
        """The folder of a product, whether it exists or not."""
        return self.path / "products" / name

    def products(self) -> list[str]:
        """The names of the products, sorted."""
        with self._folder(self.path / "products") as folder:
            if folder is None:
                return []
            there = [name for name in folder.names() if folder.holds_folder(name)]
            return [name for name in there if folder.exists(f"{name}/product.json")]

    def product(self, name: str | None = None) -> Product:
        """Read a product by its name; without a name, the only product of the bundle."""
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
                    hint="say which with `product`",
                )
            name = names[0]
        if name not in names:
            known = f"it has: {', '.join(names)}" if names else "it has none yet"
            raise UsageError(f"{self.path} has no product {name!r}", hint=known)
        product = read_sealed(self.product_folder(name) / "product.json", Product, self.path)
        if product.name != name:
            path = self.product_folder(name) / "product.json"
            raise BundleError(
                f"{path} belongs to product {product.name!r}",
                hint="copy the product's folder again, under its own name",
            )
        return product

    def bank(self, product: Product) -> Bank:
        """Read the bank of a product and check that it fits product and backbone."""
        record = self._bank_record(product)
        path = self.product_folder(product.name) / record.path
        bank = Bank.from_bytes(self.read(record, path.parent), str(path))
        if bank.references.features.shape[1] != self.manifest.input.dim:
            raise BundleError(
                f"{path} holds {bank.references.features.shape[1]} features "
                f"per patch, the backbone gives {self.manifest.input.dim}",
                hint="enroll the references again",
            )
        self._check_index(bank.index, product, path)
        return bank

    def bank_index(self, product: Product) -> BankIndex:
        """Read and check where the patches of a product's bank come from, without its features."""
        record = self._bank_record(product)
        path = self.product_folder(product.name) / record.path
        with self._opened(record, path.parent) as stream:
            if sha256_stream(stream) != record.sha256:
                raise changed(str(path))
            stream.seek(0)
            index = BankIndex.from_stream(stream, record.size, str(path))
        self._check_index(index, product, path)
        return index

    def _bank_record(self, product: Product) -> FileRecord:
        if product.bank is None:
            raise BundleError(
                f"product {product.name!r} has no references",
                hint=f"teach it with: anoco-edge enroll {self.path} PICTURES",
            )
        return product.bank

    def _check_index(self, index: BankIndex, product: Product, path: Path) -> None:
        contract = self.manifest.input.tiled(product.tiles)
        own_views = min((len(r.views) for r in product.references), default=0)
        for column, end, what in (
            (index.reference, len(product.references), "references"),
            (index.view, 1 + len(product.views) + own_views, "views"),
            (index.row, contract.rows, "rows"),
            (index.col, contract.cols, "columns"),
        ):
            if len(column) and (int(column.min()) < 0 or int(column.max()) >= end):
                raise BundleError(
                    f"{path} names {what} that do not exist", hint="enroll the references again"
                )

    def baseline(self, product: Product) -> BaselineGrid | None:
        """Read the usual energy of good parts; None where the product has no baseline."""
        if product.baseline is None:
            return None
        folder, record = self.product_folder(product.name), product.baseline.file
        contract = self.manifest.input.tiled(product.tiles)
        return BaselineGrid.from_bytes(
            self.read(record, folder),
            product.baseline.sigmas,
            (contract.rows, contract.cols),
            str(folder / record.path),
        )

    def generations(self, name: str) -> list[Product]:
        """Read every generation that was not pruned, oldest first."""
        path = self.product_folder(name) / "history"
        with self._folder(path) as folder:
            names = folder.names() if folder is not None else []
        found = {n: generation_of(Path(n)) for n in names if n.startswith("product-")}
        numbers = {n: number for n, number in found.items() if number is not None}
        ordered = sorted(numbers, key=numbers.__getitem__)
        return [read_sealed(path / n, Product, self.path) for n in ordered]

    def product_contents(self, name: str) -> list[str]:
        """List every file in the folder of a product, also those that no generation names."""
        with self._folder(self.product_folder(name)) as folder:
            return folder.files() if folder is not None else []

    # ---- verification

    def verify(self) -> Iterator[Path]:
        """Check the hash of every file. Yields each path that is right; the first wrong file is an
        error."""
        self._files()  # a link anywhere is refused
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
        """Raise where a product has history but no product.json: history is only written after it,
        so the product.json was lost."""
        with self._folder(self.path / "products") as folder:
            names = folder.names() if folder is not None else []
            there = [n for n in names if folder is not None and folder.holds_folder(n)]
        known = self.products()
        for name in there:
            if name not in known and self.generations(name):
                raise _missing(self.product_folder(name) / "product.json")

    def _files(self) -> list[Path]:
        with _reading(self.path), Directory.open(self.path) as top:
            return [self.path / name for name in top.files()]

    def strangers(self) -> list[Path]:
        """List the files that no document of the bundle names: a killed process left them, or a
        person put them there."""
        known = {self.path / "manifest.json"}
        known |= {self.path / record.path for record in self.manifest.files}
        for name in self.products():
            folder = self.product_folder(name)
            known.add(folder / "product.json")
            for product in (self.product(name), *self.generations(name)):
                known.add(folder / history_path(product.generation))
                known |= {folder / record.path for record in product_files(product)}
        known |= {path for path in self._files() if is_signature_file(self._below(path))}
        return sorted(p for p in self._files() if p.name != LOCK and p not in known)

    def _verified(self, record: FileRecord, folder: Path) -> Path:
        path = folder / record.path
        with self._opened(record, folder) as stream:
            digest = sha256_stream(stream)
        if digest != record.sha256:
            raise changed(str(path))
        return path

    # ---- changes

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[ProductPlace]:
        """Open the folder of a product to change it. The caller holds its lock.

        It is an error when another process replaced the bundle meanwhile (`export --overwrite`),
        because the change belongs to the old bundle.
        """
        with Directory.open(self.path) as top:
            if _checksum(top.read("manifest.json", MOST_BYTES)) != self.manifest.checksum:
                raise _replaced(self.path)
            with (
                top.folder("products", create=True) as products,
                products.folder(name, create=True) as folder,
            ):
                yield ProductPlace(top, products, folder)
            with Directory.open(self.path) as now_there:
                if now_there.identity() != top.identity():
                    raise _replaced(self.path)


@dataclass(frozen=True)
class ProductPlace:
    """The open folder of a product, and the two folders above it."""

    bundle: Directory
    products: Directory
    folder: Directory


def _holds_weights(path: str) -> bool:
    """Whether a file of the manifest lies beside the graph and is named after it."""
    return path.startswith(f"{GRAPH}.") and "/" not in path


def product_files(product: Product) -> Iterator[FileRecord]:
    """Yield the record of every file that a generation of a product names."""
    yield from (reference.file for reference in product.references)
    yield from (record for record in (product.bank, product.mask) if record is not None)
    if product.baseline is not None:
        yield product.baseline.file
    if product.calibration is not None:
        yield from (p.file for p in product.calibration.pictures if p.file is not None)


def history_path(generation: int) -> str:
    """The path of a generation's document below the product's folder."""
    return f"history/product-{generation}.json"


def generation_of(path: Path) -> int | None:
    """The number in `product-7.json` or `bank-7.safetensors`; None for any other name.

    >>> generation_of(Path("bank-7.safetensors")), generation_of(Path("bank-copy.safetensors"))
    (7, None)
    """
    number = _NUMBERED.fullmatch(path.name)
    return int(number[1]) if number else None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a BundleError that names the path."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BundleError(
            f"{path} cannot be read: {reason}", hint="check the permissions and the disk"
        ) from None


def read_sealed(path: Path, model: type[Model], root: Path) -> Model:
    """Read a manifest or a product of the bundle at `root`; one that is not valid is a
    BundleError."""
    with _reading(path):
        raw = read_below(root, path, MOST_BYTES)
    return read_document(raw, model, str(path))


def _no_bundle(path: Path) -> BundleError:
    if path.exists():
        hint = "it is a file, and a bundle is a folder"
    elif path.suffix != SUFFIX:
        hint = f"the name of a bundle ends in {SUFFIX}"
    elif not path.parent.is_dir():
        hint = f"there is no folder {path.parent} either"
    else:
        hint = f"make one with: anoco-edge enroll {path} PICTURES"
    return BundleError(f"there is no bundle at {path}", hint=hint)


def _missing(path: Path) -> BundleError:
    return BundleError(f"{path} is missing", hint="the bundle is incomplete: copy it again")


def _checksum(raw: bytes) -> str:
    """The checksum that a document carries; empty if the bytes are not a document."""
    try:
        document = parse_json(raw, "manifest.json")
    except BundleError:
        return ""
    return str(document.get("checksum", "")) if isinstance(document, dict) else ""


def _replaced(path: Path) -> StorageError:
    return StorageError(
        f"{path} was replaced by another process meanwhile",
        hint="the new bundle was not changed: do it again if it still holds",
    )


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def find_bundles(folder: Path = Path()) -> list[Path]:
    """List the bundles in a folder, which is the current directory by default, sorted."""
    sweep_stagings(folder)  # that of a killed process may hold the bundle that it was replacing
    return sorted(p for p in folder.glob(f"*{SUFFIX}") if (p / "manifest.json").is_file())


def find_bundle(folder: Path = Path()) -> Path:
    """Find the only bundle in a folder, which is the current directory by default."""
    found = find_bundles(folder)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            "no bundle was named and there is none in this directory",
            hint="name one, or make one with: anoco-edge enroll line.anoco PICTURES",
        )
    names = ", ".join(p.name for p in found)
    raise UsageError(f"there are several bundles here: {names}", hint="name the one you mean")
