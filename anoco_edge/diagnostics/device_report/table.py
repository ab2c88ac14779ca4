"""Makes the table of devices that the documentation shows, from reports that were sent in."""

from __future__ import annotations

from collections.abc import Iterable

from anoco_edge.diagnostics.bench.tables import markdown
from anoco_edge.diagnostics.device_report.report import DeviceReport, FrameFigures

NONE_YET = "No report from a device has been sent in yet."


def device_table(reports: Iterable[DeviceReport]) -> str:
    """Make one row for each report that measured a frame, unless its GPU was simulated.

    >>> device_table([])
    'No report from a device has been sent in yet.'
    """
    rows = [
        _row(report, report.frames)
        for report in reports
        if report.frames is not None and not report.simulated
    ]
    if not rows:
        return NONE_YET
    return markdown(sorted(rows, key=lambda row: (row["device"], row["model"], row["engine"])))


def _row(report: DeviceReport, frames: FrameFigures) -> dict[str, str]:
    total, backbone = (frames.stages[name].p50 for name in ("total", "backbone"))
    return {
        "device": report.name,
        "power mode": report.before.power_mode or "-",
        "model": f"{report.bundle.backbone} {report.bundle.precision} {report.bundle.input}",
        "engine": report.engine,
        "scorer": report.scorer,
        "runtime": report.runtime,
        "bank": frames.settings["bank"],
        "frame p50 / p99": f"{total:.1f} / {frames.stages['total'].p99:.1f} ms",
        "backbone": f"{backbone:.1f} ms",
        "all else": f"{100 * (total - backbone) / total:.0f} %",
        "self-test": "passed" if report.selftest and not report.problems else "failed",
        "rows that disagree": str(sum(row.disagree for row in report.agreement)),
        "date": report.created[:10],
    }
