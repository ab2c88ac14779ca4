"""The report itself, and how it is written as JSON and as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from anoco_edge.diagnostics.bench.frames import FrameSettings, MemoryUse
from anoco_edge.diagnostics.bench.statistics import LatencySummary
from anoco_edge.diagnostics.bench.tables import facts
from anoco_edge.diagnostics.device_report.gemm_peak import GemmPeak
from anoco_edge.diagnostics.device_report.hard_pictures import HardPicture
from anoco_edge.diagnostics.device_report.sanitizer import SanitizerRun
from anoco_edge.diagnostics.device_report.state import DeviceState
from anoco_edge.diagnostics.device_report.two_cameras import CameraFigures
from anoco_edge.engines.selftest import SelfTest
from anoco_edge.errors import UsageError
from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.storage.regular_file import read_regular

FORMAT = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceFacts(TypedDict, total=False):
    """What is known of the device and its software; what is not known is left out."""

    gpu: str
    capability: str
    cuda_driver: int
    gpu_memory_mb: int
    device_code: str
    board: str
    jetson_linux: str
    kernel: str
    cpu: str
    machine: str
    cores: int
    memory_mb: int
    system: str
    versions: dict[str, str]


class BundleFacts(_Model):
    """The bundle that was measured."""

    name: str
    sha256: str
    backbone: str
    precision: str
    random_weights: bool
    input: str


class PlanFacts(_Model):
    """The plan that was built or found."""

    engine: str
    version: str
    built_now: bool
    seconds: float
    peak_memory_mb: float
    size: int
    batch: int


class FusedKernels(_Model):
    """What the builder on the device made of the graph, by its own list of kernels.

    `blocks` is the number of attention blocks, as the export counted them; None for a bundle whose
    report does not say.
    """

    fused: int
    kernels: int
    copies: int
    activation_bytes: int
    blocks: int | None = None


class ScoringCheck(_Model):
    """A comparison of a scorer's energies with the reference on the same rounded inputs."""

    features: str
    size: str
    operands: str
    undecided: float
    disagree: int


class FrameFigures(_Model):
    """How long a frame takes, stage by stage, and how much memory."""

    stages: dict[str, LatencySummary]
    throughput: float
    memory: MemoryUse
    summary: str
    settings: FrameSettings


