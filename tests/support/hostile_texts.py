"""Texts with injected markup and scripts, and a model that answers with all of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from tests.support.command import EOS, chain_model

SCRIPT = "window.ran=1"
HOSTILE = (
    f"<script>{SCRIPT}</script>",
    f'<img src=x onerror="{SCRIPT}">',
    f"${{{SCRIPT}}}",
    f"{{{{constructor.constructor('{SCRIPT}')()}}}}",
    f"[link](javascript:{SCRIPT})",
    f'<a href="javascript:{SCRIPT}">link</a>',
    f"<svg onload={SCRIPT}>",
    f'<iframe srcdoc="<script>parent.{SCRIPT}</script>"></iframe>',
    "</div></article></template></script><!--",
    f"`${{{SCRIPT}}}` &lt;b&gt; <%= {SCRIPT} %> #{{{SCRIPT}}}",
    f"\"'-->]]><style onload={SCRIPT}>*{{display:none}}</style>",
    "<math><mtext><table><mglyph><style><!--</style>"
    f"<img title='--&gt;<img src=x onerror={SCRIPT}>'>"
    f'<base href="//localhost:9/"><meta http-equiv="refresh" content="0;url=javascript:{SCRIPT}">'
    f'<form action="javascript:{SCRIPT}"><button autofocus onfocus={SCRIPT}>go</button></form>',
)
SAID = "\n".join(HOSTILE)
NAME = f"<img src=x onerror={SCRIPT}>${{{SCRIPT}}}{{{{7*7}}}}'\"&lt;.md"
NAMES = (  # of further files
    f'"><svg onload={SCRIPT}>.md',
    f"'onmouseover='{SCRIPT}' x='.md",
    f"javascript:{SCRIPT}.md",
    f"{{{{constructor.constructor('{SCRIPT}')()}}}}.md",
    f"\u202ecod.<script>{SCRIPT}<\u2215script>.md",
    f"[x](javascript:{SCRIPT})![y](http:\u2215\u2215localhost:9).md",
)
BYTES = "ÀÁõö÷øùúûüýþ"  # the tokenizer's letters for bytes that never occur in UTF-8


def hostile_model(folder: Path) -> Path:
    """A model that answers every chat with SAID. Some of its tokens are entire texts."""
    import torch
    from transformers import LlamaForCausalLM

    chain_model(folder, " ", EOS, context=8192)
    file = folder / "tokenizer.json"
    spec = json.loads(file.read_text("utf-8"))
    vocabulary = spec["model"]["vocab"]
    texts = [f"{text}\n" for text in HOSTILE]
    chain = [vocabulary["\u0120"], *(vocabulary[letter] for letter in BYTES[: len(texts)]), 0]
    assert vocabulary[EOS] == 0
    for letter, text in zip(BYTES, texts, strict=False):
        written = text.replace(" ", "\u0120").replace("\n", "\u010a")
        vocabulary[written] = vocabulary.pop(letter)
    file.write_text(json.dumps(spec), "utf-8")
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[0, chain[0]] = 0
        for token, after in itertools.pairwise(chain):
            model.lm_head.weight[after, token] = 1
    model.save_pretrained(folder)
    return folder
