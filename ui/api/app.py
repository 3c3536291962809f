"""The HTTP API, OpenAI's protocol: `app(engine)` is the whole application.

requests.py translates bodies to engine requests, responses.py translates events to answers,
infill.py does both for llama.cpp's protocol, and security.py decides who gets in. Conversations in
Anthropic's protocol (anthropic_messages) and for /v1/responses (openai_responses) are translated to
chats and answered as such. The web page is mounted on the application that `app` returns, so
security.py covers it as well (`AccessRules.pages`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from engine.aio import Stream
from engine.engine import Engine
from engine.records import Request as EngineRequest
from ui.api import apply, embeddings, requests, responses
from ui.api import schemas as types
from ui.api.anthropic_messages import requests as anthropic_requests
from ui.api.anthropic_messages import schemas as anthropic_types
from ui.api.anthropic_messages.answers import MessageWriter, ping
from ui.api.chat_parts import parts_of
from ui.api.embeddings import EmbeddingModel
from ui.api.errors import ApiError, add_handlers
from ui.api.fields import MAX_CHOICES
from ui.api.infill import Infill
from ui.api.jobs import Jobs, JobStream, QueueFull
from ui.api.json_body import BodySlots, JsonRoute
from ui.api.large_bodies import LargeBodies
from ui.api.metrics import CONTENT_TYPE, Metrics, MetricsMiddleware
from ui.api.openai_responses import requests as response_requests
from ui.api.openai_responses import schemas as response_types
from ui.api.openai_responses.answers import ResponseWriter, response_to
from ui.api.parameters import GenerationRequest
from ui.api.remote_engine.routes import EngineHost, add_engine_routes
from ui.api.replies import (
    EventStreamResponse,
    cancel_on_disconnect,
    json_response,
    request_errors,
    wait_until_accepted,
)
from ui.api.security import OWNER, AccessGuard, AccessRules
from ui.api.tool_calls import CallReader, call_reader

if TYPE_CHECKING:
    from engine.remote.any_engine import ServedEngine

QUEUE_SIZE = 32  # requests that are running or waiting
ANY_MODEL = "*"  # an alias that matches every name
FAILURE = "the model has failed: start the server again"
STATUSES = {
    400: "the request is invalid",
    401: "the API key is missing or wrong",
    403: "the request comes from a page of another server",
    404: "no such model or path",
    413: "the body is too large",
    429: "too many requests are waiting: retry later",
    500: "the model failed",
    503: "the model is loading or has failed, or the server is shutting down",
}
Responses = dict[int | str, dict[str, Any]]
ERRORS: Responses = {
    status: {"model": types.Error, "description": text} for status, text in STATUSES.items()
}
ANTHROPIC_ERRORS: Responses = {
    status: {"model": anthropic_types.MessagesError, "description": text}
    for status, text in STATUSES.items()
}
SSE_SCHEMA = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
HEALTH: dict[str, Any] = {"model": types.Health, "description": "the model loads, or has failed"}
STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": SSE_SCHEMA}}}


@dataclass
class ApiState:
    """The state that the routes share."""

    engine: ServedEngine
    jobs: Jobs
    model_names: list[str]  # the first is the model's own name, the others are aliases
    metrics: Metrics
    embedding: EmbeddingModel | None
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def warnings(self) -> list[str]:
        """What is to be said about answers to chats, where the engine is in this process."""
        return self.engine.warnings if isinstance(self.engine, Engine) else []

    def resolve_model(self, name: str | None) -> str:
        """Return the model name for a response. Raises ApiError for any other model."""
        if name is None:
            return self.model_names[0]
        if name in self.model_names or ANY_MODEL in self.model_names:
            return name
        message = f"unknown model: this server serves {', '.join(self.model_names)}"
        raise ApiError(404, message, "model", "model_not_found")

    def model(self, name: str) -> types.Model:
        """Describe to clients the model under one of its names, or the embedding model."""
        embeds = self.embedding is not None and name == self.embedding.name
        context = None if embeds else self.engine.context
        created = datetime.fromtimestamp(self.started, UTC).isoformat()
        return types.Model(
            id=name,
            created=self.started,
            max_model_len=context,
            context_length=context,
            display_name=name,
            created_at=created.replace("+00:00", "Z"),
        )

    def embedding_model(self, name: str | None) -> EmbeddingModel:
        """Return the embedding model.

        Raises ApiError where there is none, and for any other name.
        """
        if self.embedding is None:
            raise ApiError(404, embeddings.NONE, code="model_not_found")
        known = (None, self.embedding.name, *self.model_names[1:])
        if name not in known and ANY_MODEL not in known:
            message = f"unknown model: the embedding model here is {self.embedding.name}"
            raise ApiError(404, message, "model", "model_not_found")
        return self.embedding

    async def embeddings(self, body: types.EmbeddingsRequest, http: Request) -> bytes:
        """Vectors of texts, as JSON. It takes a slot of the queue meanwhile. Raises ApiError."""
        model = self.embedding_model(body.model)

        def work(stream: Stream[Any], _: str) -> Iterator[bytes]:
            def count(text: str) -> int:
                return len(self.engine.encode(text))

            yield embeddings.answer(body, model, count, lambda: stream.cancelled)

        with self.queue_errors():
            stream = self.jobs.submit_batch(work, client_of(http, body.user), owner_of(http))
        async with cancel_on_disconnect(stream, http.receive):
            return await anext(stream)

    def builder(
        self, chat: bool, model: str | None, prediction: str = "", **options: Any
    ) -> responses.ResponseBuilder:
        return responses.ResponseBuilder(
            chat,
            self.resolve_model(model),
            f"draftline-{self.engine.info.dtype}",
            self.engine.encode,
            prediction,
            **options,
        )

    def submit(
        self,
        make: Callable[[], EngineRequest] | Sequence[Callable[[], EngineRequest]],
        http: Request,
        user: str | None = None,
        speculation: bool | None = None,
    ) -> JobStream:
        """Submit the request that `make` returns, or several one by one.

        Raises ApiError if the queue is full.
        """
        drafted = speculation is not False
        with self.queue_errors():
            return self.jobs.submit(make, client_of(http, user), drafted, owner=owner_of(http))

    def submit_chat(
        self, body: types.ChatRequest, http: Request
    ) -> tuple[JobStream, Callable[[], CallReader]]:
        """Submit a conversation; returns the answer, and how to read it. Raises ApiError."""
        update = apply.apply_in_chat(body)
        if update is not None:
            if (body.n or 1) > 1 or body.logprobs:
                name = "logprobs" if body.logprobs else "n"
                raise ApiError(400, f"{name}: not for an update of a file: leave it out", name)
            make = partial(apply.apply_request, update)
            return self.submit(make, http, user_of(body), body.speculation), CallReader
        makes = [partial(requests.chat_request, body, choice) for choice in range(body.n or 1)]
        return self.submit(makes, http, user_of(body), body.speculation), partial(call_reader, body)

    async def prompt_tokens(self, body: types.ChatRequest, http: Request) -> int:
        """Count the tokens of a conversation's prompt.

        It takes a slot of the queue meanwhile. Raises ApiError.
        """

        def count(stream: Stream[int], _: str) -> Iterator[int]:
            request = requests.chat_request(body)
            yield self.engine.prompt_tokens(request, lambda: stream.cancelled)

        with self.queue_errors():
            stream = self.jobs.submit_batch(count, client_of(http, user_of(body)), owner_of(http))
        async with cancel_on_disconnect(stream, http.receive):
            with request_errors():
                return await anext(stream)

    @contextlib.contextmanager
    def queue_errors(self) -> Iterator[None]:
        """Raise ApiError if the queue is full."""
        try:
            yield
        except QueueFull:
            message = f"{self.jobs.queue_size} requests are running or waiting: retry in a moment"
            headers = {"retry-after": "1"}
            raise ApiError(429, message, code="rate_limit_exceeded", headers=headers) from None

    async def respond(
        self,
        stream: JobStream,
        builder: responses.ResponseBuilder,
        body: GenerationRequest,
        http: Request,
        count: int,
    ) -> Response:
        """Respond to one of OpenAI's requests with `count` choices."""
        if body.stream:
            usage = bool(body.stream_options and body.stream_options.include_usage)
            return EventStreamResponse(stream, responses.chunks(stream, builder, usage, count))
        return await json_response(stream, responses.whole(stream, builder), http)


