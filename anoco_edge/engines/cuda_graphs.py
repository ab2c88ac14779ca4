"""Runs a plan as a CUDA graph where that is possible, and enqueues every run where it is not."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from anoco_edge.errors import AnocoError
from anoco_edge.plans.device import CapturedGraph, DeviceMemory

MAX_GRAPHS = 4
"""How many batch sizes have a context and a graph at a time. One picture, a full batch and the rest
at the end make three. Each context takes memory of its own."""

Context = Any


class ExecutablePlan(Protocol):
    """The part of a plan that the launcher uses."""

    def new_context(self) -> Context: ...

    def set_shape(self, context: Context, shape: tuple[int, ...]) -> None: ...

    def enqueue(self, context: Context, stream: int) -> None: ...


class GraphLauncher:
    """Queues the runs of one engine. One thread calls it at a time.

    A graph is valid for the state that its context was in, and setting another shape changes that
    state, so each batch size has a context of its own. The first run of a size is enqueued, because
    TensorRT asks for one before a capture; the runs after it are launches of the graph. Where a
    capture fails, one context runs all sizes from there on, and `remark` says why.
    """

    def __init__(self, plan: ExecutablePlan, memory: DeviceMemory) -> None:
        self.remark = ""
        self._plan, self._memory = plan, memory
        self._idle: list[Context] = [plan.new_context()]  # contexts without a graph
        # By batch size; the one that was used last is the last.
        self._graphs: dict[int, tuple[Context, CapturedGraph]] = {}

    def queue(self, shape: tuple[int, ...]) -> None:
        """Queue the run of a batch of pixels of this shape."""
        known = self._graphs.pop(shape[0], None)
        if known is not None:
            self._graphs[shape[0]] = known
            known[1].launch()
            return
        context = self._context()
        self._plan.set_shape(context, shape)
        self._enqueue(context)
        if not self.remark:
            self._capture(context, shape[0])

    def close(self) -> None:
        """Free all graphs, then the contexts that they were captured from."""
        with contextlib.suppress(AnocoError):
            self._retire_all()
        self._graphs.clear()
        self._idle.clear()

    def _enqueue(self, context: Context) -> None:
        self._plan.enqueue(context, self._memory.stream)

    def _context(self) -> Context:
        """Find or make a context without a graph."""
        if not self._idle and len(self._graphs) < MAX_GRAPHS:
            try:
                self._idle.append(self._plan.new_context())
            except AnocoError as error:
                self._give_up(error)
        if not self._idle:
            self._retire()
        return self._idle[0]

    def _capture(self, context: Context, batch: int) -> None:
        try:
            graph = self._memory.capture(lambda: self._enqueue(context))
        except AnocoError as error:
            self._give_up(error)
        else:
            self._idle.remove(context)
            self._graphs[batch] = (context, graph)

    def _give_up(self, error: AnocoError) -> None:
        self.remark = (
            f"not captured into a CUDA graph, so it is enqueued for every batch ({error.what})"
        )
        self._retire_all()
        del self._idle[1:]

    def _retire_all(self) -> None:
        while self._graphs:
            self._retire()

    def _retire(self) -> None:
        """Free the graph that was used longest ago; its context becomes idle."""
        self._memory.wait()  # the graph may be running
        context, graph = self._graphs.pop(next(iter(self._graphs)))
        graph.close()
        self._idle.append(context)
