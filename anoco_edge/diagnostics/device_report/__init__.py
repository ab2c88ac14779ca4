"""One report of a device: does it compute what it must, how fast, and in which state was it?

A report is one JSON file and the same as Markdown, made to be sent in; `table` turns several into
the table of devices that the README shows.
"""

from anoco_edge.diagnostics.device_report.measuring import Request, measure_device
from anoco_edge.diagnostics.device_report.report import Report, read_report, write_report
from anoco_edge.diagnostics.device_report.state import DeviceState, read_state
from anoco_edge.diagnostics.device_report.table import device_table

__all__ = [
    "DeviceState",
    "Report",
    "Request",
    "device_table",
    "measure_device",
    "read_report",
    "read_state",
    "write_report",
]
