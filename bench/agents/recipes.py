"""Recipes for coding agents at a server: their configuration, and the command for one task.

Each agent may read and write files and run no commands of its own: a small model decides what it
does. docs/clients.md shows the same configurations to users.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class AgentRequest:
    """One task for an agent."""

    url: str  # the server's, without /v1
    model: str
    home: str  # an empty folder that is the agent's home
    task: str
    file: str  # the file that the task is about, in the current folder


@dataclass(frozen=True)
class Recipe:
    """The way to start an agent. `files`: its configuration, by paths in its home."""

    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def aider(request: AgentRequest) -> Recipe:
    options = "--yes-always --no-git --no-check-update --analytics-disable --no-gitignore"
    quiet = "--no-show-model-warnings --no-show-release-notes --no-suggest-shell-commands"
    model = ("--model", f"openai/{request.model}", "--edit-format", "whole")
    return Recipe(
        (
            "aider",
            *options.split(),
            *quiet.split(),
            *model,
            "--message",
            request.task,
            request.file,
        ),
        variables={"OPENAI_API_BASE": f"{request.url}/v1", "OPENAI_API_KEY": "none"},
    )


def opencode(request: AgentRequest) -> Recipe:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Draftline",
        "options": {"baseURL": f"{request.url}/v1"},
        "models": {request.model: {}},
    }
    denied = dict.fromkeys(("bash", "webfetch", "external_directory"), "deny")
    config = {"provider": {"draftline": provider}, "permission": denied}
    return Recipe(
        ("opencode", "run", "--auto", "-m", f"draftline/{request.model}", request.task),
        {".config/opencode/opencode.json": json.dumps(config)},
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    )


def pi(request: AgentRequest) -> Recipe:
    provider = {
        "baseUrl": f"{request.url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": request.model}],
    }
    chosen = ("--provider", "draftline", "--model", request.model, "--tools", "read,edit,write,ls")
    return Recipe(
        ("pi", "-p", "--offline", *chosen, request.task),
        {".pi/agent/models.json": json.dumps({"providers": {"draftline": provider}})},
    )


def cn(request: AgentRequest) -> Recipe:
    model = {
        "name": "Draftline",
        "provider": "openai",
        "model": request.model,
        "apiBase": f"{request.url}/v1",
        "apiKey": "none",
        "roles": ["chat"],
        "capabilities": ["tool_use"],
    }
    config = {"name": "draftline", "version": "1.0.0", "schema": "v1", "models": [model]}
    path = ".continue/config.yaml"
    options = ("--auto", "--exclude", "Bash", "--config", f"{request.home}/{path}")
    return Recipe(("cn", "-p", *options, request.task), {path: json.dumps(config)})  # JSON is YAML


def qwen(request: AgentRequest) -> Recipe:
    server = {
        "OPENAI_BASE_URL": f"{request.url}/v1",
        "OPENAI_API_KEY": "none",
        "OPENAI_MODEL": request.model,
    }
    settings = {"privacy": {"usageStatisticsEnabled": False}}
    allowed = ("--approval-mode", "auto-edit", "--exclude-tools", "run_shell_command")
    return Recipe(
        ("qwen", "--auth-type", "openai", *allowed, "-p", request.task),
        {".qwen/settings.json": json.dumps(settings)},
        server,
    )


def codex(request: AgentRequest) -> Recipe:
    config = (
        f'model = "{request.model}"\nmodel_provider = "draftline"\n\n[model_providers.draftline]\n'
        f'name = "Draftline"\nbase_url = "{request.url}/v1"\nwire_api = "responses"\n'
    )
    options = ("--skip-git-repo-check", "--sandbox", "workspace-write")
    return Recipe(("codex", "exec", *options, request.task), {".codex/config.toml": config})


AGENTS: dict[str, Callable[[AgentRequest], Recipe]] = {
    "aider": aider,
    "opencode": opencode,
    "pi": pi,
    "cn": cn,
    "qwen": qwen,
    "codex": codex,
}
