"""Fill in the middle (FIM): the window of text around the cursor, and the prompt for it.

What a keystroke leaves unchanged stands first, so that it stays in the KV cache: the window starts
at a fixed line, and where the format shows several files, most of the text after the cursor is
shown as one of them. The caller chooses the snippets of other files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from engine.editing.edits import plain

if TYPE_CHECKING:
    from engine.prompts.prompt_encoder import PromptEncoder
    from engine.prompts.tokenizer import Tokenizer
    from engine.records import Request

NEAR_TOKENS = 24  # tokens below the cursor's line that are read again at each keystroke
BLOCK_LINES = 4  # lines; the text farther after the cursor consists of blocks of them
MAX_TOKEN_CHARS = 16  # characters, assumed; bounds how much text is tokenised to fill a window
REPOSITORY_NAME = "workspace"
UNNAMED_FILE = "filename"  # stands for the path of a text that has none


@dataclass(frozen=True, slots=True)
class FimFormat:
    """The prompts of a family of models: prefix, suffix and middle, each after its mark.

    Their order is prefix, suffix, middle (PSM) or suffix, prefix, middle (SPM).
    """

    prefix: str
    suffix: str
    middle: str = ""  # "": the answer follows the prefix at once
    suffix_first: bool = False
    repository: str = ""  # precedes the repository's name; "": the format has none
    file: str = ""  # precedes the path and text of each file; "": only one file is shown
    model: str = ""  # part of the model's name, where other models have the same marks
    untrained: str = ""  # a token of models that have the marks and never learnt their use

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that a model of this format must have."""
        return tuple(name for name in (self.prefix, self.suffix, self.middle) if name)


