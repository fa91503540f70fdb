"""The web application of the dashboard: the files of the page, its content as JSON, and a request that kills.

The page sends requests twice a second, so a slow browser never lags, and content that is not requested costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from causal.errors import CausalError
from deploy.ui.admission import HEADERS, refusal
from deploy.ui.observed import ObservedJob
from deploy.ui.output_check import OutputCheck
from deploy.ui.past import Past

FILES = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
BODY_BYTES_MAX = 4096
ARGUMENT_MAX = 2000

Answer = Callable[[], Any]


def application(job: ObservedJob, output: OutputCheck, past: Past, token: str) -> Starlette:
    """Return the application for one job; `token` is the secret that all requests except those for the page's own files
    must contain.
    """
    files = {path.name: path.read_bytes() for path in FILES.iterdir() if path.suffix in TYPES}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        reason = refusal(request.headers, token, changes=False, secret=False)
        if reason is not None:
            return _response({"problem": reason}, 403)
        if name not in files:
            return _response({"problem": "this page does not exist"}, 404)
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers=HEADERS)

    def reading(answer: Callable[[Mapping[str, str]], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            reason = refusal(request.headers, token, changes=False)
            if reason is not None:
                return _response({"problem": reason}, 403)
            if any(len(value) > ARGUMENT_MAX for value in request.query_params.values()):
                return _response({"problem": "an argument is too long"}, 400)
            return await _answered(partial(answer, request.query_params))

        return endpoint

    async def breaking(request: Request) -> Response:
        reason = refusal(request.headers, token, changes=True)
        if reason is None and not job.breaks:
            reason = "this dashboard was started with --no-break: it cannot kill anything"
        if reason is not None:
            return _response({"problem": reason}, 403)
        wanted = await _body(request)
        if wanted is None:
            return _response({"problem": "use a JSON object with the strings `kind` and `name`"}, 400)
        return await _answered(partial(_broken, job, output, wanted["kind"], wanted["name"]))

    async def searching(request: Request) -> Response:
        reason = refusal(request.headers, token, changes=True)
        if reason is not None:
            return _response({"problem": reason}, 403)
        wanted = await _body(request)
        if wanted is None:
            return _response({"problem": "use a JSON object with the strings `kind` and `name`"}, 400)
        return await _answered(partial(past.search, wanted["kind"], wanted["name"]))

    return Starlette(
        routes=[
            Route("/", file),
            Route("/static/{name}", file),
            Route("/api/job", reading(lambda query: job.page(query.get("letters") == "1"))),
            Route("/api/log", reading(lambda query: {"lines": job.log(query.get("task", ""))})),
            Route("/api/letters", reading(lambda _: job.letters())),
            Route(
                "/api/state",
                reading(lambda q: job.state(q.get("operator", ""), q.get("key", ""), q.get("live") == "1")),
            ),
            Route("/api/keys", reading(lambda q: job.keys(q.get("operator", ""), q.get("prefix", "")))),
            Route("/api/recorded", reading(past.axis)),
            Route("/api/recorded/epoch", reading(past.epoch)),
            Route("/api/recorded/failure", reading(past.failure)),
            Route("/api/recorded/row", reading(past.row)),
            Route("/api/recorded/origin", reading(past.origin)),
            Route("/api/recorded/search", searching, methods=["POST"]),
            Route("/api/rows", reading(past.rows)),
            Route("/api/output", reading(lambda _: output.shown(job.settled))),
            Route("/api/break", breaking, methods=["POST"]),
        ],
        exception_handlers={404: _missing, 405: _missing},
    )


def _broken(job: ObservedJob, output: OutputCheck, kind: str, name: str) -> dict[str, str]:
    from deploy.ui.breaking import broken, check_runs  # loads the control plane, which no other request needs

    check_runs(job.path)
    output.remember()
    return {"done": broken(job.path, kind, name)}


async def _missing(request: Request, problem: Exception) -> Response:
    return _response({"problem": "this page does not exist"}, 404)


async def _answered(answer: Answer) -> Response:
    """Return the answer of a function that reads files or asks the supervisor; turn an error into one line for the
    page.
    """
    try:
        return _response(await run_in_threadpool(answer))
    except CausalError as problem:
        return _response({"problem": " ".join(str(problem).split())}, 409)
    except OSError as problem:
        return _response({"problem": f"{problem.filename or 'the system'}: {problem.strerror or problem}"}, 409)


async def _body(request: Request) -> dict[str, str] | None:
    """Return the body of a request; None if it does not have the expected form."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES_MAX:
            return None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict or not all(type(body.get(name)) is str for name in ("kind", "name")):
        return None
    return body


def _response(content: Any, status: int = 200) -> Response:
    data = json.dumps(content, default=str, separators=(",", ":")).encode(errors="backslashreplace")
    return Response(data, status, media_type="application/json", headers=HEADERS)
