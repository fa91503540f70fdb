"""A child that user code forks ends at signals that its parent handles or ignores."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import multiprocessing, os, signal, time
from causal.process.forks import let_children_end

def handle(*_):
    print("handled", flush=True)

signal.signal(signal.SIGTERM, handle)
signal.signal(signal.SIGINT, signal.SIG_IGN)
let_children_end()
context = multiprocessing.get_context("fork")
for _ in range(20):
    child = context.Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join()
    assert child.exitcode == -signal.SIGTERM, child.exitcode
with context.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
pid = os.fork()
if not pid:
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    except KeyboardInterrupt:
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_children_end_at_signals_and_their_parent_does_not() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], timeout=60, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "handled\n", "")
