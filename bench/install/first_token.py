"""The child of `python -m bench install`.

It imports the installed engine, puts the demo's request to a model, and prints the seconds since
its
parent started it, and its memory, as JSON.
"""

from __future__ import annotations

import json
import sys
import time


def main(started: float, model: str) -> None:
    from engine import Config, Engine, Request, Step

    found = {"import_s": time.time() - started, "import_bytes": memory()}
    from engine.editing.edits import line_span
    from ui.demo import INSTRUCTION, LINES, SAMPLE

    text = SAMPLE.read_text("utf-8")
    selection = line_span(text, *LINES)
    request = Request("edit", text, path=SAMPLE.name, selection=selection, instruction=INSTRUCTION)
    with Engine(Config(model=model, device="cpu")) as engine:
        job = engine.submit(request, speculation=False)
        next(event for event in job if isinstance(event, Step))
        found |= {"token_s": time.time() - started, "token_bytes": memory()}
        job.cancel()
    print(json.dumps(found))


def memory() -> int:
    """Bytes of this process in memory."""
    import psutil

    size: int = psutil.Process().memory_info().rss
    return size


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
