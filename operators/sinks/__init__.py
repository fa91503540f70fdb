"""Where results go: sinks that write every row exactly once, visible at once."""

from operators.sinks.base import Sink
from operators.sinks.jsonlines import JsonLinesSink
from operators.sinks.sqlite import SqliteSink
from operators.sinks.tally import TallySink

__all__ = ["JsonLinesSink", "Sink", "SqliteSink", "TallySink"]
