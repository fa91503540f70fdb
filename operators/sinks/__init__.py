"""Where results go: sinks that write every row exactly once, visible at once."""

from operators.sinks.base import Sink
from operators.sinks.jsonlines import JsonLinesSink
from operators.sinks.postgres import PostgresSink
from operators.sinks.redis_streams import RedisSink
from operators.sinks.sqlite import SqliteSink
from operators.sinks.tally import TallySink

__all__ = ["JsonLinesSink", "PostgresSink", "RedisSink", "Sink", "SqliteSink", "TallySink"]
