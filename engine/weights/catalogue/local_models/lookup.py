"""The models of all programs, and what a name such as `ollama:qwen2.5-coder:7b` stands for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from engine.weights.catalogue.local_models import hub_cache, llama_cpp, lmstudio, ollama
from engine.weights.catalogue.local_models.local_model import LocalModel, Program
from engine.weights.errors import WeightsError

MAX_MODELS = 2000  # models of a program
MAX_TEMPLATE_BYTES = 1 << 16
MAX_NAMED = 12  # models named in an error
PROGRAMS = (ollama.PROGRAM, lmstudio.PROGRAM, hub_cache.PROGRAM, llama_cpp.PROGRAM)


def local_models() -> list[tuple[Program, LocalModel]]:
    """List the models of all programs on this machine, and entries that cannot be run."""
    return [(program, model) for program in PROGRAMS for model in _listed(program)]


def path_of_local(name: str) -> Path | None:
    """Find the GGUF file or folder that `PROGRAM:NAME` stands for, as of `local_model`."""
    model = local_model(name)
    return model.path if model else None


def ollama_template(name: str) -> str:
    """Read the template that Ollama has for a model; "" where it has none. WeightsError."""
    model = local_model(name)
    if model is None or model.template is None or not model.template.is_file():
        return ""
    with model.template.open("rb") as file:
        return file.read(MAX_TEMPLATE_BYTES).decode("utf-8", "replace")


def local_model(name: str) -> LocalModel | None:
    """Find the model that `PROGRAM:NAME` stands for.

    None for any other kind of name. WeightsError where the program has no such model, or one that
    cannot be run.
    """
    prefix, colon, wanted = name.partition(":")
    program = next(
        (candidate for candidate in PROGRAMS if colon and candidate.prefix == prefix), None
    )
    if program is None:
        return None
    models = _listed(program)
    found = _matching(name, models)
    if not found:
        raise _unknown(name, wanted, program, models)
    return _only(name, found)


def in_hub_cache(repository: str) -> Path | None:
    """Find the GGUF file or folder of a repository that the hub's cache holds in full.

    None where it does not. WeightsError for one that cannot be run or that has several GGUF files.
    """
    name = f"{hub_cache.PROGRAM.prefix}:{repository}"
    found = _matching(name, hub_cache.models_of(repository))
    return _only(name, found).path if found else None


def _only(name: str, found: list[LocalModel]) -> LocalModel:
    """Return the model that was found, if it is one and can be run."""
    if len(found) > 1:
        raise WeightsError(f"{name}: several models: choose {_named(found, ' or ')}")
    if found[0].problem:
        raise WeightsError(f"{found[0].name}: {found[0].problem}")
    return found[0]


def _listed(program: Program) -> list[LocalModel]:
    """List the models of a program; of several with one name, the first.

    A folder of the program that cannot be read is an entry with a problem.
    """
    found: dict[str, LocalModel] = {}
    for folder in program.folders():
        problem = ""
        try:
            for number, model in enumerate(_readable(program, folder)):
                if number == MAX_MODELS:
                    problem = f"over {MAX_MODELS:,} models: not all are listed"
                    break
                found.setdefault(model.name, model)
        except OSError as error:
            problem = f"{error.strerror or error}: {program.setting}"
        except WeightsError as error:
            problem = str(error)
        if problem:
            name = f"{program.prefix}:{folder}"
            found[name] = LocalModel(name, folder, problem=problem)
    return list(found.values())


def _readable(program: Program, folder: Path) -> Iterator[LocalModel]:
    """Yield the models of one folder of a program. OSError where it may not be read."""
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from program.models(folder)


def _matching(name: str, models: list[LocalModel]) -> list[LocalModel]:
    """Find the model of a name or, without one, the models that share it as an alias."""
    wanted = _key(name)
    return (
        [model for model in models if model.name == name]
        or [model for model in models if _key(model.name) == wanted]
        or [model for model in models if wanted in map(_key, model.aliases)]
    )


def _key(name: str) -> str:
    """Write a name as names are compared: without case and the suffix of GGUF files."""
    return name.lower().removesuffix(".gguf")


def _named(models: list[LocalModel], between: str) -> str:
    """Join the names of models for an error, not too many."""
    names = between.join(model.name for model in models[:MAX_NAMED])
    more = len(models) - MAX_NAMED
    return f"{names} and {more} more (`draftline models` lists them)" if more > 0 else names


def _unknown(name: str, wanted: str, program: Program, models: list[LocalModel]) -> WeightsError:
    """Make the error for a name that a program has no model of, with near names."""
    usable = {_key(model.name): model for model in models if not model.problem}
    if not usable:
        where = " or ".join(map(str, program.folders())) or "its folder"
        return WeightsError(f"'{name}': no model of {program.label} in {where}; {program.setting}")
    if not wanted:
        have = _named([*usable.values()], ", ")
        return WeightsError(f"'{name}' names no model: {program.label} has {have}")
    near = difflib.get_close_matches(_key(name), usable, n=3, cutoff=0.6)
    near += [key for key in usable if wanted.lower() in key.partition(":")[2] and key not in near]
    hint = "did you mean" if near else "it has"
    have = _named([usable[key] for key in near or usable], " or " if near else ", ")
    return WeightsError(f"'{name}': {program.label} has no such model: {hint} {have}")
