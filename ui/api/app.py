"""The HTTP API, OpenAI's protocol: `app(engine)` is the whole application.

What a request means stands in asked.py, what is sent back in answers.py, who may ask in guard.py.
A page is mounted on what `app` returns (`rules.pages` says where): it is guarded like the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from engine.records import Request as Asking
from engine.records import RequestError
from ui.api import requests, responses
from ui.api import schemas as types
from ui.api.errors import ApiError, add_handlers
from ui.api.jobs import Answer, Full, Jobs, held
from ui.api.metrics import TYPE, Counted, Metrics
from ui.api.security import Guard, Receive, Rules, Scope, Send

if TYPE_CHECKING:
    from engine.engine import Engine

PLACES = 32  # requests that run or wait
ANY = "*"  # an alias: every name is answered
TOO_LONG = "the model's context is"  # in the message of what does not fit (engine/generate.py)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": types.Error, "description": text}
    for status, text in {
        400: "what was sent cannot be answered",
        401: "the key is missing or wrong",
        403: "asked by a page of another server",
        404: "no such model or address",
        413: "the body is too large",
        429: "too many requests wait: come again",
        500: "the model failed",
        503: "the server ends",
    }.items()
}
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": EVENT}}}


@dataclass
class Served:
    """What the routes share."""

    engine: Engine
    jobs: Jobs
    names: list[str]  # of the model; the first is its own
    metrics: Metrics
    since: int = field(default_factory=lambda: int(time.time()))

    def named(self, name: str | None) -> str:
        """The model's name for an answer. ApiError where another model is asked for."""
        if name is None:
            return self.names[0]
        if name in self.names or ANY in self.names:
            return name
        message = f"this server has no such model: it serves {', '.join(self.names)}"
        raise ApiError(404, message, "model", "model_not_found")

    def form(self, chat: bool, body: types.Asked, echo: str = "") -> responses.Form:
        return responses.Form(
            chat,
            self.named(body.model),
            f"draftline-{self.engine.info.dtype}",
            self.engine.encode,
            requests.predicted(body),
            echo,
        )

    def ask(self, make: Callable[[], Asking], http: Request, user: str | None = None) -> Answer:
        """Hand over what `make` gives. ApiError where too many wait."""
        address = http.client.host if http.client else ""
        client = "\n".join((address, http.headers.get("user-agent", ""), user or ""))
        try:
            return self.jobs.ask(make, client)
        except Full:
            text = f"{self.jobs.places} requests run or wait here: try again in a moment"
            headers = {"retry-after": "1"}
            raise ApiError(429, text, code="rate_limit_exceeded", headers=headers) from None

    async def reply(
        self, answer: Answer, form: responses.Form, body: types.Asked, http: Request
    ) -> Response:
        """The answer to one of OpenAI's requests."""
        if body.stream:
            await accepted(answer)
            with_usage = bool(body.stream_options and body.stream_options.include_usage)
            return Events(answer, form, with_usage)
        async with held(answer, http.receive):
            await accepted(answer)
            return JSONResponse((await responses.whole(answer, form)).model_dump())


async def accepted(answer: Answer) -> None:
    """Wait until the engine took a request. ApiError where it does not."""
    try:
        await answer.submitted()
    except RequestError as error:
        code = "context_length_exceeded" if TOO_LONG in str(error) else None
        raise ApiError(400, str(error), code=code) from error
    except RuntimeError as error:
        raise ApiError(503, str(error)) from error


