"""The agent of a host that the operator has killed: who may ask for it, which agents obey, and what it never does."""

from __future__ import annotations

from typing import Any

import pytest

from causal.task.activity import PULSE_SUFFIX
from standby.network.control import Inbox, pack
from standby.supervision import effects as fx
from standby.supervision import events, orders
from tests.unit.standby.host_scene import HostScene, settled
from tests.unit.standby.scene import of, sent
from tests.unit.standby.stage import WAIT_S
from tests.unit.standby.test_host_agent import Upstream, upstream, with_a_process

__all__ = ["upstream"]


def asked(scene: HostScene, host: object) -> tuple[dict[str, Any], list[fx.SendHost]]:
    """Return the answer to a request to kill the agent of that host, and the orders that follow."""
    effects = scene.step(events.Admin("admin-1", "kill", {"agent": host}))
    (answer,) = of(effects, fx.Answer)
    return dict(answer.body), [each for each in of(effects, fx.SendHost) if each.message["kind"] == "crash"]


def test_the_agent_that_permits_it_is_ordered_to_die_and_nothing_else_happens() -> None:
    scene = HostScene(join=())
    for name in ("a", "b", "c"):
        scene.join(name, breakable=True)
    scene.beats(8)
    before = {name: host.incarnation for name, host in scene.hosts.items()}
    answer, ordered = asked(scene, "b")
    assert answer == {"kind": "answer", "ok": True, "host": "b"}
    assert [(each.host, each.message["incarnation"]) for each in ordered] == [("b", before["b"])]
    heard = scene.beats(4)
    assert not of(heard, fx.KillProcess) and not sent(heard, "promote"), "the next agent adopts its processes"
    assert {name: host.incarnation for name, host in scene.hosts.items()} == before


@pytest.mark.parametrize(("breakable", "why"), [(None, "has an older version"), (False, "was started with --no-break")])
def test_an_agent_that_cannot_or_may_not_be_killed_is_left_alone(breakable: bool | None, why: str) -> None:
    scene = HostScene(join=())
    for name in ("a", "b", "c"):
        scene.join(name, **({} if breakable is None else {"breakable": breakable}))
    scene.beats(8)
    answer, ordered = asked(scene, "b")
    assert not answer["ok"] and why in answer["error"] and not ordered
    assert next(host for host in scene.view["hosts"] if host["host"] == "b")["breakable"] is breakable


def test_what_a_host_permits_is_known_to_the_next_supervisor() -> None:
    scene = HostScene(join=())
    scene.join("a", breakable=True)
    scene.restart()
    scene.beats(1)
    assert asked(scene, "a")[0]["ok"]


@pytest.mark.parametrize("name", ["", "nowhere", None, 7, {"host": "a"}])
def test_an_agent_of_no_host_is_refused(name: object) -> None:
    answer, ordered = asked(settled(), name)
    assert not answer["ok"] and "has no host" in answer["error"] and not ordered


def test_the_agent_of_a_lost_host_is_refused() -> None:
    scene = settled()
    scene.step(events.HostClosed("b", scene.hosts["b"].session))
    answer, ordered = asked(scene, "b")
    assert not answer["ok"] and "b is lost" in answer["error"] and not ordered


@pytest.mark.parametrize("sender", ["", "w1", f"w1{PULSE_SUFFIX}", "admin-1"])
def test_no_host_can_ask_for_it_whomever_it_speaks_for(sender: str) -> None:
    request = pack("admin", verb="kill", arguments={"agent": "b"})
    assert Inbox().receive_from("c", sender, request, None) is None


def test_an_agent_that_is_ordered_to_die_is_killed(upstream: Upstream) -> None:
    with_a_process(upstream)
    upstream.order(orders.Crash(2))  # for another life of the host
    upstream.answer()
    assert upstream.agent.poll() is None
    upstream.order(orders.Crash(1))
    assert upstream.agent.wait(WAIT_S) == -9


@pytest.mark.parametrize("upstream", [False], indirect=True)
def test_an_agent_that_does_not_permit_it_lives_on(upstream: Upstream) -> None:
    assert upstream.hear("host_hello")["breakable"] is False
    with_a_process(upstream)
    upstream.order(orders.Crash(1))
    upstream.order(orders.Kill("w1"))
    assert upstream.hear("exited")["slot"] == "w1"
