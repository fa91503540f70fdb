"""Storage: objects, journals, locks, snapshots and determinants, in a directory or in a store that hosts share."""
