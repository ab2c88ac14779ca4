"""Makes the application: routes, guards, limits and errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse
from starlette.staticfiles import StaticFiles

from anoco_edge import __version__
from anoco_edge.station.api import (
    audit,
    bundles,
    health,
    jobs,
    line,
    live,
    parts,
    products,
    scores,
    session,
    shadow,
    teach,
    tokens,
    users,
)
from anoco_edge.station.web import pages, problems
from anoco_edge.station.web.access import SignInNeededError
from anoco_edge.station.web.context import StationContext
from anoco_edge.station.web.guards import Guards
from anoco_edge.station.web.limits import Limits
from anoco_edge.station.web.response_headers import ResponseHeaders

ROUTERS = (
    session.router,
    users.router,
    tokens.router,
    audit.router,
    line.router,
    live.router,
    health.router,
    parts.router,
    scores.router,
    products.router,
    teach.router,
    jobs.router,
    shadow.router,
    bundles.router,
    pages.router,
)
STATIC = Path(__file__).parent / "static"


def create_app(context: StationContext) -> FastAPI:
    """Return the application of a station."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        context.live.attach(asyncio.get_running_loop())
        following = asyncio.create_task(context.line.run())
        context.services.start()
        yield
        await asyncio.to_thread(context.services.close)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    app = FastAPI(
        title="anoco-edge station",
        version=__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # these pages load from a CDN
        redoc_url=None,
        responses=problems.RESPONSES,
        lifespan=lifespan,
    )
    app.state.context = context
    problems.install(app)

    @app.exception_handler(SignInNeededError)
    async def to_sign_in(_: Request, __: SignInNeededError) -> RedirectResponse:
        return RedirectResponse("/setup" if context.users.none else "/login", 303)

    for router in ROUTERS:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(Guards, context=context)  # the last one added is the first to see a request
    app.add_middleware(Limits, traffic=context.traffic)
    app.add_middleware(ResponseHeaders)
    return app
