"""A language server that starts again does not read the prompts of edits and ghost text again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from engine.model.native.native_target import NativeTarget
from tests.support.lsp_editor import asking, local_server, ready
from tests.support.prefixes import CODE, files, tiny_gguf

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("error::pytest_lsp.checks.LspSpecificationWarning"),
]


async def test_a_restart_reads_no_prompt_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted are the tokens that the model reads; a random model's answers tell the prompts."""
    model, root, read = tiny_gguf(tmp_path), tmp_path / "root", 0
    root.mkdir()
    (root / "a.py").write_text(CODE)
    run = NativeTarget._run

    def count(target: NativeTarget, tokens: list[int], parents: list[int], committed: bool) -> Any:
        nonlocal read
        read += len(tokens) if committed else 0
        return run(target, tokens, parents, committed)

    monkeypatch.setattr(NativeTarget, "_run", count)

    async def session() -> tuple[int, str, list[str]]:
        """The tokens that a new server reads, the answer of an edit, and ghost texts."""
        nonlocal read
        with local_server(tmp_path, str(model)) as server:
            quick = {"debounceMs": 0, "maxTimeMs": 600_000, "maxTokens": 24}
            async with ready(server.port, root, settings=quick) as editor:
                read = 0
                uri = editor.open((root / "a.py").as_uri(), CODE)
                try:
                    request = asking(editor, uri, partialResultToken="e")
                    await editor.begin("draftline/edit", request)
                except JsonRpcException as error:  # an answer of a random model
                    assert "Traceback" not in error.message
                where = {"textDocument": {"uri": uri}, "position": editor.at(uri, len(CODE))}
                by_hand = where | {"context": {"triggerKind": 1}}
                answer = await editor.ask("textDocument/inlineCompletion", by_hand)
                texts = [item["insertText"] for item in answer["items"]]
                return read, editor.partial["e"], texts

    monkeypatch.setattr("engine.engine.CLOSE_SECONDS", float("inf"))
    cold, *texts = await session()
    assert len(files(tmp_path / "home")) == 2
    warm, *again = await session()
    monkeypatch.setenv("DRAFTLINE_PREFIXES", "off")
    other, *without = await session()
    assert warm == 0 and cold == other > 2000
    assert texts == again == without
