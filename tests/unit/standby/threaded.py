"""A worker's module that starts a thread as it is imported."""

from __future__ import annotations

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()


def main() -> int:
    return 0
