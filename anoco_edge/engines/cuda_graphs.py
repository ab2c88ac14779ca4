"""Runs a plan as a CUDA graph where that is possible, and enqueues every run where it is not."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from anoco_edge.errors import AnocoError
from anoco_edge.plans.device import CapturedGraph, DeviceMemory, NoGraphsError
from anoco_edge.scoring.capture_rule import capture_if_free, device_wide

MAX_GRAPHS = 4
"""How many batch sizes have a context and a graph at a time. One picture, a full batch and the rest
at the end make three. Each context takes memory of its own."""

MAX_FAILURES = 3
"""How many captures or launches of one batch size may fail in a row before graphs are given up.
Another library of the process can spoil one by chance, but hardly three."""

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
    TensorRT asks for one before a capture; the runs after it are launches of the graph. A capture
    or a launch that fails costs no frame: the run is enqueued, and the next run of that size tries
    again. After `MAX_FAILURES` in a row one context runs all sizes, and `remark` says why.
    """

    def __init__(self, plan: ExecutablePlan, memory: DeviceMemory) -> None:
        self.remark = ""
        self._plan, self._memory = plan, memory
        self._failures: dict[int, int] = {}  # in a row, by batch size
        self._idle: list[Context] = [plan.new_context()]  # contexts without a graph
        # By batch size; the one that was used last is the last.
        self._graphs: dict[int, tuple[Context, CapturedGraph]] = {}

    def queue(self, shape: tuple[int, ...]) -> None:
        """Queue the run of a batch of pixels of this shape."""
        if shape[0] in self._graphs and self._launch(shape[0]):
            return
        context = self.queue_plainly(shape)
        if not self.remark:
            self._capture(context, shape[0])

    def queue_plainly(self, shape: tuple[int, ...]) -> Context:
        """Queue a run without a graph, and return its context.

        A graph of this batch size is freed; a later run captures it again.
        """
        if shape[0] in self._graphs:
            self._retire(shape[0])
        context = self._context()
        self._plan.set_shape(context, shape)
        self._enqueue(context)
        return context

    def is_captured(self, batch: int) -> bool:
        """Whether the next run of this batch size launches a graph."""
        return batch in self._graphs

    def close(self) -> None:
        """Free all graphs, then the contexts that they were captured from."""
        with contextlib.suppress(AnocoError):
            self._retire_all()
        self._graphs.clear()
        self._idle.clear()

    def _enqueue(self, context: Context) -> None:
        self._plan.enqueue(context, self._memory.stream)

    def _launch(self, batch: int) -> bool:
        """Launch the graph of a batch size; False if that failed, and the graph is gone then."""
        self._graphs[batch] = self._graphs.pop(batch)
        try:
            self._graphs[batch][1].launch()
        except AnocoError as error:
            try:
                self._retire(batch)
            except AnocoError:
                raise error from None  # the GPU is lost, which is no matter of graphs
            self._failed(batch, error)
            return False
        self._failures.pop(batch, None)
        return True

    def _context(self) -> Context:
        """Find or make a context without a graph."""
        if not self._idle and len(self._graphs) < MAX_GRAPHS:
            try:
                self._idle.append(self._plan.new_context())
            except AnocoError as error:
                self._give_up(error)
        if not self._idle:
            self._retire(next(iter(self._graphs)))  # it was used longest ago
        return self._idle[0]

    def _capture(self, context: Context, batch: int) -> None:
        with capture_if_free() as free:
            if not free:
                return  # another engine is being opened or closed; the next run tries again
            try:
                graph = self._memory.capture(lambda: self._enqueue(context))
            except AnocoError as error:
                failed = error
            else:
                self._idle.remove(context)
                self._graphs[batch] = (context, graph)
                return
        self._failed(batch, failed)

    def _failed(self, batch: int, error: AnocoError) -> None:
        self._failures[batch] = self._failures.get(batch, 0) + 1
        if self._failures[batch] >= MAX_FAILURES or isinstance(error, NoGraphsError):
            self._give_up(error)

    def _give_up(self, error: AnocoError) -> None:
        self.remark = (
            f"not captured into a CUDA graph, so it is enqueued for every batch ({error.what})"
        )
        self._retire_all()
        with device_wide():
            del self._idle[1:]

    def _retire_all(self) -> None:
        while self._graphs:
            self._retire(next(iter(self._graphs)))

    def _retire(self, batch: int) -> None:
        """Free the graph of a batch size; its context becomes idle."""
        self._memory.wait()  # the graph may be running
        context, graph = self._graphs.pop(batch)
        with device_wide():
            graph.close()
        self._idle.append(context)
