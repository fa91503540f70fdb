"""The vitals of a process that runs a task: everything that its beats report about the task."""

from __future__ import annotations

from causal.shell.driver import TaskDriver
from causal.storage.disk import Disk
from causal.task.vitals import Vitals


def vitals_of(
    driver: TaskDriver, disk: Disk | None, checked: tuple[int, str], hot_keys: tuple[tuple[str, float], ...]
) -> Vitals:
    """Return the vitals of the task that `driver` runs.

    Args:
        checked: the progress and the result of the checks by replay.
    """
    protocol = driver.task
    return Vitals(
        driver.reported_state,
        protocol.cursor.epoch,
        counters=driver.counters(),
        first_record_ns=driver.first_record_ns or None,
        last_output_ns=driver.last_output_ns or None,
        rollback=protocol.inquiry.rollback.number,
        lost=tuple(protocol.lost),
        committed=protocol.channels.committed,
        checked=checked,
        waiting=driver.waiting,
        wanted_epoch=protocol.retention.wanted_epoch,
        unchanged=protocol.execution.step.unchanged,
        input_complete=driver.input_complete,
        uploading=disk.uploads.waiting if disk is not None and disk.uploads is not None else None,
        hot_keys=hot_keys,
    )
