"""The parts of the site that are not pages of this folder.

They are pages from elsewhere in the repository, and the reference of the commands, which is made
from the command's own parser.

MkDocs calls these functions (mkdocs.yml). Links are written for readers of the repository; here
they are turned into links between pages, and links to sources into the sources' paths.
"""

from __future__ import annotations

import posixpath
import re
import sys
import textwrap
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {  # a file of the repository -> the site's page
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "editors/neovim/README.md": "neovim.md",
    "editors/vscode/README.md": "vscode.md",
    "engine/drafting/MODEL_CARD.md": "model_card.md",
}
FILES = {"ui/web/icon.svg": "icon.svg", "editors/vscode/media/edit.png": "vscode-inline.png"}
COMMANDS = "commands.md"
COLUMNS = 80  # columns of the helps
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
log = get_plugin_logger("site_hooks")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name headings as code hosts do, so that a link to one works in both places."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that are elsewhere, and the commands."""
    for source, page in (PAGES | FILES).items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, COMMANDS, content=commands()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert a page's text for the site."""
    origins = {site: source for source, site in PAGES.items()}
    source = origins.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return for_site(markdown, source)


def for_site(markdown: str, source: str) -> str:
    """Convert a text of the repository's file `source` for the site.

    Outside fenced code it gets the site's links and tables: Python-Markdown takes a bar in a
    table's code as it is, others want it escaped.
    """
    parts = FENCED.split(markdown)
    for i in range(0, len(parts), 2):
        linked = LINK.sub(lambda match: link(*match.groups(), source), parts[i])
        parts[i] = re.sub(r"^\|.*$", lambda row: unescaped(row[0]), linked, flags=re.MULTILINE)
    return "".join(parts)


def link(mark: str, text: str, target: str, source: str) -> str:
    """Write a link of the repository's file `source` as the site has it.

    With the mark "!" it is a picture. A link that leads nowhere is reported, which ends a strict
    build.
    """
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in target:
        return f"{mark}[{text}]({target})"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = path.removeprefix("docs/") if path.startswith("docs/") else (PAGES | FILES).get(path)
    if not (ROOT / path).exists():
        log.warning(f"{source}: {target} leads to no file of the repository")
    if page:
        return f"{mark}[{text}]({page}{hash_sign}{anchor})"
    if mark:
        log.warning(f"{source}: the site does not have the picture {path}")
    return f"`{path}`" if path.endswith(text.strip("`")) else f"{text} (`{path}`)"


def unescaped(row: str) -> str:
    """Remove the backslashes before bars in the code of a table's row."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row)


def commands() -> str:
    """Make the reference of the commands: the help of each, as it prints it."""
    sys.path.insert(0, str(ROOT))
    try:
        from ui.cli.main import make_parser
    finally:
        sys.path.remove(str(ROOT))
    parts = ["# Commands\n\nWhat `--help` prints. [Terminal](terminal.md) has examples.\n"]
    for parser in walk(make_parser([])):
        parser.formatter_class = partial(parser.formatter_class, width=COLUMNS)
        parser.color = False  # Python 3.14's
        level = "##" if parser.prog.count(" ") < 2 else "###"
        text = "\n".join(map(wrapped, parser.format_help().strip().splitlines()))
        parts.append(f"{level} {parser.prog}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def wrapped(line: str) -> str:
    """Wrap a line of a help within the columns, and indent its continuation as far."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


def walk(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """Yield a parser and all that are below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                yield from walk(below)
