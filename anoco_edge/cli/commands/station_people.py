"""anoco-edge station users and audit: who may do what at a station, and who did what."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from anoco_edge.cli.commands.station import ConfigArgument
from anoco_edge.cli.console import emit_json, note, out, plain, plural
from anoco_edge.cli.options import JsonOption
from anoco_edge.errors import StorageError, UsageError

if TYPE_CHECKING:
    from anoco_edge.station.database import Database


def users(
    config: ConfigArgument,
    add: Annotated[str, typer.Option(metavar="NAME", help="Add a user.")] = "",
    role: Annotated[str, typer.Option(help="Role: viewer, operator, engineer or admin.")] = "",
    password: Annotated[
        str, typer.Option(metavar="NAME", help="Give a user another password.")
    ] = "",
    remove: Annotated[str, typer.Option(metavar="NAME", help="Remove a user.")] = "",
    json_: JsonOption = False,
) -> None:
    """Show the users of a station, or change them; passwords are read from the terminal."""
    from anoco_edge.station.people.audit import Audit
    from anoco_edge.station.people.roles import PersonRole, User
    from anoco_edge.station.people.users import Users

    if sum(map(bool, (add, password, remove))) > 1:
        raise UsageError("that is more than one change", hint="make one change at a time")
    if role and not add:
        raise UsageError("a role is given to a new user", hint="name the user: `add`")
    chosen = next((each for each in get_args(PersonRole) if each == (role or "viewer")), None)
    if chosen is None:
        raise UsageError(f"there is no role {role}", hint="viewer, operator, engineer or admin")
    with closing(_database(config, make=bool(add))) as database:
        found, audit = Users(database), Audit(database)
        console = User("console", "admin", "console")
        secret = _password(add or password) if add or password else ""
        with database.write():
            if add:
                found.add(add, chosen, secret)
                audit.write(console, "user added", add, {"role": chosen})
            elif password:
                found.set_password(password, secret)
                audit.write(console, "password set", password)
            elif remove:
                found.remove(remove)
                audit.write(console, "user removed", remove)
        accounts = found.all()
    if json_:
        emit_json([asdict(account) for account in accounts])
        return
    for account in accounts:
        pin = ", PIN locked" if account.pin_locked else ", with a PIN" if account.has_pin else ""
        out.print(f"{plain(account.name)}: {account.role}{pin}")
    note(plural(len(accounts), "user"))


def audit(
    config: ConfigArgument,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the chain of hashes (exit 4 if it is broken).")
    ] = False,
    head: Annotated[
        str, typer.Option(metavar="HASH", help="A hash noted earlier, which must be in the chain.")
    ] = "",
    last: Annotated[int, typer.Option(min=1, max=100_000, help="How many entries to show.")] = 20,
    json_: JsonOption = False,
) -> None:
    """Show who changed what at a station, or check that nobody changed that record."""
    from anoco_edge.station.people.audit import Audit

    with closing(_database(config)) as database:
        if verify or head:
            report = Audit(database).check(head)
        else:
            entries = Audit(database).entries(limit=last)
    if not (verify or head):
        if json_:
            emit_json([asdict(entry) for entry in entries])
        for entry in () if json_ else reversed(entries):
            words = f"{entry.at} {entry.user} ({entry.via}): {entry.action} {entry.subject}"
            out.print(plain(f"{entry.id} {words} {entry.details}"), soft_wrap=True)
        return
    if json_:
        emit_json({**asdict(report), "holds": report.holds})
    elif report.broken_at is not None:
        out.print(f"Entry {report.broken_at} does not follow from those before it.")
    elif not report.known_head_found:
        out.print("The hash that was noted is not in the chain: entries were removed or replaced.")
    else:
        out.print(f"{plural(report.entries, 'entry').replace('entrys', 'entries')}, unbroken.")
        out.print(f"Note the last hash elsewhere: {report.head}", soft_wrap=True)
        if report.clock_set_back:
            note(f"the clock was set back {plural(report.clock_set_back, 'time')}")
    if not report.holds:
        raise typer.Exit(4)


def _database(config: Path, *, make: bool = False) -> Database:
    from anoco_edge.line.config.station_config import read_config
    from anoco_edge.station.database import NAME, Database

    folder = config.parent / read_config(config).station.folder
    if not make and not (folder / NAME).exists():
        raise StorageError(
            f"there is no {folder / NAME}", hint="start the station, or add the first user"
        )
    return Database(folder)


def _password(name: str) -> str:
    """Ask for a password twice on a terminal; from a pipe one line is taken."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = getpass(f"Password of {name}: ")
    if getpass("Again: ") != first:
        raise UsageError("the two passwords differ", hint="type it again")
    return first
