"""The API conforms to its OpenAPI schema for generated requests (schemathesis)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.server import LocalServer, reciter, serve_model

OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/predict"),
    ("GET", "/health"),
    ("GET", "/metrics"),
]
# Errors for requests that fit the schema, which cannot express the limits of one model.
MODEL_ERRORS = ("the prompt has", "prompt: empty", "suffix: this model")
SLOW_GENERATION = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server with short answers, for any model name."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    model = reciter(tmp_path_factory.mktemp("models") / "reciter")
    with serve_model(model, aliases=["*"]) as served:
        yield served
    patch.undo()


def conforms(served: LocalServer, method: str, path: str, examples: int) -> None:
    """Send `examples` requests, valid and invalid ones, and check the responses."""
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operation = schema[path][method]
    modes = [GenerationMode.POSITIVE]
    if method == "POST":
        modes.append(GenerationMode.NEGATIVE)  # a GET has no body that could be invalid
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=SLOW_GENERATION,
    )
    @given(cases)
    def ask(case: Any) -> None:
        answer = case.call()
        own = answer.status_code == 400 and answer.json()["error"]["message"]
        excused = [positive_data_acceptance] if own and own.startswith(MODEL_ERRORS) else []
        case.validate_response(answer, excluded_checks=excused)

    ask()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_api_conforms_to_its_schema(served: LocalServer, method: str, path: str) -> None:
    conforms(served, method, path, 10 if method == "POST" else 3)


@pytest.mark.full
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_many_examples_conform_to_the_schema(served: LocalServer, method: str, path: str) -> None:
    conforms(served, method, path, 600 if method == "POST" else 50)


def test_the_schema_lists_every_operation(served: LocalServer) -> None:
    with served.http() as http:
        paths = http.get("/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == set(OPERATIONS)
    for methods in paths.values():
        for operation in methods.values():
            assert {"400", "401", "403", "404", "413", "429", "500", "503"} <= set(
                operation["responses"]
            ) and "422" not in operation["responses"]
