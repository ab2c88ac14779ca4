"""report.html: the results of a run on one page that can be mailed, printed and sorted."""

from __future__ import annotations

from anoco_edge.results.report_page import Entry, thumbnail, write_report

__all__ = ["Entry", "thumbnail", "write_report"]
