"""Mutated bundles get the same verdict from both readers, without a crash or a hang."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from make_golden import CURRENT, contents

from anoco_edge.bundle import Bundle
from anoco_edge.cli.commands.info import info
from anoco_edge.errors import AnocoError
from anoco_edge.storage.hashes import sha256_bytes
from tests.attack import odd_files, odd_json
from tests.attack.campaign import Case, Plan
from tests.attack.native_reader import MOST_MEMORY, PATIENCE, NativeMissingError, NativeReader

NATIVE = True  # needs the native library

_TEMPLATES = ("everything_anoco", "views_anoco", "plain_anoco")
_PARITY = (b"[]", b"1", b'"[/red]"', b"null", b"{}", b"[1]", b'{"checks": 3}', b'["x"]', b"1e300")


@dataclass(frozen=True)
class Mutant:
    """A change of a bundle: `files` get other bytes, or `special` is applied to one file."""

    name: str
    files: dict[Path, bytes]
    special: Callable[[Path], None] | None = None


def cases(plan: Plan) -> Iterator[Case]:
    """Read every mutant with Python and with the native library, which must agree."""
    native = None
    try:
        native = NativeReader()
    except NativeMissingError as why:
        yield Case("the native reader", not_executed=str(why))
    bundles = [Path(shutil.copytree(CURRENT / t, plan.folder / t)) for t in _TEMPLATES]
    rng = plan.rng()
    try:
        for path in bundles:
            whole = json.loads(json.dumps(contents(path)))
            yield _tried(path, Mutant("as it is", {}), native, expected=whole)
            for mutant in _mutants(path, rng, plan):
                yield _tried(path, mutant, native)
            for mutant in _links(path, rng, plan.choose(12, 2)):
                yield _tried(path, mutant, native, unread=whole)
    finally:
        if native is not None:
            native.close()


# ---- what is changed


def _mutants(path: Path, rng: np.random.Generator, plan: Plan) -> Iterator[Mutant]:
    if path.name == _TEMPLATES[0]:
        yield from _reported(path)
    for _ in range(plan.choose(220, 4)):
        yield _odd_document(path, rng)
    for _ in range(plan.choose(25, 2)):
        yield _odd_parity(path, rng)
    for _ in range(plan.choose(90, 4)):
        yield _odd_tensors(path, rng)
    for _ in range(plan.choose(25, 2)):
        yield _odd_bytes(path, rng)
    for _ in range(plan.choose(15, 1)):
        yield _odd_place(path, rng)
    if list(path.glob("products/*/mask-*")):
        for _ in range(plan.choose(120, 6)):
            yield _odd_mask(path, rng)


def _reported(path: Path) -> Iterator[Mutant]:
    """Mutants that one of the readers once accepted by mistake."""
    for file in (Path("manifest.json"), Path("products/größe/product.json")):
        raw = (path / file).read_bytes()
        number = ("input", "width") if file.name == "manifest.json" else ("generation",)
        text = ("backbone", "id") if file.name == "manifest.json" else ("change",)
        for place, fragment in (
            *((("schema_version",), f) for f in (b"true", b"1.0", b"0")),
            *((number, f) for f in (b"true", b"NaN", b"Infinity", b"9223372036854775808")),
            *(
                (text, f)
                for f in (b'"[/red]"', b'"\\ud800"', b"[" * 100_000, b"[" * 65 + b"]" * 65)
            ),
        ):
            name = f"{file.name}: {'.'.join(place)} = {odd_json.shortened(fragment)}"
            yield Mutant(name, {file: odd_json.with_fragment(raw, place, fragment)})
        yield Mutant(f"{file.name}: a key twice", {file: odd_json.with_key(raw, text, text[-1])})
        mark = odd_json.reseal(b"\xef\xbb\xbf" + raw)
        yield Mutant(f"{file.name}: a byte order mark", {file: mark})
    tiles = {"width": 32000, "height": 32000, "columns": [], "rows": []}
    tiles["columns"] = tiles["rows"] = list(range(0, 32000, 32))
    product = (path / "products/größe/product.json").read_bytes()
    many = odd_json.with_fragment(product, ("tiles",), json.dumps(tiles).encode())
    yield Mutant("1000 x 1000 tiles", {Path("products/größe/product.json"): many})


def _documents(path: Path) -> list[Path]:
    found = [p for p in path.rglob("*.json") if not p.name.startswith(".")]
    return sorted(p.relative_to(path) for p in found)


def _odd_document(path: Path, rng: np.random.Generator) -> Mutant:
    file = odd_files.pick(rng, _documents(path))
    name, raw = odd_json.mutate((path / file).read_bytes(), rng)
    return Mutant(f"{file}: {name}", {file: raw})


def _odd_parity(path: Path, rng: np.random.Generator) -> Mutant:
    """Mutants of the parity report, which the command line prints."""
    report: dict[str, Any] = {
        "against": "torch",
        "precision": "fp16",
        "patches": 3,
        "checks": [{"runtime": "x", "measured": {}, "largest": {}}],
        "limits": {},
        "int8": {"pictures": [], "enough_pictures": 3, "layers": {}, "halves": {}, "left_out": []},
        "device": "x",
    }
    raw = (path / "manifest.json").read_bytes()
    full = odd_json.with_fragment(raw, ("parity",), json.dumps(report).encode())
    every = [p for p in odd_json.places(json.loads(full)) if p[0] == "parity"]
    place = odd_files.pick(rng, every)
    fragment = odd_files.pick(rng, (*_PARITY, *odd_json.FRAGMENTS[:20]))
    name = f"{'.'.join(map(str, place))} = {odd_json.shortened(fragment)}"
    return Mutant(name, {Path("manifest.json"): odd_json.with_fragment(full, place, fragment)})


def _odd_tensors(path: Path, rng: np.random.Generator) -> Mutant:
    file = odd_files.pick(rng, sorted(path.rglob("*.safetensors"))).relative_to(path)
    kind = odd_files.pick(rng, odd_files.TENSORS)
    data = odd_files.TENSORS[kind]((path / file).read_bytes(), rng)
    return Mutant(f"{file}: {kind}", _recorded(path, file, data))


def _odd_mask(path: Path, rng: np.random.Generator) -> Mutant:
    file = next(path.glob("products/*/mask-*")).relative_to(path)
    kind = odd_files.pick(rng, odd_files.MASKS)
    data = odd_files.MASKS[kind]((path / file).read_bytes(), rng)
    return Mutant(f"{file}: {kind}", _recorded(path, file, data))


def _odd_bytes(path: Path, rng: np.random.Generator) -> Mutant:
    file = odd_files.pick(rng, sorted(p for p in path.rglob("*") if p.is_file())).relative_to(path)
    kind = odd_files.pick(rng, odd_files.BYTES)
    data = odd_files.BYTES[kind]((path / file).read_bytes(), rng)
    if file.suffix == ".json":
        sealed = rng.random() < 0.7
        return Mutant(f"{file}: {kind}", {file: odd_json.reseal(data) if sealed else data})
    if rng.random() < 0.3:
        return Mutant(f"{file}: {kind}, not recorded", {file: data})
    return Mutant(f"{file}: {kind}", _recorded(path, file, data))


def _recorded(path: Path, file: Path, data: bytes) -> dict[Path, bytes]:
    """Change a file, and update its hash in every document that records it."""
    old, size = sha256_bytes((path / file).read_bytes()), (path / file).stat().st_size
    changed = {file: data}
    for document in _documents(path):
        raw = (path / document).read_bytes()
        if old.encode() in raw:
            value = json.loads(raw)
            _replace_record(value, old, sha256_bytes(data), size, len(data))
            text = json.dumps(value, indent=1, ensure_ascii=False).encode()
            changed[document] = odd_json.reseal(text)
    return changed


def _replace_record(value: Any, old: str, new: str, size: int, length: int) -> None:
    if isinstance(value, dict) and (value.get("sha256"), value.get("size")) == (old, size):
        value.update(sha256=new, size=length)
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _replace_record(inner, old, new, size, length)


def _odd_place(path: Path, rng: np.random.Generator) -> Mutant:
    """Mutants in which a file is missing or a folder."""
    file = odd_files.pick(rng, sorted(p for p in path.rglob("*") if p.is_file()))
    kind = odd_files.pick(rng, ("missing", "a folder"))

    def special(target: Path) -> None:
        target.unlink()
        if kind == "a folder":
            target.mkdir()

    return Mutant(f"{file.relative_to(path)} is {kind}", {file.relative_to(path): b""}, special)


def _links(path: Path, rng: np.random.Generator, count: int) -> Iterator[Mutant]:
    """Mutants with a link to the same content, inside or outside, or a pipe without a writer."""
    read = [
        p
        for p in path.rglob("*")
        if p.is_file() and p.parent.name not in ("history", "calibration")
    ]
    for _ in range(count):
        file = odd_files.pick(rng, sorted(read))
        kind = odd_files.pick(rng, ("link inside", "link outside", "pipe"))

        def special(target: Path, kind: str = kind) -> None:
            if kind == "pipe":
                target.unlink()
                os.mkfifo(target)
                return
            other = (
                target.with_name("moved") if kind == "link inside" else path.with_suffix(".moved")
            )
            target.rename(other)
            target.symlink_to(other if kind == "link outside" else other.name)

        yield Mutant(
            f"{file.relative_to(path)} is a {kind}", {file.relative_to(path): b""}, special
        )


# ---- what the readers make of it


def _tried(
    path: Path,
    mutant: Mutant,
    native: NativeReader | None,
    *,
    expected: dict[str, Any] | None = None,
    unread: dict[str, Any] | None = None,
) -> Case:
    """Read one mutant; `expected` must be read, and `unread` must not."""
    with _changed(path, mutant):
        ours, wrong = _python(path)
        theirs: dict[str, Any] | str = ours
        if native is not None and not wrong:
            try:
                theirs = native.read(path)
            except RuntimeError as error:
                wrong = f"native: {error}"
    name = f"{path.name}/{mutant.name}"
    if not wrong and type(ours) is not type(theirs):
        wrong = f"Python: {_verdict(ours)}; native: {_verdict(theirs)}"
    if not wrong and isinstance(ours, dict) and ours != theirs:
        wrong = "both accept it and read different things"
    if not wrong and expected is not None and ours != expected:
        wrong = f"{_verdict(ours)}, not read as it was written"
    if not wrong and unread is not None and ours == unread:
        wrong = "read all the same"
    return Case(name, wrong)


def _verdict(found: dict[str, Any] | str) -> str:
    return f"refused ({found[:200]})" if isinstance(found, str) else "accepted"


@contextlib.contextmanager
def _changed(path: Path, mutant: Mutant) -> Iterator[None]:
    before = {file: (path / file).read_bytes() for file in mutant.files}
    try:
        for file, data in mutant.files.items():
            if mutant.special is None:
                (path / file).write_bytes(data)
            else:
                mutant.special(path / file)
        yield
    finally:
        for file, data in before.items():
            target = path / file
            if target.is_dir() and not target.is_symlink():
                target.rmdir()
            target.unlink(missing_ok=True)
            target.with_name("moved").unlink(missing_ok=True)
            path.with_suffix(".moved").unlink(missing_ok=True)
            target.write_bytes(data)


class _HangError(BaseException):
    """Raised on a hang. It is not an Exception, so that no handler takes it for its own error."""


def _python(path: Path) -> tuple[dict[str, Any] | str, str]:
    """Read a bundle in Python; return the outcome, and what is wrong with it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: dict[str, Any] | str = ""
    wrong = ""
    try:
        with _alarm():
            found = _outcome(lambda: json.loads(json.dumps(contents(path))))
            for more in (_generations, _verified, _strangers, _shown):
                _outcome(lambda more=more: more(path))
    except _HangError:
        wrong = f"Python: no answer in {PATIENCE:.0f} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it should not have come out
        wrong = f"Python: {type(error).__name__}: {error}"[:300]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024
    if grown > MOST_MEMORY:
        wrong = wrong or f"Python: {grown} bytes"
    return found, wrong


def _outcome(work: Callable[[], Any]) -> Any:
    """Return what the call gives, or the one line with which it refuses."""
    try:
        return work()
    except AnocoError as error:
        if "\n" in str(error):
            raise ValueError(f"{error!r} is no single line") from error
        return str(error)


def _generations(path: Path) -> None:
    bundle = Bundle.open(path)
    for name in bundle.products():
        bundle.generations(name)


def _verified(path: Path) -> None:
    list(Bundle.open(path).verify())


def _strangers(path: Path) -> None:
    Bundle.open(path).strangers()


def _shown(path: Path) -> None:
    """Run `anoco-edge info` as text and as JSON."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        info(path, json_=False)
        info(path, json_=True)


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
