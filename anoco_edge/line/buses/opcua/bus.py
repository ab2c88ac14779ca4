"""OPC UA after OPC 40100-1: a VisionSystem whose methods command the line.

    SelectModeAutomatic        ENABLE
    PrepareRecipe              CHANGE_PRODUCT, by the name or the number of a product
    StartSingleJob             TRIGGER; JobId and ResultId are the uid of the part
    Reset, Halt, SimulationMode
    StartContinuous, Stop      ENABLE with a wired trigger, else refused
    Abort                      gives up the pending part; with a wired trigger ENABLE falls too
    GetRecipeListFiltered      the products; Prepare of a recipe is PrepareRecipe
    GetResultById, GetResultListFiltered    the last results
    UnprepareRecipe, Unprepare refused: a product stays until another one is prepared
    Candidate/Take, Drop       our own: the standard has recipes, and none that is only tried

A method returns Error 0, or the negative number of a reason in the table of words. Events tell
about the parts of all buses. All status words are variables below `Words`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anoco_edge.errors import EnvironmentMissingError, missing
from anoco_edge.line.buses.loop_thread import LoopThread, Stop
from anoco_edge.line.buses.opcua.methods import RecordMethods, error_code, identifier
from anoco_edge.line.buses.opcua.model import Method, VisionModel
from anoco_edge.line.buses.opcua.transitions import AUTOMATIC, MACHINE
from anoco_edge.line.core.effects import PartRecord, StateChange
from anoco_edge.line.core.events import (
    Abort,
    CandidateDecision,
    CandidateStage,
    ChangeProduct,
    Enable,
    Event,
    Halt,
    PreparedProduct,
    Reset,
    Simulate,
    Trigger,
)
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Status
from anoco_edge.line.words.constants import Reason, StatusBit

try:
    from asyncua import Server, ua
except ImportError:
    raise missing("asyncua", "opcua", "to serve OPC UA") from None

ACCEPT_SECONDS = 5.0
_PRODUCT_UNKNOWN = -int(Reason.PRODUCT_CHANGE)


@dataclass(frozen=True)
class OpcuaSettings:
    """Where the server listens, who may use it, and where its certificate lies.

    Without a user name everybody is served and nothing is encrypted.
    """

    host: str
    port: int
    station: str
    products: Mapping[str, int]
    wired: bool
    folder: Path
    username: str = ""
    password: str = ""


class _Users:
    """One user with a password."""

    def __init__(self, name: str, password: str) -> None:
        self._name, self._password = name, password

    def get_user(
        self,
        iserver: object,
        username: str | None = None,
        password: str | None = None,
        certificate: object = None,
    ) -> Any:
        from asyncua.crypto.permission_rules import User, UserRole

        given = (password or "").encode()
        if username == self._name and hmac.compare_digest(given, self._password.encode()):
            return User(role=UserRole.User, name=username)
        return None


class OpcuaBus:
    """An OPC UA server, in a thread of its own with an event loop.

    `state` returns the state of the core and its product. `progress` is called ten times a second
    while the loop runs.
    """

    def __init__(
        self,
        settings: OpcuaSettings,
        post: Callable[[Event], None],
        progress: Callable[[], None],
        state: Callable[[], tuple[State, PreparedProduct | None]],
    ) -> None:
        self._settings, self._post, self._state = settings, post, state
        self._status = Status()
        self._changed = True
        self._jobs: dict[str, asyncio.Future[PartRecord | str]] = {}
        self._serial = 0
        self._uid = ""
        """The part that was accepted last."""
        self._model: VisionModel | None = None
        self._thread = LoopThread(  # the product may change without the status
            "opcua", self._listen, progress, refresh=self._show
        )

    def start(self) -> None:
        """Listen; an address that cannot be had is an error now."""
        failure = self._thread.start()
        if failure is not None:
            settings = self._settings
            raise EnvironmentMissingError(
                f"cannot serve OPC UA on {settings.host}:{settings.port}: {failure}",
                hint="choose another port, or end what uses it",
            )

    def put_out(self, status: Status) -> None:
        """Show this status from now on."""
        self._tell_edges(status)
        self._status = status
        if not self._changed:
            self._changed = True
            self._thread.run(self._show())

    def _tell_edges(self, status: Status) -> None:
        """Send the events that follow from bits that have risen."""
        rising = status.bits & ~self._status.bits
        for bit, event in ((StatusBit.ACQ_DONE, "AcquisitionDone"), (StatusBit.READY, "Ready")):
            if rising & bit:
                self._thread.run(self._send(event, self._uid))

    def accept(self, client: str, uid: str) -> None:
        """Tell its client that a part was accepted, and all clients that a job has started."""
        self._uid = uid
        self._thread.run(self._settle(client, uid))
        self._thread.run(self._send("JobStarted", uid))

    def reply(self, client: str, record: PartRecord) -> None:
        """Tell a client that its part was refused; results are announced to all clients."""
        if not record.accepted:
            self._thread.run(self._settle(client, record))

    def announce(self, record: PartRecord) -> None:
        """Send the event that the result of a part is there, by whichever bus it was triggered."""
        self._thread.run(self._announce(record))

    def change_state(self, change: StateChange) -> None:
        """Show the state from now on and send the event of the transition."""
        self._thread.run(self._change_state(change))

    def close(self) -> None:
        """Stop listening and drop all clients."""
        self._thread.close()

    # ---- in the thread of the loop

    async def _listen(self) -> Stop:
        logging.getLogger("asyncua").setLevel(logging.ERROR)  # it warns about every client
        settings = self._settings
        users = _Users(settings.username, settings.password) if settings.username else None
        with socket.create_server((settings.host, settings.port)):
            pass  # an address that cannot be had is found before seconds of work
        server = Server(user_manager=users)
        await server.init()
        await server.set_application_uri(f"urn:anoco-edge:{settings.station}")
        server.set_server_name("anoco-edge")
        server.set_endpoint(f"opc.tcp://{settings.host}:{settings.port}/")
        if settings.username:
            await self._encrypt(server)
        else:
            server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        model = VisionModel(server, settings.station, settings.products)
        self._records = RecordMethods(settings.products, model.results)
        try:
            recipe: dict[str, Method] = {"Prepare": self._prepare, "Unprepare": self._refuse}
            await model.build(self._methods(), recipe)
            decide = {"Take": partial(self._decide, True), "Drop": partial(self._decide, False)}
            await model.add_candidate(decide)
            await server.start()
        except BaseException:
            await server.stop()
            raise
        self._model, self._changed = model, False
        await self._show()

        async def stop() -> None:
            await server.stop()

        return stop

    async def _encrypt(self, server: Server) -> None:
        from asyncua.crypto.cert_gen import setup_self_signed_certificate
        from cryptography.x509.oid import ExtendedKeyUsageOID

        settings = self._settings
        settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, certificate = settings.folder / "key.pem", settings.folder / "certificate.der"
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        uri = f"urn:anoco-edge:{settings.station}"
        names = {"commonName": f"anoco-edge {settings.station}"}
        await setup_self_signed_certificate(key, certificate, uri, settings.host, uses, names)
        key.chmod(0o600)
        await server.load_certificate(str(certificate))
        await server.load_private_key(str(key))
        server.set_security_policy([ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt])
        server.set_identity_tokens([ua.UserNameIdentityToken])

    async def _show(self) -> None:
        self._changed = False
        if self._model is not None:
            await self._model.show(self._status, self._state()[1])

    async def _change_state(self, change: StateChange) -> None:
        if self._model is not None:
            await self._model.change_state(change)

    async def _send(self, event: str, uid: str) -> None:
        if self._model is not None:
            await self._model.send(event, event, JobId=ua.JobIdDataType(Id=uid))

    async def _announce(self, record: PartRecord) -> None:
        if self._model is not None:
            await self._model.announce(record)

    async def _settle(self, client: str, outcome: PartRecord | str) -> None:
        job = self._jobs.pop(client, None)
        if job is not None and not job.done():
            job.set_result(outcome)

    # ---- methods

    def _methods(self) -> dict[str, Callable[..., Coroutine[Any, Any, list[Any]]]]:
        return {
            f"{MACHINE}/SelectModeAutomatic": self._enable,
            f"{MACHINE}/Reset": self._reset,
            f"{MACHINE}/Halt": self._halt,
            f"{AUTOMATIC}/StartSingleJob": self._start_single_job,
            f"{AUTOMATIC}/StartContinuous": self._start_continuous,
            f"{AUTOMATIC}/Stop": self._stop,
            f"{AUTOMATIC}/Abort": self._abort,
            f"{AUTOMATIC}/SimulationMode": self._simulation_mode,
            "RecipeManagement/PrepareRecipe": self._prepare_recipe,
            "RecipeManagement/UnprepareRecipe": self._unprepare_recipe,
            "RecipeManagement/GetRecipeListFiltered": self._list_recipes,
            "ResultManagement/GetResultById": self._records.result_by_id,
            "ResultManagement/GetResultListFiltered": self._records.list_results,
        }

    async def _enable(self, *_: object) -> list[Any]:
        self._post(Enable(True))
        return [error_code(0)]

    async def _reset(self, *_: object) -> list[Any]:
        self._post(Reset())
        return [error_code(0)]

    async def _halt(self, *_: object) -> list[Any]:
        self._post(Halt())
        return [error_code(0)]

    async def _simulation_mode(self, activate: bool, *_: object) -> list[Any]:
        self._post(Simulate(bool(activate)))
        return [error_code(0)]

    async def _start_continuous(
        self, meas: Any, part: Any, recipe: Any, product: Any, *_: object
    ) -> list[Any]:
        """Enable a wired line that is ready, or runs already since SelectModeAutomatic."""
        state, _product = self._state()
        if not self._settings.wired or state not in (State.READY, State.CONTINUOUS_EXECUTION):
            return _no_job(Reason.NOT_READY)
        if not self._are_current(recipe, product):
            return _no_job(Reason.PRODUCT_CHANGE)
        self._post(Enable(True))
        return [ua.Variant(ua.JobIdDataType(Id="")), error_code(0)]

    async def _stop(self, *_: object) -> list[Any]:
        if self._state()[0] is not State.CONTINUOUS_EXECUTION:
            return [error_code(-int(Reason.NOT_READY))]
        self._post(Enable(False))
        return [error_code(0)]

    async def _abort(self, *_: object) -> list[Any]:
        state, _product = self._state()
        if state not in (State.SINGLE_EXECUTION, State.CONTINUOUS_EXECUTION):
            return [error_code(-int(Reason.NOT_READY))]
        if state is State.CONTINUOUS_EXECUTION:
            self._post(Enable(False))
        self._post(Abort())
        return [error_code(0)]

    async def _decide(self, take: bool) -> list[Any]:
        """Pass on what is to become of the candidate, also if there is none: the line says so."""
        self._post(CandidateDecision(take, f"opcua {self._settings.username or 'anonymous'}"))
        if self._status.candidate.stage is CandidateStage.NONE:
            return [error_code(-int(Reason.NOT_READY))]
        return [error_code(0)]

    async def _refuse(self, *_: object) -> list[Any]:
        return [error_code(-int(Reason.NOT_READY))]

    async def _prepare(self, number: int) -> list[Any]:
        self._post(ChangeProduct(number))
        return [ua.Variant(self._status.product == number), error_code(0)]

    async def _prepare_recipe(self, external: Any, internal: Any, *_: object) -> list[Any]:
        """Prepare the recipe of either name."""
        number = self._product(external if identifier(external) else internal)
        found = ua.Variant(ua.RecipeIdInternalDataType(Id=str(number or "")))
        if number is None:
            return [found, ua.Variant(False), error_code(_PRODUCT_UNKNOWN)]
        return [found, *await self._prepare(number)]

    async def _unprepare_recipe(self, _: object, internal: Any, *__: object) -> list[Any]:
        return [ua.Variant(internal), *await self._refuse()]

    async def _list_recipes(self, *asked: Any) -> list[Any]:
        return self._records.list_recipes(self._state()[1], *asked)

    async def _start_single_job(
        self, meas: Any, part: Any, recipe: Any, product: Any, *_: object
    ) -> list[Any]:
        if not self._are_current(recipe, product):
            return _no_job(Reason.PRODUCT_CHANGE)
        self._serial += 1
        client = f"opcua:{self._serial}"
        job = self._jobs[client] = asyncio.get_running_loop().create_future()
        self._post(Trigger(0, identifier(part), client))
        try:
            outcome = await asyncio.wait_for(job, ACCEPT_SECONDS)
        except asyncio.TimeoutError:
            return _no_job(Reason.NOT_ALIVE)
        finally:
            self._jobs.pop(client, None)
        if isinstance(outcome, PartRecord):
            return _no_job(outcome.reason)
        return [ua.Variant(ua.JobIdDataType(Id=outcome)), error_code(0)]

    def _are_current(self, *asked: Any) -> bool:
        """Whether each recipe or product that a client names is what parts are judged by now."""
        named = [each for each in asked if identifier(each)]
        return all(self._product(each) == self._status.product for each in named)

    def _product(self, asked: Any) -> int | None:
        """Return the number of a product by its name or number."""
        name = identifier(asked)
        products = self._settings.products
        return products.get(name, {str(n): n for n in products.values()}.get(name))


def _no_job(reason: Reason) -> list[Any]:
    """Return what a method answers that would have started a job."""
    return [ua.Variant(ua.JobIdDataType(Id="")), error_code(-int(reason))]
