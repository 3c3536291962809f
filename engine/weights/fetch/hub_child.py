"""Run as a process by hub.py, never imported: the only place that talks to the hub.

Arguments: "list" repository, which prints its revision and files as JSON; or "get" repository
revision folder file..., which downloads. A failure is one line on stderr and exit status 1.
"""

from __future__ import annotations

import json
import sys


def main(verb: str, repository: str, *rest: str) -> None:
    """List or download. Imports are inside, so that their failure is reported in one line too."""
    from huggingface_hub import HfApi, hf_hub_download

    if verb == "list":
        info = HfApi().model_info(repository, files_metadata=True)
        listed = {
            file.rfilename: [file.size, file.lfs.sha256 if file.lfs else None]
            for file in info.siblings or []
        }
        print(json.dumps({"revision": info.sha, "files": listed}))
        return
    revision, folder, *files = rest
    for name in files:
        hf_hub_download(repository, name, revision=revision, local_dir=folder)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # the libraries share no base class; the parent expects one line
        lines = str(error).strip().splitlines() or [""]
        sys.exit(f"{type(error).__name__}: {lines[0]}")
