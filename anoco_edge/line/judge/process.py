"""The line's side of the judge: starts it, gives it frames, kills and replaces it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

from anoco_edge.line.core.effects import (
    Effect,
    ForgetProduct,
    JudgePicture,
    PrepareProduct,
    ReplaceJudge,
)
from anoco_edge.line.core.events import (
    Event,
    JudgeAnswer,
    JudgeDown,
    JudgeProgress,
    JudgeUp,
    PreparationFailure,
    PreparedProduct,
    ProductReady,
)
from anoco_edge.line.frame_memory import FrameMemory, Slot
from anoco_edge.line.judge.messages import (
    CaptureSpec,
    ForgetOrder,
    JudgeOrder,
    JudgeSetup,
    Ping,
    Pong,
    PrepareOrder,
    ProductOffer,
)
from anoco_edge.line.signed_bundles import BundleTrust
from anoco_edge.line.store.rows import CaptureOrigin
from anoco_edge.pipeline.runtime_choice import RuntimeName

JUDGE_PROGRAM = "anoco_edge.line.judge.child"
PING_SECONDS = 0.2
START_SECONDS = 120.0  # until its first word: Python and its packages may come from a slow disk
RESTART_SECONDS = 0.5  # at least between two starts: a judge that dies at once must not spin


class JudgeProcess:
    """Keeps one judge running and passes on what it says as events of the core.

    `post` is called from other threads, and so is `note` with lines for the log. The orders are
    those of the core's effects.
    """

    def __init__(
        self,
        products: dict[int, tuple[CaptureSpec, ...]],
        revision: str,
        memory: FrameMemory,
        post: Callable[[Event], None],
        *,
        note: Callable[[str], None] = lambda _: None,
        engine: str = "auto",
        runtime: RuntimeName = "auto",
        blocking_sync: bool = False,
        allow_random: bool = False,
        trust: BundleTrust | None = None,
        program: str = JUDGE_PROGRAM,
    ) -> None:
        self._setup = JudgeSetup(
            0,
            products,
            revision,
            memory.handle,
            memory.slots,
            memory.slot_bytes,
            engine,
            runtime,
            blocking_sync,
            allow_random,
            trust,
        )
        self._note = note
        self.remarks: dict[int, tuple[str, ...]] = {}
        """What runs each product, by its number, and why."""
        self._memory, self._post, self._program = memory, post, program
        self._lock = threading.Lock()
        self._number = 0
        self._started = 0.0
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._slots: dict[tuple[str, int], Slot] = {}
        self.origins: dict[PreparedProduct, tuple[CaptureOrigin, ...]] = {}

    @property
    def pid(self) -> int | None:
        """The process of the judge that runs now."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start a judge; the events of its life follow."""
        ours, theirs = socket.socketpair()
        handles = (theirs.fileno(), self._setup.frames)
        command = [sys.executable, "-m", self._program, str(handles[0])]
        with self._lock:
            self._number += 1
            number = self._number
            self._started = time.monotonic()
            self._process = subprocess.Popen(command, pass_fds=handles, stdin=subprocess.DEVNULL)
            theirs.close()
            self._pipe = pipe = Connection(ours.detach())
            process = self._process
        threading.Thread(
            target=self._listen, args=(number, process, pipe), name=f"judge {number}", daemon=True
        ).start()
        self._send(pipe, replace(self._setup, judge=number))

    def carry_out(self, effect: Effect, slot: Slot | None = None) -> None:
        """Carry out an effect of the core that is for the judge; `slot` holds its frame."""
        if isinstance(effect, ReplaceJudge):
            self._replace(effect.judge)
            return
        with self._lock:
            pipe = self._pipe
        if pipe is None:
            return
        if isinstance(effect, JudgePicture) and slot is not None and effect.judge == self._number:
            self._memory.hold(slot)
            with self._lock:
                self._slots[effect.uid, effect.capture] = slot
            self._send(pipe, JudgeOrder(effect.uid, effect.capture, slot, effect.product))
        elif isinstance(effect, PrepareProduct):
            self._send(pipe, PrepareOrder(effect.number))
        elif isinstance(effect, ForgetProduct):
            self._send(pipe, ForgetOrder(effect.product))

    def close(self) -> None:
        """End the judge for good."""
        self._closed = True
        self._kill()

    # ---- one judge

    def _replace(self, judge: int) -> None:
        """Kill a judge, hung or not, and start another; the core goes on meanwhile."""
        with self._lock:
            if judge != self._number or self._closed:
                return
        self._kill()
        pause = max(self._started + RESTART_SECONDS - time.monotonic(), 0.0)
        timer = threading.Timer(pause, self._start_again)
        timer.daemon = True
        timer.start()

    def _start_again(self) -> None:
        if not self._closed:
            self.start()

    def _kill(self) -> None:
        with self._lock:
            process = self._process
            self._process = self._pipe = None
            slots, self._slots = self._slots, {}
        if process is not None:
            process.kill()  # SIGKILL ends a stopped process too
            process.wait()
        for slot in slots.values():
            self._memory.let_go(slot)

    def _send(self, pipe: Connection, message: object) -> None:
        with contextlib.suppress(OSError):  # its end is noticed by the thread that listens
            pipe.send(message)

    def _listen(self, number: int, process: subprocess.Popen[bytes], pipe: Connection) -> None:
        up = asked = False
        with pipe, contextlib.suppress(EOFError, OSError):
            if not pipe.poll(START_SECONDS):
                process.kill()
            pipe.recv()  # its first word: everything is imported
            up = True
            self._post(JudgeUp(number))
            while True:
                if pipe.poll(PING_SECONDS):
                    message = pipe.recv()
                    asked = asked and not isinstance(message, Pong)
                    self._pass_on(number, message)
                elif not asked:  # a judge that hangs must not find many when it wakes
                    asked = True
                    self._send(pipe, Ping())
        code = process.wait()
        if up:
            self._post(JudgeDown(number, f"its process ended with {code}"))
        else:  # the core has not heard of it, so it cannot ask for another
            self._replace(number)

    def _pass_on(self, number: int, message: object) -> None:
        if isinstance(message, Pong):
            self._post(JudgeProgress(number))
        elif isinstance(message, ProductOffer):
            self.origins[message.product] = message.origins
            self._say_what_runs(message)
            self._post(ProductReady(number, message.product))
        elif isinstance(message, PreparationFailure):
            self._post(message)
        elif isinstance(message, JudgeAnswer):
            with self._lock:
                slot = self._slots.pop((message.uid, message.capture), None)
            if slot is not None:
                self._memory.let_go(slot)
            self._post(message)

    def _say_what_runs(self, offer: ProductOffer) -> None:
        """Note what runs a product, unless the judge before ran it in the same way."""
        number = offer.product.number
        if self.remarks.get(number) != offer.remarks:
            self.remarks[number] = offer.remarks
            for remark in offer.remarks:
                self._note(remark)
