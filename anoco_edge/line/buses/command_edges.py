"""Turns the command bits of a bus with registers or wires into events."""

from __future__ import annotations

from anoco_edge.line.core.events import (
    Acknowledge,
    CandidateDecision,
    ChangeProduct,
    Enable,
    Event,
    PlcBeat,
    Reset,
    Simulate,
    Trigger,
    TriggerRelease,
)
from anoco_edge.line.words.constants import CommandBit
from anoco_edge.line.words.registers import CommandImage


class CommandEdges:
    """Compares each image of the commands with the one before.

    All bits but ENABLE and SIMULATE act when they rise. What is high in the first image may have
    been high for long, so it is not taken for an edge.

    >>> edges = CommandEdges()
    >>> edges.read(CommandImage(CommandBit.TRIGGER | CommandBit.ENABLE))
    [PlcBeat(value=0), Enable(on=True)]
    >>> edges.read(CommandImage(CommandBit.ENABLE))
    [PlcBeat(value=0), TriggerRelease()]
    >>> edges.read(CommandImage(CommandBit.ENABLE | CommandBit.TRIGGER, trigger_seq=5))
    [PlcBeat(value=0), Trigger(seq=5, part_code='', client='')]
    """

    def __init__(self) -> None:
        self._before: CommandBit | None = None

    def read(self, image: CommandImage, by: str = "") -> list[Event]:
        """Return what the PLC has just said, RESET first and TRIGGER last; `by` names it."""
        before = self._before
        levels = CommandBit.ENABLE | CommandBit.SIMULATE
        old = image.bits & ~levels if before is None else before
        rising, falling = image.bits & ~old, old & ~image.bits
        self._before = image.bits
        events: list[Event] = [PlcBeat(image.plc_heartbeat)]
        if rising & CommandBit.RESET:
            events.append(Reset())
        for bit, kind in ((CommandBit.ENABLE, Enable), (CommandBit.SIMULATE, Simulate)):
            if (rising | falling) & bit:
                events.append(kind(bool(rising & bit)))
        if rising & CommandBit.RESULT_ACK:
            events.append(Acknowledge())
        if rising & CommandBit.CHANGE_PRODUCT:
            events.append(ChangeProduct(image.product_number))
        for bit, take in ((CommandBit.DROP_CANDIDATE, False), (CommandBit.TAKE_CANDIDATE, True)):
            if rising & bit:
                events.append(CandidateDecision(take, by))
        if falling & CommandBit.TRIGGER:
            events.append(TriggerRelease())
        if rising & CommandBit.TRIGGER:
            events.append(Trigger(image.trigger_seq, image.part_code))
        return events
