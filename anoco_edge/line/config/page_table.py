"""[page] in station.toml: where the page of the station is served, and how safely."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from anoco_edge.bundle.signatures.keys import PublicKey
from anoco_edge.errors import UsageError
from anoco_edge.line.config.fields import Port, SomePath, Table, Text


def _public_key(text: str) -> str:
    try:
        return PublicKey.parse(text, repr(text[:80])).line
    except UsageError as error:
        raise ValueError(str(error)) from None


SignerKey = Annotated[Text, AfterValidator(_public_key)]


class PageTable(Table):
    """[page]: the address of the page, its certificate, and what it demands of bundles.

    >>> PageTable().listen
    '127.0.0.1'
    """

    listen: Text = "127.0.0.1"
    port: Port = 8080
    tls: bool = False
    certificate_file: SomePath | None = None
    key_file: SomePath | None = None
    hosts: tuple[Text, ...] = Field(default=(), strict=False, max_length=32)
    """More names that browsers may reach the page by, beside those of the machine."""
    require_signature: bool = False
    public_keys: tuple[SignerKey, ...] = Field(default=(), strict=False, max_length=32)
    """Whose bundles the station takes, as the second line of `NAME.pub`."""

    @model_validator(mode="after")
    def _is_safe(self) -> PageTable:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together; give both or none")
        if self.certificate_file is not None and not self.tls:
            raise ValueError("a certificate without TLS is of no use; set tls = true")
        if not self.tls and not is_loopback(self.listen):
            raise ValueError(f"{self.listen} can be reached from other machines; set tls = true")
        if self.require_signature and not self.public_keys:
            raise ValueError("require_signature needs the public_keys of who may sign; name one")
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("press-3")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
