"""Reading of instructions: what one asks for, as far as its words tell.

English only: of an instruction in another language only the names in it are understood, and checks
warn more often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Literal

Addition = Literal["comment", "docstring", "annotation"]


def _any(*patterns: str) -> re.Pattern[str]:
    """Compile the pattern that matches one of these words, each a pattern."""
    return re.compile(rf"\b(?:{'|'.join(' '.join(patterns).split())})\b".replace("_", " "), re.I)


# -- comments and annotations only -----------------------------------------------------------------

# After "comment": "a comment field" is code.
_CODE_NOUN = (
    "field|column|parameter|argument|attribute|class|model|method|function|propert|section|box|"
    r"count|list|id\b|table|form|view|variable|type\b|object|tag|node|token|thread|author|text\b"
)
COMMENT = re.compile(
    r"\b(?:doc-?strings?|documentation|document|explain|jsdoc|javadoc"
    rf"|comments?(?![_-]| (?:{_CODE_NOUN})))\b",
    re.I,
)
DOCSTRING = re.compile("doc-?string", re.I)
ANNOTATION = re.compile(r"\b(?:typ(?:e|ing) ?(?:hints?|annotations?)|annotat\w+)\b", re.I)
COMMENT_OUT = re.compile(r"\b(?:un)?comment(?:ed|ing)? (?:\S+ ){0,4}?out\b|\buncomment", re.I)
# How a clause begins that asks for comments or annotations.
ADDS = re.compile(
    r"^\W*(?:(?:please|can|could|you|now|just|only|also|to)\W+)*(?:add|write|insert|put|give|improve"
    r"|fix|correct|translate|update|complete|document|annotate|explain|comment|type|reword|rewrite"
    r"|change|expand|shorten|remove|delete|convert|format|generate|create|extend|clean)\b",
    re.I,
)
# What else a clause may ask for.
CODE_VERB = _any(
    "add change make use rename remove delete replace fix convert refactor rewrite simplify",
    "extract move return raise handle implement create insert write update modify improve",
    "translate turn put set support allow ensure include wrap split merge inline sort reverse",
    "optimi[sz]e format correct introduce catch log print call check validate define declare",
    "annotate type test complete finish switch drop swap skip ignore cache reorder shorten clean",
)
KEEP = re.compile(
    r"\b(?:keep|leave|preserve|retain)\b"
    r"|\b(?:do not|don't|without|never) (?:touch|chang|alter|modif|edit)",
    re.I,
)
# A name in a clause of "keep": written as code, after what kind of thing it is, or at the end.
KEPT_NAME = re.compile(
    r"\b(?:keep|leave|preserve|retain|(?:do not|don't|without|never) (?:touch|chang\w*|alter\w*"
    r"|modify\w*|edit\w*))\s+(?:the\s+)?(?:(?:function|method|class|variable|parameter|argument"
    r"|attribute|field|constant)s?\s+)?(?P<mark>[`'\"]?)(?P<name>[^\W\d]\w*)(?P=mark)(?:\(\))?"
    r"(?:\s+(?:as (?:it is|is|before)|unchanged|untouched|intact|alone))?$",
    re.I,
)
DOTTED = re.compile(r"(?<![\w.])([^\W\d]\w*)(?:\.[^\W\d]\w*)+")
CLAUSE_END = re.compile(r"[.;:,\n]|\b(?:and|then|but|also)\b", re.I)

# -- what may go, and what may come -----------------------------------------------------------

_GOES = r"remov\w* delet\w* drop\w* strip\w* get_rid eliminat\w* omit\w* inlin\w* unused dead"
_BECOMES = (
    r"clean\w* merg\w* combin\w* collaps\w* replac\w* renam\w* dedup\w* split\w* undo revert turn",
    r"encapsulat\w* extract\w* convert\w*",
)
GOES, BECOMES = _any(_GOES), _any(*_BECOMES)
REWRITES = _any(
    _GOES,
    *_BECOMES,
    r"shorten\w* simplif\w* only reduc\w* minimi\w* compact condens\w* refactor\w* rewrit\w*",
    r"re-?implement\w* instead mov\w+ transform\w* into without swap\w* switch\w* restructur\w*",
    r"optimi[sz]\w* one-?liner concise shorter comprehensions?",
)
TEXTS = _any(
    r"strings? messages? texts? labels? words? wording translat\w* spell\w* typos? quot\w*",
    r"format\w* f-?strings? output\w* print\w* log\w* names? title prompt errors? exceptions?",
    r"raise\w* urls? paths? keys? values? regex\w* patterns? query queries lower\w* upper\w*",
    r"capital\w* english german french spanish chinese japanese",
)
EXAMPLE = _any(r"examples? usage main demo\w* scripts? run call\w* print\w* tests? invoke")

# What else may change by white space alone.
LAYOUT = re.compile(
    r"format|indent|spac|blank|empty|lines?\b|wrap|\btabs?\b|align|flow|layout|style|\bpep|\bblack\b"
    r"|width|column|readab|clean|import",
    re.I,
)

# -- names ------------------------------------------------------------------------------------

# Words of programming languages that English does not have.
KEYWORDS = frozenset(("async", "await", "elif", "enumerate", "isinstance", "lambda"))
# A name that is written as code: in quotes, with "()", an underscore or an inner capital.
CODE_NAME = re.compile(
    r"[`'\"](?P<quoted>[^\W\d]\w{2,})(?:\(\))?[`'\"]|\b(?P<called>[^\W\d]\w*)\(\)"
    rf"|\b(?P<keyword>{'|'.join(sorted(KEYWORDS))})\b"
    r"|\b(?P<snake>[^\W\d_]\w*_\w*[^\W_])\b|\b(?P<camel>[a-z]+[a-z0-9]*[A-Z]\w*)\b"
)
# Before such a name: the edited code should contain it, or need not.
WANTED = re.compile(
    r"\b(?:(?:add|create|write|introduce|define|use|call|import|raise|implement|insert|named?|called)"
    r"\b(?:\W+\w+){0,6}?|\b(?:to|into|with|by))\W+$",
    re.I,
)
NOT_WANTED = re.compile(
    r"(?:\b(?:not|never|without|instead|than|like|as in|from|avoid)\b|n't)[^.;]*$", re.I
)
# What is to go: "remove all calls of a.b", "instead of calling a".
_THINGS = (
    "variable parameter argument function method class field attribute statement call use usage"
    " keyword operator property constant"
)
GONE = re.compile(
    r"\b(?:remov(?:e|es|ing)|delet(?:e|es|ing)|drop|get rid of|eliminate|instead of(?: \w+ing)?)"
    rf"\s+(?P<every>(?:(?:all|any|every|each|the|of|{'|'.join(_THINGS.split())})s?\s+)*)"
    r"[`'\"]?(?P<name>[^\W\d]\w*(?:(?:\.|::)\w+)*)",
    re.I,
)
_NAME = r"[`'\"]?(?P<name>[^\W\d]\w*)[`'\"]?"
# "Add a parameter `name`", "add an optional argument called name".
NEW_PARAMETER = re.compile(
    rf"\badd(?:ing)? (?:an?|the|one) (?:new |optional |keyword(?:-only)? |boolean |bool |second )*"
    rf"(?:parameter|param|argument|arg) (?:named |called )?{_NAME}",
    re.I,
)
OPTIONAL = re.compile(
    r"\bcompatib|\boptional|\bby default\b|\bdefaults? (?:to|of|value|is)\b", re.I
)
RAISED = re.compile(
    r"\b(?i:rais(?:e|es|ing)|throws?|throwing|catch(?:es|ing)?|handl(?:e|es|ing)|except) "
    r"(?:an? |the )?[`'\"]?(?P<name>[A-Z]\w+(?:Error|Exception|Warning))\b"
)
CHANGED = re.compile(
    r"^\W*(?:please |can you |could you )?(?:fix|modify|change|update|improve|optimi[sz]e|rewrite|"
    r"refactor|extend|simplify|let|make) (?:the )?(?:(?:function|method|class) )?"
    rf"{_NAME}(?:\(\))?(?: (?:function|method|class))?\b",
    re.I,
)
EXAMPLES = re.compile(r"\be\.g|\bexamples?\b|\bsuch as\b|\blike\b", re.I)
LITERAL = re.compile(  # a value that the new code must have
    r"\b(?i:to|with|by|returns?|default(?: value)?(?: (?:of|to|is))?|prints?|value|message)\s+"
    r"(?:(?P<number>-?\d+(?:\.\d+)?(?:e-?\d+)?)(?![\w%.]|\s*(?:st|nd|rd|th|to|or|and|-)\b)"
    r"|(?P<mark>[\"'`])(?P<text>(?:(?!(?P=mark)).){2,60})(?P=mark))"
)
NOT_NAMES = frozenset((  # words that may follow "parameter"
    "to", "that", "for", "which", "so", "and", "or", "of", "in", "as", "is", "if", "when", "from",
    "with", "by", "whether", "on", "at", "it", "its", "a", "an", "the", "this", "specifying",
    "indicating", "allowing", "into", "instead", "also", "where", "whose", "what", "how",
))  # fmt: skip
MAX_PLAIN_CHARS = 150  # characters of an instruction whose values are not taken for examples
VALUES = frozenset(("nil", "null", "None", "none", "true", "True", "false", "False", "undefined"))


def words(text: str) -> set[str]:
    """Return the words of a text, as they are written."""
    return set(re.findall(r"\w+", text))


def named_words(instruction: str, defined: Collection[str]) -> set[str]:
    """Return the words of an instruction that may name what a text defines.

    A dotted name counts if it begins with something defined there, or with the object itself.
    """

    def shown(match: re.Match[str]) -> str:
        return match[0] if match[1] in {"self", "cls", "this", *defined} else " "

    return words(DOTTED.sub(shown, instruction))


def kept_names(instruction: str) -> list[str]:
    """Find the names that are to stay, as in "keep `name`" and "do not change name"."""
    clauses = (clause.strip() for clause in CLAUSE_END.split(instruction))
    found = (KEPT_NAME.search(clause) for clause in clauses)
    return [match["name"] for match in found if match]


def only_requested(instruction: str) -> frozenset[Addition]:
    """Return the kinds of text to which all that is asked is limited.

    There are none if other code is to be changed, too.
    """
    if COMMENT_OUT.search(instruction):
        return frozenset()
    additions: set[Addition] = set()
    for clause in CLAUSE_END.split(instruction):
        if KEEP.search(clause):
            continue
        kinds: set[Addition] = set()
        if COMMENT.search(clause):
            kinds.add("comment" if speaks_of_comments(clause) else "docstring")
        if ANNOTATION.search(clause):
            kinds.add("annotation")
        if (kinds and not ADDS.search(clause)) or (not kinds and CODE_VERB.search(clause)):
            return frozenset()
        additions |= kinds
    return frozenset(additions)


def speaks_of_comments(instruction: str) -> bool:
    """Return whether comments are a part of what is asked."""
    return any(not DOCSTRING.match(word[0]) for word in COMMENT.finditer(instruction))


def _found(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Make the test of whether an instruction has a pattern."""
    return lambda instruction: pattern.search(instruction) is not None


