"""Faults of the hosts of one job, of its supervisors and of its shared store: each is real, is noticed, and ends.

A supervisor is lost with its host, and a candidate on another host leads; or all supervisors are lost, and the job is
resumed.  The store is unreachable or slow where it is a server.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from benchmarks.hosts.site import SUPERVISOR, Site
from tests.faults.job import wait_for

HOSTS = ("a", "b", "c")
CANDIDATE, STORE = "supervisor-b", "store"
SUPERVISORS = (SUPERVISOR, CANDIDATE)
JOB = "counts"
LOST_WITHIN_S, BACK_WITHIN_S, LEADS_WITHIN_S = 60.0, 120.0, 90.0
CALM = 0.5
"""The chance that everything is whole again before the next fault."""
ALSO = 0.4
"""The chance that a host dies, too, while there is no supervisor or no store."""
FLAP_S = 0.2


@dataclass(slots=True)
class Fire:
    """Throws faults at one job.

    Attributes:
        faults: how often each was thrown.
        lost: the supervisors and stores that were lost; hosts are counted by the job itself.
        zombies: processes that worked on when their agent was dead.
        supervisors: those whose processes live.
    """

    site: Site
    rng: Random
    store_is_server: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    zombies: int = 0
    supervisors: list[str] = field(default_factory=lambda: list(SUPERVISORS))

    def begin(self) -> None:
        """Start the hosts and the candidate of a job whose `causal run` has been started."""
        for name in HOSTS:
            self.site.join(name, "--slots", "12")
        self.site.await_running(1)
        self.site.stand(CANDIDATE, JOB)

    def throw(self, kinds: Sequence[str] = ()) -> None:
        """Throw one fault, of these kinds if any are given, and end it once it was noticed."""
        self.site.leads(*self.supervisors)
        joined = [name for name in HOSTS if self.site.host(name).get("state") == "joined"]
        if not joined:
            return self.whole()
        possible = {kind: act for kind, act in FAULTS.items() if not kinds or kind in kinds}
        if not self.store_is_server:
            possible = {kind: act for kind, act in possible.items() if kind not in OF_A_SERVER}
        [kind] = self.rng.choices(list(possible), [weight for weight, _ in possible.values()])
        self.faults[kind] += 1
        possible[kind][1](self, self.rng.choice(joined))
        if self.rng.random() < CALM:
            self.whole()
        time.sleep(self.rng.uniform(0.0, 1.0))

    def whole(self) -> None:
        """Wait until every host is joined and every task and standby is there."""

        def all_there() -> bool:
            self.site.leads(*self.supervisors)
            view = self.site.view() or {}
            states = {host["state"] for host in view.get("hosts", ())}
            return view.get("state") == "running" and states == {"joined"} and not view["without_standby"]

        wait_for("every host and standby is there again", all_there, BACK_WITHIN_S)

    # -- hosts ---------------------------------------------------------------------------------------

    def _noticed(self, name: str, incarnation: int) -> None:
        def lost() -> bool:
            self.site.leads(*self.supervisors, running=False)  # a task may wait for this very host
            host = self.site.host(name)
            return bool(host.get("state") == "lost" or host.get("incarnation", 0) > incarnation)

        wait_for(f"{name} is lost", lost, LOST_WITHIN_S)

    def _incarnation(self, name: str) -> int:
        return int(self.site.host(name).get("incarnation", 0))

    def _kill(self, name: str) -> None:
        incarnation = self._incarnation(name)
        self.site.kill_host(name)
        self._noticed(name, incarnation)
        self.site.join(name)

    def _kill_two(self, name: str) -> None:
        """Two hosts together, or the second while the first is recovered from."""
        other = self.rng.choice([each for each in HOSTS if each != name])
        incarnations = {each: self._incarnation(each) for each in (name, other)}
        for each in incarnations:
            self.site.kill_host(each)
            time.sleep(self.rng.choice((0.0, 0.1, 0.5)))
        for each, incarnation in incarnations.items():
            self._noticed(each, incarnation)
            self.site.join(each)

    def _leave_zombies(self, name: str) -> None:
        """Root process and agent are killed; the tasks write on until the host begins again."""
        incarnation = self._incarnation(name)
        workers = self.site.kill_agent(name)
        self._noticed(name, incarnation)
        time.sleep(self.rng.uniform(0.0, 3.0))
        self.zombies += sum(1 for pid in workers if _lives(pid))
        self.site.join(name)

    def _revoke(self, name: str) -> None:
        """The key is revoked; then it is admitted again, and the agent returns on its own, or has another key."""
        incarnation = self._incarnation(name)
        self.site.revoke(name)
        self._noticed(name, incarnation)
        time.sleep(self.rng.uniform(0.0, 3.0))
        if self.rng.random() < 0.5:
            self.site.admit(name)
            return
        self.site.kill_host(name)
        self.site.rekey(name)
        self.site.join(name)

    def _cut(self, name: str) -> None:
        incarnation = self._incarnation(name)
        self.site.network.cut(name)
        self._noticed(name, incarnation)
        self.site.network.heal(name)

    def _one_way(self, name: str, source: str, target: str) -> None:
        incarnation = self._incarnation(name)
        self.site.network.cut_one_way(source, target)
        self._noticed(name, incarnation)
        self.site.network.heal_one_way(source, target)

    def _deaf(self, name: str) -> None:
        self._one_way(name, self.site.leader, name)

    def _mute(self, name: str) -> None:
        self._one_way(name, name, self.site.leader)

    def _freeze(self, name: str) -> None:
        """All of its processes are stopped, and work on where they were once they are replaced."""
        incarnation = self._incarnation(name)
        self.site.signal(name, signal.SIGSTOP)
        self._noticed(name, incarnation)
        time.sleep(self.rng.uniform(0.0, 1.0))
        self.site.signal(name, signal.SIGCONT)

    def _flap(self, name: str) -> None:
        for _ in range(self.rng.randint(2, 5)):
            self.site.network.cut(name)
            time.sleep(self.rng.uniform(0.0, 2 * FLAP_S))
            self.site.network.heal(name)
            time.sleep(self.rng.uniform(0.0, FLAP_S))

    def _drain(self, name: str) -> None:
        """Tasks move off the host, which is cut off on the way once in a while."""
        self.site.command("drain", name)
        time.sleep(self.rng.uniform(0.0, 2.0))
        if self.rng.random() < 0.3 and self.site.host(name).get("state") == "draining":
            self._cut(name)
        self.site.command("drain", name, "--undo")

    def _perhaps_kill_meanwhile(self, name: str) -> Callable[[], None]:
        """Kill the host, or not; what is returned waits until that was noticed, and begins the host again."""
        if self.rng.random() >= ALSO:
            return lambda: None
        incarnation = self._incarnation(name)
        self.site.kill_host(name)

        def end() -> None:
            self._noticed(name, incarnation)
            self.site.join(name)

        return end

    # -- supervisors -----------------------------------------------------------------------------------

    def _await_candidate(self) -> str:
        """Wait for the supervisor that does not lead to be a candidate; returns its name."""
        other = next(each for each in SUPERVISORS if each != self.site.leader)

        def waits() -> bool:
            self.site.leads(*self.supervisors)
            shown = [each["name"] for each in (self.site.view() or {}).get("candidates", ())]
            return bool(shown) and self.site.leader not in shown

        wait_for(f"{other} is a candidate", waits, BACK_WITHIN_S)
        return next(each for each in SUPERVISORS if each != self.site.leader)

    def _await_hearing(self, other: str) -> None:
        def hears() -> bool:
            return any(each["hears"] for each in (self.site.view() or {}).get("candidates", ()))

        wait_for(f"{other} hears hosts", hears, BACK_WITHIN_S)

    def _kill_supervisor(self, name: str) -> None:
        """The supervisor is lost with its host; a candidate leads, and it comes back as one."""
        other = self._await_candidate()
        before = self.site.leader
        self._lose_supervisor(before)
        time.sleep(self.rng.uniform(0.0, 1.0))
        end = self._perhaps_kill_meanwhile(name)
        wait_for(f"{other} leads", lambda: self.site.leads(other, running=False), LEADS_WITHIN_S)
        end()
        self._begin_supervisor(before)

    def _kill_all_supervisors(self, name: str) -> None:
        """The job has no supervisor, and works on until it is resumed."""
        self._await_candidate()
        for each in list(self.supervisors):
            self._lose_supervisor(each)
        time.sleep(self.rng.uniform(0.0, 3.0))
        end = self._perhaps_kill_meanwhile(name)
        self._begin_supervisor(SUPERVISOR)
        wait_for("the job is resumed", lambda: self.site.leads(SUPERVISOR), LEADS_WITHIN_S)
        end()
        self._begin_supervisor(CANDIDATE)

    def _cut_supervisor(self, name: str) -> None:
        """It lives and reaches no host: a candidate leads, also where the store is a directory, which it reaches."""
        other = self._await_candidate()
        before = self.site.leader
        self._await_hearing(other)
        self.lost["supervisor"] += 1
        self.site.network.cut(before)
        end = self._perhaps_kill_meanwhile(name)
        wait_for(f"{other} leads", lambda: self.site.leads(other, running=False), LEADS_WITHIN_S)
        end()
        self.site.network.heal(before)

    def _lose_supervisor(self, name: str) -> None:
        self.lost["supervisor"] += 1
        self.supervisors.remove(name)
        self.site.kill_host(name)

    def _begin_supervisor(self, name: str) -> None:
        (self.site.state(name) / "status.json").unlink(missing_ok=True)  # it says that the killed process leads
        self.supervisors.append(name)
        if name == SUPERVISOR:
            self.site.run_again()
        else:
            self.site.stand(name, JOB)

    # -- the store ---------------------------------------------------------------------------------------

    def _cut_store(self, name: str) -> None:
        """No host reaches the store for a while."""
        self.lost["store"] += 1
        self.site.network.cut(STORE)
        time.sleep(self.rng.uniform(0.0, 4.0))
        end = self._perhaps_kill_meanwhile(name)
        time.sleep(self.rng.uniform(0.5, 6.0))
        self.site.network.heal(STORE)
        end()

    def _slow_store(self, name: str) -> None:
        """The store answers now and then, and late."""
        self.lost["store"] += 1
        end = self._perhaps_kill_meanwhile(name)
        until_s = time.monotonic() + self.rng.uniform(2.0, 6.0)
        while time.monotonic() < until_s:
            pids = self.site.network.processes(STORE)
            _signal(pids, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.1, 1.5))
            _signal(pids, signal.SIGCONT)
            time.sleep(self.rng.uniform(0.0, 0.2))
        end()


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


FAULTS: Mapping[str, tuple[float, Callable[[Fire, str], None]]] = {
    "killed": (5, Fire._kill),
    "two killed": (1, Fire._kill_two),
    "agent killed alone": (3, Fire._leave_zombies),
    "key revoked": (3, Fire._revoke),
    "cut off": (4, Fire._cut),
    "hears nothing": (1, Fire._deaf),
    "is not heard": (1, Fire._mute),
    "stopped": (1, Fire._freeze),
    "link flaps": (1, Fire._flap),
    "drained": (1, Fire._drain),
    "supervisor killed": (3, Fire._kill_supervisor),
    "all supervisors killed": (1, Fire._kill_all_supervisors),
    "supervisor cut off": (1, Fire._cut_supervisor),
    "store unreachable": (4, Fire._cut_store),
    "store slow": (4, Fire._slow_store),
}
"""Name → (weight, fault)."""

OF_A_SERVER = frozenset(("store unreachable", "store slow"))
"""The faults of a store that is a server."""
