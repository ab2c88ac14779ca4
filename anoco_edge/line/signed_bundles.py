"""Whose signatures a station accepts, and what it remembers so that nobody brings back old states.

A station with `require_signature` takes bundles that one of its `public_keys` signed. What is
taught at the station is signed by a key of its own, made at its first start and accepted by no
other station. The time of the last accepted signature of each bundle is kept: an older state, with
the signature it once had, is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from anoco_edge.bundle import Bundle
from anoco_edge.bundle.signatures.checking import SignedState, check_signature
from anoco_edge.bundle.signatures.commits import CommitSigner
from anoco_edge.bundle.signatures.key_files import (
    read_public_key,
    read_secret_key,
    write_key_pair,
)
from anoco_edge.bundle.signatures.keys import PublicKey, SecretKey
from anoco_edge.errors import SignatureError, StorageError
from anoco_edge.storage.atomic_files import write_atomic, writing

if TYPE_CHECKING:
    from anoco_edge.line.config.station_config import StationConfig

FOLDER = "signing"
_SECRET, _PUBLIC, _ACCEPTED = "station.key", "station.pub", "accepted.json"
_TIMES = TypeAdapter(dict[str, int])


@dataclass(frozen=True)
class BundleTrust:
    """Whose signatures a station accepts, and where it keeps its own key and its memory."""

    station: str
    keys: tuple[str, ...]
    folder: str
    """The folder of line.db."""

    @property
    def own_key(self) -> PublicKey | None:
        """The public key of the station itself; None before its first start."""
        path = self._file(_PUBLIC)
        return read_public_key(path) if path.exists() else None

    def check(self, path: Path, *, documents_only: bool = False) -> SignedState:
        """Check that an accepted key signed a bundle, and that it is no older state than before."""
        state = self.check_new(path, documents_only=documents_only)
        last = self._times().get(self._name(path), 0)
        if state.comment.timestamp < last:
            raise SignatureError(
                f"{path} is an older state, signed at {state.comment.time}: this station has "
                "accepted a later one",
                hint="bring back the later one, or sign this one again",
            )
        return state

    def check_new(self, path: Path, *, documents_only: bool = False, name: str = "") -> SignedState:
        """Check that an accepted key signed a bundle that the station has not had before."""
        keys = [PublicKey.parse(line, "public_keys") for line in self.keys]
        own = self.own_key
        keys += [] if own is None else [own]
        return check_signature(path, keys, documents_only=documents_only, name=name)

    def remember(self, state: SignedState) -> None:
        """Refuse states of this bundle that were signed earlier from now on."""
        times, name = self._times(), self._name(state.path)
        if times.get(name, 0) < state.comment.timestamp:
            times[name] = state.comment.timestamp
            path = self._file(_ACCEPTED)
            with writing(str(path)):
                write_atomic(path, _TIMES.dump_json(times, indent=1) + b"\n")

    def is_own(self, state: SignedState) -> bool:
        """Whether the station itself signed."""
        return state.key == self.own_key

    def signer(self) -> CommitSigner:
        """Return what signs the changes that are made at the station."""
        key = read_secret_key(self._file(_SECRET))
        return CommitSigner(key, self.check, self.station)

    def make_own_key(self) -> PublicKey | None:
        """Make the key of the station if there is none; return its public half if it is new."""
        path = self._file(_SECRET)
        if path.exists():
            if self.own_key is None:  # somebody deleted the public half
                with writing(str(self._file(_PUBLIC))):
                    text = read_secret_key(path).public.to_text()
                    write_atomic(self._file(_PUBLIC), text.encode())
            return None
        with writing(str(path)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file(_PUBLIC).unlink(missing_ok=True)  # a kill came before the secret half
        key = SecretKey.generate()
        write_key_pair(path, key)
        return key.public

    def _file(self, name: str) -> Path:
        return Path(self.folder, FOLDER, name)

    def _name(self, path: Path) -> str:
        """Return the name of a bundle that stays the same when the whole station is moved."""
        return os.path.relpath(path.resolve(), Path(self.folder).resolve())

    def _times(self) -> dict[str, int]:
        path = self._file(_ACCEPTED)
        try:
            return _TIMES.validate_json(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise StorageError(
                f"cannot read {path}: {reason}",
                hint="bring it back from a backup; without it, older signed states are accepted",
            ) from None


def trust_of(config: StationConfig, base: Path) -> BundleTrust | None:
    """Return whose signatures a station accepts; None where it takes unsigned bundles too."""
    if config.page is None or not config.page.require_signature:
        return None
    folder = base.absolute() / config.station.folder
    return BundleTrust(config.station.name, config.page.public_keys, str(folder))


def open_signed(path: str | Path, trust: BundleTrust | None) -> tuple[Bundle, SignedState | None]:
    """Open a bundle, after its signature was checked if the station asks for one."""
    state = None if trust is None else trust.check(Path(path))
    return Bundle.open(path), state
