"""The raw tables of `peers`: one per workload, a row per peer, and where ours is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Pair = Mapping[str, Any]

COLUMNS: Mapping[str, Sequence[tuple[str, str]]] = {
    "count": (
        ("rps", "records/s"),
        ("cpu_us", "CPU µs per record"),
        ("peak_mib", "peak MiB"),
        ("start_s", "s to first record"),
    ),
    "index": (
        ("docs_per_s", "documents/s"),
        ("cpu_us", "CPU µs per posting"),
        ("peak_mib", "peak MiB"),
        ("start_s", "s to first record"),
    ),
    "failover": (("gap_ms", "ms without output"), ("peak_mib", "peak MiB")),
}
_FAULTS = ("lost", "doubled", "contradicted")


def tables(pairs: Sequence[Pair]) -> str:
    """Everything that was measured, refused or failed; nothing is left out."""
    parts = []
    for workload, columns in COLUMNS.items():
        chosen = [pair for pair in pairs if pair["workload"] == workload]
        if chosen:
            parts += [_table(workload, columns, chosen), ""]
    return "\n".join([*parts, behind(pairs)])


def _table(workload: str, columns: Sequence[tuple[str, str]], pairs: Sequence[Pair]) -> str:
    faults = list(_FAULTS) if workload == "failover" else []
    heads = [workload, "guarantee of the peer", "given", *(head for _, head in columns), *faults, "rounds"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * 3}{'---:|' * (len(heads) - 3)}"]
    for pair in pairs:
        cells = [f"{pair['peer']} {pair['version']}"]
        if pair["rounds"]:
            cells += [_guarantee(pair), _sizes(workload, pair)]
            cells += [_cell(pair, name) for name, _ in columns]
            cells += [_both(pair, name) for name in faults]
            cells.append(f"{pair['rounds']}{_failed(pair)}")
        else:
            cells += [f"**no figures**: {'; '.join(pair['problems'])}", *[""] * (len(heads) - 2)]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def _guarantee(pair: Pair) -> str:
    killed = f"; killed: {pair['killed']}" if pair["workload"] == "failover" and "killed" in pair else ""
    coalesced = "" if pair["per_record"] else "; one row per key and commit, not per record"
    return f"{pair['guarantee']}{coalesced}{killed}"


def _sizes(workload: str, pair: Pair) -> str:
    ours, theirs = pair["given"]["ours"], pair["given"]["theirs"]
    name, unit = {"count": ("records", ""), "index": ("records", ""), "failover": ("rate", "/s")}[workload]
    both = f"{theirs[name]:,}{unit}"
    return both if ours[name] == theirs[name] else f"{both} (ours {ours[name]:,}{unit})"


def _failed(pair: Pair) -> str:
    return f" (others: {'; '.join(pair['problems'])})" if pair["problems"] else ""


def _both(pair: Pair, name: str) -> str:
    return f"{_shown(pair['theirs'][name])} (ours {_shown(pair['ours'][name])})"


def _cell(pair: Pair, name: str) -> str:
    """Theirs, ours, and how many times better ours is."""
    if name not in pair["theirs"]:
        return "not measured"
    ratio = pair["ratios"].get(name)
    return _both(pair, name) + (f"; ×{ratio['median']:,}" if ratio else "")


def _shown(figure: Mapping[str, Any]) -> str:
    middle = f"{figure['median']:,}".removesuffix(".0")
    if figure["min"] == figure["max"]:
        return middle
    low, high = (f"{figure[name]:,}".removesuffix(".0") for name in ("min", "max"))
    return f"{middle} [{low}–{high}]"


def behind(pairs: Sequence[Pair]) -> str:
    """Return where a peer's median is better than ours, each named with its factor."""
    heads = {(workload, name): head for workload, columns in COLUMNS.items() for name, head in columns}
    worse = [
        f"{pair['workload']} against {pair['peer']}: {heads[pair['workload'], name]} ×{ratio['median']:,}"
        for pair in pairs
        for name, ratio in pair.get("ratios", {}).items()
        if ratio["median"] < 1
    ]
    if not worse:
        return "Behind: nowhere in what was measured."
    return "Behind (ours ÷ theirs below 1): " + "; ".join(worse) + "."
