"""Bundles that are sent to the station as archives, as candidates of trials."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from anoco_edge.station.parts.part_models import Model
from anoco_edge.station.people.roles import User
from anoco_edge.station.products.archives import bundle_folder, unpack_bundle
from anoco_edge.station.web.access import Viewer, require
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.problems import Problem, Responses
from anoco_edge.storage.atomic_files import writing

router = APIRouter(prefix="/api/v1", tags=["bundles"])
MOST_ARCHIVE = 1 << 30
BundleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}\.anoco$")]


class SentBundle(Model):
    """A bundle that was sent to the station."""

    name: str
    products: list[str]


_ARCHIVE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


_REFUSED: Responses = {
    403: {"description": "No accepted key signed the bundle, or it was changed since."},
    409: {"description": "The station has a bundle of this name."},
    413: {"description": "The archive is too large."},
    507: {"description": "The disk is full."},
}


@router.get("/bundles")
def bundles(request: Request, user: Viewer) -> list[str]:
    """Return the names of the bundles that were sent to the station."""
    folder = bundle_folder(context_of(request).folder)
    return sorted(p.name for p in folder.glob("*.anoco")) if folder.is_dir() else []


@router.put("/bundles/{name}", status_code=201, openapi_extra=_ARCHIVE_BODY, responses=_REFUSED)
async def send(
    request: Request, user: Annotated[User, Depends(require("engineer"))], name: BundleName
) -> SentBundle:
    """Send a bundle as a zip or tar archive; every file is verified before the bundle is kept, and
    its signature where the station asks for one."""
    context = context_of(request)
    folder = bundle_folder(context.folder)
    if (folder / name).exists():
        raise Problem(409, "It exists", f"the station has a bundle {name}", hint="rename yours")
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".sent-") as archive:
            left = MOST_ARCHIVE
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    raise Problem(413, "Too large", f"an archive has at most {MOST_ARCHIVE} bytes")
                await run_in_threadpool(archive.write, piece)
            archive.flush()
            made = await run_in_threadpool(
                unpack_bundle, Path(archive.name), folder / name, trust=context.trust
            )
    products = made.products()
    await run_in_threadpool(context.audit.write, user, "bundle sent", name, {"products": products})
    return SentBundle(name=name, products=products)
