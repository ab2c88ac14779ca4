"""Detectors, contexts, bundles and banks may be destroyed while other threads inspect.

Only what anoco_edge.h allows is tried: contexts keep what they need of a destroyed detector, the
product may be changed at any time, and another thread may destroy a context. Each case is a process
of its own, so that a crash or a deadlock is only counted.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.attack.campaign import Case, Plan
from tests.attack.fork_server import fork_server

if TYPE_CHECKING:
    from anoco_edge.native.interface import Result

NATIVE = True  # the tests build the library for it
PATIENCE = 90  # seconds, for a busy machine
THREADS = 3


def cases(plan: Plan) -> Iterator[Case]:
    """Yield every scenario, with one seed or several."""
    from anoco_edge.errors import AnocoError
    from anoco_edge.native.library import load_library

    try:
        load_library()
    except AnocoError as error:
        yield Case("the C ABI", not_executed=str(error))
        return
    with _forker(plan.folder) as ask:
        for round_ in range(plan.choose(8, 1)):
            for name in SCENARIOS:
                seed = plan.seed * 1000 + round_
                yield Case(f"{name}, seed {seed}", ask(name, seed))


@contextmanager
def _forker(folder: Path) -> Iterator[Callable[[str, int], str]]:
    log = folder / "errors.txt"
    with (
        log.open("w") as errors,
        fork_server(
            "tests.attack.lifetimes", folder, errors=errors, PYTHONFAULTHANDLER="1"
        ) as server,
    ):

        def ask(name: str, seed: int) -> str:
            start = log.stat().st_size
            try:
                wrong = str(server.ask([name, seed]))
            except RuntimeError:
                raise RuntimeError(log.read_text()) from None
            if wrong:  # with what a crash printed, since it may not come again
                wrong += "\n" + log.read_bytes()[start:].decode(errors="replace")
            return wrong

        yield ask


# ---- the process that forks


def _serve(folder: Path) -> None:
    from tiny_bundle import make_tiny_bundle, textured_picture

    from anoco_edge.teaching import NewPicture, Teacher

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bundle = folder / "line.anoco"
    child = os.fork()  # engines start threads, and these do not survive a fork
    if not child:
        make_tiny_bundle(bundle)
        teacher = Teacher.open(bundle)
        for product, seed in (("one", 1), ("two", 40)):
            pictures = [
                NewPicture.from_array(f"{k}", textured_picture(k)) for k in (seed, seed + 1)
            ]
            teacher.enroll(pictures, product)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for line in sys.stdin:
        name, seed = json.loads(line)
        answers.write(json.dumps(_fork(name, seed, bundle, folder / "said.txt")) + "\n")
        answers.flush()


def _fork(name: str, seed: int, bundle: Path, said: Path) -> str:
    said.write_text("")
    child = os.fork()
    if not child:
        code = 1
        try:
            SCENARIOS[name](bundle, random.Random(seed))
            code = 0
        except BaseException as error:  # noqa: BLE001 - told to the campaign
            said.write_text(f"{type(error).__name__}: {error}")
        if name == AT_EXIT and not code:
            sys.exit(0)  # ends the interpreter normally while its threads work
        os._exit(code)
    handle = os.pidfd_open(child)
    hung = not select.select([handle], [], [], PATIENCE)[0]
    if hung:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(handle)
    if hung:
        return f"it was still running after {PATIENCE} s: a deadlock"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return said.read_text() or f"it ended with {code}" if code else ""


# ---- a C program in ctypes


class Native:
    """One native detector of a bundle."""

    def __init__(self, path: Path, product: str = "one") -> None:
        from native_controller import image_of
        from tiny_bundle import textured_picture

        from anoco_edge.native import interface
        from anoco_edge.native.library import check, load_library
        from anoco_edge.pipeline.native import find_openvino
        from tests.attack.calls import register_backend

        self.library, self.interface = load_library(), interface
        self._check, engine = check, find_openvino()
        if engine is None:
            register_backend((path / "backbone.onnx").read_bytes())
        self.pixels = textured_picture(77)
        self.image = image_of(self.pixels)
        self.detector, self.bundle = ctypes.c_void_p(), ctypes.c_void_p()
        check(self.library, self.library.anoco_bundle_open(os.fsencode(path), self.bundle))
        options = interface.DetectorOptions(
            backend=b"openvino" if engine else b"onnx-callback",
            library=engine and os.fsencode(engine),
            product=product.encode(),
            threads=1,
        )
        status = self.library.anoco_detector_open(self.bundle, options, self.detector)
        check(self.library, status)

    def context(self) -> ctypes.c_void_p:
        made, options = ctypes.c_void_p(), self.interface.ContextOptions(threads=1)
        self._check(self.library, self.library.anoco_context_create(self.detector, options, made))
        return made

    def result(self, context: ctypes.c_void_p) -> Result:
        """Inspect; the pointers in the result are valid until the next call with the context."""
        result = self.interface.Result()
        status = self.library.anoco_inspect(context, ctypes.byref(self.image), ctypes.byref(result))
        self._check(self.library, status)
        return result

    def inspect(self, context: ctypes.c_void_p) -> tuple[str, int, float]:
        """Return product, generation and score; no other thread may use the context."""
        result = self.result(context)
        return result.product.decode(), int(result.generation), float(result.score)

    def select(self, product: str) -> None:
        status = self.library.anoco_detector_select(self.detector, product.encode())
        self._check(self.library, status)

    def destroy(self, kind: str, handle: ctypes.c_void_p) -> None:
        getattr(self.library, f"anoco_{kind}_destroy")(handle)

    def expected(self) -> dict[str, float]:
        """Return the score of each product when nothing else runs."""
        found = {}
        for product in ("two", "one"):
            self.select(product)
            context = self.context()
            found[product] = self.inspect(context)[2]
            self.destroy("context", context)
        assert found["one"] != found["two"]
        return found


class Crew:
    """Threads that repeat a task until they are stopped; the first error is raised at the end."""

    def __init__(self, work: Callable[[], None], count: int = THREADS) -> None:
        self.rounds = 0
        self.errors: list[BaseException] = []
        self._over = threading.Event()
        self._work = work
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._work()
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - raised in `stop`
            self.errors.append(error)

    def wait(self, rounds: int) -> None:
        """Wait until this many more rounds are done."""
        end = self.rounds + rounds
        while self.rounds < end and not self.errors:
            time.sleep(0.001)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        if self.errors:
            raise self.errors[0]
        assert self.rounds, "the threads did nothing"


def _own(native: Native, check: Callable[[tuple[str, int, float]], None]) -> Callable[[], None]:
    """Start threads that inspect with their own contexts, which all exist when this returns."""
    waiting = [native.context() for _ in range(THREADS)]
    mine = threading.local()

    def work() -> None:
        if not hasattr(mine, "context"):
            mine.context = waiting.pop()
        check(native.inspect(mine.context))

    return work


def _is(expected: dict[str, float]) -> Callable[[tuple[str, int, float]], None]:
    def check(found: tuple[str, int, float]) -> None:
        product, _, score = found
        assert score == expected[product], f"{score} for {product}, not {expected[product]}"

    return check


# ---- scenarios


def detector_destroyed(path: Path, rng: random.Random) -> None:
    native = Native(path)
    crew = Crew(_own(native, _is(native.expected())))
    crew.wait(rng.randrange(40))
    native.destroy("detector", native.detector)
    crew.wait(60)
    crew.stop()


def bundle_destroyed(path: Path, rng: random.Random) -> None:
    native = Native(path)
    crew = Crew(_own(native, _is(native.expected())))
    crew.wait(rng.randrange(20))
    native.destroy("bundle", native.bundle)
    context = native.context()
    native.select("two")
    native.inspect(context)
    crew.wait(20)
    crew.stop()


def product_swapped(path: Path, rng: random.Random) -> None:
    native = Native(path)
    crew = Crew(_own(native, _is(native.expected())))
    for _ in range(30):
        native.select(rng.choice(("one", "two")))
        crew.wait(rng.randrange(4))
    crew.stop()


def contexts_come_and_go(path: Path, rng: random.Random) -> None:
    native = Native(path)
    check = _is(native.expected())

    def work() -> None:
        context = native.context()
        for _ in range(rng.randrange(3)):
            check(native.inspect(context))
        native.destroy("context", context)

    crew = Crew(work)
    for _ in range(10):
        native.select(rng.choice(("one", "two")))
        crew.wait(3)
    native.select("one")
    crew.stop()
    native.destroy("detector", native.detector)


def one_context_for_all(path: Path, rng: random.Random) -> None:
    native = Native(path)
    shared = native.context()
    scores = {}
    for product in ("two", "one"):
        native.select(product)
        found = native.result(shared)
        scores[found.threshold] = found.score
    assert len(set(scores.values())) == len(scores) == 2

    def work() -> None:
        # Which product it was is told by the threshold: the name is a pointer, which another
        # thread's call with the same context may have made invalid.
        found = native.result(shared)
        assert scores[found.threshold] == found.score

    crew = Crew(work)
    for _ in range(10):
        native.select(rng.choice(("one", "two")))
        crew.wait(3)
    crew.stop()
    native.destroy("context", shared)


def destroyed_by_another_thread(path: Path, rng: random.Random) -> None:
    native = Native(path)
    check = _is(native.expected())
    made: list[ctypes.c_void_p] = []

    def work() -> None:
        context = native.context()
        check(native.inspect(context))
        made.append(context)
        if len(made) > 2:
            native.destroy("context", made.pop(0))

    crew = Crew(work)
    crew.wait(20 + rng.randrange(20))
    crew.stop()
    native.destroy("detector", native.detector)
    for context in made:
        native.destroy("context", context)


def taught_while_inspecting(path: Path, rng: random.Random) -> None:
    """Teach a copy of the bundle, since the other scenarios need the original."""
    import shutil

    from native_controller import Controller
    from tiny_bundle import textured_picture

    copy = Path(shutil.copytree(path, path.with_name(f"copy{os.getpid()}.anoco")))
    try:
        native = Native(copy)
        seen: set[int] = set()
        crew = Crew(_own(native, lambda found: seen.add(found[1])))
        controller = Controller.__new__(Controller)
        controller.library, controller._detector = native.library, native.detector
        for k in range(3):
            controller.enroll([textured_picture(500 + k)], [f"new{k}"], "one")
            native.select("one")
            crew.wait(2 * THREADS + rng.randrange(5))
        crew.stop()
        assert max(seen) == 4 and seen <= {1, 2, 3, 4}, seen
    finally:
        shutil.rmtree(copy)


def nothing_destroyed(path: Path, _: random.Random) -> None:
    native = Native(path)
    crew = Crew(_own(native, _is(native.expected())))
    for kind in ("context", "detector", "bundle", "bank", "scorer") * 20:
        native.destroy(kind, ctypes.c_void_p(None))
    crew.wait(10)
    crew.stop()


def bank_destroyed(path: Path, rng: random.Random) -> None:
    """Destroy a bank whose scorers are still used, which keep what they need of it."""
    import numpy as np

    from anoco_edge.native import interface
    from anoco_edge.native.library import check, load_library

    library = load_library()
    numbers = np.random.default_rng(rng.randrange(1000))
    features = numbers.normal(size=(500, 8)).astype(np.float32)
    query = numbers.normal(size=(64, 8)).astype(np.float32)
    bank = ctypes.c_void_p()
    options = interface.BankOptions(
        type=interface.FLOAT32,
        features=features.ctypes.data,
        rows=500,
        dim=8,
        copy=1,
        directions=-1,
    )
    check(library, library.anoco_bank_create(options, bank))
    scorers = []
    for _ in range(THREADS):
        made = ctypes.c_void_p()
        given = interface.ScorerOptions(lam=1.0, floor=0.05, threads=1)
        check(library, library.anoco_scorer_create(bank, given, made))
        scorers.append(made)
    features[:] = np.nan  # the bank has a copy
    waiting, mine, seen = list(scorers), threading.local(), set[bytes]()

    def work() -> None:
        if not hasattr(mine, "scorer"):
            mine.scorer, mine.energy = waiting.pop(), np.empty(64, np.float32)
        out = mine.energy.ctypes.data
        status = library.anoco_scorer_score(
            mine.scorer, query.ctypes.data, 64, out, None, None, None
        )
        check(library, status)
        seen.add(mine.energy.tobytes())

    crew = Crew(work)
    crew.wait(10)
    library.anoco_bank_destroy(bank)
    crew.wait(200)
    crew.stop()
    for scorer in scorers:
        library.anoco_scorer_destroy(scorer)
    assert len(seen) == 1, f"{len(seen)} different results"


def python_detector_let_go(path: Path, rng: random.Random) -> None:
    _let_go(path, rng, "python")


def native_detector_let_go(path: Path, rng: random.Random) -> None:
    _let_go(path, rng, "native")


def _let_go(path: Path, rng: random.Random, runtime: Any) -> None:
    """Drop the last reference to a detector while threads are in its `inspect`."""
    from tiny_bundle import textured_picture

    from anoco_edge.detector import Detector

    picture = textured_picture(77)
    scores = {p: Detector.open(path, p, runtime=runtime).inspect(picture).score for p in _BOTH}
    held = [Detector.open(path, "one", runtime=runtime)]

    def work() -> None:
        detector = held[0]
        result = detector.inspect(picture)
        assert result.score == scores[detector.product.name]

    crew = Crew(work)
    for _ in range(5):
        held[0] = Detector.open(path, rng.choice(_BOTH), runtime=runtime)
        gc.collect()
        crew.wait(3)
    crew.stop()


_BOTH = ("one", "two")


def program_ends(path: Path, rng: random.Random) -> None:
    """End Python while daemon threads are in the middle of a picture."""
    native = Native(path)
    crew = Crew(_own(native, lambda _: None))
    crew.wait(5 + rng.randrange(10))


AT_EXIT = "the program ends while threads inspect"
SCENARIOS: dict[str, Callable[[Path, random.Random], None]] = {
    "a detector is destroyed while its contexts inspect": detector_destroyed,
    "a bundle is destroyed while its detector works": bundle_destroyed,
    "the product is changed over while threads inspect": product_swapped,
    "contexts are made and destroyed while threads inspect": contexts_come_and_go,
    "threads share one context": one_context_for_all,
    "contexts are destroyed by another thread, after the detector": destroyed_by_another_thread,
    "a product is taught and selected while threads inspect": taught_while_inspecting,
    "NULL is destroyed while threads inspect": nothing_destroyed,
    "a bank is destroyed while its scorers score": bank_destroyed,
    "a Python detector is let go of in the middle of a picture": python_detector_let_go,
    "a native detector is let go of in the middle of a picture": native_detector_let_go,
    AT_EXIT: program_ends,
}

if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
