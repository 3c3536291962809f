"""What the galleries of VS Code (Marketplace, Open VSX) ask of an extension's package."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
EXTENSION = ROOT / "editors" / "vscode"
MIN_ICON_PIXELS = 128

# https://code.visualstudio.com/api/references/extension-manifest
CATEGORIES = {"AI", "Chat", "Machine Learning", "Programming Languages", "Snippets", "Other"}


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text("utf-8"))
    return found


def packaged() -> set[str]:
    """The paths that .vscodeignore leaves in the package."""
    lines = (EXTENSION / ".vscodeignore").read_text("utf-8").splitlines()
    assert lines[0] == "**", "everything else is left out"
    return {line[1:] for line in lines[1:] if line.startswith("!")}


def test_the_manifest_has_what_the_galleries_show() -> None:
    about = manifest()
    for field in ("name", "displayName", "description", "publisher", "license", "icon", "version"):
        assert about[field], field
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["version"])  # they take no pre-release tags
    assert set(about["categories"]) <= CATEGORIES
    assert re.fullmatch(r"#[0-9a-f]{6}", about["galleryBanner"]["color"])
    lock = json.loads((EXTENSION / "package-lock.json").read_text("utf-8"))
    assert lock["version"] == lock["packages"][""]["version"] == about["version"]


def test_the_declared_api_is_the_one_that_is_compiled_against() -> None:
    about = manifest()
    assert about["engines"]["vscode"] == f"^{about['devDependencies']['@types/vscode']}"


def test_the_package_holds_its_texts_and_pictures() -> None:
    about, held = manifest(), packaged()
    assert {"README.md", "CHANGELOG.md", "LICENSE", "package.json", about["icon"]} <= held
    assert about["main"].removeprefix("./") in held
    readme = (EXTENSION / "README.md").read_text("utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    assert pictures and set(pictures) <= held
    assert not [name for name in pictures if name.endswith(".svg")]  # galleries refuse them
    assert "<img" not in readme


def test_pictures_are_large_enough_and_the_same_as_in_the_docs() -> None:
    data = (EXTENSION / manifest()["icon"]).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", data[16:24])) >= MIN_ICON_PIXELS
    picture = (ROOT / "docs" / "vscode-edit.png").read_bytes()
    assert (EXTENSION / "media" / "edit.png").read_bytes() == picture
