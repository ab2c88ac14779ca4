"""Opens an engine that passes the self-test, in the precision that fits the product."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anoco_edge.bundle import Bundle, Product
from anoco_edge.engines.base import Engine, EngineSettings, computed_in
from anoco_edge.engines.cpu_precision import (
    BF16_ENGINE,
    PrecisionChoice,
    check_asked,
    mismatch,
    on_processor,
    plan_precision,
)
from anoco_edge.engines.registry import ENGINES, EngineChoice, choose_engine, open_engine
from anoco_edge.engines.selftest import SelfTest, check_engine
from anoco_edge.errors import AnocoError


@dataclass(frozen=True)
class TestedEngine:
    """An engine that passed the self-test, what was chosen and why.

    `precision` is None for an engine that does not compute on the processor. `remark` says where
    the product is judged in another precision than it was taught in; it is empty where not.
    """

    choice: EngineChoice
    engine: Engine
    selftest: SelfTest
    precision: PrecisionChoice | None = None
    remark: str = ""


def open_tested_engine(
    name: str,
    bundle: Bundle,
    settings: EngineSettings | None = None,
    product: Product | None = None,
) -> TestedEngine:
    """Choose an engine, open it and let it pass the self-test; raises ParityError if it fails.

    `product` is the one that is inspected or changed, whose precision `auto` follows; None where a
    new one is taught.
    """
    settings = settings or EngineSettings()
    choice, planned = plan_engine(name, bundle, settings, product)
    if planned is None:
        engine, found = _open(choice, bundle, settings)
        remark = mismatch(product, None, f"by {choice.name}")
        return TestedEngine(choice, engine, found, None, remark)
    if planned.name == "bf16" and settings.cpu_precision == "auto":
        try:
            engine, found = _open(choice, bundle, replace(settings, cpu_precision="bf16"))
            return TestedEngine(choice, engine, found, planned)
        except AnocoError as error:  # in FP32 it may pass; if not, that says what is wrong
            choice, planned = choose_engine(name, bundle), PrecisionChoice("fp32", error.what)
    engine, found = _open(choice, bundle, settings)
    ran = PrecisionChoice(computed_in(engine) or planned.name, planned.reason)
    return TestedEngine(choice, engine, found, ran, mismatch(product, ran.name, ran.reason))


def plan_engine(
    name: str, bundle: Bundle, settings: EngineSettings, product: Product | None
) -> tuple[EngineChoice, PrecisionChoice | None]:
    """Choose an engine and its precision, before the self-test has a say; loads nothing.

    The precision is None for an engine that does not compute on the processor.
    """
    choice = _choose(name, bundle, settings)
    spec = ENGINES.get(choice.name)
    check_asked(spec, bundle, settings)
    if not on_processor(spec, settings):
        return choice, None
    planned = plan_precision(name, bundle, settings, product)
    if planned.name == "bf16" and name == "auto" and settings.cpu_precision == "auto":
        choice = EngineChoice(BF16_ENGINE, "it has BF16 products, which onnxruntime has not")
    return choice, planned


def _choose(name: str, bundle: Bundle, settings: EngineSettings) -> EngineChoice:
    if name == "auto" and settings.cpu_precision == "bf16":
        return EngineChoice(BF16_ENGINE, "it alone has BF16 products on a processor")
    return choose_engine(name, bundle)


def _open(
    choice: EngineChoice, bundle: Bundle, settings: EngineSettings
) -> tuple[Engine, SelfTest]:
    engine = open_engine(choice, bundle, settings)
    return engine, check_engine(bundle, engine)


@dataclass
class EngineOpener:
    """Opens engines of one name and setting for products, each precision once."""

    name: str
    bundle: Bundle
    settings: EngineSettings = field(default_factory=EngineSettings)
    _opened: dict[str, TestedEngine] = field(default_factory=dict)

    def open(self, product: Product | None) -> TestedEngine:
        """Return the engine for a product that exists, or for a new one."""
        key: str = "new" if product is None else product.cpu_precision or "graph"
        if self.settings.cpu_precision != "auto":
            key = self.settings.cpu_precision
        if key not in self._opened:
            self._opened[key] = self._reused(product) or open_tested_engine(
                self.name, self.bundle, self.settings, product
            )
        return self._opened[key]

    def _reused(self, product: Product | None) -> TestedEngine | None:
        """An engine that is open already and that the product would get as well."""
        for opened in self._opened.values():
            if opened.precision is None or self.settings.cpu_precision != "auto":
                return opened
            planned = plan_precision(self.name, self.bundle, self.settings, product)
            if planned.name == opened.precision.name:
                return opened
        return None
