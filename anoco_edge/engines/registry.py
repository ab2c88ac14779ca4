"""The table of engines, and how one of them is chosen and opened.

To add an engine, write its module and one entry of the table. The module has

    open_engine(name, bundle, settings) -> Engine

and may have

    why_not(name, bundle=None) -> str    why it cannot run here (with this bundle); empty if it can
    try_out(name) -> str                 run something small; says what ran, raises if it fails

Another package adds its entry through the entry point `anoco_edge.engines` (see
`anoco_edge.plugins`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from anoco_edge.bundle import Bundle
from anoco_edge.engines.base import CpuPrecision, Engine, EngineSettings
from anoco_edge.errors import EnvironmentMissingError, UsageError
from anoco_edge.plugins import Choice, StageRegistry, StageSpec


class EngineChoice(Choice):
    """The engine that runs, and why it was chosen."""


@dataclass(frozen=True)
class EngineSpec(StageSpec):
    """The description of an engine, which is known before its module is imported.

    A worker of a cluster must have a GPU for an engine with `gpu`. `needs_plan` says that it runs a
    plan that `anoco-edge build` makes for one bundle. `devices` are those that its setting `device`
    may name, if it has any. `cpu_precisions` are those in which it computes on the processor; an
    engine without any computes elsewhere, or does not say.
    """

    needs_plan: bool = False
    devices: tuple[str, ...] = ()
    cpu_precisions: tuple[CpuPrecision, ...] = ()

    purpose: ClassVar[str] = "to run the backbone"

    def open(self, bundle: Bundle, settings: EngineSettings) -> Engine:
        """Load the bundle's backbone into this engine."""
        prepare_gpu(self, settings)
        return cast(Engine, self.load().open_engine(self.name, bundle, settings))

    def reason_for_auto(self, bundle: Bundle | None) -> str:
        """Say why `auto` should choose this engine for a bundle; empty if it should not."""
        if self.needs_plan and bundle is None:
            return ""
        return "" if self.why_not(self.name, bundle) else self.auto_reason

    def check_device(self, settings: EngineSettings) -> None:
        """Refuse a device if the engine has no choice of devices."""
        if settings.device != EngineSettings.device and not self.devices:
            knowing = [spec.name for spec in ENGINES if spec.devices]
            raise UsageError(
                f"device {settings.device} was asked for, which {self.name} does not know",
                hint=f"devices belong to {', '.join(knowing)}: add `engine='{knowing[0]}'`",
            )

    def try_out(self) -> str:
        """Run something small where the engine knows how; says what ran, raises what failed."""
        if package := self.missing_package():
            raise self.missing_error(package)
        trial = self.function("try_out")
        if trial is not None:
            return str(trial(self.name))
        if reason := self.why_not(self.name):
            needs = self.needs or "more, as the package that brings it says"
            raise EnvironmentMissingError(reason, hint=f"it needs {needs}")
        return "is installed"


def prepare_gpu(spec: StageSpec, settings: EngineSettings) -> None:
    """Set up the GPU as `settings` ask for, before an engine or a scorer that has one is opened."""
    if settings.blocking_sync and spec.gpu:
        from anoco_edge.plans.device import use_blocking_sync
        from anoco_edge.scoring.capture_rule import device_wide

        with device_wide():
            use_blocking_sync()


# In FP32 onnxruntime and openvino are as fast as each other within 10 %, so `auto` does not measure
# both; where BF16 may be used, `open_tested_engine` prefers openvino, which alone has it. `auto`
# leaves ONNX Runtime's GPU providers alone: a plan that was built ahead is faster.
ENGINES = StageRegistry(
    "engine",
    "anoco_edge.engines",
    [
        EngineSpec(
            "onnxruntime",
            "anoco_edge.engines.ort",
            extra="cpu",
            needs="onnxruntime",
            packages=("onnxruntime",),
            rank=50,
            auto=True,
            auto_reason="it is installed, and no plan for a GPU runs here",
            optional=False,
            cpu_precisions=("fp32", "int8"),
        ),
        EngineSpec(
            "onnxruntime-cuda",
            "anoco_edge.engines.ort_gpu",
            extra="gpu",
            needs="onnxruntime-gpu and an NVIDIA GPU",
            rank=40,
            gpu=True,
        ),
        EngineSpec(
            "onnxruntime-tensorrt",
            "anoco_edge.engines.ort_gpu",
            extra="gpu",
            needs="onnxruntime-gpu, TensorRT and an NVIDIA GPU",
            rank=30,
            gpu=True,
        ),
        EngineSpec(
            "openvino",
            "anoco_edge.engines.openvino",
            extra="openvino",
            needs="openvino",
            packages=("openvino",),
            rank=60,
            auto=True,
            auto_reason="onnxruntime is not installed or cannot run it, and no GPU plan runs here",
            native="openvino",
            devices=("CPU", "GPU", "NPU", "AUTO"),
            cpu_precisions=("fp32", "bf16", "int8"),
        ),
        EngineSpec(
            "tensorrt",
            "anoco_edge.engines.tensorrt",
            extra="tensorrt",
            needs="TensorRT and an NVIDIA GPU",
            rank=10,
            auto=True,
            auto_reason="a plan of this bundle runs on this machine's GPU",
            gpu=True,
            native="tensorrt",
            needs_plan=True,
        ),
        EngineSpec(
            "tensorrt-rtx",
            "anoco_edge.engines.tensorrt",
            extra="rtx",
            needs="TensorRT-RTX and an NVIDIA GPU",
            rank=20,
            auto=True,
            auto_reason="a plan of this bundle runs on this machine's GPU",
            gpu=True,
            needs_plan=True,
        ),
    ],
    EngineSpec,
)


def choose_engine(name: str = "auto", bundle: Bundle | None = None) -> EngineChoice:
    """Choose the engine that will run; plans are looked for when the bundle is known.

    >>> choose_engine("onnxruntime")
    EngineChoice(name='onnxruntime', reason='asked for')
    """
    choice = ENGINES.choose(name, lambda spec: spec.reason_for_auto(bundle))
    if choice is None:
        raise ENGINES.get("onnxruntime").missing_error("onnxruntime")
    return EngineChoice(*choice)


def open_engine(
    name: str | EngineChoice, bundle: Bundle, settings: EngineSettings | None = None
) -> Engine:
    """Load the bundle's backbone into an engine: the one named, or one that was chosen before."""
    settings = settings or EngineSettings()
    choice = name if isinstance(name, EngineChoice) else choose_engine(name, bundle)
    spec = ENGINES.get(choice.name)
    spec.check_device(settings)
    return spec.open(bundle, settings)


def needs_gpu(name: str) -> bool:
    """Whether a worker with this engine takes a GPU of its cluster; `auto` does not ask for one.

    >>> needs_gpu("tensorrt"), needs_gpu("onnxruntime-cuda"), needs_gpu("auto")
    (True, True, False)
    """
    return name in ENGINES and ENGINES.get(name).gpu
