"""Adds files to the metadata of a wheel, which lists the hash of every file it has."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path


def add_metadata(wheel: Path, name: str, content: bytes, out: Path) -> Path:
    """Write a copy of `wheel` into the folder `out` that has `content` as .dist-info/NAME."""
    out.mkdir(parents=True, exist_ok=True)
    copy = out / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        (record,) = (i for i in old.infolist() if i.filename.endswith(".dist-info/RECORD"))
        for member in old.infolist():
            if member is not record:
                new.writestr(member, old.read(member), zipfile.ZIP_DEFLATED)
        added = zipfile.ZipInfo(f"{Path(record.filename).parent}/{name}", record.date_time)
        added.external_attr = record.external_attr
        new.writestr(added, content, zipfile.ZIP_DEFLATED)
        rows = list(csv.reader(io.StringIO(old.read(record).decode())))
        rows.insert(len(rows) - 1, [added.filename, record_hash(content), str(len(content))])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        new.writestr(record, text.getvalue(), zipfile.ZIP_DEFLATED)
    return copy


def record_hash(content: bytes) -> str:
    """Return the hash of a file as RECORD has it.

    >>> record_hash(b"")
    'sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU'
    """
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + digest.rstrip(b"=").decode()
