"""Rows in Parquet files that are complete whenever a reader sees them."""
