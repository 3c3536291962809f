"""Models of Ollama: a manifest for each name, which names the GGUF among the blobs.

    manifests/HOST/NAMESPACE/MODEL/TAG       a JSON file
    manifests-v2/HOST/NAMESPACE/MODEL/TAG    newer versions: a link to it, or a copy
    blobs/sha256-DIGEST                      what manifests name, manifests themselves included

A manifest has layers, or a list of manifests, one for each runtime. https://docs.ollama.com/faq
says where the folder is, Ollama's `manifest` package what is in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.weights.catalogue.local_models.local_model import (
    LocalModel,
    Program,
    entries,
    home_folder,
    read_json,
)
from engine.weights.catalogue.local_models.repository import is_inside
from engine.weights.errors import WeightsError, shown

MAX_MANIFEST_BYTES = 1 << 20
LAYER = "application/vnd.ollama.image."
PUBLIC_HOSTS = ("registry.ollama.ai", "ollama.com")
RUNNERS = ("", "ollama", "llamacpp")  # those that run GGUF files
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")  # part of a name; a host may have a port
DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


def folders() -> list[Path]:
    """Return OLLAMA_MODELS, or the user's folder and, on Linux, that of Ollama's service."""
    if moved := os.environ.get("OLLAMA_MODELS", "").strip("\"' "):  # as Ollama reads it
        return [Path(moved)]
    service = [Path("/usr/share/ollama/.ollama/models")] if sys.platform == "linux" else []
    return [home_folder(".ollama", "models"), *service]


def models(store: Path) -> Iterator[LocalModel]:
    """Yield the models of an Ollama folder."""
    for root in (store / "manifests-v2", store / "manifests"):
        for host in entries(root):
            for namespace in entries(host):
                for model in entries(namespace):
                    for tag in entries(model):
                        parts = tag.relative_to(root).parts
                        if all(map(PART.fullmatch, parts)):
                            yield _model(store, tag, *parts)


def _model(store: Path, manifest: Path, host: str, space: str, model: str, tag: str) -> LocalModel:
    """Make the model of one manifest."""
    public = host in PUBLIC_HOSTS
    where = "" if public and space == "library" else f"{space}/" if public else f"{host}/{space}/"
    short = f"{PROGRAM.prefix}:{where}{model}"
    aliases = (short,) if tag == "latest" else ()
    try:
        blob, template = _blobs_of_model(store, manifest)
        return LocalModel(f"{short}:{tag}", blob, aliases, template=template)
    except WeightsError as error:
        problem = f"{error}: run `ollama pull {where}{model}:{tag}` again"
        return LocalModel(f"{short}:{tag}", manifest, aliases, problem)


def _blobs_of_model(store: Path, manifest: Path) -> tuple[Path, Path | None]:
    """Find the GGUF file that a manifest names, and its template, if it has one.

    WeightsError where there is none that can be run.
    """
    if not is_inside(manifest, store) and not is_inside(manifest, store / "blobs"):
        raise WeightsError("its manifest is a link out of Ollama's folder")
    layers = _layers(store, read_json(manifest, MAX_MANIFEST_BYTES))
    weights = [layer for layer in layers if layer.get("mediaType") == f"{LAYER}model"]
    if any(layer.get("mediaType") == f"{LAYER}adapter" for layer in layers):
        raise WeightsError("it has an adapter (LoRA), which is not supported")
    if len(weights) != 1:
        what = "a split GGUF file" if weights else "no GGUF file"
        raise WeightsError(f"it has {what}, which is not supported")
    blob = _blob(store, weights[0].get("digest"))
    size = weights[0].get("size")
    if not blob.is_file() or blob.stat().st_size != size:
        raise WeightsError(f"its file {blob.name[:19]}... is missing or incomplete")
    templates = [layer for layer in layers if layer.get("mediaType") == f"{LAYER}template"]
    return blob, _blob(store, templates[0].get("digest")) if templates else None


def _layers(store: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """List the layers of a manifest; of a list of manifests, those of the one for GGUF files."""
    for one in _objects(manifest, "manifests"):
        if one.get("runner", "") in RUNNERS and one.get("format", "gguf") == "gguf":
            if "digest" in one and "layers" not in one:  # it is a blob of its own
                one = read_json(_blob(store, one["digest"]), MAX_MANIFEST_BYTES)
            return _objects(one, "layers")
    return _objects(manifest, "layers")


def _objects(manifest: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """List the objects of an array of a manifest."""
    found = manifest.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _blob(store: Path, digest: object) -> Path:
    """Find the blob of a digest, which comes from a file and may be anything."""
    match = DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise WeightsError(f"its manifest names {shown(digest)}, which is no SHA-256")
    blob = store / "blobs" / f"sha256-{match[1]}"
    if not is_inside(blob, blob.parent):
        raise WeightsError(f"its file {blob.name[:19]}... is a link out of Ollama's folder")
    return blob


PROGRAM = Program("ollama", "Ollama", folders, models, "OLLAMA_MODELS names its folder")
