"""A small client of the Debug Adapter Protocol, as an IDE speaks it over a socket."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import IO, Any

REPLY_S = 60.0


class DebugClient:
    """An IDE that is connected to one debugger."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), REPLY_S)
        self._stream: IO[bytes] = self._socket.makefile("rb")
        self._sequence = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> DebugClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request, and return its number."""
        self._sequence += 1
        body = json.dumps(
            {"seq": self._sequence, "type": "request", "command": command, "arguments": arguments}
        ).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self._sequence

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request, and return the body of its response, which must be a success."""
        return self.answer(self.send(command, **arguments))

    def answer(self, number: int) -> dict[str, Any]:
        """Return the body of the response to a request that was sent."""
        while True:
            message = self._message()
            if message["type"] == "response" and message["request_seq"] == number:
                assert message["success"], message
                return message.get("body") or {}
            if message["type"] == "event":
                self._events.append(message)

    def event(self, name: str) -> dict[str, Any]:
        """Return the body of the next event of that name."""
        while True:
            for place, message in enumerate(self._events):
                if message["event"] == name:
                    del self._events[: place + 1]
                    return message.get("body") or {}
            message = self._message()
            if message["type"] == "event":
                self._events.append(message)

    def _message(self) -> dict[str, Any]:
        length = 0
        while (line := self._stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the debugger has closed the connection"
        message: dict[str, Any] = json.loads(self._stream.read(length))
        return message

    # What a person does.

    def attach(self, **breakpoints: list[int]) -> None:
        """Attach, with breakpoints at lines of files, and let the program continue."""
        self.ask("initialize", clientID="test", adapterID="debugpy", pathFormat="path", linesStartAt1=True)
        attached = self.send("attach", justMyCode=True)
        self.event("initialized")
        for path, lines in breakpoints.items():
            self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line} for line in lines])
        self.ask("configurationDone")
        self.answer(attached)

    def stopped(self) -> tuple[int, str, int, str]:
        """Wait until the program is suspended; return its thread, and file, line and function of the top frame."""
        thread = self.event("stopped")["threadId"]
        frame = self.top(thread)
        return thread, frame["source"]["path"], frame["line"], frame["name"]

    def top(self, thread: int) -> dict[str, Any]:
        frames: list[dict[str, Any]] = self.ask("stackTrace", threadId=thread)["stackFrames"]
        return frames[0]

    def variables(self, thread: int) -> dict[str, str]:
        """Return the local variables of the top frame, as text."""
        scopes = self.ask("scopes", frameId=self.top(thread)["id"])["scopes"]
        local = next(scope for scope in scopes if scope["name"] == "Locals")
        variables = self.ask("variables", variablesReference=local["variablesReference"])["variables"]
        assert variables, scopes
        return {each["name"]: each["value"] for each in variables}

    def evaluate(self, thread: int, expression: str) -> str:
        result = self.ask("evaluate", expression=expression, frameId=self.top(thread)["id"], context="repl")
        return str(result["result"])