class DeviceReport(_Model):
    """What was measured on a device, and in plain words what was not."""

    format: int = FORMAT
    created: str
    anoco_edge: str
    device: DeviceFacts
    simulated: bool
    """A report of a simulated GPU shows that the code runs, and nothing about a device."""
    bundle: BundleFacts
    engine: str
    scorer: str
    runtime: str = "python"
    plan: PlanFacts | None = None
    selftest: SelfTest | None = None
    agreement: tuple[ScoringCheck, ...] = ()
    frames: FrameFigures | None = None
    fused: FusedKernels | None = None
    gemm: GemmPeak | None = None
    hard_pictures: tuple[HardPicture, ...] = ()
    cameras: CameraFigures | None = None
    sanitizer: tuple[SanitizerRun, ...] = ()
    before: DeviceState
    after: DeviceState
    not_measured: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the device is called: its GPU, else its board, else its processor."""
        named = (self.device.get("gpu"), self.device.get("board"), self.device.get("cpu"))
        return next(filter(None, named), None) or "unknown device"

    @property
    def stem(self) -> str:
        """The start of its file names: the device, the backbone and the day."""
        words = f"{self.name} {self.bundle.backbone} {self.created[:10]}".lower()
        return "-".join(re.findall(r"[a-z0-9]+", words))


def write_device_report(report: DeviceReport, folder: Path) -> tuple[Path, Path]:
    """Write the JSON and the Markdown file, and return their paths."""
    data, page = folder / f"{report.stem}.json", folder / f"{report.stem}.md"
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(data, (report.model_dump_json(indent=1) + "\n").encode())
        write_atomic(page, render(report).encode())
    return data, page


def read_device_report(path: Path) -> DeviceReport:
    """Read a report that was sent in."""
    try:
        return DeviceReport.model_validate_json(read_regular(path))
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{path} is not a device report: {reason}",
            hint="give the JSON that device-report wrote",
        ) from None


def render(report: DeviceReport) -> str:
    """Write the report as Markdown."""
    lines = [f"# {report.name}", ""]
    if report.simulated:
        lines += ["**Simulated GPU: these figures say nothing about a device.**", ""]
    lines += [
        f"anoco-edge {report.anoco_edge}, {report.created}; {report.bundle.backbone} "
        f"{report.bundle.precision} at {report.bundle.input}; engine `{report.engine}`, "
        f"scorer `{report.scorer}`, runtime `{report.runtime}`.",
        "",
        *_problems(report),
        *_stages(report),
        *_hard_cases(report),
        *_checks(report),
        *_state(report),
    ]
    return "\n".join(lines) + "\n"


def _problems(report: DeviceReport) -> list[str]:
    lines = []
    if report.problems:
        lines += ["**Failed:**", "", *(f"- {text}" for text in report.problems), ""]
    if report.not_measured:
        lines += ["**Not measured:**", "", *(f"- {text}" for text in report.not_measured), ""]
    return lines


def _stages(report: DeviceReport) -> list[str]:
    if report.frames is None:
        return []
    lines = ["## A frame, in milliseconds", "", "| stage | p50 | p90 | p95 | p99 |"]
    lines.append("|---|---:|---:|---:|---:|")
    for stage, times in report.frames.stages.items():
        figures = (times.p50, times.p90, times.p95, times.p99)
        lines.append(f"| {stage} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    settings, memory = report.frames.settings, report.frames.memory
    return [
        *lines,
        "",
        f"{report.frames.throughput:.1f} frames a second; {settings['frames']} frames of "
        f"{settings['pictures']}, bank of {settings['bank']}; {memory.peak_mb:.0f} MB at most.",
        "",
        *([f"- {settings['remarks']}", ""] if settings.get("remarks") else []),
    ]


def _hard_cases(report: DeviceReport) -> list[str]:
    lines = [
        f"- a picture of {row.picture}: {row.total.p50:.2f} ms, p99 {row.total.p99:.2f}, of which "
        f"scoring {row.scoring.p50:.2f}"
        for row in report.hard_pictures
    ]
    if (found := report.cameras) is not None:
        lines.append(
            f"- {found.cameras} cameras, {found.changes} product changes beside them "
            f"({found.change.p50:.0f} ms each): {found.total.p50:.2f} ms a frame, "
            f"p99 {found.total.p99:.2f}, {len(found.failed)} kinds of failure"
        )
    return ["## Hard cases", "", *lines, ""] if lines else []


def _kernels(report: DeviceReport) -> list[str]:
    lines = []
    if (found := report.fused) is not None:
        blocks = "" if found.blocks is None else f" of {found.blocks}"
        lines.append(
            f"- kernels: {found.fused}{blocks} attention blocks fused, {found.kernels} kernels "
            f"({found.copies} only copy), {found.activation_bytes / 1e6:.0f} MB of activations"
        )
    if report.gemm is not None:
        lines.append(
            f"- FP16 products of {report.gemm.size}x{report.gemm.size}: "
            f"{report.gemm.tflops:.2f} TFLOPS at these clocks"
        )
    for run in report.sanitizer:
        found_errors = "no summary" if run.errors is None else f"{run.errors} errors"
        lines.append(f"- compute-sanitizer {run.tool}: {found_errors}")
    return lines


def _checks(report: DeviceReport) -> list[str]:
    lines = ["## Does it compute what it must?", ""]
    if report.plan is not None:
        plan = report.plan
        lines.append(
            f"- plan: {plan.size / 1e6:.1f} MB, built in {plan.seconds:.1f} s by "
            f"{plan.engine} {plan.version}"
        )
    if report.selftest is not None:
        test = report.selftest
        lines.append(
            f"- self-test of the backbone: worst cosine {test.min_cosine:.6f}, norms off by "
            f"{test.norm_error:.2%}, energies off by {test.energy_error:.2%}"
        )
    lines += [
        f"- scoring {row.size} ({row.features}, {row.operands}): {row.disagree} rows disagree "
        f"with the reference, {100 * row.undecided:.2f} % too close to call"
        for row in report.agreement
    ]
    lines += _kernels(report)
    return [*lines, ""] if len(lines) > 2 else []


def _state(report: DeviceReport) -> list[str]:
    lines = ["## The device", "", "| | before | after |", "|---|---|---|"]
    before, after = report.before, report.after
    if before.power_mode:
        lines.append(f"| power mode | {before.power_mode} | {after.power_mode} |")
    for name, clock in before.clocks.items():
        lines.append(f"| clock of {name} | {clock} | {after.clocks.get(name, '')} |")
    for name, value in before.temperatures.items():
        lines.append(f"| {name} | {value} °C | {after.temperatures.get(name, '')} °C |")
    for name, text in before.gpu.items():
        lines.append(f"| {name} | {text} | {after.gpu.get(name, '')} |")
    free = (f"{state.available_mb:.0f} MB" for state in (before, after))
    lines.append(f"| memory available | {' | '.join(free)} |")
    return [*lines, "", *(f"- {fact}" for fact in facts(report.device))]
