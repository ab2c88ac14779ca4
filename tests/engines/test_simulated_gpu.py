"""The work that doubles queue on the simulated GPU: when it runs, and for how long it is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial

import pytest
from doubles.simulated import SimulatedGpu


@pytest.fixture
def streams(gpu_memory: SimulatedGpu) -> Iterator[tuple[int, int]]:
    made = gpu_memory.create_stream(), gpu_memory.create_stream()
    yield made
    for stream in made:
        gpu_memory("cuStreamDestroy_v2", stream)


def test_waiting_for_one_stream_keeps_the_work_of_another(
    gpu_memory: SimulatedGpu, streams: tuple[int, int]
) -> None:
    ran: list[int] = []
    for stream in streams:
        gpu_memory.queue(stream, partial(ran.append, stream), once=True)
    gpu_memory.wait(streams[1])
    gc.collect()
    assert ran == [streams[1]]
    gpu_memory.wait(streams[0])
    assert ran == [streams[1], streams[0]]


def test_nothing_is_collected_while_work_runs(
    gpu_memory: SimulatedGpu, streams: tuple[int, int]
) -> None:
    collects: list[bool] = []
    gpu_memory.queue(streams[0], lambda: collects.append(gc.isenabled()), once=True)
    gpu_memory.wait(streams[0])
    assert collects == [False]
    assert gc.isenabled()


def test_work_that_was_forgotten_is_an_error(
    gpu_memory: SimulatedGpu, streams: tuple[int, int]
) -> None:
    gpu_memory.forget(gpu_memory.queue(streams[0], lambda: None, once=False))
    with pytest.raises(KeyError):
        gpu_memory.wait(streams[0])
