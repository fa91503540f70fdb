"""The results of the programs of the cookbook, in plain Python: each check takes the inputs and the rows of the sinks.

A check raises `AssertionError` for a row that is lost, doubled or wrong.  `small_inputs` shows what each
program is for with a few dozen records.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from operators import Pipeline

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "cookbook"
PROGRAMS = ROOT / "examples" / "cookbook"

Records = Sequence[Mapping[str, Any]]
Inputs = Mapping[str, Records]
Rows = Mapping[str, Sequence[Any]]


def pipeline_of(name: str) -> Pipeline:
    """Return the pipeline of a program."""
    pipeline: Pipeline = import_module(f"examples.cookbook.{name}").pipeline
    return pipeline


def generated(name: str, function: str, numbers: Sequence[int]) -> Records:
    """Records of a program's own generator."""
    generator = getattr(import_module(f"examples.cookbook.{name}"), function)
    return [generator(0, number) for number in numbers]


def by_key(records: Records, key: str) -> dict[Any, list[Any]]:
    """Return the records of each key, in their order."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for record in records:
        groups[record[key]].append(record)
    return groups


def check_deduplication(inputs: Inputs, rows: Rows) -> None:
    """Check that each id is there once."""
    first = {event["id"]: event for event in reversed(inputs["events"])}
    assert sorted(rows["out"], key=lambda row: row["id"]) == [first[key] for key in sorted(first)]


def check_sessions(inputs: Inputs, rows: Rows) -> None:
    """Check visits against clicks that are sorted by time."""
    visits = []
    for visitor, clicks in by_key(inputs["clicks"], "visitor").items():
        visit: dict[str, Any] | None = None
        for click in sorted(clicks, key=lambda click: click["at_s"]):
            at_s = click["at_s"]
            if visit is None or at_s >= visit["to_s"] + 15:
                visit = {"visitor": visitor, "from_s": at_s, "to_s": at_s, "clicks": 0, "cents": 0}
                visits.append(visit)
            visit |= {"to_s": at_s, "clicks": visit["clicks"] + 1, "cents": visit["cents"] + click["cents"]}
    assert sorted(rows["out"], key=str) == sorted(visits, key=str)


def check_top_n(inputs: Inputs, rows: Rows) -> None:
    """Check the lists of all minutes."""
    minutes: dict[int, Counter[str]] = defaultdict(Counter)
    for sale in inputs["sales"]:
        minutes[int(sale["at_s"] // 60)][sale["product"]] += sale["cents"]
    tops = []
    for minute, totals in sorted(minutes.items()):
        ranked = sorted(((cents, product) for product, cents in totals.items()), reverse=True)
        tops.append({"minute": minute, "top": [[product, cents] for cents, product in ranked[:3]]})
    assert list(rows["out"]) == tops


def check_as_of(inputs: Inputs, rows: Rows) -> None:
    """Check each order's rate against the latest one that is not younger than the order."""
    rates = by_key(inputs["rates"], "currency")
    converted = []
    for order in inputs["orders"]:
        place = bisect_right([rate["at_s"] for rate in rates[order["currency"]]], order["at_s"])
        if place:
            euro = rates[order["currency"]][place - 1]["euro"]
            converted.append({**order, "rate": euro, "euro_cents": round(order["cents"] * euro)})
    assert sorted(rows["out"], key=lambda row: row["order"]) == converted


def check_fraud_rules(inputs: Inputs, rows: Rows) -> None:
    """Check that each verdict follows from the rules that it names, which never become older on a card."""
    published = {rules["version"]: rules for rules in inputs["rules"]}
    assert sorted(row["payment"] for row in rows["out"]) == [payment["payment"] for payment in inputs["payments"]]
    for verdicts in by_key(rows["out"], "card").values():
        versions = [verdict["rules"] for verdict in verdicts]
        assert versions == sorted(versions)
        for verdict in verdicts:
            at_s, rules, reasons = verdict["at_s"], published.get(verdict["rules"]), []
            recent = [other for other in verdicts if at_s - 60 < other["at_s"] <= at_s]
            if rules and verdict["cents"] > rules["cents_max"]:
                reasons.append("amount")
            if rules and len(recent) > rules["payments_per_minute_max"]:
                reasons.append("frequency")
            assert verdict["reasons"] == reasons, verdict


