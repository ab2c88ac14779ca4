"""anoco-edge sign: sign a bundle, or make the key pair to sign with."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, note, out
from anoco_edge.cli.options import JsonOption
from anoco_edge.cli.views.signature import show_signature, signature_values
from anoco_edge.errors import UsageError
from anoco_edge.text.plain_text import plain_text


def sign(
    bundle: Annotated[
        Path | None, typer.Argument(help="Bundle directory (NAME.anoco) to sign.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Secret key of minisign to sign with (NAME.key).")
    ] = None,
    new_key: Annotated[
        Path | None,
        typer.Option(metavar="NAME", help="Make a key pair: NAME.key, and NAME.pub for others."),
    ] = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Keep the new key without a password.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Sign a bundle as it is now: every file that decides a verdict, and no later change.

    The password of a key is asked for on the terminal, or read from a pipe.
    """
    if (new_key is None) == (bundle is None) or (bundle is None) != (key is None):
        raise UsageError(
            "give a bundle and the key to sign it with, or the name of a new key",
            hint="anoco-edge sign line.anoco --key NAME.key, or: anoco-edge sign --new-key NAME",
        )
    if no_password and new_key is None:
        raise UsageError("--no-password is for a new key", hint="give --new-key too")
    if new_key is not None:
        _make_key(new_key, no_password, json_)
    if bundle is not None and key is not None:
        _sign(bundle, key, json_)


def _make_key(name: Path, no_password: bool, json_: bool) -> None:
    from anoco_edge.bundle.signatures.key_files import write_key_pair
    from anoco_edge.bundle.signatures.keys import SecretKey

    made = SecretKey.generate()
    secret = name.with_name(f"{name.name.removesuffix('.key')}.key")
    password = "" if no_password else _new_password(secret)
    public = write_key_pair(secret, made, password)
    if json_:
        emit_json({"key": made.public.number, "public_key": made.public.line, "file": str(public)})
        return
    text = f"wrote {secret}: keep it secret, and {public} for all who verify"
    out.print(plain_text(text), soft_wrap=True, markup=False)
    out.print(f"public key: {made.public.line}", soft_wrap=True, markup=False)


def _sign(bundle: Path, key: Path, json_: bool) -> None:
    from anoco_edge.bundle.signatures.key_files import read_secret_key
    from anoco_edge.bundle.signatures.signing import sign_bundle

    opened = Bundle.open(bundle)
    secret = read_secret_key(key, lambda: _asked(f"Password of {key}: "))
    state = sign_bundle(opened, secret, on_wait=note)
    if json_:
        emit_json({"bundle": str(bundle), "signature": signature_values(state)})
    else:
        show_signature(state)


def _new_password(path: Path) -> str:
    first = _asked(f"Password of {path}: ")
    if not first:
        raise UsageError("the password is empty", hint="type one, or pass --no-password")
    if sys.stdin.isatty() and getpass("Again: ") != first:
        raise UsageError("the two passwords differ", hint="type it again")
    return first


def _asked(question: str) -> str:
    """Ask for a password on a terminal; from a pipe one line is taken."""
    return getpass(question) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
