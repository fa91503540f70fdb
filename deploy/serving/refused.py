"""The refusal of a question, with the status of HTTP that says whose fault it is."""

from __future__ import annotations

from causal.errors import PipelineError

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, WRONG_METHOD = 400, 401, 403, 404, 405
CONFLICT, GONE, TOO_LARGE, TOO_MANY, FAILED, UNAVAILABLE = 409, 410, 413, 429, 500, 503


class Refused(PipelineError):
    """A question that is not answered; the message is one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status
