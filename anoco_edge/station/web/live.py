"""Passes what happens on to the open tabs. A tab that reads too slowly is dropped."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque

from anoco_edge.station.web.live_messages import LiveMessage, text_of

MOST_TABS = 32
MOST_WAITING = 64
KEPT_PREVIEWS = 24
MOST_DECIDED = 128
LATELY_SECONDS = 2.0
"""How long the line may take to write the row and the picture of a part that it has put out."""


class Tab:
    """One WebSocket, and the messages that wait for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)
        self.slow = False

    def offer(self, text: str) -> bool:
        """Queue a message; False if too many wait already, and the tab is to be dropped."""
        try:
            self.waiting.put_nowait(text)
        except asyncio.QueueFull:
            self.slow = True
        return not self.slow


class LiveHub:
    """All open tabs, the latest previews and which parts were decided lately. Everything but `post`
    and `preview_address` is for the event loop alone."""

    def __init__(self) -> None:
        self._tabs: set[Tab] = set()
        self._previews: OrderedDict[str, bytes] = OrderedDict()
        self._decided: deque[tuple[float, str]] = deque(maxlen=MOST_DECIDED)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.dropped = 0
        """How many tabs were dropped because they read too slowly."""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Name the event loop of the tabs."""
        self._loop = loop

    @property
    def tabs(self) -> int:
        """How many tabs are open."""
        return len(self._tabs)

    def join(self, name: str) -> Tab | None:
        """Add a tab; None if there are too many."""
        if len(self._tabs) >= MOST_TABS:
            return None
        tab = Tab(name)
        self._tabs.add(tab)
        return tab

    def leave(self, tab: Tab) -> None:
        """Remove a tab."""
        self._tabs.discard(tab)

    def publish(self, message: LiveMessage) -> None:
        """Give a message to every tab."""
        if not self._tabs:
            return
        text = text_of(message)
        for tab in list(self._tabs):
            if not tab.offer(text):
                self.dropped += 1
                self._tabs.discard(tab)

    def post(self, message: LiveMessage) -> None:
        """Give a message to every tab; any thread may call this."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.publish, message)

    def note_decided(self, uid: str) -> None:
        """Note that a part was decided now; its row and its picture are written after that."""
        self._decided.append((time.monotonic(), uid))

    def decided_lately(self, uid: str) -> bool:
        """Return whether a part was decided so lately that its row may not be written yet.

        >>> hub = LiveHub()
        >>> hub.note_decided("r1-000001")
        >>> hub.decided_lately("r1-000001"), hub.decided_lately("r1-000002")
        (True, False)
        """
        since = time.monotonic() - LATELY_SECONDS
        return any(at > since for at, decided in self._decided if decided == uid)

    def keep_preview(self, uid: str, picture: bytes) -> None:
        """Keep the preview of a part; the oldest one makes room."""
        self._previews[uid] = picture
        while len(self._previews) > KEPT_PREVIEWS:
            self._previews.popitem(last=False)

    def preview_address(self, uid: str) -> str | None:
        """Return where the preview of a part is to be had, if it is kept; any thread may call it.

        >>> LiveHub().preview_address("r1-000001") is None
        True
        """
        return f"/api/v1/live/preview/{uid}" if uid in self._previews else None

    def preview(self, uid: str) -> bytes | None:
        """Return the preview of a part (JPEG) while it is kept."""
        return self._previews.get(uid)
