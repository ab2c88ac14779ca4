"""What happens, as it happens: one WebSocket for each tab."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from fastapi import APIRouter, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from anoco_edge.station.web.access import Viewer, find_user
from anoco_edge.station.web.context import context_of
from anoco_edge.station.web.live import Tab
from anoco_edge.station.web.live_messages import LiveState, text_of
from anoco_edge.station.web.problems import JPEG, NOT_FOUND, Problem

router = APIRouter(prefix="/api/v1", tags=["live"])
SEND_SECONDS = 10.0
CHECK_SECONDS = 5.0  # how long a tab of someone who was signed out goes on at most
UNAUTHORIZED, TRY_LATER = 4401, 1013


@router.get("/live/preview/{uid}", response_class=Response, responses={**NOT_FOUND, **JPEG})
async def preview(request: Request, uid: str, user: Viewer) -> Response:
    """Return the preview of one of the last parts."""
    found = context_of(request).live.preview(uid)
    if found is None:
        raise Problem(404, "Not Found", f"the preview of {uid} is not kept any more")
    return Response(
        found, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"}
    )


@router.websocket("/live")
async def live(socket: WebSocket) -> None:
    """Push the state, each part, the log and the jobs to a tab until it is closed or too slow."""
    context = context_of(socket)
    await socket.accept()
    user = await run_in_threadpool(find_user, socket)
    if user is None or not user.may("viewer"):
        await socket.close(UNAUTHORIZED, "sign in first")
        return
    tab = context.live.join(user.name)
    if tab is None:
        await socket.close(TRY_LATER, "too many tabs are open")
        return
    tab.offer(text_of(context.line.state))
    tasks = {
        asyncio.create_task(_write(socket, tab, lambda: context.line.state)),
        asyncio.create_task(_until_closed(socket)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError, asyncio.TimeoutError):
            for task in done:
                task.result()
    finally:
        context.live.leave(tab)
        for task in tasks:
            task.cancel()


async def _write(socket: WebSocket, tab: Tab, state: Callable[[], LiveState]) -> None:
    """Send what waits; a tab that takes too long for it is closed."""
    asked = asyncio.get_running_loop().time()
    while not tab.slow:
        text = None
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            text = await asyncio.wait_for(tab.waiting.get(), CHECK_SECONDS)
        if text is not None:  # who does not take it in this time is dropped
            await asyncio.wait_for(socket.send_text(text), SEND_SECONDS)
        now = asyncio.get_running_loop().time()
        if now - asked > CHECK_SECONDS:
            asked = now
            if await run_in_threadpool(find_user, socket, active=False) is None:
                await socket.close(UNAUTHORIZED, "signed out")
                return
            # A page takes silence for a lost connection, and a line that ended is silent.
            tab.offer(text_of(state()))
    await socket.close(TRY_LATER, "too slow")


async def _until_closed(socket: WebSocket) -> None:
    """Read until the tab is closed; nothing that it says matters."""
    while True:
        await socket.receive_text()
