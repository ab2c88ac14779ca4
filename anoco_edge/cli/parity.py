"""The parity report as a table."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Column, Table

_COLUMNS = {
    "min_cosine": ("cos min", "min_cosine"),
    "mean_cosine": ("cos mean", "mean_cosine"),
    "max_norm_error": ("norm", "max_norm_error"),
    "energy_spearman": ("rank", "min_energy_spearman"),
    "top_energy_error": ("top", "max_top_energy_error"),
}


def parity_table(parity: dict[str, Any]) -> Table:
    """One row a check, one for the limits; `parity` is the manifest's."""
    title = f"parity with {parity['against']}, {parity['precision']}, {parity['patches']} patches"
    table = Table(Column("check", overflow="fold"), title=title, box=box.SIMPLE_HEAD)
    for heading, _ in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for check in parity["checks"]:
        measured = check["measured"]
        table.add_row(check["runtime"], *(_figure(key, measured[key]) for key in _COLUMNS))
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
    return remarks


def _figure(key: str, value: float) -> str:
    """Cosines and ranks with the digits that differ from one, errors as they are."""
    return f"{value:.3g}" if key.endswith("error") else f"{value:.7f}".rstrip("0").rstrip(".")
