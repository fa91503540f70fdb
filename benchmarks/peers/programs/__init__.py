"""One program per system: `python -m benchmarks.peers.programs.on_NAME WORKLOAD PLACE`.

Each reads `PLACE/asked.json`, does the workload, and writes `PLACE/outcome.json`, with what its sinks saw next to it
(`inputs.Tally`, or lines of `inputs.Seen`).  It judges nothing: `benchmarks.peers.checks` does, for all alike.
"""
