"""One recovery of a real run as a picture for the README: a lane per task, the kill, and what follows it, in ms.

    python -m benchmarks.charts.timeline       writes docs/assets/recovery.svg from docs/benchmarks/recovery.json

Of all recoveries of the run it is the one that is nearest to the median in every phase.  The times above the lanes
and the coloured spans are measured; each arrow is drawn between the two moments that it leads from and to.  The picture
is readable on a light and on a dark page, for it has a background of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.measured import PHASES, RESULTS

PICTURE = RESULTS.parent / "assets" / "recovery.svg"
WIDTH_PX, HEIGHT_PX = 880, 380
LEFT_PX, RIGHT_PX, BEFORE_MS, AFTER_MS = 190, 24, 5.0, 7.0
AXIS_Y, LANE_HEIGHT_PX = 60, 16
LANES = {
    "supervisor": ("supervisor", 105),
    "upstream": ("numbers/0, numbers/1", 165),
    "victim": ("{task}", 225),
    "sibling": ("count/1", 285),
    "sink": ("out/0", 345),
}
"""Lane → (its name, the middle of its height)."""
BELOW = {
    "supervisor": "decides",
    "upstream": "sources",
    "victim": "then its standby",
    "sibling": "does not roll back",
    "sink": "SQLite",
}
STYLE = """
  .note, .name { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
  .page { fill: #ffffff; stroke: #d0d7de } .name { fill: #1f2328; font-weight: 600 } .note { fill: #57606a }
  .guide { stroke: #8c959f; stroke-dasharray: 3 3 } .alive { fill: #9ec5e8 } .dead { stroke: #8c959f }
  .collecting { fill: #f0b429 } .replaying { fill: #b18ae0 } .running { fill: #4aa564 }
  .kill { fill: #c1121f; stroke: #c1121f } .message { stroke: #1f2328; fill: none } .head { fill: #1f2328 }
  .inside { fill: #1f2328 }
  @media (prefers-color-scheme: dark) {
    .note, .name { stroke: #0d1117 }
    .page { fill: #0d1117; stroke: #30363d } .name { fill: #e6edf3 } .note { fill: #9ea7b3 }
    .guide, .dead { stroke: #6e7681 } .alive { fill: #2f5d8a } .collecting { fill: #b98112 }
    .replaying { fill: #7d57b0 } .running { fill: #2f7d48 } .kill { fill: #ff6b6b; stroke: #ff6b6b }
    .message { stroke: #e6edf3 } .head { fill: #e6edf3 } .inside { fill: #ffffff }
  }
"""

Recovery = Mapping[str, Any]


def typical(result: Mapping[str, Any]) -> Recovery:
    """Return the recovery whose phases differ least from their medians, as shares of these."""
    medians = {phase: result["figures"][phase]["median"] for phase in PHASES}

    def distance(recovery: Recovery) -> float:
        shares = [abs(recovery[phase] - median) / median for phase, median in medians.items()]
        return float(sum(shares))

    recoveries: list[Recovery] = result["recoveries"]
    return min(recoveries, key=distance)


class _Drawing:
    """Elements of the picture, with time to the right."""

    def __init__(self, last_ms: float, task: str) -> None:
        self._px_per_ms = (WIDTH_PX - LEFT_PX - RIGHT_PX) / (BEFORE_MS + last_ms + AFTER_MS)
        self._end_ms = last_ms + AFTER_MS
        self.elements: list[str] = []
        for lane, (name, middle) in LANES.items():
            self.text(16, middle + 4, name.format(task=task), "name")
            self.text(16, middle + 20, BELOW[lane], "note")

    def x(self, at_ms: float) -> float:
        return LEFT_PX + (at_ms + BEFORE_MS) * self._px_per_ms

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        self.elements.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>')

    def line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        (x1, y1), (x2, y2) = start, end
        self.elements.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def bar(self, lane: str, begin_ms: float | None, end_ms: float | None, kind: str) -> None:
        """Draw a span of a lane; None is the edge of the picture."""
        x = self.x(-BEFORE_MS if begin_ms is None else begin_ms)
        width = self.x(self._end_ms if end_ms is None else end_ms) - x
        y = LANES[lane][1] - LANE_HEIGHT_PX / 2
        size = f'width="{width:.1f}" height="{LANE_HEIGHT_PX}" rx="3"'
        self.elements.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>')

    def message(self, source: str, sent_ms: float, target: str, arrived_ms: float) -> None:
        """Draw an arrow from the edge of one lane to that of another."""
        down = LANES[target][1] > LANES[source][1]
        edge = LANE_HEIGHT_PX / 2 if down else -LANE_HEIGHT_PX / 2
        start = (self.x(sent_ms), LANES[source][1] + edge)
        x, y = self.x(arrived_ms), LANES[target][1] - edge
        back = -8 if down else 8
        self.line(start, (x, y + back / 2), "message")
        self.elements.append(f'<path class="head" d="M{x:.1f} {y:.1f} l-4 {back} h8 z"/>')

    def moment(self, at_ms: float, label: str, anchor: str) -> None:
        """Draw a dashed line through all lanes, with its time above."""
        x = self.x(at_ms)
        self.line((x, AXIS_Y + 6), (x, HEIGHT_PX - 16), "guide")
        offset = {"start": -3, "middle": 0, "end": 3}[anchor]
        self.text(x + offset, AXIS_Y, label, "note", anchor)


def drawn(result: Mapping[str, Any]) -> str:
    """Return the SVG of the typical recovery of a result of `benchmarks recovery`."""
    recovery = typical(result)
    detected, promoted, collected, first_output, live = (float(recovery[phase]) for phase in PHASES)
    victim = LANES["victim"][1]
    drawing = _Drawing(first_output, recovery["task"])
    x = drawing.x
    for at_ms, label, anchor in (
        (0.0, "0", "middle"),
        (detected, f"{detected:.1f}", "end"),
        (promoted, f"{promoted:.1f}", "start"),
        (collected, f"{collected:.1f}", "middle"),
        (first_output, f"{first_output:.1f} ms", "middle"),
    ):
        drawing.moment(at_ms, label, anchor)
    for lane in ("supervisor", "upstream", "sibling", "sink"):
        drawing.bar(lane, None, None, "alive")
    drawing.bar("victim", None, 0.0, "alive")
    drawing.line((x(0.0), victim), (x(promoted), victim), "dead")
    for begin_ms, end_ms, kind in ((promoted, collected, "collecting"), (collected, live, "replaying")):
        drawing.bar("victim", begin_ms, end_ms, kind)
    drawing.bar("victim", live, None, "running")
    drawing.text((x(promoted) + x(collected)) / 2, victim + 4, "collecting", "inside", "middle")
    replay = f"replaying {recovery['replayed_elements']:,} elements"
    drawing.text((x(collected) + x(live)) / 2, victim + 4, replay, "inside", "middle")
    drawing.text(x(live) + 8, victim + 4, "running", "inside")

    drawing.line((x(0.0) - 7, victim - 7), (x(0.0) + 7, victim + 7), "kill")
    drawing.line((x(0.0) - 7, victim + 7), (x(0.0) + 7, victim - 7), "kill")
    drawing.text(x(0.0) - 10, victim - 14, "kill -9", "kill bold", "end")
    drawing.message("victim", 0.0, "supervisor", detected)
    drawing.text(x(detected) - 6, LANES["supervisor"][1] - 14, "detected", "note", "end")
    drawing.message("supervisor", detected, "victim", promoted)
    drawing.text(x(promoted) + 5, LANES["supervisor"][1] - 14, "promotes the standby", "note")
    third = (collected - promoted) / 3
    drawing.message("victim", promoted + third / 3, "sink", promoted + third)
    drawing.message("sink", promoted + 2 * third, "victim", collected)
    drawing.text(x(collected) + 6, LANES["sink"][1] - 22, "downstream answers with determinants", "note")
    for share in (0.05, 0.3, 0.55):
        begin_ms = collected + share * (live - collected)
        drawing.message("upstream", begin_ms, "victim", begin_ms + 0.12 * (live - collected))
    drawing.text(x(collected) + 5, LANES["upstream"][1] - 14, "upstream sends again from the checkpoint", "note")
    drawing.message("victim", first_output, "sink", first_output + 2.0)
    drawing.text(x(first_output) - 6, LANES["sibling"][1] - 14, "first new output", "name", "end")
    return _document(drawing.elements, _title(result, recovery))


def _title(result: Mapping[str, Any], recovery: Recovery) -> str:
    settings = result["settings"]
    return (
        f"{recovery['task']} of a keyed count at {settings['records_per_s']:,} records/s is killed;"
        f" ms since the kill, nearest to the median of {settings['kills']} kills"
    )


def _document(elements: list[str], title: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" role="img"'
        f' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">'
    )
    style = f"<style>{STYLE}  .bold {{ font-weight: 600; stroke: none }} line {{ stroke-width: 1.5 }}\n</style>"
    page = f'<rect class="page" x="0.5" y="0.5" width="{WIDTH_PX - 1}" height="{HEIGHT_PX - 1}" rx="8"/>'
    caption = f'<text class="name" x="16" y="28">{title}</text>'
    return "\n".join([head, f"<title>{title}</title>", style, page, caption, *elements, "</svg>"]) + "\n"


def main() -> int:
    """Write the picture of the stored result."""
    PICTURE.write_text(drawn(json.loads((RESULTS / "recovery.json").read_text())))
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
