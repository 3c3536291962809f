"""A model folder's chat template, rendered as text, and the ids of its end tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.records import Message, RequestError
from engine.weights.integrity import read_object


def render(template: str, messages: list[Message], settings: dict[str, Any]) -> str:
    """The conversation as the model's template writes it, up to the assistant's turn. Templates
    come with models and are not trusted: transformers renders them in a sandbox."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    names = {key: token_text(settings.get(key)) for key in ("bos_token", "eos_token")}
    try:
        (text,), _ = render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=True, **names
        )
    except (TemplateError, TypeError, ValueError, LookupError) as error:
        raise RequestError(
            f"the model's chat template refuses this conversation: {error}"
        ) from error
    return str(text)


def token_text(token: Any) -> str:
    """A special token's text, whether stored as a string or as an object."""
    return token["content"] if isinstance(token, dict) else token or ""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; {} where the file is missing."""
    return read_object(path) if path.is_file() else {}


def chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The folder's chat template; None where the model has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {one["name"]: one["template"] for one in template}
        template = named.get("default", next(iter(named.values()), None))
    return template


def end_tokens(folder: Path) -> frozenset[int]:
    """The end token ids of generation_config.json and config.json."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is not None:
            found |= set(value if isinstance(value, list) else [value])
    return frozenset(found)
