"""The code of a run (D12), which is archived when the run begins and which every process of the run loads."""
