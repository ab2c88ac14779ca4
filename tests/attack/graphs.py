"""Mutated graphs get one verdict from both readers; engines get those that are accepted.

A case is held when both readers refuse a graph with the same line, or neither does, and when an
engine that is handed an accepted graph runs it or refuses it with one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graph_corpus import DATA, DATA_SIZE, corpus, mutations, replace_files
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge import Detector
from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.errors import AnocoError
from anoco_edge.native.library import why_not
from anoco_edge.teaching import NewPicture, Teacher
from tests.attack.campaign import Case, Plan

_OURS = ("is not an ONNX graph", "do not use this bundle")  # messages of the readers only
_PIXELS = textured_picture(3, 64, 64)[None]


def cases(plan: Plan) -> Iterator[Case]:
    """Yield the corpus, then seeded mutations of it."""
    rng = plan.rng()
    bundle = make_tiny_bundle(plan.folder / "tiny.anoco")
    picture = NewPicture.from_array("a.png", textured_picture(1))
    Teacher.open(bundle.path).enroll([picture], "part")
    wanted = [(name, content) for name, content, _ in corpus() if len(content) < 100_000]
    mutated = mutations(rng, plan.choose(full=3000, short=120))
    wanted += [(f"mutation {number}", content) for number, content in enumerate(mutated)]
    few = iter(range(plan.choose(full=150, short=8)))  # opening a graph in an engine is slow
    for name, content in wanted:
        made = replace_files(bundle, {"backbone.onnx": content, DATA: bytes(DATA_SIZE)})
        said = _said(made.graph)
        odd = "" if said.isprintable() and len(said) < 1000 else said
        yield Case(f"{name}, in Python", odd)
        if (said or next(few, None) is not None) and why_not() is None:
            yield Case(f"{name}, in the native library", _compared(made, said))
        if not said and rng.random() < 0.5 and next(few, None) is not None:
            for engine in ("onnxruntime", "openvino"):
                said = _said(_running(made, engine))
                yield Case(f"{name}, in {engine}", said if "\n" in said else "")


def _running(bundle: Bundle, engine: str) -> Callable[[], object]:
    return lambda: open_engine(engine, bundle, EngineSettings(threads=1)).features(_PIXELS)


def _said(act: Callable[[], object]) -> str:
    """Return the message with which a graph is refused, or an empty string."""
    try:
        act()
    except AnocoError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 (any other exception is what this looks for)
        return f"raised\n{error!r}"
    return ""


def _compared(bundle: Bundle, said: str) -> str:
    native = _said(lambda: Detector(bundle, runtime="native"))
    if said:  # compared up to a quoted name, since each language quotes in its own way
        same = native.partition("'")[0] == said.partition("'")[0]
        return "" if same else f"Python: {said}; native: {native}"
    return native if "\n" in native or any(words in native for words in _OURS) else ""
