"""Copies files that have changed from one folder to another."""

import sys
import json
import hashlib
from pathlib import Path
import os
import argparse
from datetime import datetime

CHUNK = 1 << 16


def digest(path):
    made = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                break
            made.update(chunk)
    return made.hexdigest()


def read_state(path):
    if not os.path.exists(path):
        return {}
    file = open(path)
    state = json.load(file)
    file.close()
    return state


def write_state(path, state):
    file = open(path, "w")
    json.dump(state, file, indent=1)
    file.close()


def message(name, size, seconds):
    if seconds > 60:
        return "%s: %d bytes in %d minutes" % (name, size, seconds // 60)
    if size == 0:
        return "%s: empty" % name
    return "%s: %d bytes in %.1f s" % (name, size, seconds)


def collect(folder, found=[]):
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            collect(entry, found)
        else:
            found.append(entry)
    return found


def is_hidden(path):
    # prüft, ob ein Teil des Pfades mit einem Punkt beginnt
    for part in path.parts:
        if part.startswith(".") and part not in (".", ".."):
            return True
    return False


def copy(source, target):
    # den Ordner anlegen, falls er fehlt
    target.parent.mkdir(parents=True, exist_ok=True)
    # erst unter einem anderen Namen schreiben, dann umbenennen
    part = target.with_name(target.name + ".part")
    part.write_bytes(source.read_bytes())
    part.replace(target)


def changed(source, target):
    if not target.exists():
        return True
    if source.stat().st_size != target.stat().st_size:
        return True
    return digest(source) != digest(target)


def mirror(source, target, log):
    count = 0
    for path in collect(source, []):
        if is_hidden(path.relative_to(source)):
            continue
        goal = target / path.relative_to(source)
        if changed(path, goal):
            copy(path, goal)
            log.append((datetime.now().isoformat(), str(goal)))
            count = count + 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    if not options.source.is_dir():
        print(f"{options.source}: not a folder", file=sys.stderr)
        return 2
    log = []
    print(mirror(options.source, options.target, log), "files copied")
    return 0


if __name__ == "__main__":
    sys.exit(main())
