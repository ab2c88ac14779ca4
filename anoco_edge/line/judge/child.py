"""The judge: a process that holds detectors and judges frames in shared memory.

It is started by `judge_process` and ends when its pipe is closed. One thread judges; another opens
the next product beside the current one, so that a change of product does not stop the line.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from anoco_edge.errors import AnocoError
from anoco_edge.line.core.events import (
    JudgeAnswer,
    Opinion,
    PreparationFailure,
    PreparedProduct,
)
from anoco_edge.line.frame_memory import SharedFrames
from anoco_edge.line.judge.messages import (
    ForgetOrder,
    JudgeOrder,
    JudgeSetup,
    Ping,
    Pong,
    PrepareOrder,
    ProductOffer,
)
from anoco_edge.line.judge.opinions import CaptureJudge, checksum_of, open_detector, settings_hash
from anoco_edge.line.signed_bundles import open_signed
from anoco_edge.line.store.rows import CaptureOrigin
from anoco_edge.line.words.constants import Reason


class Judge:
    """Detectors by product, and what is done with the orders of the line."""

    def __init__(self, setup: JudgeSetup, pipe: Connection) -> None:
        self._setup = setup
        self._pipe = pipe
        self._sending = threading.Lock()
        self._frames = SharedFrames(setup.frames, setup.slots, setup.slot_bytes)
        self._held: dict[PreparedProduct, tuple[CaptureJudge, ...]] = {}
        self._wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._prepare_all, name="prepare", daemon=True).start()

    def serve(self) -> None:
        """Say that the judge is there, and carry out orders until the line closes the pipe."""
        self._send(Pong())
        while True:
            order = self._pipe.recv()
            if isinstance(order, JudgeOrder):
                begin = time.perf_counter_ns()
                opinion = self._opinion(order)
                took = time.perf_counter_ns() - begin
                self._send(JudgeAnswer(self._setup.judge, order.uid, order.capture, opinion, took))
            elif isinstance(order, PrepareOrder):
                self._wanted.put(order.number)
            elif isinstance(order, ForgetOrder):
                self._held.pop(order.product, None)
            elif isinstance(order, Ping):
                self._send(Pong())

    def _send(self, message: object) -> None:
        with self._sending:
            self._pipe.send(message)

    # ---- products

    def _prepare_all(self) -> None:
        while True:
            number = self._wanted.get()
            try:
                self._send(self._prepare(number))
            except AnocoError as error:
                self._send(PreparationFailure(self._setup.judge, number, str(error)))
            except OSError:
                return  # the line has ended
            except Exception as error:  # noqa: BLE001 (whatever an engine raises: say it)
                self._send(PreparationFailure(self._setup.judge, number, repr(error)))

    def _prepare(self, number: int) -> ProductOffer:
        held, origins = [], []
        remarks: list[str] = []
        for spec in self._setup.products[number]:
            bundle, signed = open_signed(spec.bundle, self._setup.trust)
            detector, said = open_detector(
                bundle,
                spec.product,
                self._setup.engine,
                self._setup.runtime,
                blocking_sync=self._setup.blocking_sync,
                allow_random=self._setup.allow_random,
            )
            detector.probe_engine()  # one that fails is not offered, and the first part is no trial
            remarks += said
            product = detector.product
            if signed is not None and (trust := self._setup.trust) is not None:
                signed.check_opened(bundle.manifest, product)
                trust.check(bundle.path, documents_only=True)  # the native library read them, too
                trust.remember(signed)
            held.append(CaptureJudge(detector, spec))
            origins.append(
                CaptureOrigin(
                    str(bundle.path), bundle.manifest.checksum, product.name, product.generation
                )
            )
        judges = [(each.detector.bundle, each.detector.product) for each in held]
        sha256 = settings_hash(judges, self._setup.revision)
        generation = origins[0].generation
        prepared = PreparedProduct(number, generation, checksum_of(sha256), sha256)
        self._held[prepared] = tuple(held)
        return ProductOffer(prepared, tuple(origins), tuple(dict.fromkeys(remarks)))

    # ---- frames

    def _opinion(self, order: JudgeOrder) -> Opinion:
        held = self._held.get(order.product)
        if held is None:
            return Opinion("no-verdict", order.product, Reason.WRONG_PRODUCT)
        pixels = self._frames.view(order.slot)
        return held[order.capture].judge(pixels, order.product, order.capture)


def main() -> None:
    """Start with the handle of the pipe as the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the line, which ends the judge
    pipe = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, ConnectionError):
        setup = pipe.recv()
        assert isinstance(setup, JudgeSetup)
        Judge(setup, pipe).serve()
    os._exit(0)  # threads of engines must not keep a judge alive that nobody hears


if __name__ == "__main__":
    main()
