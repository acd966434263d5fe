"""What a client gets from the tap itself: a status, and a JSON-RPC error that says why."""

import json

from aiohttp import web

from assay_stream.observe.jsonrpc import BLOCKED_CODE

_PROBLEMS = {
    "host_not_served": (421, "this tap serves no such host; see --allow-host"),
    "origin_not_served": (403, "pages of this origin may not use this tap; see --allow-origin"),
    "no_such_upstream": (404, "no server is configured under this path"),
    "method_not_allowed": (405, "MCP uses POST, GET and DELETE"),
    "too_many_requests": (503, "too many requests are in progress; try again"),
    "body_too_long": (413, "the request is too long to inspect, so it was not passed on"),
    "body_stalled": (408, "the request's body did not arrive in time"),
    "upstream_unreachable": (502, "the server cannot be reached or does not answer in HTTP"),
    "upstream_silent": (504, "the server did not begin to answer in time"),
    "answer_too_long": (502, "the server's answer is too long to inspect, so it was not passed on"),
    "answer_unreadable": (502, "the server's answer cannot be read for certain, so it was not passed on"),
    "upstream_redirects": (502, "the server redirects elsewhere; configure its final address as the upstream"),
    "tap_failed": (500, "the tap failed; its log says why"),
}


class HttpProblem(Exception):  # noqa: N818 - an answer, not an error of ours
    """What a client gets where there is nothing to pass on."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


def answer_of(code: str) -> web.Response:
    """Return what a client gets where there is nothing to pass on, by its code."""
    status, text = _PROBLEMS[code]
    error = {"code": BLOCKED_CODE, "message": f"assay-stream: {text}", "data": {"code": code}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return web.Response(status=status, body=body, content_type="application/json")
