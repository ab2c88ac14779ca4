"""What the line and its judge, a process of its own, say to each other over a pipe."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.frame_memory import Slot
from anoco_edge.line.judge.alignment import AlignmentSettings
from anoco_edge.line.judge.part_codes import CodeSettings
from anoco_edge.line.signed_bundles import BundleTrust
from anoco_edge.line.store.rows import CaptureOrigin
from anoco_edge.pipeline.runtime_choice import RuntimeName


@dataclass(frozen=True)
class CaptureSpec:
    """The bundle and the product that judge a capture, and what is done before: it is aligned, and
    a code is read. None is the only product of the bundle."""

    bundle: str
    product: str | None = None
    align: AlignmentSettings | None = None
    code: CodeSettings | None = None


@dataclass(frozen=True)
class JudgeSetup:
    """All that a judge has to know when it starts."""

    judge: int
    products: dict[int, tuple[CaptureSpec, ...]]
    revision: str
    frames: int
    slots: int
    slot_bytes: int
    engine: str = "auto"
    runtime: RuntimeName = "auto"
    blocking_sync: bool = False
    allow_random: bool = False
    trust: BundleTrust | None = None


@dataclass(frozen=True)
class PrepareOrder:
    """Open a product beside those that are held."""

    number: int


@dataclass(frozen=True)
class ForgetOrder:
    """Close a product."""

    product: PreparedProduct


@dataclass(frozen=True)
class JudgeOrder:
    """Judge a frame by one capture of a product."""

    uid: str
    capture: int
    slot: Slot
    product: PreparedProduct


@dataclass(frozen=True)
class Ping:
    """Answer if you have nothing else to do."""


@dataclass(frozen=True)
class Pong:
    """Nothing to do."""


@dataclass(frozen=True)
class ProductOffer:
    """A product is held, with what judges each of its captures; `remarks` say what runs and why."""

    product: PreparedProduct
    origins: tuple[CaptureOrigin, ...]
    remarks: tuple[str, ...] = ()
