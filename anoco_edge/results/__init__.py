"""Typed rows of a run, and the runner that makes them and hands them to sinks."""

from anoco_edge.results.runner import inspect_source
from anoco_edge.results.sink import RunInfo, Sink
from anoco_edge.results.summary import RunSummary

__all__ = ["RunInfo", "RunSummary", "Sink", "inspect_source"]
