"""Endurance tests: jobs with kills, hangs, cut connections and full disks, for as long as they are given."""
