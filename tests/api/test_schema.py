"""The API keeps what its own schema promises, for whatever is sent (schemathesis)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.server import Served, reciter, served_model

OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/predict"),
    ("GET", "/health"),
    ("GET", "/metrics"),
]
# Refused though it is as the schema says: what the schema cannot say of one model.
OF_THE_MODEL = ("the prompt has", "prompt: empty", "suffix: this model")
CALM = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose answers are short, by any name."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    model = reciter(tmp_path_factory.mktemp("models") / "reciter")
    with served_model(model, aliases=["*"]) as served:
        yield served
    patch.undo()


def conforms(served: Served, method: str, path: str, examples: int) -> None:
    """So many requests that fit the schema, and as many that do not, get what it says."""
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operation = schema[path][method]
    modes = [GenerationMode.POSITIVE]
    if method == "POST":
        modes.append(GenerationMode.NEGATIVE)  # a GET has nothing that could be wrong
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        database=None,
        suppress_health_check=CALM,
    )
    @given(cases)
    def ask(case: Any) -> None:
        answer = case.call()
        own = answer.status_code == 400 and answer.json()["error"]["message"]
        excused = [positive_data_acceptance] if own and own.startswith(OF_THE_MODEL) else []
        case.validate_response(answer, excluded_checks=excused)

    ask()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_api_keeps_its_schema(served: Served, method: str, path: str) -> None:
    conforms(served, method, path, 25 if method == "POST" else 5)


@pytest.mark.full
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_api_keeps_its_schema_for_long(served: Served, method: str, path: str) -> None:
    conforms(served, method, path, 600 if method == "POST" else 50)


def test_the_schema_lists_every_operation(served: Served) -> None:
    with served.http() as http:
        paths = http.get("/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == set(OPERATIONS)
    for methods in paths.values():
        for operation in methods.values():
            assert {"400", "401", "403", "404", "413", "429", "500", "503"} <= set(
                operation["responses"]
            ) and "422" not in operation["responses"]
