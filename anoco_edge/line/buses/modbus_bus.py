"""The Modbus TCP server: holding registers for commands, input registers for the status."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anoco_edge.errors import EnvironmentMissingError, missing
from anoco_edge.line.buses.command_registers import CommandRegisters
from anoco_edge.line.buses.dead_peers import notice_dead_peer
from anoco_edge.line.buses.loop_thread import LoopThread, Stop
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import Event
from anoco_edge.line.core.status import Status

try:
    from pymodbus.constants import ExcCodes
    from pymodbus.server import ModbusTcpServer
    from pymodbus.server.requesthandler import ServerRequestHandler
    from pymodbus.simulator import DataType, SimData, SimDevice
except ImportError:
    raise missing("pymodbus", "line", "to serve Modbus TCP") from None

_READ_STATUS = 4
_REFUSALS = {"address": ExcCodes.ILLEGAL_ADDRESS, "busy": ExcCodes.DEVICE_BUSY}


class _Client(ServerRequestHandler):  # type: ignore[misc]  # its types are not read
    """A connection; one that is not allowed is closed before it can ask anything."""

    server: _Server

    peer = ""
    """The address of the client."""

    def callback_connected(self) -> None:
        super().callback_connected()
        notice_dead_peer(self.transport)
        self.peer = self.transport.get_extra_info("peername")[0]
        if self.server.allowed and self.peer not in self.server.allowed:
            self.transport.abort()

    def callback_disconnected(self, exc: Exception | None) -> None:
        super().callback_disconnected(exc)
        self.server.registers.disconnect(self)

    async def handle_request(self) -> None:
        self.server.asking = self  # nothing below waits, so no other request comes between
        await super().handle_request()


class _Server(ModbusTcpServer):  # type: ignore[misc]
    """pymodbus' server with our registers in place of its data blocks."""

    def __init__(self, address: tuple[str, int], allowed: set[str], ours: CommandRegisters) -> None:
        unused = SimDevice(0, [SimData(0, values=0, datatype=DataType.REGISTERS)])
        super().__init__(unused, address=address)
        self.context = self
        self.allowed, self.registers = allowed, ours
        self.asking: _Client | None = None

    def callback_new_connection(self) -> _Client:
        return _Client(self, self.trace_packet, self.trace_pdu, self.trace_connect)

    async def async_getValues(  # noqa: N802 (the name is pymodbus')
        self, device_id: int, func_code: int, address: int, count: int = 1
    ) -> list[int] | ExcCodes:
        if func_code == _READ_STATUS:
            found = self.registers.read_status(address, count)
        elif func_code in (3, 6, 16, 22, 23):
            found = self.registers.read_commands(address, count)
        else:
            return ExcCodes.ILLEGAL_FUNCTION
        return ExcCodes.ILLEGAL_ADDRESS if found is None else found

    async def async_setValues(  # noqa: N802
        self, device_id: int, func_code: int, address: int, values: list[int]
    ) -> ExcCodes | None:
        if func_code not in (6, 16, 22, 23):
            return ExcCodes.ILLEGAL_FUNCTION
        assert self.asking is not None
        by = f"modbus {self.asking.peer}"
        return _REFUSALS.get(self.registers.write(self.asking, address, values, by))


class ModbusBus:
    """A Modbus TCP server, in a thread of its own with an event loop.

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
        self._address, self._allowed = (host, port), set(clients)
        self._registers = CommandRegisters(post)
        self._thread = LoopThread("modbus", self._listen, progress)

    def start(self) -> None:
        """Listen; an address that cannot be had is an error now."""
        if self._thread.start() is not None:
            host, port = self._address
            raise EnvironmentMissingError(
                f"cannot listen on {host}:{port} for Modbus",
                hint="choose another port, or end what uses it",
            )

    def put_out(self, status: Status) -> None:
        """Show this status from now on."""
        self._registers.put_out(status)

    def reply(self, client: str, record: PartRecord) -> None:
        """Do nothing: a PLC reads its result from the registers."""

    def close(self) -> None:
        """Stop listening and drop all clients."""
        self._thread.close()

    async def _listen(self) -> Stop:
        server = _Server(self._address, self._allowed, self._registers)
        await server.serve_forever(background=True)

        async def stop() -> None:
            await server.shutdown()

        return stop
