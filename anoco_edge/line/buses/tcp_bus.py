"""The TCP line protocol: one line of text for each command, one for each answer.

    T,<seq>,<part code>   trigger; answered by R when the part is decided or refused
    A,<seq>               the result was taken            E,1 or E,0   enable, disable
    P,<number>            change the product              X            RESET
    H,<value>             the heartbeat of the PLC        M,1 or M,0   SIMULATE
    C,1 or C,0            take or drop the candidate
    C                     answered by C,<CANDIDATE>,<CANDIDATE_DIFFERENCES>
    S                     answered by S,<state bits>,<heartbeat>,<product>,<triggers>,<good>,...

    R,<seq>,PASS|FAIL|NOVERDICT,<reason>,<score in per mille>,<total ms>

A line that is not understood is answered by ?,<why>. Both fields of T may be left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.line.buses.dead_peers import notice_dead_peer
from anoco_edge.line.buses.loop_thread import LoopThread, Stop
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import (
    Acknowledge,
    CandidateDecision,
    ChangeProduct,
    Enable,
    Event,
    PlcBeat,
    Reset,
    Simulate,
    StatusQuery,
    Trigger,
)
from anoco_edge.line.core.status import Status

LONGEST_LINE = 256
MOST_CLIENTS = 16
_WORDS = {"good": "PASS", "anomalous": "FAIL", "no-verdict": "NOVERDICT"}


def result_line(record: PartRecord) -> str:
    """Return the answer to a trigger.

    >>> from anoco_edge.line.words.constants import Reason
    >>> result_line(PartRecord("r1-1", 7, "", "", True, 0, 1, "good", Reason.NONE, ratio=0.5))
    'R,7,PASS,0,500,0'
    """
    score = round(1000 * record.ratio)
    word = _WORDS[record.verdict]
    return f"R,{record.seq},{word},{int(record.reason)},{score},{record.total_ms}"


def status_line(status: Status) -> str:
    """Return the answer to S.

    >>> status_line(Status(heartbeat=3))
    'S,0000,3,0,0,0,0,0,0'
    """
    c = status.counters
    counts = (c.triggers, c.good, c.fail, c.no_verdict, c.missed)
    words = (f"{int(status.bits):04x}", status.heartbeat, status.product, *counts)
    return "S," + ",".join(map(str, words))


def candidate_line(status: Status) -> str:
    """Return the answer to C.

    >>> candidate_line(Status())
    'C,0,0'
    """
    return f"C,{int(status.candidate.stage)},{status.candidate.differences}"


def parse_line(text: str, client: str, by: str = "") -> Event:
    """Return the event of a command; what is not understood is a ValueError. `by` names the client
    where a person reads it.

    >>> parse_line("T,7,A1", "tcp:1")
    Trigger(seq=7, part_code='A1', client='tcp:1')
    """
    command, *fields = text.split(",")
    if command == "T" and len(fields) <= 2:
        seq = _number(fields[0], 0, 65535) if fields and fields[0] else 0
        return Trigger(seq, fields[1] if len(fields) > 1 else "", client)
    if command == "A" and len(fields) <= 1:
        return Acknowledge(_number(fields[0], 0, 65535) if fields and fields[0] else 0)
    if command == "E" and len(fields) == 1:
        return Enable(bool(_number(fields[0], 0, 1)))
    if command == "M" and len(fields) == 1:
        return Simulate(bool(_number(fields[0], 0, 1)))
    if command == "H" and len(fields) == 1:
        return PlcBeat(_number(fields[0], 0, 65535))
    if command == "P" and len(fields) == 1:
        return ChangeProduct(_number(fields[0], 1, 65535))
    if command == "C" and len(fields) == 1:
        return CandidateDecision(bool(_number(fields[0], 0, 1)), by)
    if command == "X" and not fields:
        return Reset()
    if command == "S" and not fields:
        return StatusQuery(client)
    raise ValueError("unknown command")


def _number(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5):
        raise ValueError("a number is expected")
    if not least <= int(text) <= most:
        raise ValueError(f"a number from {least} to {most} is expected")
    return int(text)


class TcpBus:
    """A server of the line protocol, in a thread of its own with an event loop.

    `progress` is called ten times a second while the loop runs.
    """

    def __init__(
        self,
        host: str,
        port: int,
        clients: Sequence[str],
        post: Callable[[Event], None],
        progress: Callable[[], None],
    ) -> None:
        self._address, self._allowed, self._post = (host, port), set(clients), post
        self._status = Status()
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._answered: dict[str, asyncio.Event] = {}
        self._serial = 0
        self._server: asyncio.Server | None = None
        self._thread = LoopThread("tcp", self._listen, progress)

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def start(self) -> None:
        """Listen; an address that cannot be had is an error now."""
        failure = self._thread.start()
        if failure is not None:
            host, port = self._address
            raise EnvironmentMissingError(
                f"cannot listen on {host}:{port}: {getattr(failure, 'strerror', '') or failure}",
                hint="choose another port, or end what uses it",
            )

    def put_out(self, status: Status) -> None:
        """Show this status from now on."""
        self._status = status

    def reply(self, client: str, record: PartRecord) -> None:
        """Answer a trigger, if its client is still there."""
        self._thread.call(self._write, client, result_line(record))

    def tell_status(self, client: str) -> None:
        """Answer S; the status is that after all commands which the client sent before."""
        self._thread.call(self._tell_status, client, status_line(self._status))

    def close(self) -> None:
        """Stop listening and drop all clients."""
        self._thread.close()

    # ---- in the thread of the loop

    async def _listen(self) -> Stop:
        server = await asyncio.start_server(self._serve, *self._address, limit=LONGEST_LINE)
        self._server = server

        async def stop() -> None:
            server.close()
            for writer in self._writers.values():
                writer.transport.abort()

        return stop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        if (self._allowed and peer not in self._allowed) or len(self._writers) >= MOST_CLIENTS:
            writer.close()
            return
        notice_dead_peer(writer.transport)
        self._serial += 1
        client = f"tcp:{self._serial}"
        self._writers[client] = writer
        try:
            # A task that is cancelled, as by `close`, makes asyncio before 3.12 print a traceback.
            gone = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
            with contextlib.suppress(*gone):
                await self._read_lines(reader, client, f"tcp {peer}")
        finally:
            del self._writers[client]
            self._answered.pop(client, None)
            writer.close()

    async def _read_lines(self, reader: asyncio.StreamReader, client: str, by: str) -> None:
        while True:
            try:
                raw = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                self._write(client, "?,the line is too long")
                return
            try:
                text = raw.decode("ascii").strip()
                if text == "C":
                    self._write(client, candidate_line(self._status))
                    continue
                event = parse_line(text, client, by)
            except ValueError as error:
                why = "not ASCII" if isinstance(error, UnicodeDecodeError) else error
                self._write(client, f"?,{why}")
                continue
            self._post(event)
            if isinstance(
                event, StatusQuery
            ):  # a client that asks too fast must not fill the queue
                answered = self._answered[client] = asyncio.Event()
                await answered.wait()

    def _tell_status(self, client: str, line: str) -> None:
        self._write(client, line)
        if answered := self._answered.pop(client, None):
            answered.set()

    def _write(self, client: str, line: str) -> None:
        writer = self._writers.get(client)
        if writer is None:
            return
        if writer.transport.get_write_buffer_size() > 64 * LONGEST_LINE:  # it does not read
            writer.transport.abort()
            return
        writer.write(f"{line}\n".encode("ascii"))
