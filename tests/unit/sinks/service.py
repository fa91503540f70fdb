"""A web service in a process of its own, for sinks that post: `python -m tests.unit.sinks.service ROOT`.

It prints its port.  Of a request to `/NAME/…` it takes what a `Receiver` in ROOT/NAME takes, all of it or nothing.
Files in that directory make it do something else instead: `away` (503), `script` (a JSON list of [status, headers] for
the next requests), `deaf` (takes rows, and hangs up without an answer, as often as the number in it says).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.unit.sinks.receiver import Receiver

HOME = Path(__file__).resolve().parents[3]


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root = Path()

    def do_POST(self) -> None:
        self.directory = self.root / self.path.split("/")[1]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        payload = json.loads(body)
        with open(self.directory / "requests", "a") as file:
            file.write(json.dumps([self.path, dict(self.headers), len(payload["rows"])]) + "\n")
        status, headers = self._answer(payload)
        if status:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            words = b"" if status == 204 else b"because\nof a reason"
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)
        else:
            self.close_connection = True

    def _answer(self, payload: dict[str, Any]) -> tuple[int, dict[str, str]]:
        script = self.directory / "script"
        if script.exists():
            (status, headers), *rest = json.loads(script.read_text())
            script.write_text(json.dumps(rest)) if rest else script.unlink()
            return status, headers
        if (self.directory / "away").exists():
            return 503, {}
        rows, run, task = payload["rows"], payload["run"], payload["task"]
        if any(row["record"]["n"] < 0 for row in rows):
            return 422, {}
        keys = [f"{run}/{task}/{row['position']}" for row in rows]
        Receiver(self.directory).take(task, keys, [row["position"] for row in rows], [row["record"] for row in rows])
        deaf = self.directory / "deaf"
        if deaf.exists():
            left = int(deaf.read_text()) - 1
            deaf.write_text(str(left)) if left else deaf.unlink()
            return 0, {}
        return 204, {}

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Yield the address of a service of its own, as long as it is needed."""
    argv = [sys.executable, "-m", "tests.unit.sinks.service", str(root)]
    with subprocess.Popen(argv, cwd=HOME, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    """Serve until killed."""
    Service.root = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
