"""Questions that refer back to earlier ones, by rule: "And on Sundays?", "How much does it cost?".

A follow-up is rewritten so that it can be searched and answered alone. All other questions are
independent of what came before. The rules know English, German, French and Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_SHORT_WORDS = 3  # words of a question without a verb, such as "In winter?"

# What a follow-up begins with
OPENING = re.compile(
    r"(?:and|or|but|what about|how about|what else|same for)\b"
    r"|(?:und|oder|aber|was ist mit|wie steht es mit|was noch|sonst noch)\b"
    r"|(?:et|ou|mais|qu'en est-il|quoi d'autre)\b(?!-ce)"
    r"|(?:\u90a3(?!\u4e9b)|\u8fd8\u6709|\u4ee5\u53ca|\u800c\u4e14|\u53e6\u5916|\u5b83|\u4ed6|\u5979)",
    re.IGNORECASE,
)
# Words that stand for something mentioned before, wherever they are
POINTER = re.compile(
    r"\b(?:the (?:former|latter|same)|that one|those ones|in that case|after that|before that)\b"
    r"|(?<!, )\bda(?:f\u00fcr|gegen|von|zu|bei|mit|ran|rauf|rin|r\u00fcber|nach|vor)\b(?!,)"
    r"|\b(?:celui-(?:ci|l\u00e0)|celle-(?:ci|l\u00e0)|dans ce cas|le m\u00eame|la m\u00eame)\b"
    r"|\u5462\s*[?\uff1f]?$|\u5b83|\u5176\u4e2d|\u8fd9\u79cd\u60c5\u51b5",
    re.IGNORECASE,
)
# Pronouns, unless the question itself has what they stand for (ANTECEDENT), or they stand for
# nothing (IMPERSONAL). The polite "Sie" and "Ihr" have capitals.
PRONOUN = re.compile(
    r"\b(?:[Ii]t|[Ii]ts|[Tt]hey|[Tt]hem|[Tt]heir|[Hh]e|[Ss]he|[Hh]is|[Hh]im|[Hh]er)"
    r"(?=\s*[?.!]?$|\s+(?!the\b|a\b))"
    r"|(?i:\b(?:is|are|was|were|does|did|will|can|for|of|with|about) (?:that|those)\b)"
    r"|\b(?:er|sie|es|ihn|ihm|ihnen|ihre?[mnrs]?|seine?[mnrs]?|deren|dessen)\b"
    r"|\b(?:das|dies)\s*\?"
    r"|\b(?:ils?|elles?|cela|\u00e7a|celui|celle)\b"
)
ANTECEDENT = re.compile(
    r"(?i:\b(?:the|an?|my|your|our|every|each|any|some|of)\s+\w"
    r"|\b(?:der|die|das|dem|den|des|ein\w*|kein\w*|mein\w*|unser\w*)\s+\w"
    r"|\b(?:le|la|les|une?|des|du|mon|ma|mes|notre|nos)\s+\w|\b[ld]'\w|[,;:])"
    r"|(?<=\w\s)(?:when|if|and|while|wenn|und|si|et|quand)\b"
    r"|(?<=\s)[A-Z]\w|\b\w*\d\w*|\w[._]\w"
)
IMPERSONAL = re.compile(
    r"\bit (?:\w+ )?(?:possible|allowed|necessary|permitted|true|safe)\b"
    r"|\bit\b.*\b(?:to|that|until|before)\b"
    r"|\b(?:gibt|geht|ist|wird|braucht|dauert) es\b.|\bes (?:gibt|ist|geht)\b"
    r"|\b(?:a-t|faut|existe-t|est|pleut|s'agit)-il\b.|\bil (?:y a|faut|est|s'agit)\b|\bs'il\b",
    re.IGNORECASE,
)
# Short questions that are about nothing by themselves
BARE = re.compile(
    r"(?:(?:since|until|for|from|by)\s)?"
    r"(?:why|how|how (?:so|much|many|long|often|come)|when|where|who|which|which one)(?: not)?"
    r"|(?:seit |bis |ab )?(?:warum|wieso|weshalb|wie(?: viele?| lange| oft)?|wann|wo|wer)"
    r"(?: nicht)?"
    r"|(?:depuis |jusqu'\u00e0 )?(?:pourquoi|comment|combien(?: de temps)?|quand|o\u00f9|qui)"
    r"(?: pas)?"
    r"|\u4e3a\u4ec0\u4e48|\u600e\u4e48|\u591a\u5c11|\u591a\u4e45|\u4ec0\u4e48\u65f6\u5019|\u8c01|\u54ea\u91cc",
    re.IGNORECASE,
)
PREPOSITION = re.compile(
    r"(?:on|in|at|for|with|without|during|after|before|from|by)\s"
    r"|(?:am|im|an|in|bei|f\u00fcr|mit|ohne|nach|vor|ab|seit|zu|zum|zur)\s"
    r"|(?:en|pour|avec|sans|pendant|apr\u00e8s|avant|chez|au|aux)\s",
    re.IGNORECASE,
)


def refers_back(question: str) -> bool:
    """Return whether a question cannot be understood without an earlier one."""
    question = " ".join(question.split())
    bare = question.rstrip("?\uff1f!. ")
    if OPENING.match(question) or POINTER.search(question) or BARE.fullmatch(bare):
        return True
    if PREPOSITION.match(bare) and len(bare.split()) <= MAX_SHORT_WORDS:
        return True
    pronoun = None if IMPERSONAL.search(question) else PRONOUN.search(question)
    return pronoun is not None and not ANTECEDENT.search(question, 0, pronoun.start())


def rewrite(question: str, earlier: Sequence[str]) -> str:
    """Return a question with the one that it refers to in brackets; "" if it refers to none.

    One after the other, small models would answer both.

    `earlier`: questions, the latest last. The latest that did not refer back itself is what a
    follow-up is about.
    """
    if not refers_back(question):
        return ""
    subject = next((question for question in reversed(earlier) if not refers_back(question)), "")
    return f"{question} ({subject})" if subject else ""
