"""The table of scorers, and how one of them is chosen and opened.

To add a scorer, write its module and one entry of the table. The module has

    open_scorer(bank, parameters, options) -> Scorer

and may have

    why_not() -> str        why it cannot be used here; empty if it can
    auto_reason() -> str    why `auto` should choose it on this machine; empty if it should not
    why_absent() -> str     why there is nothing here to try it with; empty if there is something
    describe_trial() -> str what the trial of `anoco-edge doctor` ran on
    MEMORY_MB               megabytes that it takes beside the bank, where nothing else is asked for
    memory_mb() -> float    the same where it depends on the machine

Another package adds its entry through the entry point `anoco_edge.scorers` (see
`anoco_edge.plugins`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from anoco_edge.plugins import Choice, StageRegistry, StageSpec
from anoco_edge.scoring.agreement import EPS
from anoco_edge.scoring.types import Parameters, References, Scorer, ScorerOptions


class ScorerChoice(Choice):
    """The scorer that runs, and why it was chosen."""


@dataclass(frozen=True)
class ScorerSpec(StageSpec):
    """The description of a scorer, which is known before its module is imported.

    `timed` says that it reports how much of its time retrieval takes, `prepares` that it prepares a
    bank, so that scoring against a new one costs more. Below the margin `float32_eps` it may decide
    a row of float32 features otherwise than the reference.
    """

    timed: bool = True
    prepares: bool = False
    float32_eps: float = EPS

    purpose: ClassVar[str] = "to score"

    def open(self, bank: References, parameters: Parameters, options: ScorerOptions) -> Scorer:
        """Make a scorer for one bank."""
        return cast(Scorer, self.load().open_scorer(bank, parameters, options))

    def reason_for_auto(self) -> str:
        """Say why `auto` should choose this scorer here; empty if it should not."""
        if self.why_not():
            return ""
        reason = self.function("auto_reason")
        return self.auto_reason if reason is None else str(reason())

    def why_absent(self) -> str:
        """Say why there is nothing here to try this scorer with; empty if there is something."""
        reason = self.function("why_absent")
        return "" if reason is None else str(reason())

    def memory_mb(self) -> float | None:
        """The megabytes that it takes beside the bank by default; None if it has no limit."""
        depends = self.function("memory_mb")
        found = getattr(self.load(), "MEMORY_MB", None) if depends is None else depends()
        return None if found is None else float(found)


SCORERS = StageRegistry(
    "scorer",
    "anoco_edge.scorers",
    [
        ScorerSpec(
            "reference",
            "anoco_edge.scoring.reference",
            needs="nothing: it is NumPy",
            rank=40,
            auto=True,
            auto_reason="onnxruntime is not installed",
            optional=False,
        ),
        ScorerSpec(
            "onnx",
            "anoco_edge.scoring.onnx_scorer",
            extra="cpu",
            needs="onnxruntime",
            packages=("onnxruntime",),
            rank=30,
            auto=True,
            auto_reason="onnxruntime is installed",
            optional=False,
        ),
        ScorerSpec(
            "native",
            "anoco_edge.scoring.native",
            needs="the native library",
            rank=20,
            auto=True,
            auto_reason="the native library is present",
            native="cpu",
            prepares=True,
        ),
        ScorerSpec(
            "cuda",
            "anoco_edge.scoring.cuda",
            needs="the native library and an NVIDIA GPU",
            rank=10,
            auto=True,
            gpu=True,
            native="cuda",
            timed=False,  # its kernels are not timed one by one
            float32_eps=3.5e-6,  # parts of half precision (runtime/cuda/parts.cu)
        ),
    ],
    ScorerSpec,
)


def eps_of(scorer: str, *, half: bool) -> float:
    """Return the margin below which a scorer may decide a row otherwise; `half`: FP16 features.

    >>> eps_of("native", half=False), eps_of("cuda", half=False), eps_of("cuda", half=True)
    (2e-06, 3.5e-06, 2e-06)
    """
    return EPS if half or scorer not in SCORERS else SCORERS.get(scorer).float32_eps


def choose_scorer(name: str = "auto") -> ScorerChoice:
    """Choose the scorer that will run. One that is asked for by its name is never replaced.

    >>> choose_scorer("reference")
    ScorerChoice(name='reference', reason='asked for')
    """
    choice = SCORERS.choose(name, ScorerSpec.reason_for_auto)
    return ScorerChoice(*(choice or ("reference", "no other scorer can be used here")))


def open_scorer(
    name: str | ScorerChoice,
    bank: References,
    parameters: Parameters | None = None,
    *,
    threads: int = 0,
    memory_mb: int | None = None,
    half: bool = False,
    once: bool = False,
) -> Scorer:
    """Make a scorer for one bank: the one named, or one that was chosen before.

    `threads` and `memory_mb` do not concern the reference. `half` says that queries are computed in
    FP16; the cuda scorer then multiplies in FP16 if the bank is stored in it, too. `once` says that
    one picture will be scored, so that nothing is prepared that pays only for many.
    """
    choice = name if isinstance(name, ScorerChoice) else choose_scorer(name)
    options = ScorerOptions(threads=threads, memory_mb=memory_mb, half=half, once=once)
    return SCORERS.get(choice.name).open(bank, parameters or Parameters(), options)
