"""Speculative decoding with two models: every function of research/two_models.py once.

    python examples/two_models.py [DRAFT [TARGET]]

DRAFT and TARGET are model names or folders with the same tokenizer.
"""

from __future__ import annotations

import sys

from research.two_models import agreement, generate_and_check, load, speculative_decoding

names = [*sys.argv[1:], *("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")[len(sys.argv) - 1 :]]
draft_model, target_model = names
pair = load(draft_model, target_model)
prompts = [
    "def add(left, right):",
    "for number in range(10):\n",
]  # of different lengths, so they are padded

print("Would both models write the same next 8 tokens?")
print(generate_and_check(pair, prompts, 8) or "Not in every row.")

print("\nOn how many tokens do they agree?")
print(agreement(pair, prompts[0], 20, print), "of 20")

print("\nThe target model's own text, in fewer passes:")
greedy = speculative_decoding(pair, prompts, 40)
for text in greedy.texts:
    print("---", text, sep="\n")
print(f"--- {sum(map(len, greedy.tokens))} tokens, {greedy.passes} passes over {len(prompts)} rows")

print("\nSampled; the same seed gives the same text, however long the drafts are:")
for draft_tokens in (0, 5):
    sampled = speculative_decoding(pair, prompts[:1], 30, draft_tokens, temperature=0.8, seed=1)
    print(f"{sampled.passes} passes:", sampled.texts[0], sep="\n")