class Events(Response):
    """An answer as server-sent events, broken off when its client hangs up."""

    media_type = "text/event-stream"

    def __init__(self, answer: Answer, form: responses.Form, with_usage: bool) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.answer, self.form, self.with_usage = answer, form, with_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with held(self.answer, receive) as answer:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            async for event in responses.pieces(answer, self.form, self.with_usage):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def app(
    engine: Engine,
    rules: Rules | None = None,
    aliases: Sequence[str] = (),
    places: int = PLACES,
) -> FastAPI:
    """The application; `state.jobs` and `state.names` are what it runs and serves. `aliases`:
    further names of the model, `*`: any. `places`: requests that run or wait; more get 429."""
    metrics = Metrics()
    jobs = Jobs(engine, places, metrics.ended)
    own = Path(engine.config.model).name  # of a folder or a file, its name alone
    served = Served(engine, jobs, list(dict.fromkeys((own, *aliases))), metrics)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()

    metrics.gauge("open", "requests that run or wait", lambda: jobs.open)
    made = FastAPI(
        title="Draftline",
        version="1",
        description="OpenAI's protocol; answers drafted from text that exists.",
        docs_url=None,  # these load code from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        responses=ERRORS,
    )
    add_handlers(made)
    add_openai(made, served)
    add_others(made, served)
    document(made)
    made.add_middleware(Guard, rules=rules or Rules())
    made.add_middleware(Counted, metrics=metrics)
    made.state.jobs, made.state.names = jobs, served.names
    return made


def document(made: FastAPI) -> None:
    """Make the schema, without FastAPI's own 422: what it stands for is 400 here."""
    schema = made.openapi()
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)


def add_openai(made: FastAPI, served: Served) -> None:
    """The routes of OpenAI's protocol."""

    @made.post("/v1/chat/completions", response_model=types.ChatAnswer, responses={200: STREAM})
    async def chat(body: types.ChatRequest, http: Request) -> Response:
        """Answer a conversation."""
        form = served.form(True, body)
        answer = served.ask(partial(requests.chat_request, body), http, user_of(body))
        return await served.reply(answer, form, body, http)

    @made.post("/v1/completions", response_model=types.TextAnswer, responses={200: STREAM})
    async def completions(body: types.CompletionRequest, http: Request) -> Response:
        """Continue a text, or write what stands before a suffix."""
        prompt = requests.prompt_of(body)
        form = served.form(False, body, prompt if body.echo else "")
        if not prompt and not body.suffix:
            raise ApiError(400, "prompt: empty: give text to continue", "prompt")
        if body.suffix and not served.engine.info.fills_middle:
            raise ApiError(400, "suffix: this model knows no filling in: leave it out", "suffix")
        answer = served.ask(partial(requests.completion_request, body), http, user_of(body))
        return await served.reply(answer, form, body, http)

    @made.get("/v1/models", response_model=types.Models)
    async def models() -> types.Models:
        """The names that the model is served by."""
        names = [name for name in served.names if name != ANY]
        return types.Models(data=[types.Model(id=one, created=served.since) for one in names])

    @made.get("/v1/models/{model:path}", response_model=types.Model)
    async def model(model: str) -> types.Model:
        """One of these."""
        return types.Model(id=served.named(model), created=served.since)


def add_others(made: FastAPI, served: Served) -> None:
    """The routes that are not OpenAI's."""

    @made.post("/predict", response_model=str, responses={504: {"model": types.Error}})
    async def predict(body: types.PredictRequest, http: Request) -> Response:
        """A prompt with its continuation, as one string: LLMSpeculativeSampling's server."""
        answer = served.ask(partial(requests.predict_request, body), http)
        try:
            async with asyncio.timeout(body.timeout), held(answer, http.receive):
                await accepted(answer)
                done = await answer.result()
        except TimeoutError:
            text = f"no answer in {body.timeout} seconds: allow more with `timeout`"
            raise ApiError(504, text, "timeout", "timeout") from None
        responses.finish(done)
        return JSONResponse(body.prompt + done.text)

    @made.get("/health", response_model=types.Health)
    async def health() -> types.Health:
        """Whether the server runs. Needs no key."""
        return types.Health()

    @made.get("/metrics", response_class=Response, responses={200: {"content": {TYPE: {}}}})
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(served.metrics.text(), media_type=TYPE)


def user_of(body: types.Asked) -> str | None:
    return body.safety_identifier or body.user