# The first one that fits a model is used. Sources: the models' cards and technical reports.
FORMATS = (
    FimFormat(  # Qwen2.5-Coder, Qwen3-Coder; with one file: CodeGemma, Granite 4
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        repository="<|repo_name|>",
        file="<|file_sep|>",
    ),
    FimFormat(
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        suffix_first=True,
        file="<filename>",
        model="mellum",
    ),
    FimFormat("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder2, Granite 3
    FimFormat("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    FimFormat("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    FimFormat("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM-4
    FimFormat(  # Seed-Coder
        "<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", suffix_first=True
    ),
    # Codestral. All of Mistral's later vocabularies have the marks, whatever the model learnt.
    FimFormat("[PREFIX]", "[SUFFIX]", suffix_first=True, untrained="[IMG]"),
)
PADDING = frozenset({"<|fim_pad|>", "<fim_pad>", "[MIDDLE]"})
FIM_MARKS = PADDING.union(*(format.marks for format in FORMATS))
FILE_MARKS = frozenset({  # marks that precede a repository's or a file's name
    "<|repo_name|>", "<|file_sep|>",  # Qwen2.5-Coder, Qwen3-Coder
    "<repo_name>", "<file_sep>",  # StarCoder2
    "<reponame>", "<filename>",  # StarCoder, Granite 3, Mellum
    "<|reponame|>", "<|filename|>",  # Granite 4
    "<|file_separator|>",  # CodeGemma
})  # fmt: skip
END_OF_MIDDLE = "▁<EOT>"  # CodeLlama's mark


def fim_format(tokenizer: Tokenizer) -> FimFormat | None:
    """Return the format of a model; None where it does not support FIM."""
    for format in FORMATS:
        known = all(name in tokenizer.control for name in format.marks)
        if known and format.model in tokenizer.source and format.untrained not in tokenizer.control:
            return format
    return None


def ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of every mark of another part or file.

    They end a completion next to the model's own end tokens.
    """
    names = FIM_MARKS | FILE_MARKS | {END_OF_MIDDLE}
    return frozenset(tokenizer.control[name] for name in names if name in tokenizer.control)


def infill_ids(request: Request, encoder: PromptEncoder) -> list[int]:
    """Return the ids of a `complete` request with a suffix.

    A model without FIM continues the prefix; one without file marks gets no snippets. Of a file's
    text after the cursor, what would be read again at each keystroke is the nearest lines.
    """
    control, encode = encoder.tokenizer.control, encoder.encode
    known = fim_format(encoder.tokenizer)
    if known is None:
        return encode(plain(request.text))
    path = PurePath(request.path).name or UNNAMED_FILE
    near, files = plain(request.suffix or ""), [*request.snippets]
    if request.path and known.file in control and not (known.suffix_first or request.suffix_first):
        near, rest = _parts(near, encoder.tokenizer.encode)
        files += [(path, rest)] if rest.strip() else []
    ids: list[int] = []
    if files and known.file in control:
        if known.repository in control:
            ids += [control[known.repository], *encode(f"{REPOSITORY_NAME}\n")]
        for name, text in files:
            ids += [control[known.file], *encode(f"{name}\n{plain(text).rstrip()}\n")]
        ids += [control[known.file], *encode(f"{path}\n")]
    before, after = encode(plain(request.text)), encoder.encode_inside(near)
    prefix, suffix = control[known.prefix], control[known.suffix]
    middle = [control[known.middle]] if known.middle else []
    if known.suffix_first:
        return [*ids, suffix, *after, prefix, *before, *middle]
    if request.suffix_first:
        return [*ids, prefix, suffix, *after, *middle, *before]
    return [*ids, prefix, *before, suffix, *after, *middle]


def _parts(suffix: str, encode: Callable[[str], list[int]]) -> tuple[str, str]:
    """Return the text next to the cursor, and the text after it that can be shown before it.

    The cursor's own line decides about neither, so that both stay the same while it is typed. The
    second consists of blocks where the nearest lines reach the start of one.
    """
    own = suffix.find("\n") + 1 or len(suffix)
    near = own + _stop(suffix[own:], 0, NEAR_TOKENS, encode)
    return suffix[:near], suffix[whole_blocks(suffix, own, near) :] if near < len(suffix) else ""


def whole_blocks(text: str, offset: int, stop: int) -> int:
    """Return the end of the last block of lines, counted from the text's end, that fits.

    It is `stop` itself if none does.
    """
    excess = -text.count("\n", stop) % BLOCK_LINES
    end = stop
    for _ in range(excess):
        end = text.rfind("\n", offset, end - 1) + 1 or offset
    return end if end > offset else stop


def window(
    text: str, offset: int, before: int, after: int, encode: Callable[[str], list[int]]
) -> tuple[int, int]:
    """Return the code points (start, stop) around `offset` to show.

    At most `before` and `after` tokens are shown. `start` is at a line whose number is a multiple
    of at least 8, so that it stays put while the user types; lines too long for that are cut at a
    multiple of 256 characters.
    """
    return _start(text, offset, before, encode), _stop(text, offset, after, encode)


def _start(text: str, offset: int, capacity: int, encode: Callable[[str], list[int]]) -> int:
    step = 8 if capacity < 512 else 16 if capacity < 1024 else 32
    line = text.rfind("\n", 0, offset) + 1
    starts = [_above(text, line, text.count("\n", 0, offset) % step)]
    left, below = capacity, offset
    while True:  # tokenise each part once; the whole may need more tokens than its parts
        start = starts[-1]
        left -= (
            len(encode(text[start:below])) if below - start <= MAX_TOKEN_CHARS * left else left + 1
        )
        if left < 0 or start == 0:
            break
        below = start
        starts.append(_above(text, start, step))
    if left < 0:
        starts.pop()
    while starts:
        if len(encode(text[starts[-1] : offset])) <= capacity:
            return starts[-1]
        starts.pop()
    return _inside(text, max(line, offset - MAX_TOKEN_CHARS * capacity), offset, capacity, encode)


def _above(text: str, start: int, lines: int) -> int:
    """Return the start of the line `lines` above the one that starts at `start`."""
    for _ in range(lines):
        start = text.rfind("\n", 0, max(start - 1, 0)) + 1
    return start


def _inside(
    text: str, start: int, offset: int, capacity: int, encode: Callable[[str], list[int]]
) -> int:
    """Return a start inside a line that is too long to show whole.

    It is a multiple of 256, or less where even that does not fit.
    """
    while start < offset and len(encode(text[start:offset])) > capacity:
        half = (start + offset + 1) // 2
        anchor = -(-half // 256) * 256
        start = anchor if anchor < offset else half
    return start


def _stop(text: str, offset: int, capacity: int, encode: Callable[[str], list[int]]) -> int:
    """Return the end of the last whole line that fits, or a place inside the first one."""
    stop, left = offset, capacity
    while stop < len(text):
        end = text.find("\n", stop) + 1 or len(text)
        left -= len(encode(text[stop:end])) if end - stop <= MAX_TOKEN_CHARS * left else left + 1
        if left < 0:
            break
        stop = end
    while stop > offset and len(encode(text[offset:stop])) > capacity:
        stop = text.rfind("\n", offset, stop - 1) + 1 or offset
    if stop > offset or stop == len(text):
        return stop
    near = text[offset : offset + MAX_TOKEN_CHARS * capacity].split("\n", 1)[0]
    while len(encode(near)) > capacity:
        near = near[: len(near) // 2]
    return offset + len(near)