def app(
    engine: ServedEngine,
    rules: AccessRules | None = None,
    aliases: Sequence[str] = (),
    queue_size: int = QUEUE_SIZE,
    embedding: EmbeddingModel | None = None,
) -> FastAPI:
    """Make the application.

    `aliases`: further model names, `*` for any. `queue_size`: requests that may run or wait;
    further ones get 429. `embedding`: the model of /v1/embeddings. `state.jobs` and `state.names`
    are its queue and names.
    """
    metrics = Metrics()
    rules = rules or AccessRules()
    jobs = Jobs(engine, queue_size, metrics.answer_ended, len((rules.key or "").split()))
    own_name = Path(engine.config.model).name
    names = list(dict.fromkeys((own_name, *aliases)))
    state = ApiState(engine, jobs, names, metrics, embedding)
    host = EngineHost(engine, jobs) if isinstance(engine, Engine) else None

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()
        if host:
            host.close()

    metrics.gauge("open", "requests that are running or waiting", lambda: jobs.open)
    application = FastAPI(
        title="Draftline",
        version="1",
        description="OpenAI's protocol, served with speculative decoding from existing text.",
        docs_url=None,  # these load scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=ERRORS,
    )
    application.router.route_class = JsonRoute
    add_handlers(application)
    add_openai_routes(application, state)
    add_agent_routes(application, state)
    add_other_routes(application, state)
    if host:
        lines = partial(EventStreamResponse, sign=lambda: b"\n", media_type="application/x-ndjson")
        add_engine_routes(application, host, lines, state.queue_errors)
    build_schema(application)
    application.add_middleware(AccessGuard, rules=rules)
    application.add_middleware(MetricsMiddleware, metrics=metrics)
    application.add_middleware(LargeBodies)
    application.state.slots = BodySlots()
    application.state.jobs, application.state.names = jobs, state.model_names
    application.state.warnings = state.warnings
    application.state.indexes = host.indexes if host else None
    return application


