"""The parity report of an export: how far the exported graph is from torch.

The export writes the report into manifest.json. A manifest may hold a report of another version,
or none at all, so nothing that serves a bundle depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from anoco_edge.errors import BundleError


@dataclass(frozen=True)
class EnergyFigures:
    """How the ANoCo energies of two sets of features compare."""

    energy_spearman: float
    top_energy_error: float
    undecided_share: float = 0.0


@dataclass(frozen=True)
class ParityFigures:
    """How the features of the exported graph, and their energies, compare with those of torch."""

    min_cosine: float
    mean_cosine: float
    max_norm_error: float
    energy_spearman: float
    top_energy_error: float
    undecided_share: float = 0.0


@dataclass(frozen=True)
class WorstPatches:
    """Where the lowest cosine and the largest norm error are: picture, row and column."""

    min_cosine: str
    max_norm_error: str


@dataclass(frozen=True)
class OverflowMargin:
    """The FP16 tensor with the largest values, and how many times larger they could be."""

    tensor: str | None
    times_to_overflow: float


@dataclass(frozen=True)
class ParityCheck:
    """One comparison with torch; `largest` is there where FP16 was emulated."""

    runtime: str
    measured: ParityFigures
    worst: WorstPatches
    largest: OverflowMargin | None = None


@dataclass(frozen=True)
class Fp16Report:
    """What the conversion to FP16 did; `islands` counts the nodes found for each name."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    islands: Mapping[str, int] = field(default_factory=dict)
    casts: int = 0
    initializer_bytes: int = 0
    largest_weight: float = 0.0
    largest_weight_name: str = ""
    rounded: int = 0
    """Numbers other than 0 among the FP16 weights."""
    flushed: int = 0
    """Those of them that became 0."""
    subnormal: int = 0
    """Those of them that are subnormal in FP16 and lost precision."""

    @property
    def flushed_share(self) -> float:
        """The share of the FP16 weights that became 0."""
        return self.flushed / max(1, self.rounded)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The islands that were asked for and that the graph does not have."""
        return tuple(name for name, count in self.islands.items() if not count)


@dataclass(frozen=True)
class RangeStability:
    """How far energies are apart whose INT8 ranges come from either half of the pictures."""

    energy_spearman: float
    top_energy_error: float


@dataclass(frozen=True)
class PictureRecord:
    """The name and the hash of a picture that INT8 ranges come from."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Int8Report:
    """How the INT8 ranges were found, what each layer costs, and which layers were left out."""

    method: str
    rest: str
    layers: Mapping[str, float]
    left_out: tuple[str, ...]
    most_left_out: int
    halves: RangeStability | None
    enough_pictures: int
    arithmetic: str
    pictures: tuple[PictureRecord, ...] = ()


@dataclass(frozen=True)
class KernelCounts:
    """What a builder of plans made of a graph.

    `fused` counts the attention blocks that became one kernel, `copies` the kernels that only move
    or cast numbers, and `activation_bytes` is the memory that a plan for one picture needs.
    """

    fused: int
    kernels: int
    copies: int
    activation_bytes: int


@dataclass(frozen=True)
class FusionReport:
    """Whether TensorRT-RTX fuses the attention of the graph; `counts` is None if it did not build.

    `blocks` is the number of attention blocks, `casts` that of the Casts in the graph. `unfused`
    says that the graph was exported although not all blocks are fused.

    >>> FusionReport("TensorRT-RTX 1.7.1, sm86", 9, 20, KernelCounts(9, 75, 1, 1 << 25)).summary
    '9 of 9 attention blocks fused, 75 kernels (1 only copy), 34 MB (TensorRT-RTX 1.7.1, sm86)'
    """

    checked: str
    blocks: int
    casts: int
    counts: KernelCounts | None = None
    unfused: bool = False

    @property
    def summary(self) -> str:
        """The report in one line."""
        if self.counts is None:
            return self.checked
        of, megabytes = self.counts, self.counts.activation_bytes / 1e6
        fused = f"{of.fused} of {self.blocks} attention blocks fused, " if self.blocks else ""
        copies = f" ({of.copies} only copy)" if of.copies else ""
        return f"{fused}{of.kernels} kernels{copies}, {megabytes:.0f} MB ({self.checked})"


@dataclass(frozen=True)
class ParityReport:
    """What the manifest says about the comparison of the exported graph with torch."""

    precision: str
    passed: bool
    against: str
    pictures: tuple[str, ...]
    patches: int
    limits: Mapping[str, float]
    checks: tuple[ParityCheck, ...]
    device: str
    half: Fp16Report | None = None
    int8: Int8Report | None = None
    fusion: FusionReport | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the report as the manifest holds it; parts that do not apply are left out."""
        document = asdict(self)
        for name in ("half", "int8", "fusion"):
            if document[name] is None:
                del document[name]
        for check in document["checks"]:
            if check["largest"] is None:
                del check["largest"]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> ParityReport:
        """Read the report of a manifest; unknown keys are ignored.

        >>> ParityReport.from_json({})
        Traceback (most recent call last):
        anoco_edge.errors.BundleError: the manifest holds no parity report; export the bundle again
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_python(dict(document))
        except ValidationError:
            raise BundleError(
                "the manifest holds no parity report", hint="export the bundle again"
            ) from None
