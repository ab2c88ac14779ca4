"""Reads power mode, clocks, temperatures and memory, which figures depend on.

They come from nvpmodel and nvidia-smi where these are installed, and from sysfs, which every user
may read.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from anoco_edge.machine import available_memory_mb, total_memory_mb

Run = Callable[[Sequence[str]], str]
"""Returns what a command prints; empty if the command is not there or fails."""

_SECONDS = 10
_SMI = (
    "name,driver_version,pstate,power.draw,power.limit,clocks.sm,clocks.max.sm,clocks.mem,"
    "temperature.gpu,memory.used,memory.total"
)
_GPU_CLOCK = re.compile(r"gpu|ga10b|gv11b|gp10b|gb10b", re.IGNORECASE)


class DeviceState(BaseModel):
    """What was found; what was not is left out. Clocks are in MHz, temperatures in Celsius."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    power_mode: str = ""
    clocks: dict[str, str] = {}
    temperatures: dict[str, float] = {}
    gpu: dict[str, str] = {}
    memory_mb: float = 0.0
    available_mb: float = 0.0

    @property
    def hottest(self) -> float | None:
        """The highest temperature; None if there is no sensor."""
        return max(self.temperatures.values(), default=None)


def run_command(command: Sequence[str]) -> str:
    """Run a tool that may not be installed, and return its output.

    >>> run_command(["no-such-tool-of-anybody"])
    ''
    """
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def read_state(root: Path = Path("/"), run: Run = run_command) -> DeviceState:
    """Read the state of this machine as it is now.

    >>> read_state().memory_mb > 0
    True
    """
    gpu = _nvidia_smi(run)
    temperatures = dict(_thermal_zones(root)) | dict(_sensors(root))
    if _is_number(gpu.get("temperature.gpu", "")):
        temperatures["GPU (nvidia-smi)"] = float(gpu.pop("temperature.gpu"))
    return DeviceState(
        power_mode=_power_mode(run),
        clocks=dict(_cpu_clocks(root)) | dict(_gpu_clocks(root)),
        temperatures=temperatures,
        gpu=gpu,
        memory_mb=round(total_memory_mb()),
        available_mb=round(available_memory_mb()),
    )


class SystemFacts(TypedDict, total=False):
    """The board and its system software; what a machine does not have is left out."""

    board: str
    jetson_linux: str
    kernel: str


def system_facts(root: Path = Path("/")) -> SystemFacts:
    """Read the board, the release of Jetson Linux and the kernel, as far as there are such."""
    facts: SystemFacts = {}
    if board := _text(root / "proc/device-tree/model"):
        facts["board"] = board
    if release := _text(root / "etc/nv_tegra_release").partition("\n")[0].lstrip("# "):
        facts["jetson_linux"] = release
    if kernel := _text(root / "proc/sys/kernel/osrelease"):
        facts["kernel"] = kernel
    return facts


def _power_mode(run: Run) -> str:
    """Ask nvpmodel, which prints `NV Power Mode: MAXN` and its number on the next line."""
    found = re.search(r"NV Power Mode:\s*(\S[^\n]*)\n\s*(\d+)", run(["nvpmodel", "-q"]))
    return f"{found[1].strip()} ({found[2]})" if found else ""


def _nvidia_smi(run: Run) -> dict[str, str]:
    printed = run(["nvidia-smi", f"--query-gpu={_SMI}", "--format=csv,noheader,nounits"])
    values = [value.strip() for value in printed.partition("\n")[0].split(",")]
    names = _SMI.split(",")
    if len(values) != len(names):
        return {}
    # On a Jetson nvidia-smi answers [N/A] to most questions.
    return {n: v for n, v in zip(names, values, strict=True) if v and "N/A" not in v}


def _cpu_clocks(root: Path) -> Iterator[tuple[str, str]]:
    """Make one line for cores that have the same clocks, as those of a cluster do."""
    groups: dict[str, list[str]] = {}
    for folder in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq")):
        top, governor = (_text(folder / n) for n in ("scaling_max_freq", "scaling_governor"))
        low = _text(folder / "scaling_min_freq")
        if top.isdecimal():
            pinned = ", pinned" if low == top else ""
            words = f"up to {int(top) / 1000:.0f} MHz ({governor}{pinned})"
            groups.setdefault(words, []).append(folder.parent.name[3:])
    for words, cores in groups.items():
        yield f"cpu {','.join(cores)}", words


def _gpu_clocks(root: Path) -> Iterator[tuple[str, str]]:
    for folder in sorted((root / "sys/class/devfreq").glob("*")):
        now, low, top = (_text(folder / f"{n}_freq") for n in ("cur", "min", "max"))
        if _GPU_CLOCK.search(folder.name) and now.isdecimal() and top.isdecimal():
            pinned = ", pinned" if low == top else ""
            governor = _text(folder / "governor")
            megahertz = f"{int(now) / 1e6:.0f} of {int(top) / 1e6:.0f} MHz"
            yield f"gpu {folder.name}", f"{megahertz} ({governor}{pinned})"


def _thermal_zones(root: Path) -> Iterator[tuple[str, float]]:
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        yield from _celsius(_text(zone / "type") or zone.name, zone / "temp")


def _sensors(root: Path) -> Iterator[tuple[str, float]]:
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        for value in sorted(chip.glob("temp*_input")):
            label = _text(value.with_name(value.name.replace("_input", "_label")))
            name = _text(chip / "name") or chip.name
            yield from _celsius(" ".join(filter(None, (name, label))), value)


def _celsius(name: str, path: Path) -> Iterator[tuple[str, float]]:
    text = _text(path)  # a sensor that is switched off cannot be read
    if _is_number(text):
        yield name, round(float(text) / 1000, 1)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None
