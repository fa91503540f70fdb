"""Identifies the processes of a job, by their pid and start time together and by two marks in their environment.

A pid alone does not identify a process, because it may be reused.  Pid and start time together are unique until the
machine is restarted, and a pidfd that was opened and checked always refers to the same process.  The marks are
inherited, so they also identify descendants that outlive a process.
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from standby.host.room import JOB_MARK, SLOT_MARK


@dataclass(frozen=True, slots=True)
class Marked:
    """A process that has the marks of a job."""

    pid: int
    slot: str


_PF_EXITING = 0x4
"""The flag of a process that no longer runs any code of its program (`include/linux/sched.h`)."""


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def dying_status(pid: int) -> int | None:
    """Return the exit status of a child process that can no longer run code, even before its parent can wait for it.

    Returns: None if the status is unknown, because the kernel shows 0 until the process begins to end.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ends = int(stat[stat.rindex(b")") + 2 :].split()[6]) & _PF_EXITING
    return os.waitstatus_to_exitcode(int(stat.split()[-1])) if ends else None


def open_process(pid: int, started: int) -> int | None:
    """Return a pidfd of exactly this process; None if it has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return None
    if start_time(pid) != started:
        os.close(pidfd)
        return None
    return pidfd


def send_signal(pidfd: int, number: int) -> None:
    """Send a signal to the process of a pidfd; do nothing if it has ended."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def marked(job_directory: Path) -> list[Marked]:
    """Return all living processes that have the marks of this job."""
    wanted = _mark_of(job_directory)
    processes: list[Marked] = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:  # the process has ended or belongs to another user
            continue
        if wanted in environment and start_time(int(entry)) is not None:
            slots = [v[len(SLOT_MARK) + 1 :] for v in environment if v.startswith(SLOT_MARK.encode() + b"=")]
            processes.append(Marked(int(entry), slots[0].decode() if slots else ""))
    return processes


def _mark_of(job_directory: Path) -> bytes:
    """Return the job's mark in the kernel's encoding, because the bytes of a path need not be UTF-8."""
    return os.fsencode(f"{JOB_MARK}={job_directory}")


def kill_marked(job_directory: Path, within_s: float, only: str | None = None) -> int:
    """Send SIGKILL to every process that has the job's marks, and wait until all have ended.

    Args:
        only: the only slot whose processes are killed; None for all slots.

    Returns: how many processes are left after `within_s` seconds; 0 unless a process is stuck in the kernel.
    """
    deadline = time.monotonic() + within_s
    while True:
        left = [process for process in marked(job_directory) if only in (None, process.slot)]
        for process in left:
            kill_if_marked(process.pid, job_directory)
        if not left or time.monotonic() >= deadline:
            return len(left)
        time.sleep(0.01)


def kill_if_marked(pid: int, job_directory: Path) -> None:
    """Send SIGKILL to a process after checking that it belongs to the job while its pidfd is open."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            mine = _mark_of(job_directory) in file.read().split(b"\0")
        if mine:
            send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(pidfd)


def has_ended(pidfd: int) -> bool:
    """Return whether the process of a pidfd has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
