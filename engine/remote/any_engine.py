"""The engines that can answer: of this process, of another one, of another machine."""

from __future__ import annotations

from engine.engine import Engine
from engine.remote.http_engine import HttpEngine
from engine.remote.openai_engine import OpenAiEngine
from engine.remote.remote_engine import RemoteEngine

EditorEngine = Engine | HttpEngine | OpenAiEngine  # several requests at once, from any thread
AnyEngine = EditorEngine | RemoteEngine
