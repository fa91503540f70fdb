"""Deaths of hosts, cuts in any direction, drains and revoked keys, and troubles of the store that hosts share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from standby.network.control import pack
from standby.supervision.supervision import ANY_SESSION
from tests.simulation.clockwork import MS, SECOND
from tests.simulation.layout import LEADER_DEAF, LEADERS_LOST
from tests.simulation.machines import STORE, Machine

if TYPE_CHECKING:
    from tests.simulation.scenario import Fault
    from tests.simulation.world import Simulation

STRETCH, LONG = 4, 8
"""A fault of a host lasts so many times as long as one of a process, and one of a supervisor so many."""

FOR_EVER_NS = 100_000 * SECOND

TETHER_NS = 1 * SECOND
"""The time until a tether that has ended is tried again (`deploy.launching.host_agent`)."""

SLACK_MS = 200
"""The longest time that what a host has sent before its death is under way."""

ROSTER_NS = 500 * MS
"""The longest time until the supervisor looks at its roster again."""


# -- lives of hosts ----------------------------------------------------------------------------------


def power_off(world: Simulation, machine: Machine) -> None:
    """End everything on a host together; the content of its disk is not read again."""
    if machine.agent is not None:
        machine.agent.living = False
    for process in list(world.processes.values()):
        if process.machine is machine:
            world.end(process, None)
    machine.end_life()


def power_on(world: Simulation, machine: Machine) -> None:
    """Begin another life of a host, unless one has begun."""
    if not machine.up and world.ended is None:
        machine.up = True
        machine.shift_ns = world.rng.randint(-1000, 1000) * SECOND
        world.boot(machine)
        _tether(world, machine, machine.lives)


def _tether(world: Simulation, machine: Machine, life: int) -> None:
    """Connect the tether of a host, repeatedly while it lives."""
    if machine.lives != life or world.ended is not None:
        return
    supervisor = world.supervisor
    if supervisor is not None and supervisor.living and not machine.revoked:
        ways = ((machine.name, supervisor.name), (supervisor.name, machine.name))
        machine.tether = supervisor if all(world.fabric.open(*way) for way in ways) else machine.tether
    world.clock.after(TETHER_NS, lambda: _tether(world, machine, life))


def _untether(world: Simulation, machine: Machine) -> None:
    """The kernel closes the tether of a host whose processes have ended."""
    name, session, supervisor = machine.name, machine.session, machine.tether

    def closed() -> None:
        if supervisor is None:
            return
        if not world.fabric.open(name, supervisor.name):
            world.clock.at(world.fabric.open_at(name, supervisor.name), closed)
        elif world.listening(supervisor.name) is supervisor:
            supervisor.closed(name, session)

    world.clock.after(world.rng.randint(100_000, 5 * MS), closed)


def _watch_silence(world: Simulation, machine: Machine) -> None:
    """Make the supervisor notice a death in time, if it lives so long and the host does not come back before."""
    supervisor, life, incarnation = world.supervisor, machine.lives + 1, machine.incarnation

    def noticed() -> None:
        same = supervisor is not None and supervisor.living and world.supervisor is supervisor
        if supervisor is None or not same or supervisor.slept or supervisor.supervision.job.stopping is not None:
            return  # it only waits while it stops
        if machine.lives == life and not machine.up and world.ended is None:
            now_ns = supervisor.supervision._now_ns
            left_ns = supervisor.supervision.hosts.hearing_since_ns(now_ns) + span_ns - now_ns
            if left_ns > 0:  # while it hears of no host it loses none
                world.clock.after(left_ns, noticed)
                return
            world.host_checks.is_lost(machine.name, incarnation, supervisor.supervision)

    span_ns = (world.layout.timeout_ms + SLACK_MS) * MS
    world.clock.after(span_ns, noticed)


def _host_dies(world: Simulation, fault: Fault) -> None:
    """All processes of a host end together; its kernel says so, unless it has no power either."""
    machine = world.machine_of(fault)
    if not machine.up:
        return
    if fault.extent & 1:
        _untether(world, machine)
    _watch_silence(world, machine)
    power_off(world, machine)
    world.clock.after(STRETCH * fault.extent * MS, lambda: power_on(world, machine))


# -- what passes between them ------------------------------------------------------------------------


def _cut(world: Simulation, source: str, target: str, span_ns: int, keeps: bool) -> None:
    world.fabric.cut(source, target, world.clock.now_ns + span_ns, keeps)
    if keeps:
        return
    for connection in world.network.open:
        ends = {world.host_of(connection.source), world.host_of(connection.target)}
        if ends == {source, target}:
            world.network.cut(connection, span_ns)


def _cut_both(world: Simulation, one: str, other: str, span_ns: int, keeps: bool) -> None:
    _cut(world, one, other, span_ns, keeps)
    _cut(world, other, one, span_ns, keeps)


def _others(world: Simulation, machine: Machine, store: bool) -> list[str]:
    others = [name for name in world.machines if name != machine.name]
    return [*others, *world.supervisors(), *([STORE] if store else [])]


def _host_cut(world: Simulation, fault: Fault) -> None:
    """A host works on, and reaches none of the others."""
    machine = world.machine_of(fault)
    for other in _others(world, machine, store=bool(fault.who & 64)):
        _cut_both(world, machine.name, other, STRETCH * fault.extent * MS, bool(fault.extent & 1))


def _ends_of(world: Simulation, fault: Fault) -> tuple[str, str]:
    """Return a host, and any end that is another one."""
    machine = world.machine_of(fault)
    others = _others(world, machine, store=True)
    return machine.name, others[fault.who // 8 % len(others)]


def _between_hosts(world: Simulation, fault: Fault) -> None:
    """Two ends do not reach each other; both reach all others."""
    one, other = _ends_of(world, fault)
    _cut_both(world, one, other, STRETCH * fault.extent * MS, bool(fault.extent & 1))


def _one_way(world: Simulation, fault: Fault) -> None:
    one, other = _ends_of(world, fault)
    way = (one, other) if fault.who & 128 else (other, one)
    _cut(world, *way, STRETCH * fault.extent * MS, bool(fault.extent & 1))


def _flap(world: Simulation, fault: Fault) -> None:
    """A connection is cut and healed many times in a row."""
    one, other = _ends_of(world, fault)
    every_ns = (10 + fault.who % 60) * MS
    for place in range(max(1, STRETCH * fault.extent * MS // (2 * every_ns))):
        keeps = bool(fault.extent >> place % 8 & 1)
        world.clock.after(
            2 * place * every_ns,
            lambda keeps=keeps: _cut_both(world, one, other, every_ns, keeps),  # type: ignore[misc]
        )


# -- what users and intruders do ---------------------------------------------------------------------


def _ask(world: Simulation, machine: Machine, draining: bool, then: Callable[[], None]) -> None:
    """Ask the supervisor, later if there is none, and continue."""
    supervisor = world.supervisor
    if supervisor is None or not supervisor.living:
        if world.ended is None:
            world.clock.after(50 * MS, lambda: _ask(world, machine, draining, then))
        return
    supervisor.asked("drain", {"host": machine.name, "draining": draining})
    then()


def _drain(world: Simulation, fault: Fault) -> None:
    """A host is to be emptied, and may have processes again some time after that was asked."""
    machine = world.machine_of(fault)
    span_ns = 2 * STRETCH * fault.extent * MS
    _ask(world, machine, True, lambda: world.clock.after(span_ns, lambda: _keep(world, machine)))


def _keep(world: Simulation, machine: Machine) -> None:
    """Ask that a host has processes again, until it is decided: a leader may be deposed before it has written that."""

    def look() -> None:
        drains = [r["draining"] for r in world.decisions if r["kind"] == "host_draining" and r["host"] == machine.name]
        if drains and drains[-1]:
            _keep(world, machine)

    if world.ended is None:
        _ask(world, machine, False, lambda: world.clock.after(SECOND, look))


def _revoke(world: Simulation, fault: Fault) -> None:
    """The key of a host is revoked, and some time later it is in the roster again."""
    machine = world.machine_of(fault)

    def revoked() -> None:
        machine.revoked = True
        for name in world.supervisors():
            supervisor = world.listening(name)
            if supervisor is not None:
                supervisor.closed(machine.name, ANY_SESSION, "its key was revoked")

    def back() -> None:
        machine.revoked = False

    within_ns = world.rng.randint(0, ROSTER_NS)
    world.clock.after(within_ns, revoked)
    world.clock.after(within_ns + STRETCH * fault.extent * MS, back)


def _impostor(world: Simulation, fault: Fault) -> None:
    """An agent speaks for processes that were placed on other hosts."""
    machine, agent = world.machine_of(fault), world.machine_of(fault).agent
    victims = [process for process in world.tasks_running() if process.machine is not machine]
    if agent is None or not agent.living or not victims:
        return
    victim = victims[fault.extent % len(victims)]
    slot, member = victim.slot, victim.membership
    task = {"task": member.name, "incarnation": member.incarnation}
    agent.relay("", pack("exited", slot=slot, pid=victim.pid, at_ns=world.clock.now_ns, status=1))
    agent.relay(slot, pack("failed", **task, error="PipelineError", message="forged", definite=True))
    agent.relay(slot, pack("phase", **task, phase="finished", at_ns=world.clock.now_ns))
    agent.relay("", pack("started", slot=slot, pid=1, at_ns=world.clock.now_ns, host=victim.machine.name))


# -- supervisors that have successors ------------------------------------------------------------------


def _leader_dies(world: Simulation, fault: Fault) -> None:
    """A supervisor is lost with its host, which comes back much later, with its directory."""
    world.terms.aimed_at(fault.who).die(LONG * fault.extent * MS)


def _leaders_lost(world: Simulation, fault: Fault) -> None:
    """All supervisors are lost, and the job is resumed while its hosts work on."""
    for seat in world.terms.seats.values():
        seat.die(None)
    world.clock.after(STRETCH * fault.extent * MS, lambda: world.terms.resume(ended=False))


def _leader_cut(world: Simulation, fault: Fault) -> None:
    """A supervisor works on, and reaches no host, or not the store, or neither."""
    name, span_ns = world.terms.aimed_at(fault.who).name, LONG * fault.extent * MS
    what = fault.who // 16 % 4
    for other in world.machines if what != 1 else ():
        _cut_both(world, name, other, span_ns, bool(fault.extent & 1))
    if what:
        _cut_both(world, name, STORE, span_ns, bool(fault.extent & 1))


def _leader_deaf(world: Simulation, fault: Fault) -> None:
    """The leader reaches no host any more, and the store as before: only another supervisor can bring the job on."""
    name = world.terms.aimed_at(0).name
    for other in world.machines:
        _cut_both(world, name, other, FOR_EVER_NS, keeps=False)


def _leader_sleeps(world: Simulation, fault: Fault) -> None:
    """A supervisor is suspended, and does not know it when it wakes."""
    world.terms.aimed_at(fault.who).asleep_until_ns = world.clock.now_ns + LONG * fault.extent * MS


def _leader_resigns(world: Simulation, fault: Fault) -> None:
    """A supervisor is asked to end where another one waits."""
    supervisor = world.terms.aimed_at(0).supervisor
    if supervisor is not None and supervisor.living:
        supervisor.resign()


# -- the shared store ----------------------------------------------------------------------------------


def _depot_away(world: Simulation, fault: Fault) -> None:
    world.shared.unavailable_until_ns = world.clock.now_ns + STRETCH * fault.extent * MS


def _depot_loses(world: Simulation, fault: Fault) -> None:
    world.shared.losing_until_ns = world.clock.now_ns + STRETCH * fault.extent * MS


FAULTS: dict[str, Callable[[Simulation, Fault], None]] = {
    "host_dies": _host_dies,
    "host_cut": _host_cut,
    "between_hosts": _between_hosts,
    "one_way": _one_way,
    "flap": _flap,
    "drain": _drain,
    "revoke": _revoke,
    "impostor": _impostor,
    "depot_away": _depot_away,
    "depot_loses": _depot_loses,
    "leader_dies": _leader_dies,
    "leader_cut": _leader_cut,
    "leader_sleeps": _leader_sleeps,
    "leader_resigns": _leader_resigns,
    LEADERS_LOST: _leaders_lost,
    LEADER_DEAF: _leader_deaf,
}
