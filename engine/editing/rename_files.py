"""Renames by rule across files: in the file that defines a name and in all that import it.

A module's function, class or variable is renamed where it is defined, in the imports of it, and
where the importing files use it; re-exports are followed. All of that must be certain and among the
files that were chosen, or nothing is renamed: half a rename breaks the code. Names of another kind
are renamed file by file, and refused where another file may use them. A file that has the name and
cannot be read as code stops a rename as well, unless the user wants it all the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath

from engine.editing.edits import EditRefused
from engine.editing.rename import WALKERS, Renamed, check, rename, rewritten
from engine.editing.rename_request import RenameRequest
from engine.editing.scopes.javascript_modules import COMMON_JS, JavaScriptModule
from engine.editing.scopes.modules import Module, Uses
from engine.editing.scopes.names import Unsure, whole_word
from engine.editing.scopes.python_modules import PythonModule
from engine.editing.syntax import language_of, parse
from engine.editing.unread_uses import may_use, written

MAX_SHOWN_FILES = 3  # files named in a message
REPAIR = "rename it by hand"
UNREAD = "cannot be read as code"
FAMILIES = {**dict.fromkeys(("javascript", "typescript", "tsx"), "javascript")}


class Doubtful(EditRefused):
    """A rename that is not certain, which the user may want all the same; the message says why."""


def rename_files(
    files: Mapping[str, str],
    others: Mapping[str, str],
    requests: list[RenameRequest],
    anyway: bool = False,
) -> dict[str, Renamed] | None:
    """Make all renames in `files`, by path; return None to leave them to the model.

    `others`: files of the workspace that were not chosen and have the names. Raises EditRefused; or
    Doubtful, unless it is to be done `anyway`, where a file has a name and cannot be read as code.
    """
    done = {path: Renamed(text, "", ()) for path, text in files.items()}
    for request in requests:
        now = {path: each.text for path, each in done.items()}
        made = _renamed(now, others, request, anyway)
        if made is None:
            return None
        for path, each in made.items():
            title = "; ".join(filter(None, (done[path].title, each.title)))
            notes = tuple(dict.fromkeys((*done[path].notes, *each.notes)))
            done[path] = Renamed(each.text, title, notes)
    return done


def _renamed(
    files: dict[str, str], others: Mapping[str, str], request: RenameRequest, anyway: bool
) -> dict[str, Renamed] | None:
    """Return the files that one rename changes, and those that were chosen and keep the name."""
    chosen = {path: text for path, text in files.items() if _has(path, text, request)}
    if not chosen:
        if not request.certain:
            return None
        raise EditRefused(f"`{request.old}` is in none of these files: check the name")
    code = [path for path in chosen if language_of(path) in WALKERS]
    if not code or request.in_part:
        return None
    rest = {path: text for path, text in others.items() if _has(path, text, request)}
    known = rest | chosen
    modules: dict[str, Module] = {}
    doubts: dict[str, str] = {}  # file -> why it is not known what the name is in it
    for path, text in known.items():
        try:
            if module := _module(path, text):
                modules[path] = module
        except Unsure as reason:
            doubts[path] = str(reason)
    home = _home([path for path, each in modules.items() if path in chosen], modules, request)
    if home:
        family = _family(home)
        doubts = {path: why for path, why in doubts.items() if _family(path) == family}
        doubts |= _unread(known, {family}, request)
        made = _from_home(home, chosen, modules, doubts, request, anyway)
    else:
        _refuse_users(chosen, rest, modules, request)
        found = _each_alone(code, chosen, rest, request)
        if found is None:
            return None
        made, doubts = found
        _refuse_doubts(doubts, request, anyway)
    left = {
        path
        for path, text in known.items()
        if _has(path, made[path].text if path in made else text, request)
    }
    return _with_notes(made, left, chosen, doubts, request)


def _has(path: str, text: str, request: RenameRequest) -> bool:
    pattern = whole_word if language_of(path) in WALKERS else written
    return re.search(pattern(request.old), text) is not None


def _unread(
    files: Mapping[str, str], families: Iterable[str], request: RenameRequest
) -> dict[str, str]:
    """Find the files that are not read as code and may use a name of these languages.

    Each comes with the reason why it is not known whether it does.
    """
    return {
        path: f"it {UNREAD}"
        for path, text in files.items()
        if language_of(path) not in WALKERS
        and any(may_use(path, text, request.old, family) for family in families)
    }


def _refuse_doubts(doubts: Mapping[str, str], request: RenameRequest, anyway: bool) -> None:
    """Raise Doubtful where a file may use the name."""
    if doubts and not anyway:
        one = f"has `{request.old}`, and {next(iter(doubts.values()))}"
        several = f"have `{request.old}`, and {UNREAD}"
        why = f"{_shown(doubts)} {one if len(doubts) == 1 else several}"
        raise Doubtful(f"{why}: {REPAIR} there, and anyway in all other files")


def _module(path: str, text: str) -> Module | None:
    """Read a file of a language with renames; return None for others. Raises Unsure."""
    language = language_of(path)
    if language not in WALKERS:
        return None
    tree = parse(path, text)
    if tree is None:
        raise Unsure("it is too large")
    if tree.errors:
        raise Unsure("it has syntax errors")
    names = WALKERS[language](tree)
    names.read()
    return (PythonModule if language == "python" else JavaScriptModule)(path, names)


def _home(paths: list[str], modules: Mapping[str, Module], request: RenameRequest) -> str | None:
    """Find the file of `paths` that defines what is meant, for others to import; not its stub.

    Raises EditRefused if there are several.
    """
    found = [path for path in paths if _defines(modules[path], request)]
    homes = [path for path in found if not (_twin(path) in found and path.endswith(".pyi"))]
    if len(homes) > 1:
        raise EditRefused(
            f"`{request.old}` is defined in {_shown(homes)}: choose only one of these at a time"
        )
    return homes[0] if homes else None


def _defines(module: Module, request: RenameRequest) -> bool:
    """Return whether a module defines what is meant."""
    found = None if request.owner else module.definition(request.old)
    return found is not None and (not request.kinds or not found.kinds.isdisjoint(request.kinds))


def _twin(path: str) -> str:
    """Return the stub of a Python file, and the file of a stub; "" for others."""
    pure = PurePath(path)
    ending = {".py": ".pyi", ".pyi": ".py"}.get(pure.suffix)
    return str(pure.with_suffix(ending)) if ending else ""


# -- a name that others import -----------------------------------------------------------------


def _from_home(
    home: str,
    chosen: Mapping[str, str],
    modules: Mapping[str, Module],
    doubts: Mapping[str, str],
    request: RenameRequest,
    anyway: bool,
) -> dict[str, Renamed]:
    """Rename in the file that defines a name, its stub, and the chosen files that use it.

    Raises EditRefused.
    """
    family = _family(home)
    twin = _twin(home)
    homes = [home, twin] if twin in modules and _defines(modules[twin], request) else [home]
    made = {path: _of_home(modules[path], request) for path in homes}
    users = _users(
        homes, [each for each in modules.values() if _family(each.path) == family], request
    )
    if missing := sorted({*homes, *users} - set(chosen)):
        raise EditRefused(
            f"{_shown(missing)} {_uses(missing)} `{request.old}`: choose {_them(missing)}, too"
        )
    _refuse_doubts(doubts, request, anyway)
    for path, uses in users.items():
        made[path] = _rewritten(modules[path], uses, request)
    return made


def _of_home(own: Module, request: RenameRequest) -> Renamed:
    """Rename in a file that defines the name. Raises EditRefused."""
    found = own.definition(request.old)
    assert found is not None
    place, path, text = found.places[0], own.path, own.tree.text
    try:
        if _family(path) == "javascript" and COMMON_JS.search(text):
            raise Unsure("it exports names in several ways")
        own.uses(request.old, [path])  # as a string, or imported into itself
        return rename(path, text, (place.start, place.stop), [request], alone=False)
    except Unsure as reason:
        raise EditRefused(f"{_shown([path])}: {reason}: {REPAIR}") from None


def _users(own: list[str], modules: list[Module], request: RenameRequest) -> dict[str, Uses]:
    """Find the modules that use the name of `own`, directly or by a re-export.

    Raises EditRefused.
    """
    homes, users = [own[0]], {}
    while True:
        found = {}
        for module in modules:
            if module.path in own:
                continue
            try:
                uses = module.uses(request.old, homes)
            except Unsure as reason:
                raise EditRefused(f"{_shown([module.path])}: {reason}: {REPAIR}") from None
            if uses.places or uses.exports:
                found[module.path] = uses
        more = [path for path, uses in found.items() if uses.exports and path not in homes]
        users = {path: uses for path, uses in found.items() if uses.places}
        if not more:
            return users
        homes += more


def _rewritten(module: Module, uses: Uses, request: RenameRequest) -> Renamed:
    """Rename in a file that uses the name, and read the file again. Raises EditRefused."""
    places = sorted(set(uses.places))
    try:
        check(module.path, module.names, [], set(places), request)
    except (Unsure, EditRefused) as reason:
        raise EditRefused(f"{_shown([module.path])}: {reason}") from None
    text, _, _ = rewritten(module.tree.text, places, request.new, 0, 0)
    count = f"{len(places)} place{'s' * (len(places) != 1)}"
    return Renamed(text, f"`{request.old}` renamed to `{request.new}` in {count}", ())


# -- names of one file -------------------------------------------------------------------------


def _refuse_users(
    chosen: Mapping[str, str],
    rest: Mapping[str, str],
    modules: Mapping[str, Module],
    request: RenameRequest,
) -> None:
    """Raise EditRefused for a name that is defined in a file that was not chosen."""
    defined = [path for path in rest if path in modules and modules[path].definition(request.old)]
    for path in chosen:
        for home in defined if path in modules else ():
            if _family(home) != _family(path):
                continue
            try:
                used = modules[path].uses(request.old, [home]).places
            except Unsure:
                continue  # refused below, if it matters
            if used:
                where = f"{_shown([path])} is defined in {_shown([home])}"
                raise EditRefused(f"`{request.old}` of {where}: choose it, too")


def _each_alone(
    code: list[str], chosen: Mapping[str, str], rest: Mapping[str, str], request: RenameRequest
) -> tuple[dict[str, Renamed], dict[str, str]] | None:
    """Rename each file's own names; return None to leave the only file to the model.

    Returns the files, and those that may use these names, with the reason why that is not known.
    """
    made = {}
    for path in code:
        try:
            made[path] = rename(path, chosen[path], None, [request], alone=False)
        except Unsure as reason:
            if len(chosen) + len(rest) == 1:
                return None
            raise EditRefused(f"{_shown([path])}: {reason}: {REPAIR}") from None
        except EditRefused as reason:
            raise EditRefused(f"{_shown([path])}: {reason}") from None
    takers = {name for path in code for name in _takers(path, chosen[path], request.old)}
    doubts = _unread(
        {**rest, **chosen}, {_family(other) for other in made if made[other].is_wide}, request
    )
    for path, text in {**rest, **{path: each.text for path, each in made.items()}}.items():
        alike = [other for other in made if other != path and _family(other) == _family(path)]
        if not alike or not _has(path, text, request):
            continue
        wide = any(made[other].is_wide for other in alike)
        try:
            used = wide and _may_use(path, text, request.old)
            used = used or _gives(path, text, request.old, takers)
        except Unsure as reason:
            doubts[path] = str(reason)
            continue
        if used:
            raise EditRefused(
                f"{_shown([path])} may use `{request.old}` of {_shown(alike)}: {REPAIR}"
            )
    return made, doubts


def _may_use(path: str, text: str, name: str) -> bool:
    """Return whether a file may use another one's name: as a member, or as a name not its own.

    Raises Unsure.
    """
    module = _module(path, text)
    assert module is not None
    free = any(use.name == name and found is None for use, found in module.names.resolved)
    return free or any(member == name for member, _ in module.names.member_uses())


def _takers(path: str, text: str, name: str) -> set[str]:
    """Find Python functions with such a parameter, and classes with it in `__init__`, by name."""
    found: set[str] = set()
    if language_of(path) == "python" and (module := _module(path, text)):
        for binding in module.names.bindings():
            if binding.name == name and "parameter" in binding.kinds and binding.scope.node:
                node = binding.scope.node
                named = node.child_by_field_name("name")
                function = module.tree.text_of(named) if named else ""
                around = binding.scope.parent.node if binding.scope.parent else None
                owner = around.child_by_field_name("name") if around else None
                found.add(
                    module.tree.text_of(owner) if owner and function == "__init__" else function
                )
    return found


def _gives(path: str, text: str, name: str, takers: set[str]) -> bool:
    """Return whether a call of one of these functions gives an argument by this name.

    Raises Unsure.
    """
    if not takers or language_of(path) != "python":
        return False
    module = _module(path, text)
    assert isinstance(module, PythonModule)
    return any(
        name in call.keywords and re.split(r"[.\s]", module.tree.text_of(call.callee))[-1] in takers
        for call in module.names.calls
    )


# -- texts -------------------------------------------------------------------------------------


def _with_notes(
    made: dict[str, Renamed],
    left: Collection[str],
    chosen: Mapping[str, str],
    doubts: Mapping[str, str],
    request: RenameRequest,
) -> dict[str, Renamed]:
    """Add notes that say where the old name still is, and the chosen files that keep it.

    The first of the files has the notes of all others.
    """
    kept = [path for path in left if path not in made]
    unread = sorted(path for path in kept if path in doubts)
    plain = sorted(path for path in kept if path not in doubts)
    notes = []
    if plain:
        notes.append(f"`{request.old}` is also in {_shown(plain)}, for something else or in a text")
    if unread:
        them = _them(unread)
        notes.append(
            f"`{request.old}` stays in {_shown(unread)}, which {UNREAD}: look through {them}"
        )
    first = next(iter(made))
    made[first] = replace(made[first], notes=(*made[first].notes, *notes))
    for path in kept:
        if path in chosen:
            why = f"it {UNREAD}" if path in doubts else "for something else or in a text"
            made[path] = Renamed(chosen[path], "", (f"`{request.old}` stays in this file: {why}",))
    return made


def _family(path: str) -> str:
    language = language_of(path) or ""
    return FAMILIES.get(language, language)


def _shown(paths: Iterable[str]) -> str:
    """Write the names of some files, for a message."""
    names = [PurePath(path).name for path in paths]
    more = [f"{len(names) - MAX_SHOWN_FILES} more"] if len(names) > MAX_SHOWN_FILES else []
    listed = [*names[:MAX_SHOWN_FILES], *more]
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def _uses(paths: list[str]) -> str:
    return "use" if len(paths) > 1 else "uses"


def _them(paths: list[str]) -> str:
    return "them" if len(paths) > 1 else "it"
