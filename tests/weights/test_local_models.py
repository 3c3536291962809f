"""Models that other programs have downloaded: where they are, what lists show of them, names that
stand for them, and folders that are broken or hostile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config, Engine, Request, weights
from engine.weights import WeightsError
from engine.weights.catalogue.local_models import (
    Details,
    details_of,
    llama_cpp,
    local_models,
    lookup,
    path_of_local,
)
from engine.weights.gguf.gguf_file import read_gguf
from engine.weights.memory import (
    CONTEXT_TOKENS,
    LIBRARIES_BYTES,
    USUAL_TOKEN_BYTES,
    gguf_memory,
)
from engine.weights.model_list import Machine, local_rows
from tests.conftest import tiny_model
from tests.support.local_models import (
    COMMIT,
    CONTEXT,
    TOKEN_BYTES,
    Kind,
    add_blob,
    add_to_hub,
    add_to_ollama,
    contents,
    empty_home,
    folder_files,
    ollama_manifest,
    write_model,
)
from tests.support.tiny_gguf import write_gguf
from tests.support.weights import fails, left_over


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder."""
    return empty_home(tmp_path / "user", monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file."""
    return write_model(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture
def store(user: Path) -> Path:
    """Ollama's folder."""
    return user / ".ollama" / "models"


@pytest.fixture
def hub(user: Path) -> Path:
    """The hub's cache."""
    return user / ".cache" / "huggingface" / "hub"


def names() -> list[str]:
    """The names of the models that can be run."""
    return [model.name for _, model in local_models() if not model.problem]


def problems() -> dict[str, str]:
    """The entries that cannot be run, and why."""
    return {model.name: model.problem for _, model in local_models() if model.problem}


def copy(model: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(model.read_bytes())
    return place


# --- places -------------------------------------------------------------------------------------


def test_every_program_s_models_are_listed_and_resolve_to_their_files(
    user: Path, store: Path, hub: Path, model: Path
) -> None:
    add_to_ollama(store, ollama_manifest(store, model), tag="latest")
    copy(model, user / ".lmstudio" / "models" / "maker" / "Tiny-GGUF" / "tiny.Q4_K_M.gguf")
    snapshot = add_to_hub(hub, "owner/tiny", folder_files())
    add_to_hub(hub, "owner/tiny-GGUF", {"tiny.gguf": model.read_bytes()})
    copy(model, user / ".cache" / "llama.cpp" / "owner_tiny.gguf")
    found = {one.name: one.path for _, one in local_models()}
    assert list(found) == [
        "ollama:tiny:latest", "lmstudio:maker/Tiny-GGUF", "hub:owner/tiny", "hub:owner/tiny-GGUF",
        "llamacpp:owner_tiny",
    ]  # fmt: skip
    assert found["hub:owner/tiny"] == snapshot and problems() == {}
    for name, path in found.items():
        assert path_of_local(name) == path
        assert path.is_dir() or path.read_bytes() == model.read_bytes()
    also = {
        "ollama:tiny": "ollama:tiny:latest",
        "ollama:Tiny": "ollama:tiny:latest",
        "lmstudio:maker/Tiny-GGUF/tiny.Q4_K_M.gguf": "lmstudio:maker/Tiny-GGUF",
        "lmstudio:maker/tiny-gguf/tiny.q4_k_m": "lmstudio:maker/Tiny-GGUF",
        "hub:owner/tiny-GGUF/tiny.gguf": "hub:owner/tiny-GGUF",
        "llamacpp:owner_tiny.gguf": "llamacpp:owner_tiny",
    }
    for alias, name in also.items():
        assert path_of_local(alias) == found[name], alias
    for other in ("qwen2.5-coder-0.5b", "owner/tiny", "C:\\models\\tiny.gguf", "./ollama:tiny"):
        assert path_of_local(other) is None


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG"])
def test_the_hub_s_cache_may_be_elsewhere(
    user: Path, hub: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    add_to_hub(hub, "owner/default", folder_files())
    cache = user / "caches" / "huggingface" / "hub"
    places = {"HF_HOME": cache.parent, "XDG": cache.parent.parent}
    name = "XDG_CACHE_HOME" if variable == "XDG" else variable
    monkeypatch.setenv(name, str(places.get(variable, cache)))
    add_to_hub(cache, "owner/other", folder_files())
    assert names() == ["hub:owner/other"]


def test_a_named_folder_replaces_the_default_one(
    user: Path, store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, files = user / "other", user / "files"
    for place, name in ((store, "default"), (other, "named")):
        add_to_ollama(place, ollama_manifest(place, model), name)
    copy(model, user / ".cache" / "llama.cpp" / "default.gguf")
    copy(model, files / "named.gguf")
    add_to_hub(files, "owner/new", {"new.gguf": model.read_bytes()})  # as since March 2026
    copy(model, user / ".lmstudio" / "models" / "maker" / "default" / "a.gguf")
    copy(model, user / "chosen" / "maker" / "named" / "a.gguf")
    monkeypatch.setenv("OLLAMA_MODELS", f' "{other}" ')  # Ollama strips quotes and spaces
    monkeypatch.setenv("LLAMA_CACHE", str(files))
    settings = {"downloadsFolder": str(user / "chosen"), "language": "en"}
    (user / ".lmstudio" / "settings.json").write_text(json.dumps(settings))
    assert names() == [
        "ollama:named:1b", "lmstudio:maker/named", "llamacpp:named", "llamacpp:owner/new"
    ]  # fmt: skip


def test_lm_studio_s_pointer_names_its_home(user: Path, model: Path) -> None:
    copy(model, user / ".cache" / "lm-studio" / "models" / "maker" / "old" / "a.gguf")
    copy(model, user / ".lmstudio" / "models" / "maker" / "new" / "a.gguf")
    assert names() == ["lmstudio:maker/new", "lmstudio:maker/old"]
    copy(model, user / "pointed" / "models" / "maker" / "only" / "a.gguf")
    (user / ".lmstudio-home-pointer").write_text(f"{user / 'pointed'}\n")
    assert names() == ["lmstudio:maker/only"]
    for text in ("", "\0", "\xff" * 9999, "/no/such/folder"):
        (user / ".lmstudio-home-pointer").write_bytes(text.encode("latin-1"))
        assert path_of_local("ollama") is None and isinstance(names(), list)


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {}, "~/.cache/llama.cpp"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/llama.cpp"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, "~/Library/Caches/llama.cpp"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/llama.cpp"),
        ("win32", {}, None),
        ("win32", {"LLAMA_CACHE": "/own"}, "/own"),
    ],
)
@pytest.mark.usefixtures("user")
def test_llama_cpp_s_folder_on_each_platform(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], place: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert llama_cpp.folders() == ([Path(place).expanduser()] if place else [])


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("registry.ollama.ai/library", "ollama:tiny:1b"),
        ("ollama.com/library", "ollama:tiny:1b"),
        ("registry.ollama.ai/someone", "ollama:someone/tiny:1b"),
        ("hf.co/someone", "ollama:hf.co/someone/tiny:1b"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "link", "blobs elsewhere", "list", "list of references"])
