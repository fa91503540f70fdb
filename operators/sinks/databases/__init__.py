"""The store and the sink that all databases share."""
