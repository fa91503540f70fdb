"""Everything that a supervisor knows about its job: the results of its decisions, and the contents of beats.

The supervisor's rules change this state.  A view of the job, or an answer to a question about it, needs only this state
and not the rules.
"""

from __future__ import annotations

from causal.config import JobConfig
from standby.blueprint import Blueprint
from standby.supervision.assignments import Assignments
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Record
from standby.supervision.hosts import CLUSTER_NS, EXPECT_NS, HostLosses, Hosts
from standby.supervision.injection import Injection
from standby.supervision.inquiries import Inquiries
from standby.supervision.preview import SharingNow
from standby.supervision.recoveries import Timeline
from standby.supervision.replay_checks import Checks
from standby.supervision.staging import Staging
from standby.supervision.task_counters import TaskCounters


class JobState:
    """The state of one job.

    Attributes:
        stopping: (status, reason) once the end has been decided.
        ended: (status, reason) once the job has ended.
        lasting: whether the job ends with an error that would recur if it were started again without a change.
    """

    def __init__(self, config: JobConfig, blueprint: Blueprint) -> None:
        self.config = config
        self.assignments = Assignments(blueprint.topology)
        self.timeline = Timeline()
        self.figures = TaskCounters()
        interval_ns, enabled = int(config.checkpoint_interval_s * 1e9), config.guarantee != "none"
        self.checks = Checks(self.assignments, config.verify_replay)
        self.coordinator = Coordinator(
            self.assignments, interval_ns, enabled, self.checks.lacking, ends_with_input=bool(config.input)
        )
        self.injection = Injection(blueprint.kills)
        self.staging = Staging(self.assignments, self.coordinator, config.guarantee == "epoch")
        self.inquiries = Inquiries(self.assignments, self.coordinator, blueprint.topology)
        timeout_ns, beat_ns = config.host_timeout_ms * 1_000_000, config.heartbeat_ms * 1_000_000
        expect_ns = CLUSTER_NS if config.on else EXPECT_NS
        self.hosts = Hosts(bool(config.listen), timeout_ns, config.hosts_expected, expect_ns, beat_ns)
        self.losses = HostLosses()
        self.sharing = SharingNow(blueprint.topology, config)
        self.stopping: tuple[int, str] | None = None
        self.ended: tuple[int, str] | None = None
        self.lasting = False

    def apply(self, record: Record) -> None:
        """Apply one decision, both in live operation and after a restart."""
        if record["kind"] == "resumed":
            self.figures.apply(record)
        self.assignments.apply(record)
        self.coordinator.apply(record)
        self.inquiries.apply(record)
        self.timeline.apply(record)
        if record["kind"] != "resumed":
            self.figures.apply(record)
        self.injection.apply(record)
        self.hosts.apply(record)
        self.losses.apply(record)
        self.checks.apply(record)
        if record["kind"] == "stopping":
            self.stopping = (record["status"], record["reason"])
            self.lasting = record.get("lasting", False)
        elif record["kind"] == "ended":
            self.stopping = self.ended = (record["status"], record["reason"])
        elif record["kind"] == "resumed":
            self.stopping = self.ended = None
            self.lasting = False
