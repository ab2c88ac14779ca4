"""What a run leaves behind: results.jsonl, results.csv, overlays and report.html in one folder."""

from anoco_edge.results.folder import ResultFolder, SavePolicy
from anoco_edge.results.runner import Summary, inspect_source

__all__ = ["ResultFolder", "SavePolicy", "Summary", "inspect_source"]