def check_alerts(inputs: Inputs, rows: Rows) -> None:
    """Check the alerts of each sensor; at the end of the input every sensor falls silent."""
    for sensor, readings in by_key(inputs["readings"], "sensor").items():
        times_s = sorted(reading["at_s"] for reading in readings)
        events: list[tuple[float, str]] = []
        for at_s, next_s in zip(times_s, [*times_s[1:], float("inf")]):
            if next_s >= at_s + 10:
                events += [(at_s + 10, "silent"), (next_s, "back")]
        assert [(row["at_s"], row["event"]) for row in rows["out"] if row["sensor"] == sensor] == events[:-1]


def check_late_data(inputs: Inputs, rows: Rows) -> None:
    """Check that each click is either in the last count of its minute or in the other sink."""
    watermark_s, too_late, minutes = float("-inf"), [], Counter[tuple[str, int]]()
    for click in inputs["clicks"]:
        minute = int(click["at_s"] // 60)
        if watermark_s >= (minute + 1) * 60 + 60:
            too_late.append(click)
        else:
            minutes[click["page"], minute] += 1
        watermark_s = max(watermark_s, click["at_s"] - 2)
    assert sorted(rows["late"], key=lambda click: click["number"]) == too_late
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows["out"]:
        counts[row["page"], row["minute"]].append(row["clicks"])
    assert {key: each[-1] for key, each in counts.items()} == minutes
    assert all(each == sorted(set(each)) for each in counts.values())


def check_to_postgres(inputs: Inputs, rows: Rows) -> None:
    """Check that each booking is there once, and that balances follow from each other."""
    balances: dict[str, int] = defaultdict(int)
    assert [row["booking"] for row in rows["out"]] == [booking["booking"] for booking in inputs["bookings"]]
    for booking, row in zip(inputs["bookings"], rows["out"]):
        balances[booking["customer"]] += booking["cents"]
        assert {**row, "booked_at": 0} == {**booking, "balance": balances[booking["customer"]], "booked_at": 0}


def check_to_kafka(inputs: Inputs, rows: Rows) -> None:
    """Check the same; rows of different customers may be in any order."""
    check_to_postgres(inputs, {"out": sorted(rows["out"], key=lambda row: row["booking"])})


def check_nats_balances(inputs: Inputs, rows: Rows) -> None:
    """Check the same of rows in the order of bookings."""
    check_to_postgres(inputs, rows)


def check_from_postgres(inputs: Inputs, rows: Rows) -> None:
    """Check that the bookings of each order end at its row in the table, and that sums follow from each other."""
    cents, opened = Counter[Any](), Counter[Any]()
    for row in rows["out"]:
        opened[row["customer"]] += row["cents"]
        cents[row["order"]] += row["cents"]
        assert row["open"] == opened[row["customer"]]
    assert {order: total for order, total in cents.items() if total} == {
        order["id"]: order["cents"] for order in inputs["orders"]
    }


def check_from_kafka(inputs: Inputs, rows: Rows) -> None:
    """Check that the last row of each product is its stock, and that none is left of a product that is sold out."""
    stock = Counter[str]()
    for movement in inputs["movements"]:
        stock[movement["product"]] += movement["pieces"]
    table = {key: row for key, row in dict(rows["out"]).items() if row is not None}
    assert table == {product: pieces for product, pieces in stock.items() if pieces > 0}


def check_from_redis(inputs: Inputs, rows: Rows) -> None:
    """Check that each movement is there once, in the order of the stream for its product."""
    stock, expected = Counter[str](), []
    for movement in inputs["movements"]:
        stock[movement["product"]] += movement["pieces"]
        expected.append({"product": movement["product"], "stock": stock[movement["product"]]})
    ordered = sorted(rows["out"], key=lambda row: [int(part) for part in row["id"].split("-")])
    assert [{name: row[name] for name in ("product", "stock")} for row in ordered] == expected
    assert len({row["id"] for row in rows["out"]}) == len(expected)


def check_from_websocket(inputs: Inputs, rows: Rows) -> None:
    """Check that each trade is there once, with the price of the one before it."""
    prices: dict[str, int] = {}
    ordered = sorted(rows["out"], key=lambda row: row["number"])
    assert [row["number"] for row in ordered] == [trade["number"] for trade in inputs["trades"]]
    for trade, row in zip(inputs["trades"], ordered):
        assert {**row, "seen_at": 0} == {**trade, "before": prices.get(trade["symbol"]), "seen_at": 0}
        prices[trade["symbol"]] = trade["price"]


def check_from_events(inputs: Inputs, rows: Rows) -> None:
    """Check that each edit is there once, and that counts follow from each other."""
    edits = Counter[str]()
    ordered = sorted(rows["out"], key=lambda row: row["edit"])
    assert [row["edit"] for row in ordered] == [edit["edit"] for edit in inputs["edits"]]
    for edit, row in zip(inputs["edits"], ordered):
        edits[edit["page"]] += 1
        assert {**row, "seen_at": 0} == {**edit, "edits": edits[edit["page"]], "seen_at": 0}


def check_from_objects(inputs: Inputs, rows: Rows) -> None:
    """Check that each order is there once, and that the totals of a customer follow from each other."""
    orders = sorted(({name: row[name] for name in ("order", "customer", "cents")} for row in rows["out"]), key=str)
    assert orders == sorted(inputs["orders"], key=str)
    totals: dict[str, int] = defaultdict(int)
    for row in rows["out"]:
        totals[row["customer"]] += row["cents"]
        assert row["total"] == totals[row["customer"]]


def check_lakehouse(inputs: Inputs, rows: Rows) -> None:
    """Check that each order is there once, and that totals follow from each other."""
    totals: dict[str, int] = defaultdict(int)
    assert [row["order"] for row in rows["out"]] == [order["order"] for order in inputs["orders"]]
    for order, row in zip(inputs["orders"], rows["out"]):
        totals[order["customer"]] += order["cents"]
        wanted = {"coupon": None, **order, "total": totals[order["customer"]], "counted_at": 0}
        assert {"coupon": None, **row, "counted_at": 0} == wanted


def check_paid_calls(inputs: Inputs, rows: Rows) -> None:
    """Check that each order has one charge, and no charge two orders."""
    paid = sorted(rows["out"], key=lambda row: row["order"])
    assert [{name: row[name] for name in row if name != "charge"} for row in paid] == list(inputs["orders"])
    assert sorted(row["charge"] for row in paid) == list(range(1, len(paid) + 1))


def check_backfill(inputs: Inputs, rows: Rows) -> None:
    """Check that totals follow the order numbers of a customer, over history and live orders."""
    totals: dict[str, int] = defaultdict(int)
    correct = {}
    for order in (*inputs["history"], *inputs["live"]):
        totals[order["customer"]] += order["cents"]
        correct[order["order"]] = {"customer": order["customer"], "total": totals[order["customer"]]}
    assert len(rows["out"]) == len(correct)
    assert {row["order"]: {"customer": row["customer"], "total": row["total"]} for row in rows["out"]} == correct
    for records in by_key(rows["out"], "customer").values():
        assert [row["order"] for row in records] == sorted(row["order"] for row in records)


def check_vectors(inputs: Inputs, rows: Rows) -> None:
    """Check the sums over all windows of each shop."""
    cents, count = Counter[int](), Counter[int]()
    for sale in inputs["sales"]:
        if sale["price"] > 500:
            cents[sale["shop"]] += sale["price"] * sale["pieces"]
            count[sale["shop"]] += 1
    written, counted = Counter[int](), Counter[int]()
    for row in rows["out"]:
        written[row["shop"]] += row["cents_sum"]
        counted[row["shop"]] += row["cents_count"]
    assert (written, counted) == (cents, count)


def check_spark_in_out(inputs: Inputs, rows: Rows) -> None:
    """Check that each order is there once, and that totals follow from each other, in whatever order they came."""
    orders = {order["order"]: order for order in inputs["orders"]}
    assert sorted(row["order"] for row in rows["out"]) == sorted(orders)
    totals: dict[str, int] = defaultdict(int)
    for row in rows["out"]:
        order = orders[row["order"]]
        totals[order["customer"]] += order["cents"]
        assert row == {"order": row["order"], "customer": order["customer"], "total": totals[order["customer"]]}


CHECKS: dict[str, Callable[[Inputs, Rows], None]] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


def small_inputs() -> dict[str, Inputs]:
    """Program → inputs of a few dozen records, for the testing kit."""
    return {
        "deduplication": {"events": generated("deduplication", "event", range(60))},
        "sessions": {"clicks": generated("sessions", "click", range(0, 1_000, 9))},
        "top_n": {"sales": generated("top_n", "sale", range(0, 2_000, 19))},
        "as_of": {
            "rates": generated("as_of", "rate", range(12)),
            "orders": generated("as_of", "order", range(0, 100, 3)),
        },
        "fraud_rules": {
            "payments": generated("fraud_rules", "payment", range(0, 1_500, 25)),
            "rules": generated("fraud_rules", "rules", range(5)),
        },
        "alerts": {"readings": generated("alerts", "reading", range(1, 3_000, 20))},
        "late_data": {"clicks": generated("late_data", "click", range(0, 3_000, 25))},
        "lakehouse": {"orders": generated("lakehouse", "order", range(60))},
        "backfill": {
            "history": generated("backfill", "past_order", range(40)),
            "live": generated("backfill", "live_order", range(20)),
        },
    }


class Page:
    """A page of the cookbook: the program that it includes, the last `causal run` that it shows, and the rows."""

    def __init__(self, name: str) -> None:
        self.text = (PAGES / f"{name}.md").read_text()
        self.program = PROGRAMS / f"{name}.py"
        commands = re.findall(rf"^\$ causal run {name}\.py(.*)$", self.text, re.MULTILINE)
        assert commands, f"{name}.md shows no `causal run {name}.py`"
        self.arguments = commands[-1].split()
        self.killed = [
            part.split("@")[0] for before, part in zip(self.arguments, self.arguments[1:]) if before == "--kill"
        ]

    def includes_its_program(self) -> bool:
        return f"<!-- examples/cookbook/{self.program.name}: made by docs/snippets.py -->" in self.text

    def queries(self) -> list[tuple[str, str, list[str]]]:
        """(file, SQL, lines of the answer) of each `sqlite3` that the page shows."""
        shown = re.findall(r'^\$ sqlite3 (\S+) "(.+)"\n((?:[^$`].*\n)+)', self.text, re.MULTILINE)
        return [(file, query, answer.splitlines()) for file, query, answer in shown]

    def recovered(self) -> list[str]:
        """Return the tasks that the output names as recovered."""
        return re.findall(r"^recovered (\S+) ", self.text, re.MULTILINE)

    def counts(self) -> tuple[str, str] | None:
        """Records in and out, as the output shows them."""
        shown = re.search(r"^records in ([\d,]+), out ([\d,]+),", self.text, re.MULTILINE)
        return (shown[1], shown[2]) if shown else None


def with_held_end(program: Path, directory: Path, gate: Path) -> Path:
    """Write a copy of a program into `directory` whose sources give their last records when `gate` is there.

    A busy machine would otherwise finish a job before its task is killed.
    """
    text = program.read_text()
    for kind in ("GeneratedSource", "ArrowSource"):
        text = text.replace(f"{kind}(", f"with_end_at({str(gate)!r}, {kind}, ")
    first_import = re.search(r"^from operators import", text, re.MULTILINE)
    assert first_import is not None and "with_end_at(" in text
    place = first_import.start()
    added = "from tests.faults.pipelines.held_source import with_end_at\n"
    copy = directory / program.name
    copy.write_text(text[:place] + added + text[place:])
    return copy
