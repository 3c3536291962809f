"""Texts that heads learn to continue: pieces of files, as of an installed library's sources.

What was written by people, while own_answers.py has what the model writes itself. Of each file a
few pieces, drawn with a seed, so that a large folder is not read whole.
"""

from __future__ import annotations

from pathlib import Path

from engine.prompts.tokenizer import Tokenizer
from engine.research.train.loop import shuffled_order
from engine.research.train.sample_file import Report, SampleError
from engine.research.train.self_distill import TrainingText
from index.workspace.file_filter import Skipped, load, walk

CHUNKS, CHUNK_TOKENS = 100, 256  # pieces, and tokens of each
MAX_CHUNKS_PER_FILE = 4  # pieces of one file at most
PREFIX_FRACTION = 8  # a piece's first 1 / SHOWN is only read


def source_chunks(
    folders: list[Path],
    tokenizer: Tokenizer,
    count: int = CHUNKS,
    length: int = CHUNK_TOKENS,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[TrainingText]:
    """At most `count`, of files that count as text, by git ignored ones too: libraries are often
    installed where git looks away. BadSamples with one line where there are none."""
    try:
        found = [file for folder in folders for file in walk(folder, gitignore=False)]
    except NotADirectoryError as error:
        raise SampleError(str(error)) from error
    texts: list[TrainingText] = []
    read = 0
    for place in shuffled_order(len(found), seed, 0):
        if len(texts) >= count:
            break
        try:
            ids = tokenizer.encode(load(found[place])[0])
        except Skipped:
            continue
        starts = range(0, len(ids) - length // 2, length)
        drawn = sorted(shuffled_order(len(starts), seed, place + 1)[:MAX_CHUNKS_PER_FILE])
        texts += [_text(ids[starts[n] : starts[n] + length]) for n in drawn]
        read += bool(drawn)
    texts = texts[:count]
    if not texts:
        names = ", ".join(map(str, folders))
        raise SampleError(f"{names}: no text of {length // 2} tokens or more in it: name others")
    report(f"{len(texts)} pieces of {read} files")
    return texts


def _text(ids: list[int]) -> TrainingText:
    shown = max(1, len(ids) // PREFIX_FRACTION)
    return TrainingText(ids[:shown], ids[shown:])
