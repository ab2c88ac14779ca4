"""The certificate of the page: one of the plant, or one that the station makes for itself."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from anoco_edge.errors import StorageError, missing
from anoco_edge.line.config.page_table import PageTable

FOLDER = "tls"
# A machine without a battery may think that it is 1970 when it makes its certificate.
_BEGIN = datetime(2020, 1, 1, tzinfo=timezone.utc)
_EARLIEST_NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
_LIFE = timedelta(days=3650)


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and its key, and the SHA-256 that a browser shows of it."""

    certificate: Path
    key: Path
    fingerprint: str


def certificate_for(page: PageTable, base: Path, folder: Path) -> Certificate | None:
    """Return the certificate that [page] names, or that of the station itself, made at its first
    start; None without TLS."""
    if not page.tls:
        return None
    if page.certificate_file is not None and page.key_file is not None:
        found = base / page.certificate_file, base / page.key_file
        _check_pair(*found)
    else:
        found = folder / FOLDER / "certificate.pem", folder / FOLDER / "key.pem"
        if not (found[0].exists() and found[1].exists()):
            _make(*found, (page.listen, *page.hosts))
    return Certificate(*found, fingerprint(found[0]))


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of the first certificate of a file, as browsers write it."""
    try:
        pem = path.read_text(encoding="ascii")
        first = pem[: pem.index(_END) + len(_END)]
        raw = ssl.PEM_cert_to_DER_cert(first[first.index(_START) :])
    except (OSError, ValueError) as error:
        raise StorageError(
            f"cannot read the certificate {path}: {error}", hint="give a certificate as PEM"
        ) from None
    text = hashlib.sha256(raw).hexdigest().upper()
    return ":".join(text[at : at + 2] for at in range(0, len(text), 2))


_START, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def _check_pair(certificate: Path, key: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise StorageError(
            f"cannot use {certificate} with {key}: {error}",
            hint="name a certificate and its key, both PEM and without a password",
        ) from None


def _make(certificate: Path, key: Path, names: tuple[str, ...]) -> None:
    """Make a key and a certificate signed by it."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise missing("cryptography", "station", "to make a certificate") from None
    host = socket.gethostname()
    secret = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = max(datetime.now(timezone.utc), _EARLIEST_NOW)
    all_names = dict.fromkeys((host, f"{host}.local", "localhost", "127.0.0.1", "::1", *names))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in all_names]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    pem = secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(key, pem, 0o600)
        _write(certificate, made.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise StorageError(
            f"cannot write into {key.parent}: {error.strerror}", hint="check the disk"
        ) from None


def _general(name: str) -> "x509.GeneralName":  # type: ignore[name-defined]  # noqa: F821, UP037
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
