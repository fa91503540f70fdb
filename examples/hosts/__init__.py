"""A job of several hosts on one machine: network namespaces as hosts, and a Spark cluster in them."""
