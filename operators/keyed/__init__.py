"""Keyed state beyond one value per key: lists, maps, types, time to live, and a store on disk."""
