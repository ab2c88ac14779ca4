"""The parity report as a table."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Column, Table

from anoco_edge.cli.console import plain

_COLUMNS = {
    "min_cosine": ("cos min", "min_cosine"),
    "mean_cosine": ("cos mean", "mean_cosine"),
    "max_norm_error": ("norm", "max_norm_error"),
    "energy_spearman": ("rank", "min_energy_spearman"),
    "top_energy_error": ("top", "max_top_energy_error"),
}
_WORST = 5  # layers that are named; --json has all


def parity_table(parity: dict[str, Any]) -> Table:
    """One row a check, one for the limits; `parity` is the manifest's."""
    title = f"parity with {parity['against']}, {parity['precision']}, {parity['patches']} patches"
    table = Table(Column("check", overflow="fold"), title=plain(title), box=box.SIMPLE_HEAD)
    for heading, _ in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for check in parity["checks"]:
        measured = check["measured"]
        table.add_row(plain(check["runtime"]), *(_figure(key, measured[key]) for key in _COLUMNS))
    limits = parity["limits"]
    table.add_row("limit", *(_figure(key, limits[limit]) for key, (_, limit) in _COLUMNS.items()))
    return table


def parity_remarks(parity: dict[str, Any]) -> list[str]:
    """What the table does not say."""
    remarks = [
        "cosine and relative norm error of patches; of their ANoCo energies rank correlation and "
        "relative error of the largest 1 %"
    ]
    remarks += [f"on the device: {parity['device']}"] if "device" in parity else []
    for check in parity["checks"]:
        if "largest" in check:
            largest = check["largest"]
            times = largest["times_to_overflow"]
            remarks.append(f"closest to overflow: {largest['tensor']}, {times:.3g} times below")
    return remarks + (_int8_remarks(parity["int8"]) if "int8" in parity else [])


def few_pictures(parity: dict[str, Any]) -> str:
    """A warning where INT8 ranges rest on few pictures, with what that was measured to do."""
    int8 = parity.get("int8")
    if int8 is None or len(int8["pictures"]) >= int8["enough_pictures"]:
        return ""
    number, halves = len(int8["pictures"]), int8["halves"]
    if halves is None:
        effect = "one picture cannot be split, so what that does is not known"
    else:
        effect = (
            "ranges from either half of them change the largest energies by up to "
            f"{halves['top_energy_error']:.1%} (rank correlation {halves['energy_spearman']:.4f})"
        )
    what = f"{number} calibration picture{'s are' if number > 1 else ' is'} few"
    return f"{what}, {int8['enough_pictures']} are advised: {effect}"


def _int8_remarks(int8: dict[str, Any]) -> list[str]:
    costs, out = int8["layers"], int8["left_out"]
    inside = len(costs) - len(out)
    worst = sorted(costs, key=lambda name: -costs[name])[:_WORST]
    left = f"left in {int8['rest'].upper()}: {', '.join(out) or 'none'}"
    return [
        f"INT8: {inside} of {len(costs)} layers; {left} (up to {int8['most_left_out']} may be)",
        f"ranges: {int8['method']}, {len(int8['pictures'])} pictures",
        "energies move most, by layer alone in INT8: "
        + ", ".join(f"{name} {costs[name]:.1%}" for name in worst),
        f"gate: {int8['arithmetic']}",
    ]


def _figure(key: str, value: float) -> str:
    """Cosines and ranks with the digits that differ from one, errors as they are."""
    return f"{value:.3g}" if key.endswith("error") else f"{value:.7f}".rstrip("0").rstrip(".")
