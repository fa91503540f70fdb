"""Jobs whose hosts are executors of a Spark cluster (design 0024)."""
