"""A payment service to try `paid_calls.py` with: one charge per Idempotency-Key, and a fault now and then.

python payment_service.py      # on port 8402, until Ctrl-C
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock


class Service(ThreadingHTTPServer):
    """Remembers every charge by its key, and counts all requests."""

    request_queue_size = 128

    def __init__(self, port=8402):
        super().__init__(("127.0.0.1", port), Handler)
        self.lock, self.charges, self.requests = Lock(), {}, 0

    def charge(self, key, order):
        """Return the charge of a key: the one of the first request with it."""
        with self.lock:
            self.requests += 1
            new = {"charge": len(self.charges) + 1, "order": order["order"], "cents": order["cents"]}
            return self.charges.setdefault(key, new), self.requests


class Handler(BaseHTTPRequestHandler):
    """Answers a POST with the charge as JSON."""

    server: Service

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        charge, requests = self.server.charge(self.headers["Idempotency-Key"], order)
        if requests % 50 == 0:
            self.send_error(503)  # charged, but the answer is lost
            return
        body = json.dumps({"charge": charge["charge"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Request are counted, not printed."""


if __name__ == "__main__":
    with Service() as service:
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            print(f"{service.requests} requests, {len(service.charges)} charges")
