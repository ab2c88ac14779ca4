"""The parity report as a table.

A manifest may hold anything in this place. A value that is not as export writes it is shown as "?",
so that the rest of the bundle can still be shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich import box
from rich.table import Column, Table

from anoco_edge.bundle.parity_report import FusionReport
from anoco_edge.cli.console import plain

_COLUMNS = {
    "min_cosine": ("cos min", "min_cosine"),
    "mean_cosine": ("cos mean", "mean_cosine"),
    "max_norm_error": ("norm", "max_norm_error"),
    "energy_spearman": ("rank", "min_energy_spearman"),
    "top_energy_error": ("top", "max_top_energy_error"),
}
_WORST = 5  # layers that are named; --json has all
_UNKNOWN = "?"


def parity_table(parity: Mapping[str, Any]) -> Table:
    """Return a table with one row for each check and one for the limits."""
    against, precision, patches = (
        _text(parity.get(k)) for k in ("against", "precision", "patches")
    )
    title = plain(f"parity with {against}, {precision}, {patches} patches")
    table = Table(Column("check", overflow="fold"), title=title, box=box.SIMPLE_HEAD)
    for heading, _ in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for check in _checks(parity):
        measured = _object(check.get("measured"))
        figures = (_figure(key, measured.get(key)) for key in _COLUMNS)
        table.add_row(plain(_text(check.get("runtime"))), *figures)
    limits = _object(parity.get("limits"))
    table.add_row(
        "limit", *(_figure(key, limits.get(limit)) for key, (_, limit) in _COLUMNS.items())
    )
    return table


def parity_remarks(parity: Mapping[str, Any]) -> list[str]:
    """Return what the table does not say, one remark a line."""
    remarks = [
        "cosine and relative norm error of patches; of their ANoCo energies rank correlation and "
        "relative error of the largest 1 %"
    ]
    remarks += [f"on the device: {_text(parity['device'])}"] if "device" in parity else []
    for check in _checks(parity):
        if "largest" in check:
            largest = _object(check["largest"])
            times = _formatted(largest.get("times_to_overflow"), ".3g")
            tensor = _text(largest.get("tensor"))
            remarks.append(f"closest to overflow: {tensor}, {times} times below")
    remarks += [f"TensorRT: {_fusion_summary(parity['fusion'])}"] if "fusion" in parity else []
    return remarks + (_int8_remarks(_object(parity["int8"])) if "int8" in parity else [])


def unfused_warning(parity: Mapping[str, Any]) -> str:
    """Return a warning where the graph was exported although TensorRT does not fuse attention."""
    if _object(parity.get("fusion")).get("unfused") is not True:
        return ""
    return "attention is not fused (allowed at export): a GPU takes several times as long"


def _fusion_summary(fusion: Any) -> str:
    try:
        return TypeAdapter(FusionReport).validate_python(fusion).summary
    except ValidationError:
        return _UNKNOWN


def few_pictures(parity: Mapping[str, Any]) -> str:
    """Return a warning where INT8 ranges rest on few pictures, with the measured effect."""
    int8 = _object(parity.get("int8"))
    number, enough = len(_list(int8.get("pictures"))), int8.get("enough_pictures", 0)
    if not _is_number(enough) or number >= enough:
        return ""
    if int8.get("halves") is None:
        effect = "one picture cannot be split, so what that does is not known"
    else:
        halves = _object(int8["halves"])
        effect = (
            "ranges from either half of them change the largest energies by up to "
            f"{_formatted(halves.get('top_energy_error'), '.1%')} (rank correlation "
            f"{_formatted(halves.get('energy_spearman'), '.4f')})"
        )
    what = f"{number} calibration picture{'s are' if number > 1 else ' is'} few"
    return f"{what}, {enough} are advised: {effect}"


def _int8_remarks(int8: Mapping[str, Any]) -> list[str]:
    costs = {k: v for k, v in _object(int8.get("layers")).items() if _is_number(v)}
    out = [_text(name) for name in _list(int8.get("left_out"))]
    worst = sorted(costs, key=lambda name: -costs[name])[:_WORST]
    left = f"left in {_text(int8.get('rest')).upper()}: {', '.join(out) or 'none'}"
    most = _text(int8.get("most_left_out"))
    return [
        f"INT8: {len(costs) - len(out)} of {len(costs)} layers; {left} (up to {most} may be)",
        f"ranges: {_text(int8.get('method'))}, {len(_list(int8.get('pictures')))} pictures",
        "energies move most, by layer alone in INT8: "
        + ", ".join(f"{name} {costs[name]:.1%}" for name in worst),
        f"gate: {_text(int8.get('arithmetic'))}",
    ]


def _figure(key: str, value: Any) -> str:
    """Format cosines and ranks with all digits that differ from one, errors with three."""
    if key.endswith("error"):
        return _formatted(value, ".3g")
    return _formatted(value, ".7f").rstrip("0").rstrip(".")


def _formatted(value: Any, form: str) -> str:
    return format(value, form) if _is_number(value) else _UNKNOWN


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) or _is_number(value) else _UNKNOWN


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _checks(parity: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_object(check) for check in _list(parity.get("checks"))]
