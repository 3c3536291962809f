"""Errors of the API.

They have OpenAI's shape, `{"error": {message, type, param, code}}`, and below /v1/messages
Anthropic's, `{"type": "error", "error": {type, message}}`.

A message names what is wrong and the remedy. It never repeats what the client sent, except names of
fields.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from engine.editing.edits import EditRefused
from engine.records import RequestError
from ui.api.fields import REMEDIES, TOO_MANY, UNSUPPORTED

log = logging.getLogger(__name__)

ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
ANTHROPIC_PATH = "/v1/messages"  # a path, which stands for all below it, too
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
CONTEXT_CODE = "context_length_exceeded"
FRAMEWORK_MESSAGES = {  # these replace Starlette's
    400: "the body could not be read: send JSON",
    404: "no such path: see /openapi.json",
    405: "method not allowed: see the header `allow`",
}


class ApiError(Exception):
    """A request that is answered with an error."""

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

    def body(self, path: str = "") -> dict[str, Any]:
        """Return the body, in the shape of the protocol that the path belongs to."""
        if path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/"):
            return self.anthropic_body()
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = ERROR_TYPES.get(self.status, default)
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def anthropic_body(self) -> dict[str, Any]:
        default = "api_error" if self.status >= 500 else "invalid_request_error"
        message = self.message
        if self.code == CONTEXT_CODE:
            message = f"prompt is too long: {message}"  # agents know it by these words
        kind = ANTHROPIC_TYPES.get(self.status, default)
        return {"type": "error", "error": {"type": kind, "message": message}}

    def response(self, path: str = "") -> JSONResponse:
        return JSONResponse(self.body(path), self.status, self.headers)


def refused(error: EditRefused | RequestError) -> ApiError:
    """Return the error of an update that cannot be merged, or whose answer must not be used."""
    return ApiError(400, str(error), "update", "edit_refused")


def add_handlers(app: FastAPI) -> None:
    """Give every error of `app` this shape."""

    async def on_api_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response(request.scope["path"])

    async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        message = FRAMEWORK_MESSAGES.get(error.status_code, error.detail)
        return ApiError(error.status_code, message, headers=error.headers).response(
            request.scope["path"]
        )

    async def on_validation_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        errors = error.errors()
        message, param = describe_validation_errors(errors)
        code = TOO_MANY if any(problem["type"] == TOO_MANY for problem in errors) else None
        return ApiError(400, message, param, code).response(request.scope["path"])

    async def on_bug(request: Request, error: Exception) -> JSONResponse:
        log.error("a request failed: %s", type(error).__name__)
        return ApiError(500, "internal error: see the server's log").response(request.scope["path"])

    app.add_exception_handler(ApiError, on_api_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(Exception, on_bug)


def describe_validation_errors(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Describe pydantic's errors in one message, with the field's name.

    For a field of several types pydantic reports an error for each type. The one that counts is of
    the type that matched, or else the deepest one.
    """
    worst = max(errors, key=lambda error: (not error["type"].endswith("_type"), len(error["loc"])))
    if worst["type"] == "json_invalid":
        return "the body is not JSON: check its syntax and encoding", None
    names = [part for part in worst["loc"][1:] if isinstance(part, int) or is_field(part)]
    param = ".".join(map(str, names)) or None
    if param is None:
        return "the body is not a JSON object: send one as application/json", None
    if worst["type"] == UNSUPPORTED:
        return f"{param}: {worst['msg']}", param
    if worst["type"] == "union_tag_invalid":
        tag = worst["ctx"]
        return f"{param}: {tag['discriminator']} must be one of {tag['expected_tags']}", param
    remedy = REMEDIES.get(next((name for name in reversed(names) if isinstance(name, str)), ""))
    what = "missing: " if worst["type"] == "missing" else "" if remedy else f"{worst['msg']}: "
    return f"{param}: {what}{remedy or 'see /openapi.json'}", param


def is_field(part: str) -> bool:
    """Return whether a part of an error's location is a field, as opposed to the name of a type."""
    return (
        part.islower() and part.replace("_", "a").isalnum() and part not in ("str", "int", "float")
    )
