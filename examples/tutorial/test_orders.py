from orders import order, pipeline

from operators.testing import every_crash, run


def test_totals_survive_every_crash():
    orders = [order(0, number) for number in range(20)]
    for crash in every_crash(pipeline, {"orders": orders}):
        rows = run(pipeline, {"orders": orders}, crash=crash)["out"]
        assert sorted(row["order"] for row in rows) == list(range(20))
        assert max(row["total"] for row in rows if row["customer"] == "Ada") == sum(o["cents"] for o in orders[::5])
