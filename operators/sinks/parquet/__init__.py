"""Rows in Parquet files that are complete whenever a reader can see them."""
