"""A model folder's chat template, as text, and the tokens that end its answers; knows no ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.records import Message, RequestError
from engine.weights.integrity import read_object


def render(template: str, messages: list[Message], settings: dict[str, Any]) -> str:
    """A chat template's text, in a sandbox: templates come with models and are not trusted."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise RequestError(f"the model's chat template refuses this conversation: {message}")

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    names = {key: token_text(settings.get(key)) for key in ("bos_token", "eos_token")}
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, tools=None, **names
        )
    except TemplateError as error:
        raise RequestError(f"the model's chat template fails: {error}; choose another") from error


def token_text(token: Any) -> str:
    """A special token's text, whether stored as a string or as an object."""
    return token["content"] if isinstance(token, dict) else token or ""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, {} where the file is missing."""
    return read_object(path) if path.is_file() else {}


def chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The folder's chat template, None where the model has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {one["name"]: one["template"] for one in template}
        template = named.get("default", next(iter(named.values()), None))
    return template


def end_tokens(folder: Path) -> frozenset[int]:
    """Ids that end an answer, of generation_config.json and config.json."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is not None:
            found |= set(value if isinstance(value, list) else [value])
    return frozenset(found)
