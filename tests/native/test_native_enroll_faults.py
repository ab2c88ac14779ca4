"""Teaching from C survives unstorable features, full disks, kills and two writers at once."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import time
from ctypes import c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import PATIENCE
from native_backend import CLOSE, OPEN, REQUEST, RUN, Backend
from native_controller import (
    Controller,
    Open,
    controller,
    frames,
)
from numpy.typing import NDArray
from other_process import finish, powerless, run_apart, snapshot
from safetensors.numpy import load

from anoco_edge.bundle import Bundle
from anoco_edge.detector import Detector
from anoco_edge.errors import (
    ScoringError,
)
from anoco_edge.native.library import check, load_library

pytestmark = pytest.mark.usefixtures("use_native")

__all__ = ["controller", "powerless"]  # shared fixtures, which pytest finds by these names

# ---- features, number by number


class Numbers:
    """A backend whose features are given by the test; it passes the self-test of tiny bundles."""

    def __init__(self, selftest: dict[str, NDArray[Any]]) -> None:
        self._pixels, self._known = selftest["pixels"], selftest["features"]
        self._answer = self._known
        self.next: list[NDArray[np.float32]] = []
        self.struct = Backend(
            name=b"numbers",
            open=OPEN(self._made),
            close=CLOSE(lambda _: None),
            create_request=REQUEST(lambda _e, made, _t, _s: self._make(made)),
            destroy_request=CLOSE(lambda _: None),
            run=RUN(self._run),
        )

    def _made(self, _user: Any, _model: Any, engine: int, _text: Any, _size: int) -> int:
        return self._make(ctypes.cast(engine, ctypes.POINTER(c_void_p)))

    def _make(self, made: Any) -> int:
        made[0] = 1
        return 0

    def _run(self, _request: Any, pixels: int, features: Any, _text: Any, _size: int) -> int:
        given = np.frombuffer(ctypes.string_at(pixels, self._pixels.size), np.uint8)
        known = np.array_equal(given, self._pixels.reshape(-1))
        found = self._known if known else self.next.pop(0)
        self._answer = np.ascontiguousarray(found, np.float32)
        features[0] = self._answer.ctypes.data
        return 0


_NUMBERS: list[Numbers] = []  # a backend is registered once and never removed


@pytest.fixture
def numbers(tiny_bundle: Bundle) -> Numbers:
    if not _NUMBERS:
        _NUMBERS.append(Numbers(load((tiny_bundle.path / "selftest.safetensors").read_bytes())))
        library = load_library()
        check(library, library.anoco_register_backend(ctypes.byref(_NUMBERS[0].struct)))
    _NUMBERS[0].next.clear()
    return _NUMBERS[0]


def _features(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(16, 8)).astype(np.float32)


def test_float16_banks_are_rounded_as_numpy_rounds(
    tiny_bundle: Bundle, controller: Open, numbers: Numbers
) -> None:
    """The values include subnormal ones below 2^-14, ties both ways, and the largest that fit."""
    rng = np.random.default_rng(1)
    exponents = rng.integers(-26, 15, (2, 16, 8))
    grids = (rng.uniform(-2, 2, (2, 16, 8)) * 2.0**exponents).astype(np.float32)
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[1:] + halves[:-1]) / 2  # exact in float32
    grids[0].reshape(-1)[:60] = rng.choice(middles, 60)
    grids[0].reshape(-1)[60:64] = [65519.996, -65504, 2**-25, -(2**-24)]
    numbers.next = [*grids]
    controller(tiny_bundle.path, "numbers").enroll(frames(1, 2))
    bundle = Bundle.open(tiny_bundle.path)
    stored = bundle.bank(bundle.product("part")).references.features
    np.testing.assert_array_equal(stored, grids.astype(np.float16).reshape(-1, 8))


def test_patches_without_signal_are_dropped_and_counted(
    tiny_bundle: Bundle, controller: Open, numbers: Numbers
) -> None:
    first, second = _features(1), _features(2)
    first[[0, 5]] = 0
    second[7] = 1e-9  # it becomes 0 in float16
    numbers.next = [first, second]
    c = controller(tiny_bundle.path, "numbers")
    assert c.enroll(frames(1, 2)).patches == 29
    product = tiny_bundle.product("part")
    bank = tiny_bundle.bank(product)
    assert product.dropped_patches == 3
    assert bank.reference.tolist() == [0] * 14 + [1] * 15
    places = [(r, c) for r in range(4) for c in range(4)]
    expected = [places[k] for k in range(16) if k not in (0, 5)]
    expected += [places[k] for k in range(16) if k != 7]
    assert list(zip(bank.row.tolist(), bank.col.tolist(), strict=True)) == expected
    third = _features(3)
    third[1] = 0
    numbers.next = [third]
    assert c.enroll(frames(3)).patches == 44
    assert tiny_bundle.product("part").dropped_patches == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.nan, r"bad\.png cannot be a reference: patch 3 contains NaN or infinity; take another"),
        (np.inf, r"bad\.png cannot be a reference: patch 3 contains NaN or infinity; take another"),
        (1e30, r"features of bad\.png do not fit into float16; .*--bank-dtype float32"),
        (-200000, r"features of bad\.png do not fit into float16; .*--bank-dtype float32"),
        (65520, r"features of bad\.png do not fit into float16; .*--bank-dtype float32"),
    ],
)
def test_features_that_cannot_be_compared_with_are_refused(
    tiny_bundle: Bundle, controller: Open, numbers: Numbers, value: float, text: str
) -> None:
    before = snapshot(tiny_bundle.path)
    c = controller(tiny_bundle.path, "numbers")
    bad = _features(2)
    bad[3, 2] = value
    numbers.next = [_features(1), bad]
    with pytest.raises(ScoringError, match=text):
        c.enroll(frames(1, 2), ["good.png", "bad.png"])
    numbers.next = [np.zeros((16, 8), np.float32)]
    with pytest.raises(ScoringError, match="a cannot be a reference: no patch of it has a signal"):
        c.enroll(frames(1), ["a"])
    assert snapshot(tiny_bundle.path) == before


# ---- faults: a full disk, a read-only place, a kill, two at once

_PRELUDE = """
from tiny_bundle import textured_picture
from anoco_edge.teaching import NewPicture
from native_controller import Controller, frames, new_pictures, python
"""
child = partial(run_apart, _PRELUDE)


@pytest.fixture
def enrolled(tiny_bundle: Bundle, controller: Open) -> Path:
    """Write generation 1 of `part` with two references."""
    controller(tiny_bundle.path).enroll(frames(1, 2), ["frame1", "frame2"])
    return tiny_bundle.path


def assert_whole(path: Path) -> list[str]:
    """Check that the bundle verifies and inspects, and return the names of its references."""
    bundle = Bundle.open(path)
    list(bundle.verify())
    product = bundle.product("part")
    assert len(set(bundle.bank(product).reference.tolist())) == len(product.references)
    assert Detector.open(path, "part", "openvino").inspect(frames(1)[0]).score < 1e-9
    return [r.name for r in product.references]


def test_a_file_size_limit_changes_nothing(enrolled: Path) -> None:
    """The limit acts as a full disk: the write itself fails, at the first byte or within a file."""
    before = snapshot(enrolled)
    body = """
    import resource
    c = Controller(path)
    for limit in (0, 1000, 9000, 1 << 20):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            c.enroll(frames(7, 8))
        except AnocoError as error:
            print(f"{type(error).__name__}: {error}")
    """
    code, out, err = finish(child(body, enrolled))
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("StorageError: cannot write ") and "File too large" in line
        assert "nothing was changed" in line
    after = snapshot(enrolled)
    assert {name: after[name] for name in before if "product.json" not in name} == {
        name: data for name, data in before.items() if "product.json" not in name
    }
    assert Bundle.open(enrolled).product("part").generation == 2
    assert Bundle.open(enrolled).strangers() == []
    assert len(assert_whole(enrolled)) == 4


def test_a_read_only_bundle_is_not_taught(enrolled: Path, powerless: tuple[str, ...]) -> None:
    before = snapshot(enrolled)
    subprocess.run(["chmod", "-R", "a-w", str(enrolled)], check=True)
    try:
        for product in ("part", "new"):
            body = f"Controller(path).enroll(frames(7), product={product!r})"
            code, _, err = finish(child(body, enrolled, wrapper=powerless))
            assert code == 1 and err.count("\n") == 1, err
            assert err.startswith("StorageError: cannot write ") and "no permission" in err
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(enrolled)], check=True)
    assert snapshot(enrolled) == before


@pytest.mark.full
def test_kill_at_random_moments_leaves_the_old_or_the_new_state(enrolled: Path) -> None:
    """runtime/tests/test_commit.cpp shows that every step of a commit is covered."""
    body = """
    c = Controller(path)
    for seed in range({first}, {first} + 1000, 2):
        start = time.perf_counter()
        print("go", flush=True)
        c.enroll(frames(seed, seed + 1), ["frame%d" % seed, "frame%d" % (seed + 1)])
        print(time.perf_counter() - start, flush=True)
    """
    rng = np.random.default_rng(3)
    for k, moment in enumerate(rng.permutation(np.linspace(0.05, 1.1, 10))):
        process = child(body.format(first=10_000 * (k + 1)), enrolled)
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        duration = float(process.stdout.readline())
        before = Bundle.open(enrolled).product("part").references
        assert process.stdout.readline() == "go\n"
        time.sleep(moment * duration)
        process.kill()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        after = assert_whole(enrolled)
        # The two appear together, never one alone, and no other is lost.
        assert after[: len(before)] == [r.name for r in before]
        assert (len(after) - len(before)) % 2 == 0
    Controller(enrolled).enroll(frames(5))
    assert Bundle.open(enrolled).product("part").references[-1].name == "frame-1.png"
    assert not list(enrolled.rglob(".tmp-*")), "the next change sweeps what was left"


def test_c_and_python_teach_at_once_and_nothing_is_lost(enrolled: Path) -> None:
    native = """
    c = Controller(path)
    for seed in range(100, 106):
        c.enroll(frames(seed), ["frame%d" % seed])
    """
    other = """
    teacher = python(path)
    for seed in range(200, 206):
        teacher.enroll(new_pictures(frames(seed), ["frame%d" % seed]), "part")
    """
    for process in [child(body, enrolled) for body in (native, other)]:
        code, _, err = finish(process)
        assert code == 0, err
    expected = {f"frame{s}" for s in (1, 2, *range(100, 106), *range(200, 206))}
    assert set(assert_whole(enrolled)) == expected
    bundle = Bundle.open(enrolled)
    assert [g.generation for g in bundle.generations("part")] == list(range(1, 14))
    assert bundle.strangers() == []
