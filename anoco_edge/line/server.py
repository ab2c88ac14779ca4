"""The line itself: the core in one thread, and around it cameras, judge, buses and recorder.

Everything that happens comes as an event through one queue. Of the effects of an event, outputs are
carried out first and records last, so that nothing on the way to the wires waits for a disk.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from anoco_edge.line.buses.configured import Buses
from anoco_edge.line.cameras.actor import CameraOutlet
from anoco_edge.line.cameras.factory import make_camera, make_stored
from anoco_edge.line.config.station_config import StationConfig, optional_secret
from anoco_edge.line.core.effects import (
    DecideCandidate,
    Effect,
    ForgetProduct,
    FrameKey,
    JudgePicture,
    PrepareProduct,
    PutOut,
    RecordAccepted,
    RecordLate,
    RecordPart,
    ReleaseFrame,
    ReplaceJudge,
    Reply,
    Say,
    StateChange,
    TakePicture,
    TellStatus,
)
from anoco_edge.line.core.events import Event, PreparedProduct, StatusQuery, Tick, Trigger
from anoco_edge.line.core.line_core import LineCore
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Counters, Status
from anoco_edge.line.frame_memory import FrameMemory, Slot
from anoco_edge.line.judge.process import JudgeProcess
from anoco_edge.line.link.state import LinkState
from anoco_edge.line.link.station_link import NAME as SOCKET
from anoco_edge.line.link.station_link import StationLink
from anoco_edge.line.metrics import Depths, LineMetrics
from anoco_edge.line.signed_bundles import trust_of
from anoco_edge.line.store.database import (
    StationLock,
    new_run,
    read_counters,
    wall_time,
    writing_database,
)
from anoco_edge.line.store.keeper import StoreKeeper
from anoco_edge.line.store.outbox import webhook
from anoco_edge.line.store.recorder import Recorder
from anoco_edge.line.store.recorder_watch import RecorderWatch
from anoco_edge.line.store.retention import RetentionRules
from anoco_edge.line.store.rows import PartRow, RowWriter
from anoco_edge.line.words.constants import StatusBit
from anoco_edge.machine import share_malloc_arenas

_FIRST = (PutOut, Reply, TellStatus, TakePicture, JudgePicture)
Watch = Callable[[Effect], None]


class LineServer:
    """A station that runs from `start` to `stop`.

    `say` gets lines for the log; `watch` sees every effect after it was carried out. `alive` is
    called by the core's thread several times a second while nothing hangs.
    """

    def __init__(
        self,
        config: StationConfig,
        base: Path,
        *,
        say: Callable[[str], None],
        watch: Watch = lambda _: None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._say, self._watch, self._alive = config, say, watch, alive
        self._folder = base / config.station.folder
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._event: Event = Tick()
        """What the core handles now."""
        self._stopped = threading.Event()
        self._frames: dict[FrameKey, Slot] = {}
        self.status = Status()
        self._watched = RecorderWatch()
        rules = config.store
        self._rules = RetentionRules(
            rules.days,
            rules.max_megabytes * 1_000_000,
            rules.min_free_megabytes * 1_000_000,
            rules.keep_good_every,
            rules.near_threshold,
        )
        self._buses = Buses(config, base, self.post, self.figures, self._state, say)
        senders = dict(self._buses.senders)
        if (hook := config.webhook) is not None:
            token = optional_secret(base, hook.token_file)
            senders["webhook"] = webhook(hook.url, token, hook.timeout_s)
        share_malloc_arenas()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = StationLock(self._folder)
        writer = RowWriter(config.revision, tuple(senders))
        counters, run = self._open_store(writer)
        self.core = LineCore(config.line_settings(), run, counters, time.monotonic_ns())
        self._recorder = Recorder(self._folder, writer, say=say)
        self._keeper = StoreKeeper(self._folder, self._rules, senders, say=say)
        # The link to the station holds the latest frame of each camera and three more at most.
        self._memory = FrameMemory(slots=7 + 5 * len(config.cameras))
        self._link: StationLink | None = None
        if config.page is not None:
            state = LinkState(config, self.core)
            self._link = StationLink(
                self._folder / SOCKET,
                lambda: state.message(self.status),
                self.post,
                self.figures,
                self._memory,
                self._note,
            )
        trust = trust_of(config, base)
        if trust is not None and (made := trust.make_own_key()) is not None:
            say(f"made a key for what is taught at this station: {made.line}")
        products = {
            product.number: tuple(capture.spec(base) for capture in product.captures)
            for product in config.products
        }
        self.judge = JudgeProcess(
            products,
            config.revision,
            self._memory,
            self.post,
            note=self._note,
            runtime=config.line.runtime,
            blocking_sync=config.line.blocking_sync,
            trust=trust,
        )
        self._cameras = {
            camera.name: make_camera(camera, base, config.line.trigger, self._outlet(camera.name))
            for camera in config.cameras
        }
        stored = {
            camera.name: make_stored(camera, base, self._outlet(camera.name))
            for camera in config.cameras
        }
        self._stored = {name: camera for name, camera in stored.items() if camera is not None}
        self._metrics = LineMetrics(
            config.station.name, config.line.deadline_ms, [camera.name for camera in config.cameras]
        )
        self.failure: Exception | None = None
        """What ended the thread of the core; its outputs then show FAULT and nothing else."""
        self._thread = threading.Thread(target=self._work, name="line", daemon=True)

    def _open_store(self, writer: RowWriter) -> tuple[Counters, str]:
        """Open the data base once, close what an earlier run left, note the configuration; return
        the counters and the name of this run."""
        with writing_database(self._folder, self._say) as data:
            interrupted = writer.close_interrupted(data)
            if interrupted:
                self._say(f"{interrupted} parts of an earlier run got no verdict: restarted")
            document = self._config.model_dump_json()
            data.execute(
                "INSERT OR IGNORE INTO config VALUES (?,?,?)",
                (self._config.revision, wall_time(), document),
            )
            run = new_run(data, self._config.station.name, time.time_ns() // 1_000_000)
            return read_counters(data), run

    def _state(self) -> tuple[State, PreparedProduct | None]:
        return self.core.state, self.core.product

    def start(self) -> None:
        """Start all threads and the judge; READY follows when the self-test has passed."""
        self._buses.start()
        self._thread.start()
        self.judge.start()
        for camera in (*self._cameras.values(), *self._stored.values()):
            camera.start()
        self._keeper.start()
        if self._link is not None:
            self._link.start()

    def post(self, event: Event) -> None:
        """Let something happen; any thread may call this."""
        if isinstance(event, Trigger):
            event = replace(event, received=time.monotonic_ns())
        self._events.put(event)

    def figures(self) -> str:
        """Return the figures of this run for Prometheus; any thread may call this."""
        load = self._recorder.load
        queues = {
            "events": self._events.qsize(),
            "rows": load.rows,
            "pictures": load.pictures,
            "frames": self._memory.taken,
            **self._keeper.waiting,
        }
        return self._metrics.text(self.status, self.core.state, Depths(queues, load.dropped))

    def stop(self) -> None:
        """End everything; rows that wait are written first. Another call does nothing."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self.post(Tick())
        if self._thread.ident is not None:
            self._thread.join(10)
        self._buses.close()
        for camera in (*self._cameras.values(), *self._stored.values()):
            camera.close()
        self.judge.close()
        if self._link is not None:
            self._link.close()
        left = self._recorder.close()
        if left:
            self._say(f"{left} rows could not be written")
        self._keeper.close()
        self._memory.close()
        self._lock.close()

    # ---- the thread of the core

    def _work(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - no output may stay as it was
            self.failure = error
            self.status = replace(self.core.status, bits=StatusBit.FAULT)
            self._say(f"error: the line has stopped and shows FAULT: {error!r}")
            with suppress(Exception):  # a bus that cannot be reached is what may have failed
                self._buses.put_out(self.status)
            self._tell_nothing_but_fault()

    def _tell_nothing_but_fault(self) -> None:
        """Without a core: nothing is done any more, and who asks for the status sees FAULT."""
        while not self._stopped.is_set():
            if isinstance(self._event, StatusQuery):
                self._buses.tell_status(self._event.client)
            self._event = self._events.get()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            wait = (self.core.next_wakeup() - time.monotonic_ns()) / 1e9
            try:
                self._event = self._events.get(timeout=max(wait, 0.0))
            except queue.Empty:
                self._event = Tick()
            effects = self.core.handle(self._event, time.monotonic_ns())
            for effect in effects:
                if isinstance(effect, _FIRST):
                    self._carry_out_first(effect)
            self._metrics.count(self._event, effects, time.monotonic_ns())
            for effect in effects:
                if not isinstance(effect, _FIRST):
                    self._carry_out_then(effect)
                self._watch(effect)
            self._look_at_recorder()
            if not self.core.hung:
                self._alive()

    def _carry_out_first(self, effect: Effect) -> None:
        if isinstance(effect, PutOut):
            self.status = effect.status
            self._buses.put_out(effect.status)
        elif isinstance(effect, Reply):
            self._buses.reply(effect.client, effect.record)
        elif isinstance(effect, TellStatus):
            self._buses.tell_status(effect.client)
        elif isinstance(effect, TakePicture):
            (self._stored if effect.simulated else self._cameras)[effect.camera].take()
        elif isinstance(effect, JudgePicture):
            self.judge.carry_out(effect, self._frames.get(effect.frame))

    def _carry_out_then(self, effect: Effect) -> None:
        if isinstance(effect, RecordPart):
            self._record(effect)
        elif isinstance(effect, RecordAccepted | RecordLate | Say):
            self._recorder.add(effect)
            if isinstance(effect, RecordAccepted):
                self._buses.accept(effect.client, effect.uid)
            if isinstance(effect, Say):
                self._say(f"{effect.level}: {effect.text}")
                if self._link is not None:
                    self._link.offer_log(effect.level, effect.text)
        elif isinstance(effect, DecideCandidate):
            if self._link is not None:
                self._link.offer_decision(effect)
        elif isinstance(effect, StateChange):
            self._buses.change_state(effect)
        elif isinstance(effect, ReleaseFrame):
            self._let_go(effect.frame)
        elif isinstance(effect, ReplaceJudge):
            threading.Thread(target=self.judge.carry_out, args=(effect,), daemon=True).start()
        elif isinstance(effect, PrepareProduct | ForgetProduct):
            self.judge.carry_out(effect)

    def _record(self, effect: RecordPart) -> None:
        record = effect.record
        origins = self.judge.origins.get(record.product, ()) if record.product else ()
        self._recorder.add(PartRow(record, origins))
        if record.accepted:
            self._buses.announce(record)
        if record.accepted and self._link is not None:
            first = record.captures[0].frame if record.captures else None
            self._link.offer_part(record, self._frames.get(first) if first else None)
        every = self._keeper.keeps_every_picture
        wanted = every or self._rules.keeps(record, self.core.counters.good)
        keep = record.accepted and wanted
        for number, capture in enumerate(record.captures):
            slot = self._frames.get(capture.frame) if capture.frame else None
            if capture.frame is None or slot is None:
                continue
            if keep:
                self._recorder.add_picture(record.uid, number, self._memory.view(slot).copy())
            self._let_go(capture.frame)

    def _let_go(self, frame: FrameKey) -> None:
        slot = self._frames.pop(frame, None)
        if slot is not None:
            self._memory.let_go(slot)

    def _look_at_recorder(self) -> None:
        """Tell the core when the recorder fills up or cannot write, and when that is over."""
        recorder = self._recorder
        news = self._watched.look(recorder.load, has_room=recorder.has_room, now=time.monotonic())
        if news is not None:
            self.post(news)

    def _outlet(self, camera: str) -> CameraOutlet:
        made = CameraOutlet(camera, self._memory, self._frames, self.post, self._note)
        return made if self._link is None else replace(made, show=self._link.frames.keep)

    def _note(self, text: str) -> None:
        self._say(text)
        self._recorder.add(Say("info", text))
