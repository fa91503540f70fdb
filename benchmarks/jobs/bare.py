"""The bare job: one process that does what the keyed count's stages do to each record, and nothing else.

    python -m benchmarks.jobs.bare RECORDS BATCH_ELEMENTS_MAX

Per batch of a source's read: route each row by its key to one of two buckets, through a dict from key to the
bucket's `append` that is filled from the key group once per key.  Per bucket: `encode_records`, `decode_records`,
take the keys, count them in a dict and make the (key, n) rows, `encode_records`, `decode_records`, and the sink's
`encode`.  The functions and the libraries are the pipeline's own; there is no socket, no log, no digest, no
checkpoint, no other process, and no check for a user's errors.  It prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.jobs.keyed_count import key_of, prepare, slices
from causal.config import JobConfig
from causal.records.batch import decode_records, encode_records
from operators.records.keys import key_group, task_of_group
from operators.sinks import TallySink

TASKS = 2
GC_THRESHOLD = 50_000
"""The threshold of a worker."""


def run(records: int, batch_elements_max: int) -> dict[str, Any]:
    """Do it; `rows` is how many the sink was given, `top` the highest count: both must be what a count gives."""
    prepare()
    key_groups = JobConfig("bare", "bare", "bare").key_groups
    encode_rows = TallySink("unused").encode
    buckets: list[list[Any]] = [[] for _ in range(TASKS)]
    counts: list[dict[Any, int]] = [{} for _ in range(TASKS)]
    appends: dict[Any, Callable[[Any], None]] = {}
    rows = 0
    per_partition = records // TASKS
    began, began_cpu = time.perf_counter(), time.process_time()
    for start in range(0, per_partition, batch_elements_max):
        for partition in range(TASKS):
            for row in slices(partition, start, min(start + batch_elements_max, per_partition)):
                key = key_of(row)
                append = appends.get(key)
                if append is None:
                    task = task_of_group(key_group(key, key_groups), TASKS, key_groups)
                    append = appends[key] = buckets[task].append
                append(row)
            for bucket, counted in zip(buckets, counts, strict=True):
                if not bucket:
                    continue
                arrived = decode_records(encode_records(bucket))
                bucket.clear()
                rows += _rest(arrived, counted, encode_rows)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    top = max(max(c.values(), default=0) for c in counts)
    return {"rows": rows, "top": top, "rps": records / took_s, "cpu_us": cpu_s / records * 1e6}


def _rest(arrived: list[Any], counted: dict[Any, int], encode_rows: Callable[[Any], bytes]) -> int:
    """Count, encode, decode, and what the sink makes of it."""
    get, rows = counted.get, list[Any]()
    append = rows.append
    for key in map(key_of, arrived):
        counted[key] = n = get(key, 0) + 1
        append((key, n))
    stored = decode_records(encode_records(rows))
    encode_rows(stored)
    return len(stored)


if __name__ == "__main__":
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    gc.freeze()
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