def build_schema(application: FastAPI) -> None:
    """Build the OpenAPI schema without FastAPI's 422: validation errors are 400 here."""
    schema = application.openapi()
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)


def add_openai_routes(application: FastAPI, state: ApiState) -> None:
    @application.post(
        "/v1/chat/completions", response_model=types.ChatAnswer, responses={200: STREAM}
    )
    async def chat(body: types.ChatRequest, http: Request) -> Response:
        """Answer a conversation."""
        count = body.n or 1
        builder = state.builder(
            True,
            body.model,
            requests.predicted_text(body),
            per_prompt=count,
            top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            warnings=state.warnings,
        )
        stream, builder.make_calls = state.submit_chat(body, http)
        return await state.respond(stream, builder, body, http, count)

    @application.post("/v1/completions", response_model=types.TextAnswer, responses={200: STREAM})
    async def completions(body: types.CompletionRequest, http: Request) -> Response:
        """Continue texts, or fill in the middle between `prompt` and `suffix`."""
        prompts, each = requests.prompts_of(body), body.n or 1
        builder = state.builder(
            False,
            body.model,
            requests.predicted_text(body),
            echoes=prompts if body.echo else (),
            per_prompt=each,
            top_logprobs=body.logprobs,
        )
        if not all(prompts) and not body.suffix:
            raise ApiError(400, "prompt: empty: give text to continue", "prompt")
        if body.suffix and not state.engine.info.fills_middle:
            message = "suffix: this model cannot fill in the middle: leave it out"
            raise ApiError(400, message, "suffix")
        count = len(prompts) * each
        if count > MAX_CHOICES:
            raise ApiError(400, f"n: over {MAX_CHOICES} answers: send fewer prompts", "n")
        makes = [
            partial(requests.completion_request, body, prompt, choice)
            for prompt in prompts
            for choice in range(each)
        ]
        stream = state.submit(makes, http, user_of(body), body.speculation)
        return await state.respond(stream, builder, body, http, count)

    @application.post("/v1/embeddings", response_model=types.EmbeddingsAnswer)
    async def embed(body: types.EmbeddingsRequest, http: Request) -> Response:
        """Vectors of texts, where the server has an embedding model."""
        return Response(await state.embeddings(body, http), media_type="application/json")

    @application.get("/v1/models", response_model=types.Models)
    async def models() -> types.Models:
        """Return the names of the model, and the embedding model."""
        names = [name for name in state.model_names if name != ANY_MODEL]
        if state.embedding is not None:
            names.append(state.embedding.name)
        found = [state.model(name) for name in names]
        return types.Models(data=found, first_id=names[0], last_id=names[-1])

    @application.get("/v1/models/{model:path}", response_model=types.Model)
    async def model(model: str) -> types.Model:
        """Return one name of the model, or the embedding model."""
        if state.embedding is not None and model == state.embedding.name:
            return state.model(model)
        return state.model(state.resolve_model(model))


