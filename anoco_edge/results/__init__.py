"""What a run leaves behind: results.jsonl, results.csv, overlays and report.html in one folder."""

from anoco_edge.results.runner import Summary, inspect_source
from anoco_edge.sinks.folder import ResultFolder, SavePolicy

__all__ = ["ResultFolder", "SavePolicy", "Summary", "inspect_source"]