def test_ollama_s_names_and_kinds_of_manifests(
    store: Path, model: Path, place: str, shown: str, kind: str
) -> None:
    manifest = ollama_manifest(store, model)
    other = {"mediaType": "m", "runner": "mlx", "format": "safetensors", "layers": []}
    if kind == "list":
        manifest = {"manifests": [other, manifest | {"runner": "ollama", "format": "gguf"}]}
    if kind == "list of references":
        digest = add_blob(store, json.dumps(manifest).encode())["digest"]
        manifest = {"manifests": [other, {"runner": "llamacpp", "digest": digest}]}
    if kind == "file":
        add_to_ollama(store, manifest, place=f"manifests/{place}")
    else:
        blob = add_blob(store, json.dumps(manifest).encode())["digest"].replace(":", "-")
        link = add_to_ollama(store, manifest, place=f"manifests-v2/{place}")
        link.unlink()
        link.symlink_to(Path("../../../../blobs") / blob)
    if kind == "blobs elsewhere":  # on another disk
        (store / "blobs").symlink_to((store / "blobs").rename(store.parent / "disk"))
    assert (names(), problems()) == ([shown], {})
    path = path_of_local(shown)
    assert path is not None and path.read_bytes() == model.read_bytes()


# --- running in place ---------------------------------------------------------------------------


