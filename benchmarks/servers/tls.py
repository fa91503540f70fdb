"""A proxy on loopback that ends TLS in front of a server that speaks none, with a certificate of a fresh authority."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme

_BLOCK_BYTES = 1 << 16
_START_S = 5.0


@contextmanager
def tls_before(port: int, listening: int, directory: Path) -> Iterator[Path]:
    """Serve TLS on the port `listening` of loopback for the server at `port`; yield the file of the authority."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    file = directory / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    loop, ends, serves = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ssl.SSLError):
            while block := await reader.read(_BLOCK_BYTES):
                writer.write(block)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # at the end of the proxy
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(forward(reader, there_writer), forward(there_reader, writer))

    async def until_end() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", listening, ssl=context):
            serves.set()
            await ends.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(until_end())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        if not serves.wait(_START_S):
            raise AssertionError(f"the proxy does not listen on port {listening}")
        yield file
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(_START_S)
