"""The recording of a job, as replays read it; nothing here changes the recording or the job (0053)."""
