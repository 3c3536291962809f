"""Errors of the API, all of one shape: `{"error": {message, type, param, code}}`, as OpenAI's.

A message names what is wrong and the remedy, and repeats nothing of what the client sent but names
of fields.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ui.api.schemas import REMEDIES

log = logging.getLogger(__name__)

KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
MESSAGES = {
    400: "the body could not be read: send JSON",
    404: "there is no such address: see /openapi.json",
    405: "this address takes other methods: see the header `allow`",
}


class ApiError(Exception):
    """A request that gets no answer."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = KINDS.get(self.status, default)
        inner = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": inner}

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body(), self.status, self.headers)


def add_handlers(app: FastAPI) -> None:
    """Every error of `app` gets this shape."""

    async def ours(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response()

    async def framework(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        message = MESSAGES.get(error.status_code, error.detail)
        return ApiError(error.status_code, message, headers=error.headers).response()

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        message, param = explained(error.errors())
        return ApiError(400, message, param).response()

    async def fault(_: Request, error: Exception) -> JSONResponse:
        log.error("a request failed: %s", type(error).__name__)
        return ApiError(500, "a fault of draftline: see the server's log").response()

    app.add_exception_handler(ApiError, ours)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, fault)


def explained(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """One message and the field's name for what pydantic found wrong.

    Where a field may be one of several types it tells about each: that of the right type counts,
    or the one that came furthest."""
    worst = max(errors, key=lambda one: (not one["type"].endswith("_type"), len(one["loc"])))
    if worst["type"] == "json_invalid":
        return "the body is not JSON: check its syntax and encoding", None
    names = [part for part in worst["loc"][1:] if isinstance(part, int) or named(part)]
    param = ".".join(map(str, names)) or None
    if param is None:
        return "the body is not a JSON object: send one, as application/json", None
    remedy = REMEDIES.get(next((str(one) for one in reversed(names) if isinstance(one, str)), ""))
    what = "missing: " if worst["type"] == "missing" else "" if remedy else f"{worst['msg']}: "
    return f"{param}: {what}{remedy or 'see /openapi.json'}", param


def named(part: str) -> bool:
    """Whether a part of an error's place is a field, not the name of one of its types."""
    return (
        part.islower() and part.replace("_", "a").isalnum() and part not in ("str", "int", "float")
    )
