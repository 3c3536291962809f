"""Files converted to Markdown by xberg: pdf and html, each by its suffix.

Nothing is fetched, recognized or cached.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xberg

# `1\.` in place of `1.`, `\>` of `>`, and the mark of a line's end inside a paragraph
ESCAPE = re.compile(r"(?:(?<=^\d)|(?<=^\d\d))\\(?=[.)])|^\\(?=[*>+-])|\\$", re.MULTILINE)
MAX_DEPTH = 2000  # of elements in a page; the text of deeper ones would be left out
STACK_BYTES = 16 << 20  # of each of xberg's threads; enough for as deep a page
# Sphinx puts a ¶ link of the last class after each heading.
LEFT_OUT = ["noscript", "template", "[hidden]", ".headerlink"]
PICTURE = re.compile(r"!\[([^\]\n]*)\]\([^)\n]*\)")


def read(suffix: str, data: bytes) -> str:
    """Return a file as Markdown. Raises RuntimeError for one that xberg cannot read."""
    return plain(extract(suffix, data).content).strip("\n")


def extract(suffix: str, data: bytes) -> xberg.ExtractedDocument:
    """Return what xberg reads from a file. Raises RuntimeError."""
    os.environ["RUST_MIN_STACK"] = str(STACK_BYTES)  # with 2 MiB, deep lists would crash it
    import xberg

    config = xberg.ExtractionConfig(
        use_cache=False,
        disable_ocr=True,
        escape_markdown=False,
        output_format=xberg.OutputFormat("markdown"),
        pages=xberg.PageConfig(extract_pages=True),
        pdf_options=xberg.PdfConfig(
            extract_form_fields=False, hierarchy=xberg.HierarchyConfig(enabled=True)
        ),
        html_options=xberg.ConversionOptions(
            compact_tables=True,
            exclude_selectors=LEFT_OUT,
            strip_tags=["a"],  # addresses would fill passages
            max_depth=MAX_DEPTH,
            preprocessing=xberg.PreprocessingOptions(remove_forms=False),
        ),
        concurrency=xberg.ConcurrencyConfig(max_threads=1),
        max_archive_depth=0,
    )
    file = xberg.ExtractInput(
        kind=xberg.ExtractInputKind.BYTES, bytes=data, filename=f"file.{suffix}"
    )
    result = asyncio.run(xberg.extract(file, config))
    if not result.results:
        raise RuntimeError(result.errors[0].message if result.errors else "no result")
    return result.results[0]


def plain(markdown: str) -> str:
    """Return Markdown with the alternative texts of pictures, and without some escapes."""
    return ESCAPE.sub("", PICTURE.sub(r"\1", markdown))
