"""Reports whether a device computes correctly, how fast it is, and in which state it was.

A report is one JSON file and the same as Markdown, which users send in. `table` makes the table of
devices in the documentation from several reports.
"""

from anoco_edge.diagnostics.device_report.measurements import ReportRequest, measure_device
from anoco_edge.diagnostics.device_report.report import (
    DeviceReport,
    read_device_report,
    write_device_report,
)
from anoco_edge.diagnostics.device_report.state import DeviceState, read_state
from anoco_edge.diagnostics.device_report.table import device_table

__all__ = [
    "DeviceReport",
    "DeviceState",
    "ReportRequest",
    "device_table",
    "measure_device",
    "read_device_report",
    "read_state",
    "write_device_report",
]
