"""How a plan is run: launched as a CUDA graph where that can be, else enqueued every time."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from anoco_edge.errors import AnocoError
from anoco_edge.plans.device import CapturedGraph, DeviceMemory

MOST_SIZES = 4
"""Batch sizes that have a context and a graph at a time: one picture, a full batch and what is left
at the end are three. Each context takes memory of its own."""

Context = Any


class Contexts(Protocol):
    """A plan, as launching sees it."""

    def new_context(self) -> Context: ...

    def set_shape(self, context: Context, shape: tuple[int, ...]) -> None: ...

    def enqueue(self, context: Context, stream: int) -> None: ...


class GraphLauncher:
    """One for an engine; whoever calls sees to it that nobody else does meanwhile.

    A graph holds for the state that its context was in, and another shape would spoil it: each
    batch size has a context of its own. The first run of a size is enqueued, as TensorRT wants it
    before a capture; what follows are launches. Where a capture fails, one context serves all
    sizes from there on, and `remark` says why.
    """

    def __init__(self, plan: Contexts, memory: DeviceMemory) -> None:
        self.remark = ""
        self._plan, self._memory = plan, memory
        self._idle: list[Context] = [plan.new_context()]  # without a graph
        # By batch size, the last used last:
        self._graphs: dict[int, tuple[Context, CapturedGraph]] = {}

    def queue(self, shape: tuple[int, ...]) -> None:
        """The run of a batch of pixels of that shape."""
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
        """Graphs go before the contexts that they were captured from."""
        with contextlib.suppress(AnocoError):
            self._retire_all()
        self._graphs.clear()
        self._idle.clear()

    def _enqueue(self, context: Context) -> None:
        self._plan.enqueue(context, self._memory.stream)

    def _context(self) -> Context:
        """One without a graph."""
        if not self._idle and len(self._graphs) < MOST_SIZES:
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
        """Take its graph from the context that was used longest ago."""
        self._memory.wait()  # it may be running
        context, graph = self._graphs.pop(next(iter(self._graphs)))
        graph.close()
        self._idle.append(context)