def test_a_model_is_used_where_it_is_and_nothing_there_changes(
    home: Path, user: Path, store: Path, hub: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    add_to_ollama(store, ollama_manifest(store, file))
    copy(file, user / ".lmstudio" / "models" / "maker" / "tiny" / "tiny.gguf")
    snapshot = add_to_hub(hub, "owner/tiny", folder_files())
    add_to_hub(hub, "owner/one", {"one.gguf": file.read_bytes()})
    before = contents(user)
    for name in names():
        path = path_of_local(name)
        assert path is not None
        assert weights.locate(name) == weights.find(name) == weights.find(str(path)), name
        assert weights.gguf(name) == (None if path.is_dir() else path)
    assert weights.locate("hub:owner/tiny") == weights.locate("owner/tiny") == snapshot
    assert weights.gguf("owner/one") == path_of_local("hub:owner/one")
    assert weights.remove("ollama:tiny:1b") > 0  # ours, made from theirs
    fails(lambda: weights.remove("hub:owner/tiny"), "not in the cache")
    assert contents(user) == before


@pytest.mark.full
def test_an_engine_takes_the_name_and_answers_as_with_the_path(home: Path, hub: Path) -> None:
    folder = tiny_model(home.parent / "folder")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    add_to_hub(hub, "owner/tiny", files)
    before, texts = contents(hub), []
    for name in (str(folder), "hub:owner/tiny", "owner/tiny"):
        with Engine(Config(model=name, library=False)) as engine:
            assert engine.info.model == name
            texts.append(engine.submit(Request("complete", "def add(", max_tokens=8)).result().text)
    assert texts[0] and texts == texts[:1] * 3 and contents(hub) == before


def test_our_own_copy_of_a_hub_model_comes_first(home: Path, hub: Path) -> None:
    snapshot = add_to_hub(hub, "owner/tiny", folder_files())
    own = home / "models" / "owner--tiny"
    own.mkdir(parents=True)
    (own / "config.json").write_text("{}")
    record = {"format": 1, "name": "owner/tiny", "files": {"config.json": 2}}
    (own / "draftline.json").write_text(json.dumps(record))
    assert weights.find("owner/tiny") == own and weights.find("hub:owner/tiny") == snapshot
    (own / "config.json").unlink()  # no longer complete
    assert weights.find("owner/tiny") == snapshot


def test_what_the_hub_s_cache_holds_in_part_is_not_used(home: Path, hub: Path) -> None:
    files = folder_files()
    index = {"weight_map": {"a": "model.safetensors", "b": "other.safetensors"}}
    cases: dict[str, dict[str, bytes]] = {
        "no-weights": {name: files[name] for name in ("config.json", "tokenizer.json")},
        "a-shard": files | {"model.safetensors.index.json": json.dumps(index).encode()},
        "absent": {},
    }
    for name, some in cases.items():
        add_to_hub(hub, f"owner/{name}", some) if some else None
        assert weights.find(f"owner/{name}") is None  # to be fetched
    snapshot = add_to_hub(hub, "owner/dangling", files)
    (snapshot / "model.safetensors").resolve().unlink()
    assert weights.find("owner/dangling") is None and names() == []


# --- names --------------------------------------------------------------------------------------


def test_an_unknown_name_gets_near_ones(home: Path, store: Path, model: Path) -> None:
    for name, tag in (("qwen2.5-coder", "7b"), ("qwen2.5-coder", "1.5b"), ("llama3.2", "latest")):
        add_to_ollama(store, ollama_manifest(store, model), name, tag)
    add_to_ollama(store, b"broken", "qwen2.5-coder", "3b")
    near = "did you mean ollama:qwen2.5-coder:7b"
    fails(lambda: weights.locate("ollama:qwen2.5-coder:8b"), "ollama:qwen2.5-coder:8b", near)
    fails(lambda: weights.locate("ollama:coder"), "ollama:qwen2.5-coder:1.5b", "did you mean")
    every = ("ollama:llama3.2:latest", "ollama:qwen2.5-coder:1.5b", "ollama:qwen2.5-coder:7b")
    fails(lambda: weights.locate("ollama:"), *every, "'ollama:' names no model: Ollama has")
    fails(lambda: weights.locate("ollama:zzz"), *every, "'ollama:zzz'", "it has")
    fails(lambda: weights.locate("ollama:qwen2.5-coder:3b"), "ollama:qwen2.5-coder:3b", "no JSON")
    with pytest.raises(WeightsError) as caught:
        weights.locate("ollama:zzz")
    assert "qwen2.5-coder:3b" not in str(caught.value)  # it cannot be run


@pytest.mark.parametrize("prefix", ["ollama", "lmstudio", "hub", "llamacpp"])
def test_a_program_without_models_says_where_they_would_be(
    home: Path, user: Path, prefix: str
) -> None:
    for name in (f"{prefix}:", f"{prefix}:tiny", f"{prefix}:../../etc/passwd", f"{prefix}:/etc"):
        fails(lambda name=name: weights.locate(name), name, "no model of", str(user))
    assert left_over(home) == []


def test_several_models_of_one_name_are_named(
    home: Path, user: Path, hub: Path, model: Path
) -> None:
    place = user / ".lmstudio" / "models" / "maker" / "tiny"
    for name in ("tiny-Q4_0.gguf", "tiny-Q8_0.gguf", "sub/tiny-F16.gguf", "mmproj-tiny-F16.gguf"):
        copy(model, place / name)
    long = [f"lmstudio:maker/tiny/{file}" for file in ("sub/tiny-F16", "tiny-Q4_0", "tiny-Q8_0")]
    assert names() == [f"{name}.gguf" for name in long]  # a projector is no model
    fails(lambda: weights.locate("lmstudio:maker/tiny"), "several models", *long)
    assert weights.gguf(long[1]) == place / "tiny-Q4_0.gguf"
    for name in ("x.gguf", "X.gguf"):
        path = copy(model, user / ".cache" / "llama.cpp" / name)
        assert path_of_local(f"llamacpp:{path.stem}") == path
    fails(lambda: path_of_local("llamacpp:x.GGUF"), "llamacpp:X or llamacpp:x")
    add_to_hub(hub, "o/n", {"a.gguf": model.read_bytes(), "b.gguf": model.read_bytes()})
    fails(lambda: weights.locate("o/n"), "several models", "hub:o/n/a.gguf", "hub:o/n/b.gguf")
    add_to_hub(hub, "o/both", folder_files() | {"a.gguf": model.read_bytes()})
    assert weights.locate("o/both").is_dir()


def test_a_long_list_is_cut_in_an_error(home: Path, user: Path, model: Path) -> None:
    for number in range(30):
        copy(model, user / ".cache" / "llama.cpp" / f"model-{number:02}.gguf")
    fails(lambda: weights.locate("llamacpp:"), "llamacpp:model-00", "18 more", "draftline models")


# --- broken and hostile folders -----------------------------------------------------------------

Break = Callable[[Path, dict[str, Any]], Any]


def with_digest(digest: object) -> Break:
    return lambda store, manifest: manifest["layers"][0].update(digest=digest)


def with_layer(kind: str) -> Break:
    layer = {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": "x"}
    return lambda store, manifest: manifest["layers"].append(layer)


def remove_blob(store: Path, manifest: dict[str, Any]) -> None:
    (store / "blobs" / manifest["layers"][0]["digest"].replace(":", "-")).unlink()


def link_blob(store: Path, manifest: dict[str, Any]) -> None:
    path = store / "blobs" / manifest["layers"][0]["digest"].replace(":", "-")
    path.symlink_to(path.rename(store.parent / "outside"))


def cut_blob(store: Path, manifest: dict[str, Any]) -> None:
    os.truncate(store / "blobs" / manifest["layers"][0]["digest"].replace(":", "-"), 100)


BROKEN_MANIFESTS: dict[str, tuple[Break, str]] = {
    "a path as digest": (with_digest("sha256:../../../../../etc/passwd"), "no SHA-256"),
    "an absolute path as digest": (with_digest("/etc/passwd"), "no SHA-256"),
    "a digest with a slash": (with_digest(f"sha256:{'a' * 60}/../"), "no SHA-256"),
    "a digest and a line": (with_digest(f"sha256:{'a' * 64}\n"), "no SHA-256"),
    "a number as digest": (with_digest(7), "no SHA-256"),
    "a blob that is missing": (remove_blob, "missing or incomplete"),
    "a blob cut short": (cut_blob, "missing or incomplete"),
    "a blob that is a link": (link_blob, "a link out of Ollama's folder"),
    "an adapter": (with_layer("adapter"), "adapter"),
    "two models": (with_layer("model"), "split GGUF"),
    "no model": (lambda store, manifest: manifest["layers"].pop(0), "no GGUF file"),
    "no layers": (lambda store, manifest: manifest.update(layers=None), "no GGUF file"),
    "layers of numbers": (lambda store, manifest: manifest.update(layers=[1, []]), "no GGUF file"),
    "a list of a digest of nothing": (
        lambda store, manifest: manifest.update(manifests=[{"digest": f"sha256:{'b' * 64}"}]),
        "no such file",
    ),
}


@pytest.mark.parametrize("case", BROKEN_MANIFESTS)
def test_a_broken_manifest_costs_one_line(store: Path, model: Path, case: str) -> None:
    change, why = BROKEN_MANIFESTS[case]
    add_to_ollama(store, ollama_manifest(store, model), "fine")
    other = write_model(store.parent / "other.gguf", file_type=2)
    manifest = ollama_manifest(store, other)
    change(store, manifest)
    add_to_ollama(store, manifest, "broken")
    assert names() == ["ollama:fine:1b"] and list(problems()) == ["ollama:broken:1b"]
    assert why in problems()["ollama:broken:1b"]
    fails(lambda: path_of_local("ollama:broken:1b"), "ollama:broken:1b", why, "ollama pull")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "a list"),
        (b'{"layers": [' + b"{}," * 400_000 + b"{}]}", "over 1 MiB"),
    ],
)
def test_a_manifest_that_is_none_costs_one_line(store: Path, data: bytes, why: str) -> None:
    add_to_ollama(store, data)
    fails(lambda: path_of_local("ollama:tiny:1b"), "ollama:tiny:1b", why)


