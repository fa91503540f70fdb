"""The world around the core: sockets, disk, clock, threads and the loop that feeds one task."""
