"""Views per page and window, revised by late records, and final once the window is closed."""

from operators import Count, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

pipeline = Pipeline("views")
views = pipeline.source("views", GeneratedSource(lambda p, i: {}, count=0)).timed(lambda r: r["at"])
counts = views.key_by(lambda r: r["page"]).window_table("counts", Tumbling(5), Count(), grace_s=10)
counts.revisions("revisions").sink("out", SqliteSink("out.db"))
final = counts.suppress("final", until="closed")  # one per window, when nothing can revise it
final.to_stream("rows", lambda key, n: [*key, n]).sink("closed", SqliteSink("rows.db"))

result = run(pipeline, {"views": [{"page": "a", "at": at} for at in (12, 16, 14, 23, 12)]})
for (page, start, end), old, new in result["out"]:
    print(f"revision of {page} from {start} to {end}: {old} becomes {new}")
for row in result["closed"]:
    print("final:", row)
print("counted:", result.counts["counts"])
