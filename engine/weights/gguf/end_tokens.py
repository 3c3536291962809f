"""The control tokens that end an answer, by name."""

from __future__ import annotations

from collections.abc import Mapping

# Control tokens that end a turn or a text, which files do not always say.
TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end|>", "<end_of_turn>", "<turn|>",
    "<|END_OF_TURN_TOKEN|>", "<|return|>", "<|call|>", "<|tool_response>", "<|endoftext|>",
    "<|end_of_text|>",
)  # fmt: skip
PART_ENDS = {"<|end|>": "<|return|>"}  # where both exist, the first ends only a part of an answer


def turn_ends(control: Mapping[str, int]) -> list[int]:
    """List the ids of the control tokens, given by name, that are known to end a turn."""
    ends = [name for name in TURN_ENDS if name in control and PART_ENDS.get(name) not in control]
    return [control[name] for name in ends]
