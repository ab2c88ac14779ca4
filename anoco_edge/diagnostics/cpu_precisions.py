"""Finds out in which precisions the processor can compute the backbone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anoco_edge.diagnostics.findings import Finding, attempt
from anoco_edge.engines import ENGINES
from anoco_edge.engines.cpu_precision import BF16_ENGINE, INSTRUCTIONS, kept_from_bf16, why_not_here
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.machine import cpu_flags

GROUP = "cpu precision"
_USE_AUTO = "use `cpu_precision='auto'`"


def precision_findings() -> Iterator[Finding]:
    """Say for FP32, BF16 and INT8 whether the processor has it and which engines use it."""
    yield Finding(GROUP, "fp32", "ok", f"with {_engines('fp32')}")
    yield _bf16_finding()
    if missing := why_not_here("int8"):
        yield Finding(GROUP, "int8", "absent", f"{missing}; INT8 graphs run, without being faster")
    else:
        words = f"{_found('int8')}: INT8 graphs run fast with {_engines('int8')}"
        yield Finding(GROUP, "int8", "ok", words)


def require_precision(findings: Sequence[Finding], asked: str) -> None:
    """Raise EnvironmentMissingError where a precision was asked for and does not work here."""
    for finding in findings:
        if finding.group == GROUP and finding.name == asked and finding.state != "ok":
            raise EnvironmentMissingError(
                f"{asked} was asked for: {finding.detail}", hint=finding.help or _USE_AUTO
            )


def _bf16_finding() -> Finding:
    if missing := why_not_here("bf16"):
        return Finding(GROUP, "bf16", "absent", missing)
    package = ENGINES.get(BF16_ENGINE).missing_package()
    if package:
        error = ENGINES.get(BF16_ENGINE).missing_error(package)
        words = f"{_found('bf16')}, but {BF16_ENGINE} is not installed, which alone uses it"
        return Finding(GROUP, "bf16", "absent", words, error.hint.removeprefix("install it with: "))
    return attempt(GROUP, "bf16", _try_bf16)


def _try_bf16() -> str:
    from anoco_edge.engines.openvino import compiled_precision

    if (given := compiled_precision("bf16")) != "bf16":
        raise EnvironmentMissingError(
            f"OpenVINO compiles for {given} where bf16 is asked for",
            hint="update openvino",
        )
    kept = kept_from_bf16()
    new = f"new products stay in FP32: {kept}" if kept else "new products use it"
    return f"{_found('bf16')}, with {BF16_ENGINE} in {_runtimes()}; {new}"


def _runtimes() -> str:
    native = any(spec.name == BF16_ENGINE for spec in ENGINES.native())
    return "both runtimes" if native else "Python"


def _found(precision: str) -> str:
    return ", ".join(name for name in INSTRUCTIONS[precision][0] if name in cpu_flags())


def _engines(precision: str) -> str:
    return " and ".join(spec.name for spec in ENGINES if precision in spec.cpu_precisions)
