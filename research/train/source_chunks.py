"""Training texts for heads from source files, such as an installed library's.

A few chunks per file are drawn with a seed, so that a large folder is not read completely. The
model's own answers come from `self_distill`.
"""

from __future__ import annotations

from pathlib import Path

from engine.prompts.tokenizer import Tokenizer
from index.workspace.file_filter import Skipped, load, walk
from research.train.loop import shuffled_order
from research.train.sample_file import Report, SampleError
from research.train.self_distill import TrainingText

CHUNKS, CHUNK_TOKENS = 100, 256
MAX_CHUNKS_PER_FILE = 4
PREFIX_FRACTION = 8  # chunk length over prefix length; the prefix is not learned


def source_chunks(
    folders: list[Path],
    tokenizer: Tokenizer,
    count: int = CHUNKS,
    length: int = CHUNK_TOKENS,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[TrainingText]:
    """Draw up to `count` chunks of text files.

    Git-ignored files are included: libraries are often installed in ignored folders. Raises
    SampleError if there are none.
    """
    try:
        files = [file for folder in folders for file in walk(folder, gitignore=False)]
    except NotADirectoryError as error:
        raise SampleError(str(error)) from error
    texts: list[TrainingText] = []
    read = 0
    for number in shuffled_order(len(files), seed, 0):
        if len(texts) >= count:
            break
        try:
            ids = tokenizer.encode(load(files[number])[0])
        except Skipped:
            continue
        starts = range(0, len(ids) - length // 2, length)
        drawn = sorted(shuffled_order(len(starts), seed, number + 1)[:MAX_CHUNKS_PER_FILE])
        texts += [_text(ids[starts[n] : starts[n] + length]) for n in drawn]
        read += bool(drawn)
    texts = texts[:count]
    if not texts:
        names = ", ".join(map(str, folders))
        raise SampleError(f"{names}: no text of {length // 2} tokens or more: give another folder")
    report(f"{len(texts)} pieces of {read} files")
    return texts


def _text(ids: list[int]) -> TrainingText:
    prefix = max(1, len(ids) // PREFIX_FRACTION)
    return TrainingText(ids[:prefix], ids[prefix:])
