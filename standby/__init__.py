"""The processes that control a job: the supervisor and the host agent."""
