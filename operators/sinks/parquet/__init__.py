"""Sinks that write Parquet files, which are complete whenever a reader can see them."""
