"""A thread with an event loop, in which a bus listens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

PROGRESS_SECONDS = 0.1

Stop = Callable[[], Awaitable[None]]


class LoopThread:
    """Runs the server that `listen` starts; what `listen` returns stops it.

    `progress` is called ten times a second while the loop runs and `refresh` ends.
    """

    def __init__(
        self,
        name: str,
        listen: Callable[[], Awaitable[Stop]],
        progress: Callable[[], None],
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._listen, self._progress, self._refresh = listen, progress, refresh
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> Exception | None:
        """Wait until the server listens, and return why it does not."""
        self._thread.start()
        self._started.wait()
        return self._failure

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in the loop, unless that has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the loop, unless that has ended."""
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()

    def close(self) -> None:
        """Stop the server and end the thread."""
        if self._thread.ident is None:  # it was never started
            self._loop.close()
            return
        self.call(self._loop.stop)
        self._thread.join(5)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            stop = self._loop.run_until_complete(self._until_listening())
        except Exception as error:  # noqa: BLE001 (whatever a library raises: the bus says it)
            self._failure = error
            return
        finally:
            self._started.set()
        turning = self._loop.create_task(self._show_progress())
        self._loop.run_forever()
        turning.cancel()
        self._loop.run_until_complete(self._until_stopped(stop))
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _until_listening(self) -> Stop:
        return await self._listen()

    async def _until_stopped(self, stop: Stop) -> None:
        await stop()

    async def _show_progress(self) -> None:
        while True:
            self._progress()
            if self._refresh is not None:
                await self._refresh()
            await asyncio.sleep(PROGRESS_SECONDS)
