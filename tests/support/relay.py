"""A relay between clients and a broker that can be cut: what is sent then goes nowhere, and nothing says so."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 64 * 1024


class Relay:
    """Forwards the connections to one loopback port, in a thread of its own, inside its `with` block.

    Cut, it behaves as a network that loses every packet: connections stay open, nothing comes through, and what
    was sent meanwhile is lost with its connection once the relay is mended.

    Args:
        port: where to listen.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.target_port = 0
        self.loses_answers = False
        """Whether what is sent arrives, and nothing that comes back."""
        self._whole = asyncio.Event()
        self._cut_links: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"relay-{port}", daemon=True)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        """Let new connections through; those that were open during the cut are dropped."""
        self._loop.call_soon_threadsafe(self._mend)

    def __enter__(self) -> Self:
        self._loop.call_soon(self._whole.set)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _mend(self) -> None:
        self._whole.set()
        for task in self._cut_links:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if not self._whole.is_set():
                self._cut_links.add(task)
                await asyncio.Event().wait()
            there = await asyncio.open_connection("127.0.0.1", self.target_port)
            ways = [
                asyncio.ensure_future(way)
                for way in (self._pump(reader, there[1], task), self._pump(there[0], writer, task, is_answer=True))
            ]
            try:
                await asyncio.wait(ways, return_when="FIRST_COMPLETED")
            finally:
                for way in ways:
                    way.cancel()
                there[1].close()
        except (OSError, asyncio.CancelledError):
            # The link ends with its task; nobody waits for either.
            pass
        finally:
            self._cut_links.discard(task)
            writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: asyncio.Task[None],
        *,
        is_answer: bool = False,
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if not self._whole.is_set():
                    self._cut_links.add(link)
                    await asyncio.Event().wait()
                if not (is_answer and self.loses_answers):
                    writer.write(chunk)
                    await writer.drain()
