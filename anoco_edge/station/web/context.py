"""What every request works with."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import HTTPConnection

from anoco_edge.line.config.page_table import PageTable
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.link.messages import CommandRequest
from anoco_edge.line.link.station_link import NAME as SOCKET
from anoco_edge.line.signed_bundles import BundleTrust, trust_of
from anoco_edge.station.database import Database
from anoco_edge.station.jobs.job_models import Job
from anoco_edge.station.people.audit import Audit
from anoco_edge.station.people.sessions import Sessions
from anoco_edge.station.people.tokens import Tokens
from anoco_edge.station.people.tries import FREE_TRIES_OF_ADDRESS, Tries
from anoco_edge.station.people.users import Users
from anoco_edge.station.web.line_client import LineClient
from anoco_edge.station.web.live import LiveHub
from anoco_edge.station.web.live_messages import LiveJob
from anoco_edge.station.web.services import Services, open_services
from anoco_edge.station.web.trials import Trials


class SetupCode:
    """The code that allows the first user to be made. Ten wrong ones and none is right any more.

    >>> code = SetupCode("aaaa-bbbb-cccc")
    >>> code.fits("wrong"), code.fits("AAAA bbbb-cccc")
    (False, True)
    """

    def __init__(self, text: str = "") -> None:
        self.text = text or make_code()
        self._tries = 10

    def fits(self, given: str) -> bool:
        """Whether this is the code."""
        right = secrets.compare_digest(_plain(given), _plain(self.text)) and self._tries > 0
        self._tries -= not right
        return right


def make_code() -> str:
    """Return a new code of twelve characters that are not mistaken for each other."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(3))


def _plain(code: str) -> bytes:
    return "".join(each for each in code.lower() if each.isalnum()).encode()


@dataclass
class Traffic:
    """How many requests there were, and how many of them came too fast."""

    requests: int = 0
    refused: int = 0


@dataclass(frozen=True)
class StationContext:
    """What every request works with: configuration, data bases, the line, and who may do what."""

    config: StationConfig
    base: Path
    """The folder of station.toml."""
    folder: Path
    """The folder of line.db, station.db and the pictures."""
    page: PageTable
    database: Database
    users: Users
    sessions: Sessions
    tokens: Tokens
    audit: Audit
    line: LineClient
    live: LiveHub
    services: Services
    trials: Trials
    trust: BundleTrust | None = None
    """Whose signatures the station accepts; None where it takes unsigned bundles too."""
    tries: Tries = field(default_factory=Tries)
    address_tries: Tries = field(default_factory=lambda: Tries(free=FREE_TRIES_OF_ADDRESS))
    traffic: Traffic = field(default_factory=Traffic)
    setup_code: SetupCode = field(default_factory=SetupCode)
    clock: Callable[[], float] = time.time

    @property
    def cookie(self) -> str:
        """The name of the cookie of a session. Cookies ignore ports, so the port is in the name."""
        return f"{self._cookie_prefix}anoco-{self.page.port}"

    @property
    def browser_cookie(self) -> str:
        """The name of the cookie of an enrolled browser."""
        return f"{self._cookie_prefix}anoco-browser-{self.page.port}"

    @property
    def address(self) -> str:
        """The address to type into a browser."""
        host = self.page.listen
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.page.tls else 'http'}://{host}:{self.page.port}/"

    @property
    def _cookie_prefix(self) -> str:
        return "__Host-" if self.page.tls else ""

    def close(self) -> None:
        """End the worker and close the data base."""
        self.trials.close()
        self.services.close()
        self.database.close()


def open_context(
    config: StationConfig, base: Path, *, clock: Callable[[], float] = time.time
) -> StationContext:
    """Open everything that the page of a station works with."""
    folder = base / config.station.folder
    database = Database(folder)
    live = LiveHub()
    line = LineClient(folder / SOCKET, live)

    def job_changed(job: Job) -> None:
        live.post(LiveJob(**job.model_copy(update={"result": None}).model_dump()))

    def tell_line(number: int) -> None:
        line.ask_from_thread(CommandRequest(name="new_generation"))

    def tell_trial() -> None:
        trials.tell()

    services = open_services(
        database,
        config,
        base,
        folder,
        on_change=job_changed,
        tell_line=tell_line,
        tell_trial=tell_trial,
    )
    audit = services.audit
    trials = Trials(database, services, line)
    return StationContext(
        config=config,
        base=base,
        folder=folder,
        page=config.page or PageTable(),
        database=database,
        users=Users(database),
        sessions=Sessions(database, clock),
        tokens=Tokens(database, clock),
        audit=audit,
        line=line,
        live=live,
        services=services,
        trials=trials,
        trust=trust_of(config, base),
        clock=clock,
    )


def context_of(connection: HTTPConnection) -> StationContext:
    """Return what a request, or a WebSocket, works with."""
    context = connection.app.state.context
    assert isinstance(context, StationContext)
    return context
