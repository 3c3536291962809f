"""The reader of "rename a to b" in instructions: which names are to be replaced by which."""

from __future__ import annotations

import re
from dataclasses import dataclass

KINDS = {  # word of the instruction -> kinds that it may mean; the first one that there is counts
    **dict.fromkeys(("parameter", "param", "argument", "arg"), ("parameter",)),
    **dict.fromkeys(
        ("variable", "var", "local variable", "global variable", "local"), ("variable", "parameter")
    ),
    **dict.fromkeys(("constant", "const"), ("constant", "variable")),
    **dict.fromkeys(("function", "func", "fn"), ("function", "method", "variable")),
    "method": ("method",),
    **dict.fromkeys(("class", "type", "struct", "enum", "interface", "trait"), ("class", "type")),
    **dict.fromkeys(("attribute", "field", "property", "member"), ("attribute", "method")),
}
KIND = "|".join(sorted(KINDS, key=len, reverse=True)).replace(" ", r"\s")
QUOTES = "`'\"\u2018\u2019\u201c\u201d"
WORD = rf"(?:[{QUOTES}](?P<%s_quoted>[^\s{QUOTES}]+)[{QUOTES}]|(?P<%s>[^\s{QUOTES},;]+))"
OLD, NEW, OWNER = (WORD.replace("%s", name) for name in ("old", "new", "owner"))
TEXTS = r"(?:the\s)?(?:comments?|doc\s?strings?|strings?)"
TAIL = rf"""
    (?P<where>,?\s(?:everywhere|throughout|(?:in|within|across)\s(?:the|this)\s(?:whole\s|entire\s)?
    (?:file|selection|code|module|(?P<part>function|method|class))))?
    (?P<texts>,?\s(?P<also>(?:(?:and|also|including|even)\s)*)(?:in\s)?
    {TEXTS}(?:(?:,|\sand|,\sand)\s{TEXTS})*(?P<too>,?\s(?:too|as\swell))?)?
"""
PLEASE = r"(?:(?:please|can\syou|could\syou)\s)?"
FORMS = [
    re.compile(rf"{PLEASE}{form}{TAIL}", re.I | re.X)
    for form in (
        rf"""(?:rename|change\sthe\sname\sof)\s(?:the\s)?(?:(?P<kind>{KIND})\s)?{OLD}
        (?:\s(?P<kind_after>{KIND}))?(?:\s(?:of|in)\s(?:the\s)?(?:(?:{KIND})\s)?{OWNER})?\s?(?:\s(?:to|into|as)\s|->|=>|\u2192)\s?{NEW}""",
        rf"""(?:change|rename)\s(?:the\s)?(?:(?P<kind>{KIND})(?:'s)?\s)?name\s(?:from\s)?{OLD}
        \sto\s{NEW}""",
        rf"""the\s(?P<kind>{KIND})\s{OLD}\sshould\sbe\s(?:called|named|renamed\sto)\s{NEW}""",
    )
]
OBJECTS = {"self", "this", "cls"}  # names of the object itself
ARTICLES = {"a", "an", "any", "each", "every", "this", "that"}
PROSE = {  # words that may mean something else than a name
    "all", "an", "any", "anything", "argument", "arguments", "attribute", "attributes",
    "class", "classes", "constant", "constants", "each", "every", "everything", "field",
    "fields", "file", "files", "function", "functions", "identifier", "identifiers", "it",
    "its", "local", "locals", "method", "methods", "module", "name", "names", "one",
    "parameter", "parameters", "params", "that", "the", "them", "these", "they", "thing",
    "things", "this", "those", "type", "types", "value", "values", "variable", "variables",
    "vars",
}  # fmt: skip
STYLE = re.compile(r"(?:\w+[_ -]?case|case|style|[\w-]*english|something|be|have|match)", re.I)
REPLACED = re.compile(
    r"\b(?:rename|replace)\b[^.;\n]*?(?<![\w.])[`'\"]?(?P<old>[^\W\d]\w*)[`'\"]?(?:\(\))?"
    r"(?: (?:of|in) (?:the )?(?:\w+ )?[`'\"]?\w+[`'\"]?(?:\(\))?)? "
    r"(?:to|with|by|into) [`'\"]?(?P<new>[^\W\d]\w*)[`'\"]?",
    re.I,
)


@dataclass(frozen=True, slots=True)
class RenameRequest:
    """One rename that an instruction asks for."""

    old: str
    new: str
    kinds: tuple[str, ...] = ()  # what the old name is of; (): not said
    certain: bool = True  # the old word is meant as a name, even if it is not there
    in_comments: bool = False
    in_strings: bool = False
    in_part: bool = False  # "in this function": one must be selected
    owner: str = ""  # the class or function that has it; "": not said


def read(instruction: str) -> list[RenameRequest]:
    """Read the renames that an instruction asks for; return none if it asks for anything else."""
    words = re.sub(r"\s+", " ", instruction).strip().rstrip(".!")
    first, *more = re.split(r"(?:,| and|, and|;) (?=\S+ (?:to|->|as) |rename )", words)
    texts = [first, *(each if each.startswith("rename ") else f"rename {each}" for each in more)]
    found = [_request(text) for text in texts]
    return [each for each in found if each] if all(found) else []


def _request(text: str) -> RenameRequest | None:
    for form in FORMS:
        if found := form.fullmatch(text):
            parts = found.groupdict()
            kind = (parts.get("kind") or parts.get("kind_after") or "").lower()
            old = (parts["old_quoted"] or parts["old"]).removesuffix("()")
            new = (parts["new_quoted"] or parts["new"]).removesuffix("()")
            if parts["texts"] and not (parts["also"] or parts["too"]):
                return None  # there alone
            if STYLE.fullmatch(new) and not parts["new_quoted"]:
                return None
            if old.lower() in ARTICLES and parts.get("kind_after"):
                return None
            kinds = KINDS.get(kind, ())
            owner = parts.get("owner_quoted") or parts.get("owner") or ""
            if dotted := re.fullmatch(r"([^\W\d]\w*)\.([^\W\d]\w*)", old):
                old, new = dotted[2], new.removeprefix(f"{dotted[1]}.")
                if dotted[1] in OBJECTS or not kinds:
                    kinds = KINDS["attribute"]
                if dotted[1] not in OBJECTS:
                    owner = owner or dotted[1]
            texts = (parts["texts"] or "").lower()
            comments, strings = "comment" in texts, "string" in texts
            certain = bool(parts["old_quoted"]) or old.lower() not in PROSE
            in_part = bool(parts["part"])
            return RenameRequest(old, new, kinds, certain, comments, strings, in_part, owner)
    return None


def replaced_names(instruction: str) -> list[tuple[str, str]]:
    """Find pairs (old, new) of names that are to be replaced, as in "rename a to b"."""
    return [(match["old"], match["new"]) for match in REPLACED.finditer(instruction)]
