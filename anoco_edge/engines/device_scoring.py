"""Scoring on the GPU beside an engine that runs there: its self-test, and why it is not done.

The self-test scores features that never left the GPU. It runs when an engine and a scorer are first
used together on a device, and is remembered like the self-test of the engine.
"""

from __future__ import annotations

import numpy as np

from anoco_edge.bundle import Bundle
from anoco_edge.engines.base import DeviceEngine
from anoco_edge.engines.registry import ENGINES
from anoco_edge.engines.selftest import read_selftest
from anoco_edge.engines.selftest_memory import SelfTestMemory
from anoco_edge.errors import EnvironmentMissingError, ParityError
from anoco_edge.native.library import load_library
from anoco_edge.scoring import SCORERS, Parameters, References, open_scorer
from anoco_edge.scoring.agreement import compare
from anoco_edge.scoring.half_operands import half_operands
from anoco_edge.scoring.registry import eps_of
from anoco_edge.scoring.types import DeviceScorer


def check_device_scoring(bundle: Bundle, engine: DeviceEngine, scorer: str) -> None:
    """Compare a scorer's energies for features on the device with those of the reference.

    The odd patches of the self-test's picture are scored against the even ones. Rows that rounding
    may decide either way are left out. `ParityError` says how many of the others differ.
    """
    memory = SelfTestMemory(bundle, f"{engine.fingerprint}|{scorer}|{_library()}|scoring 2")
    if memory.read() is not None:
        return
    pixels, _, _ = read_selftest(bundle)
    features = engine.features(pixels)[0]
    with engine.on_device(pixels) as there:
        features = features.astype(there.dtype)  # which they were before
        bank, _ = References.of(features[0::2])
        half = half_operands(bundle.manifest.backbone.precision)
        opened = open_scorer(scorer, bank, Parameters(), half=half)
        if not isinstance(opened, DeviceScorer):
            return
        odd = np.arange(1, len(features), 2)
        found = opened.score_rows(there[0], odd)
    expected = open_scorer("reference", bank, Parameters()).score(features[odd])
    eps = eps_of(scorer, half=half and features.dtype == np.float16)
    agreement = compare(found.energy, expected, features[odd], eps=eps)
    if agreement.disagree:
        raise ParityError(
            f"the scorer {scorer} gives other energies on the GPU than the reference on the "
            f"processor: {agreement.disagree} of {len(odd)} patches differ",
            hint="do not inspect with it here: use `scorer='native'`, and report it",
        )
    memory.write({"undecided": agreement.undecided})


def why_not_on_gpu(engine: str, asked: str, chosen: str) -> str:
    """Say why `auto` scores on the processor although the engine runs on a GPU; empty if not so.

    >>> why_not_on_gpu("onnxruntime", "auto", "native")
    ''
    """
    if asked != "auto" or not ENGINES.get(engine).gpu or SCORERS.get(chosen).gpu:
        return ""
    gpu = next((spec for spec in SCORERS.by_rank() if spec.gpu), None)
    why = "no scorer for it is installed" if gpu is None else gpu.why_not()
    return (
        f"{engine} runs on the GPU, and the processor scores with {chosen}, which takes longer: "
        f"{why or 'the GPU is a simulated one'}"
    )


def _library() -> str:
    """Name the version of the native library, which has the kernels; empty if there is none."""
    try:
        version: bytes = load_library().anoco_version()
    except EnvironmentMissingError:
        return ""
    return version.decode()