def test_links_that_lead_out_and_loops_cost_one_line(
    user: Path, store: Path, hub: Path, model: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(model.read_bytes())
    manifest = add_to_ollama(store, b"")
    manifest.unlink()
    manifest.symlink_to(secret)
    loop = manifest.with_name("loop")
    loop.symlink_to(loop)
    os.mkfifo(manifest.with_name("pipe"))  # to read it would block
    snapshot = add_to_hub(hub, "owner/out", {"a.gguf": b"a"})
    (snapshot / "a.gguf").unlink()
    (snapshot / "a.gguf").symlink_to(secret)
    (snapshot / "loop.gguf").symlink_to("loop.gguf")
    (snapshot / "up").symlink_to("../..")
    away = add_to_hub(hub, "owner/away", folder_files())
    (tmp_path / "elsewhere").mkdir()
    away.rename(tmp_path / "elsewhere" / COMMIT)
    away.symlink_to(tmp_path / "elsewhere" / COMMIT)
    ref = add_to_hub(hub, "owner/ref", folder_files())
    (ref.parents[1] / "refs" / "main").write_text(f"../../models--owner--out/snapshots/{COMMIT}")
    (user / ".cache" / "llama.cpp").symlink_to("llama.cpp")
    assert names() == ["hub:owner/ref"]  # its only snapshot
    why = problems()
    assert set(why) == {
        "ollama:tiny:1b", "ollama:tiny:loop", "ollama:tiny:pipe", "hub:owner/out/a.gguf",
        "hub:owner/out/loop.gguf", "hub:owner/away", f"llamacpp:{user / '.cache' / 'llama.cpp'}",
    }  # fmt: skip
    assert "a link out of" in why["hub:owner/out/a.gguf"] and "link out" in why["ollama:tiny:1b"]
    assert all("\n" not in one for one in why.values())


def test_links_of_the_user_in_lm_studio_s_folder_are_followed(user: Path, model: Path) -> None:
    folder = user / ".lmstudio" / "models"
    (folder / "maker" / "linked").mkdir(parents=True)
    (folder / "maker" / "linked" / "a.gguf").symlink_to(model)
    (folder / "outside").symlink_to(model.parent.parent)
    (folder / "loop").symlink_to(folder)
    (folder / "maker" / "loop").symlink_to(folder)
    (folder / "maker" / "itself").symlink_to("itself")
    (folder / "maker" / "linked" / "loop.gguf").symlink_to("loop.gguf")
    found = [name for name in names() if not name.startswith("lmstudio:outside/")]
    assert found == ["lmstudio:maker/linked/a.gguf"]
    assert list(problems()) == ["lmstudio:maker/linked/loop.gguf"]


def test_split_files_are_one_model_by_their_first_part(home: Path, user: Path, model: Path) -> None:
    place = user / ".lmstudio" / "models" / "maker" / "big"
    place.mkdir(parents=True)
    write_gguf(place / "big.gguf", split=9)
    copy(model, place / "small-00001-of-00001.gguf")  # whole
    parts = sorted(path.name for path in place.glob("big-*"))
    first = f"lmstudio:maker/big/{parts[0]}"
    assert len(parts) > 2 and names() == [first, "lmstudio:maker/big/small-00001-of-00001.gguf"]
    facts = details_of(place / parts[0])
    assert facts and facts.bytes == sum((place / name).stat().st_size for name in parts)
    assert weights.locate(first).is_dir()
    later = str(place / parts[1])
    fails(lambda: weights.locate(later), later, "name the first")
    (place / parts[2]).unlink()
    assert list(problems()) == [first] and f"part {parts[2]} is missing" in problems()[first]
    fails(lambda: weights.locate(first), first, parts[2], "download it again")


def test_what_cannot_run_is_said_in_the_list(home: Path, store: Path, tmp_path: Path) -> None:
    """Where using it would be refused by its architecture; Ollama's names of some are known."""
    for name in ("gemma2", "qwen2", "gptoss"):
        file = write_model(tmp_path / f"{name}.gguf", architecture=name)
        add_to_ollama(store, ollama_manifest(store, file), name)
    rows, lines = local_rows(Machine(1 << 40, 1 << 40, 0, False))
    assert [row.name for row in rows] == ["ollama:gptoss:1b", "ollama:qwen2:1b"]
    assert lines == ["ollama:gemma2:1b: not supported: gemma2"]
    fails(lambda: weights.locate("ollama:gemma2:1b"), "gemma2", "not supported")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"quantization": {"bits": 4}, "quantization_config": {"bits": 4}}, "MLX"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"quantization_config": {"quant_method": ["x"] * 999}}, "quantized by"),
    ],
)
def test_quantized_folders_are_said_not_to_be_supported(
    hub: Path, config: dict[str, Any], why: str
) -> None:
    add_to_hub(hub, "owner/small", folder_files(**config))
    fails(lambda: path_of_local("hub:owner/small"), "hub:owner/small", why, "GGUF")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("sha256:" + "0" * 64),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["layers", "manifests", "digest", "mediaType", "runner", "size"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(value=JSON)
def test_no_manifest_settings_or_config_crashes_the_list(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    folder = tmp_path_factory.mktemp("user")
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        user = empty_home(folder, patch)
        add_to_ollama(user / ".ollama" / "models", text)
        (user / ".lmstudio").mkdir()
        (user / ".lmstudio" / "settings.json").write_bytes(text)
        files = folder_files() | {"config.json": text, "model.safetensors.index.json": text}
        add_to_hub(user / ".cache" / "huggingface" / "hub", "owner/tiny", files)
        for _, one in local_models():
            assert "\n" not in str(WeightsError(one.problem))
            if not one.problem:
                assert isinstance(details_of(one.path), Details | None)


def test_a_folder_with_too_much_in_it_is_one_line(
    user: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(model, user / ".cache" / "llama.cpp" / "first.gguf").parent
    for number in range(20):
        (folder / f"{number}.gguf").symlink_to("first.gguf")
    monkeypatch.setattr(lookup, "MAX_MODELS", 5)
    assert len(names()) == 5 and "5 models" in problems()[f"llamacpp:{folder}"]


# --- details ------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("file_type", "name"), [(0, "F32"), (1, "F16"), (7, "Q8_0"), (15, "Q4_K_M"), (32, "BF16")]
)
def test_the_quantization_is_the_file_type(
    tmp_path: Path, file_type: int, name: str, late: bool
) -> None:
    path = write_model(tmp_path / "a.gguf", file_type, late)
    keys = list(read_gguf(path).fields)
    assert (keys[-1] == "general.file_type") == late  # after the vocabulary
    size = path.stat().st_size
    assert details_of(path) == Details(size, name, "qwen2", "7B", CONTEXT, TOKEN_BYTES)


def test_a_late_file_type_is_found_wherever_a_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "a.gguf", 17, late=True)
    monkeypatch.setattr(sys.modules[Details.__module__], "HEAD_BYTES", 1200)
    at = path.read_bytes().index(b"general.file_type") - 1200
    for size in range(at - 20, at + 40):
        monkeypatch.setattr(sys.modules[Details.__module__], "CHUNK_BYTES", size)
        found = details_of(path)
        assert found is not None and found.quantization == "Q5_K_M", size


@pytest.mark.parametrize("file_type", [None, 4, 9999])  # 4: no longer in use
def test_without_a_known_file_type_it_is_the_type_of_most_bytes(
    tmp_path: Path, file_type: int | None
) -> None:
    tensors = {
        "a": (8, Kind.Q4_0), "b": (6, Kind.Q8_0), "c": (1, Kind.F32), "d": (3, Kind.Q4_0)
    }  # fmt: skip
    found = details_of(write_model(tmp_path / "a.gguf", file_type, tensors=tensors))
    assert found is not None and found.quantization == "Q8_0"  # 1,632 bytes; Q4_0: 1,584


@pytest.mark.parametrize(
    "fields",
    [{"type": "mmproj"}, {"type": "adapter"}, {"architecture": "clip"}, {"pooling": 1}],
)
def test_what_is_no_language_model_has_no_details(tmp_path: Path, fields: dict[str, Any]) -> None:
    if fields.get("pooling"):
        from gguf.constants import PoolingType

        fields = {"pooling": PoolingType.MEAN}
    assert details_of(write_model(tmp_path / "a.gguf", **fields)) is None


def test_details_of_a_folder(tmp_path: Path) -> None:
    def of(**config: Any) -> Details | None:
        for name, data in folder_files(**config).items():
            (tmp_path / name).write_bytes(data)
        return details_of(tmp_path)

    assert of() == Details(1000, "BF16", "qwen2", "", CONTEXT, TOKEN_BYTES)
    assert of(architectures=["BertModel"]) is None and of(architectures=None) is None
    sizes = {"num_hidden_layers": -1, "max_position_embeddings": 1e30, "torch_dtype": ["x"] * 99}
    found = of(**sizes)
    assert found is not None and found.token_bytes == found.context == 0
    assert len(found.quantization) < 20


def test_layers_may_differ_in_heads(tmp_path: Path) -> None:
    found = details_of(write_model(tmp_path / "a.gguf", kv_heads=[2, 1]))
    assert found is not None and found.token_bytes == TOKEN_BYTES


def test_only_the_first_bytes_of_a_file_are_read(tmp_path: Path) -> None:
    path = write_model(tmp_path / "a.gguf")
    os.truncate(path, 1 << 40)  # sparse: reading it would take an hour
    found = details_of(path)
    assert found is not None and found.bytes == 1 << 40 and found.quantization == "Q4_K_M"
    late = write_model(tmp_path / "b.gguf", None)
    os.truncate(late, 1 << 40)
    found = details_of(late)
    assert found is not None and found.quantization == "F32"


@settings(max_examples=50)
@given(data=st.data())
def test_a_damaged_file_has_details_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    original = write_model(path, data.draw(st.sampled_from([None, 15])), late=True).read_bytes()
    damaged = bytearray(original[: data.draw(st.integers(0, len(original)))])
    for at in data.draw(st.lists(st.integers(0, 600), max_size=4)):
        if at < len(damaged):
            damaged[at] = data.draw(st.sampled_from([0, 1, 8, 9, 127, 255]))
    path.write_bytes(damaged)
    try:
        assert isinstance(details_of(path), Details | None)
    except WeightsError as error:
        assert str(path) in str(error) and "\n" not in str(error)


# --- memory -------------------------------------------------------------------------------------


@given(size=st.integers(1, 1 << 40), token=st.integers(0, 1 << 20), context=st.integers(0, 1 << 20))
def test_memory_is_the_file_and_the_cache_of_a_usual_context(
    size: int, token: int, context: int
) -> None:
    needed = gguf_memory(size, token, context)
    tokens = CONTEXT_TOKENS if context == 0 else min(context, CONTEXT_TOKENS)
    cache = (token or USUAL_TOKEN_BYTES) * tokens
    assert abs(needed - 1.05 * size - LIBRARIES_BYTES - cache) <= 1 + size / 2**50
    assert needed <= gguf_memory(size + 1, token, context) + 1