speaks_of_docstrings = _found(COMMENT)  # whether comments or docstrings are spoken of
asks_removal = _found(GOES)  # whether something is to go
asks_change = _found(BECOMES)  # whether something is to become something else
asks_rewriting = _found(REWRITES)  # whether code is to go, or to be written again
asks_example = _found(EXAMPLE)  # whether statements that run when the file does may be added
speaks_of_texts = _found(TEXTS)  # whether the texts in string literals may change
speaks_of_imports = _found(re.compile(r"import", re.I))  # whether imports are spoken of
speaks_of_layout = _found(LAYOUT)  # whether white space is what is to change


def code_names(instruction: str) -> list[str]:
    """Find the names that the instruction writes as code."""
    found = (next(filter(None, match.groups())) for match in CODE_NAME.finditer(instruction))
    return list(dict.fromkeys(found))


def wanted_names(instruction: str) -> list[str]:
    """Find the names written as code that the edited code should contain."""
    found = []
    for match in CODE_NAME.finditer(instruction):
        before = instruction[: match.start()]
        if WANTED.search(before) and not NOT_WANTED.search(before):
            found.append(next(filter(None, match.groups())))
    return list(dict.fromkeys(found))


def gone_names(instruction: str) -> list[tuple[str, bool]]:
    """Find the names that are to go, each with whether all of its uses are."""
    found = []
    for match in GONE.finditer(instruction):
        every = re.search(r"\b(?:all|any|every|each|(?:calls|uses|usages) of)\b", match["every"])
        if len(match["name"]) > 2 and match["name"] not in VALUES:
            found.append((match["name"], every is not None))
    return found


def new_parameters(instruction: str) -> list[str]:
    """Find the names of parameters that are to be added."""
    found = [match["name"] for match in NEW_PARAMETER.finditer(instruction)]
    return [name for name in found if name.lower() not in NOT_NAMES]


def raised_errors(instruction: str) -> list[str]:
    """Find the exceptions that are to be raised or handled."""
    return [
        match["name"]
        for match in RAISED.finditer(instruction)
        if not NOT_WANTED.search(instruction[: match.start()])
    ]


def changed_name(instruction: str) -> str:
    """Return the name of the definition that an instruction begins to speak of; "" for none."""
    found = CHANGED.match(instruction)
    return found["name"] if found else ""


def wanted_values(instruction: str) -> list[str]:
    """Find the numbers and the quoted texts that the new code should have."""
    if len(instruction) > MAX_PLAIN_CHARS or EXAMPLES.search(instruction):
        return []
    return [
        match["number"] or match["text"]
        for match in LITERAL.finditer(instruction)
        if not NOT_WANTED.search(instruction[: match.start() + 3])
    ]


def asks_optional(instruction: str) -> bool:
    """Return whether what calls the code now is to go on working."""
    return OPTIONAL.search(instruction) is not None