def add_agent_routes(application: FastAPI, state: ApiState) -> None:
    """Add the routes of other protocols for conversations."""

    @application.post(
        "/v1/messages",
        response_model=anthropic_types.MessageAnswer,
        responses=ANTHROPIC_ERRORS | {200: STREAM},
    )
    async def messages(body: anthropic_types.MessagesRequest, http: Request) -> Response:
        """Answer a conversation, in Anthropic's protocol."""
        writer = MessageWriter.of(state.resolve_model(body.model))
        stream, calls = state.submit_chat(anthropic_requests.chat_of(body), http)
        parts = parts_of(stream, calls())
        if body.stream:
            return EventStreamResponse(stream, writer.chunks(parts), ping)
        return await json_response(stream, writer.whole(parts), http)

    @application.post(
        "/v1/messages/count_tokens",
        response_model=anthropic_types.TokenCount,
        responses=ANTHROPIC_ERRORS,
    )
    async def count_tokens(
        body: anthropic_types.MessagesRequest, http: Request
    ) -> anthropic_types.TokenCount:
        """Count the tokens of a conversation as the model reads it."""
        state.resolve_model(body.model)
        tokens = await state.prompt_tokens(anthropic_requests.chat_of(body), http)
        return anthropic_types.TokenCount(input_tokens=tokens)

    @application.post(
        "/v1/responses", response_model=response_types.ResponseAnswer, responses={200: STREAM}
    )
    async def respond(body: response_types.ResponsesRequest, http: Request) -> Response:
        """Answer a conversation, as OpenAI's responses. Nothing is stored."""
        response = response_to(body, state.resolve_model(body.model))
        writer = ResponseWriter(response, state.engine.encode)
        stream, calls = state.submit_chat(response_requests.chat_of(body), http)
        parts = parts_of(stream, calls())
        if body.stream:
            return EventStreamResponse(stream, writer.chunks(parts), writer.in_progress)
        return await json_response(stream, writer.whole(parts), http)


def add_other_routes(application: FastAPI, state: ApiState) -> None:
    """Add the routes that OpenAI does not have."""

    @application.post("/infill", response_model=types.InfillAnswer, responses={200: STREAM})
    async def infill(body: types.InfillRequest, http: Request) -> Response:
        """Fill in the middle, as llama.cpp's server does."""
        model = state.resolve_model(body.model or None)
        if not state.engine.info.fills_middle:
            message = "this model cannot fill in the middle: serve one that can, or use "
            raise ApiError(400, f"{message}/v1/completions", "input_suffix")
        infill = Infill(body, state.engine, model)
        stream = state.submit(infill.request, http)
        if body.stream:
            return EventStreamResponse(stream, infill.chunks(stream))
        async with cancel_on_disconnect(stream, http.receive):
            await wait_until_accepted(stream)
            return JSONResponse(await infill.whole(stream))

    @application.post("/v1/apply", response_model=types.ApplyAnswer)
    async def apply_update(body: types.ApplyRequest, http: Request) -> Response:
        """Merge an update into a file: changed lines, with `... existing code ...` for others."""
        builder = state.builder(False, body.model)
        stream = state.submit(partial(apply.apply_request, body), http, body.user)
        return await json_response(stream, apply.apply_answer(stream, builder), http)

    @application.post("/predict", response_model=str, responses={504: {"model": types.Error}})
    async def predict(body: types.PredictRequest, http: Request) -> Response:
        """Return a prompt and its continuation as one string.

        LLMSpeculativeSampling serves it so.
        """
        stream = state.submit(partial(requests.predict_request, body), http)
        try:
            async with asyncio.timeout(body.timeout), cancel_on_disconnect(stream, http.receive):
                await wait_until_accepted(stream)
                done = await stream.result()
        except TimeoutError:
            message = f"no answer in {body.timeout} seconds: allow more with `timeout`"
            raise ApiError(504, message, "timeout", "timeout") from None
        responses.finish_reason(done)
        return JSONResponse(body.prompt + done.text)

    @application.head("/health", include_in_schema=False)
    @application.get("/health", response_model=types.Health, responses={503: HEALTH})
    async def health() -> Response:
        """Return whether the model is loaded and works. Needs no key."""
        if state.engine.failure is None:
            return JSONResponse({"status": "ok"})
        health = types.Health(status="failed", message=FAILURE)  # the error itself needs a key
        return JSONResponse(health.model_dump(exclude_none=True), 503)

    @application.get(
        "/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE: {}}}}
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(state.metrics.render(), media_type=CONTENT_TYPE)


def client_of(http: Request, user: str | None) -> str:
    """Return the client whose turn a request is among those of its owner."""
    address = http.client.host if http.client else ""
    agent, key = http.headers.get("user-agent", ""), str(http.scope.get(OWNER, ""))
    return "\n".join((address, agent, user or "", key))


def owner_of(http: Request) -> str:
    """Return the owner whose slots and time a request takes.

    That is its key, or a program at an address where no key is needed.
    """
    address = http.client.host if http.client else ""
    key = str(http.scope.get(OWNER, ""))
    return key or f"{address} {http.headers.get('user-agent', '')}"


def user_of(body: GenerationRequest) -> str | None:
    return body.safety_identifier or body.user
