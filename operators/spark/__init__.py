"""Spark: the driver and writers of streaming queries, Java, and the data source with which Spark reads sink output."""
