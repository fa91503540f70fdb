"""A run as a space-time diagram: one line per process, time to the right, an arrow per frame, deaths and promotions."""

from __future__ import annotations

from html import escape

from causal.channels.wire import CREDIT, DATA, HELLO, WELCOME
from tests.simulation.clockwork import MS
from tests.simulation.peers import Violated
from tests.simulation.scenario import Scenario
from tests.simulation.world import Simulation

PX_PER_MS = 4.0
ROW_PX = 34
LEFT_PX = 150
FRAMES_MAX = 6000
_MARKS = {"start": ("#3a7d44", "▸"), "end": ("#888", "▪"), "death": ("#c1121f", "✕"), "begin": ("#1d4ed8", "●")}
_KINDS = {DATA: "#64748b", HELLO: "#b45309", WELCOME: "#7c3aed", CREDIT: "#d1d5db"}


def drawn(scenario: Scenario, sabotage: str = "") -> str:
    """Return an SVG of the whole run, up to the broken promise if there is one; the first frames only where there are
    many.
    """
    from contextlib import nullcontext

    from tests.simulation.sabotage import sabotaged

    with sabotaged(sabotage) if sabotage else nullcontext():
        world = Simulation(scenario, draw=True)
        verdict = "every promise was kept"
        try:
            world.run()
        except Violated as problem:
            verdict = str(problem)
    return _svg(world, verdict)


def _svg(world: Simulation, verdict: str) -> str:
    story, frames = world.story or [], (world.network.seen or [])[:FRAMES_MAX]
    agents = [machine.who for machine in world.machines.values()]
    lanes = ["world", *world.supervisors(), *agents, *sorted(world.processes, key=lambda slot: int(slot[1:]))]
    row = {who: 60 + place * ROW_PX for place, who in enumerate(lanes)}
    first_ns = min((at for at, _, _ in story), default=0)
    last_ns = max([at for at, _, _ in story] + [arrived for _, arrived, *_ in frames], default=first_ns)

    def x(at_ns: int) -> float:
        return LEFT_PX + (at_ns - first_ns) / MS * PX_PER_MS

    width, height = x(last_ns) + 120, 60 + len(lanes) * ROW_PX + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="monospace">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="14">seed {world.scenario.seed}: {escape(verdict[:200])}</text>',
    ]
    for who in lanes:
        process = world.processes.get(who)
        name = f"{who} {process.membership.name or ''}" if process is not None else who
        out.append(f'<text x="10" y="{row[who] + 4}" font-size="12">{escape(name)}</text>')
        out.append(f'<line x1="{LEFT_PX}" x2="{width - 20:.0f}" y1="{row[who]}" y2="{row[who]}" stroke="#e5e7eb"/>')
    for sent_ns, arrived_ns, source, target, kind in frames:
        colour = _KINDS.get(kind, "#475569")
        ends = f'x1="{x(sent_ns):.1f}" y1="{row[source]}" x2="{x(arrived_ns):.1f}" y2="{row[target]}"'
        out.append(f'<line {ends} stroke="{colour}" stroke-width="0.7"/>')
    for at_ns, who, what in story:
        colour, mark = _MARKS.get(what, ("#c1121f", "⚡ " + what))
        out.append(f'<text x="{x(at_ns):.1f}" y="{row[who] + 5}" font-size="13" fill="{colour}">{escape(mark)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
