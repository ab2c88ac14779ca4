"""What test-time augmentation will cost at every inspection, shown before it is accepted."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import typer

from anoco_edge.bundle import Bundle, InputContract, Product
from anoco_edge.canvas import Canvas
from anoco_edge.cli.console import note
from anoco_edge.engines import Engine, EngineSettings, open_engine
from anoco_edge.errors import UsageError
from anoco_edge.scoring import References, open_scorer
from anoco_edge.teaching import Settings
from anoco_edge.views import OWN, PAIRED

_SAMPLE = 4096  # rows of the bank that are timed; time grows in proportion to them


def accept_cost(
    path: Path,
    product: str | None,
    settings: Settings,
    new: int,
    *,
    engine: str = "auto",
    device: str = "CPU",
    yes: bool = False,
) -> None:
    """Says what the asked-for augmentation costs and asks; without a terminal it wants --yes."""
    level = settings.fields.get("tta", "none")
    if level == "none":
        return
    bundle = Bundle.open(path)
    known = product or (bundle.product().name if bundle.products() else None)
    old = bundle.product(known) if known in bundle.products() else None
    references = new + (len(old.references) if old else 0)
    opened = open_engine(engine, bundle, EngineSettings(device=device))
    note(_cost(bundle, old, level, references, opened))
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this cost was not accepted", hint="accept it with --yes")
    typer.confirm("go on?", abort=True, err=True)


def _cost(bundle: Bundle, old: Product | None, level: str, references: int, engine: Engine) -> str:
    canvas = Canvas(bundle.manifest.input, old.tiles if old else None)
    contract = canvas.contract
    patches = contract.rows * contract.cols
    views = 1 + PAIRED + OWN
    bank = references * views * patches
    run = _seconds_of_a_run(engine, canvas)
    score = _seconds_of_scoring(contract, patches) / _SAMPLE
    looks = 1 + PAIRED if level == "paper" else 1
    before, after = run + score * references * patches, looks * (run + score * bank)
    megabytes = bank * contract.dim * 2 / 1e6
    return (
        f"test-time augmentation {level!r}: {views} views of each of {references} references make "
        f"a bank of {bank:,} patches ({megabytes:,.0f} MB in float16, {views} times as many); "
        f"a picture takes {looks} run{'s' if looks > 1 else ''} of the backbone and about "
        f"{after:.2g} s on this machine instead of {before:.2g} s"
    )


def _seconds_of_a_run(engine: Engine, canvas: Canvas) -> float:
    grey = np.full((1, canvas.contract.height, canvas.contract.width, 3), 128, np.uint8)
    canvas.features(engine, grey)
    start = time.perf_counter()
    canvas.features(engine, grey)
    return time.perf_counter() - start


def _seconds_of_scoring(contract: InputContract, patches: int) -> float:
    rng = np.random.default_rng(0)
    bank, _ = References.of(rng.normal(size=(_SAMPLE, contract.dim)).astype(np.float16))
    query = rng.normal(size=(patches, contract.dim)).astype(np.float32)
    scorer = open_scorer("auto", bank)
    scorer.score(query)
    start = time.perf_counter()
    scorer.score(query)
    return time.perf_counter() - start
