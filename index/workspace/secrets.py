"""Finds secrets in the contents of files.

They are private keys, access tokens in the formats that their issuers document, addresses and
commands with a password, and values that are assigned to a `password`.

RE2 finds candidates, in time linear in the length of the text, whatever the text is. Each candidate
is then judged by a bounded look at its surroundings, so that placeholders in examples and mere
mentions of a format do not count.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import re2

VERSION = 1  # raise it when the rules change, so that indexed files are judged again
MAX_CANDIDATES = 20_000  # candidates in a text; ordinary code has a hundred per megabyte
LOOK_CHARS = 256  # characters around a candidate
VALUE_START = 8  # characters of a value that belong to a candidate


class SecretCandidate(NamedTuple):
    """A possible secret: `data[start:end]`."""

    data: bytes
    start: int
    end: int

    def before(self) -> str:
        """Return the text that precedes it."""
        return self.data[max(0, self.start - LOOK_CHARS) : self.start].decode("latin-1")

    def text(self) -> str:
        """Return the candidate's first characters."""
        return self.data[self.start : min(self.end, self.start + LOOK_CHARS)].decode("latin-1")

    def value(self) -> str:
        """Return the candidate's value, and the text that follows it."""
        start = self.end - VALUE_START
        return self.data[start : self.end + LOOK_CHARS].decode("latin-1")

    def after(self, most: int = LOOK_CHARS) -> str:
        """Return the text that follows."""
        return self.data[self.end : self.end + most].decode("latin-1")


def find_secret(data: bytes) -> str | None:
    """Return the kind of secret that a text seems to hold, and its line; None without one."""
    at = 0
    for _ in range(MAX_CANDIDATES):
        match = _CANDIDATE.search(data, at)
        if match is None:
            return None
        rule = RULES[match.lastindex - 1]
        start, end = match.span()
        if rule.judge(SecretCandidate(data, start, end)):
            line = data.count(b"\n", 0, start) + 1
            return f"{rule.name} in line {line}"
        at = max(start + 1, end - VALUE_START)
    return "too many passwords and keys to judge"


# -- private keys ------------------------------------------------------------------------------

LINE_MARKS = r"[\s#>*/|;+-]"  # indentation, comments, quotations and patches
KEY_LINE_START = re.compile(rf"(?:^|[\r\n]|\xef\xbb\xbf){LINE_MARKS}{{0,60}}-----BEGIN[ A-Z0-9]*$")
KEY_LINE_END = re.compile(rf"[ \t]*[\r\n]{LINE_MARKS}*(?!-----END|\.\.\.|[<${{])[\w/=:]")
KEY_BODY = re.compile(r"(?:\\+[rn]|[\s\"'+,;\\]|%0[AD]|&#\d+;|<br ?/?>){0,60}([A-Za-z0-9+/=]{16,})")
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})+")


def _is_key_block(found: SecretCandidate) -> bool:
    """Return whether a header of a private key is alone in its line, or followed by the key."""
    after = found.after()
    if KEY_LINE_START.search(found.before()) and KEY_LINE_END.match(after):
        return True
    body = KEY_BODY.match(after)
    return "-----BEGIN" in found.before()[-60:] and body is not None and looks_random(body[1])


def _is_encoded_key_block(found: SecretCandidate) -> bool:
    """Return whether the Base64 of a PEM header is that of a private key."""
    block = BASE64.match(found.text() + found.after())
    return block is not None and b"PRIVATE KEY" in b64decode(block[0])


def _is_key(found: SecretCandidate) -> bool:
    return True


# -- access tokens -----------------------------------------------------------------------------

# How tokens start, by the characters that follow.
# fmt: off
ALPHANUMERIC_TOKENS = (
    "AGE-SECRET-KEY-1", "AKCp", "AKID", "AQVN", "EAACEdEose0cBA", "HRKU-", "LTAI", "NRAK-",
    "[rs]k_(?:live|prod|test)_", "cio", "dapi", "do[opr]_v1_", "gh[opsur]_", "glsa_",
    "gsk_", "key-", "lin_api_", "nfp_", "npm_", "ntn_", "oy2", "pul-", "r8_", "rubygems_",
    "sbp_", "secret_", "SK[0-9a-f]{8}", "shp(?:at|ca|pa|ss)_", "sk-or-v1-", "tvly-", "whsec_",
)
WIDE_TOKENS = (  # random text with some signs
    "1//0", "AIza", "AT[AC]TT3", "ATBB", "EAAA", "GOCSPX-", "GR1348941", "PMAK-", r"SG\.",
    r"\d{8,10}:AA", r"atlasv1\.", r"discord(?:app)?\.com/api/webhooks/", "dckr_[op]at_",
    r"dp\.(?:audit|ct|pt|sa|scim|st)\.", "figd_", "fm[12]_", "fo1_", "github_pat_",
    "gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-", "glc_", r"hooks\.slack\.com/[a-z]+/",
    r"hv[brs]\.", "ops_", "p8e-", "pplx-", "pscale_(?:oauth|pw|tkn)_", "pypi-", "sb_secret_",
    "sig=", "sk-", r"sl\.", "sntry[su]_", "sq0(?:atp|csp)-", r"webhook\.office\.com/webhookb2/",
    "xai-", r"xapp-\d-", "xox[abceoprs]-", r"ya29\.",
)
# fmt: on
ALPHANUMERIC = re.compile(r"[A-Za-z0-9]{20,}")
WIDE = re.compile(r"[\w.%/@+-]{20,}")


def _is_aws_key(found: SecretCandidate) -> bool:
    key = found.text()
    return entropy(key[4:]) > 2.5 and not key.endswith("EXAMPLE")


def _is_letter_token(found: SecretCandidate) -> bool:
    return entropy(found.text()) > 3.5


def _is_token(found: SecretCandidate) -> bool:
    body = ALPHANUMERIC.match(found.value())
    return body is not None and looks_random(body[0], MIN_TOKEN_CHANGES)


def _is_wide_token(found: SecretCandidate) -> bool:
    body = WIDE.match(found.value())
    return body is not None and looks_random(body[0], MIN_TOKEN_CHANGES)


# -- passwords ---------------------------------------------------------------------------------

KEY_NAME = (
    "auth|credential|pass(?:code|phrase|wd|word)?|psk|pwd?|secret|token|(?:access|account|admin|api"
    "|app|auth|client|database|db|deploy|encryption|license|master|priv|private|service|session"
    "|shared|signing|ssh|storage)[_. -]?key"
)
# Between a name and its value. RE2 finds it, and Python's `re` takes a candidate apart again.
OPERATOR = (
    r"=>|:=|\?=|[:=,>(]|,?\s*[\x22']?(?i:value)[\x22']?\s*[:=]|</key>\s*<string>"
    r"|(?:</name)?>\s*<(?i:value)>"
)
SCHEME = r"(?i:basic|bearer|is|token)\s+"  # a word of an Authorization header or a sentence
ASSIGNMENT = re.compile(rf"(?s)(.*?)[\x22'`\]\\]*\s*({OPERATOR}|)\s*([\x22'`@\\]*)({SCHEME})?")
QUOTED = {quote: re.compile(rf"([^\s{quote}]{{8,200}}?)\\*{quote}") for quote in "\"'`"}
UNQUOTED = re.compile(r"([^\s\"'`(){}<>\[\],;&|\\]{8,200})(?![\w(\[{.])")
COMMAND_LINE = re.compile(r"(?:^|[\s\"'])--[\w-]*$|\blogin\s+\S+\s+$")
CALL = re.compile(r"\(\s*[\"'][\w.-]*$")
NO_SECRET_NAME = re.compile(
    r"(?i)autho(?!ri[sz])|authen|pass(?:a|e|i)|pskc|pw(?!d|\b|_)|secretar|tokeni[sz]"
)
PUBLIC = re.compile(r"(?i)public[_-]?(?:key[_-]?)?$")
PASSWORD_NAME = re.compile(r"(?i)pass|psk|pwd?(?![a-z])|secret")
# An identifier that ends like this names something about a secret, which is chosen by people.
ABOUT_SECRET = re.compile(
    r"(?i)(?:class|count|dict|endpoint|field|file|filename|format|header|hint|id|ids|label|len"
    r"|length|list|map|message|name|path|pattern|policy|prefix|re|ref|regex|rule|size|text|type|uri"
    r"|url)$"
)
IDENTIFIER = re.compile(
    r"_*(?:[a-z]*\d{0,3}[_.-])+[a-z]*\d{0,3}|_*(?:[A-Z]*\d{0,3}[_.-])+[A-Z]*\d{0,3}"
    r"|(?:[A-Za-z]+\d{0,2}\.)+[A-Za-z]\w*|[A-Za-z_]+"
)
PHRASE = re.compile(r"[\w\"']*\s*[:=]\s*[\"']?(?:[a-z]{3,8} ){11}[a-z]{3,8}\b")
COMMAND_VALUE = re.compile(r"[^\s\"']{8,200}")
EXAMPLE_HOST = re.compile(r"(?i)(?:[\w-]+\.)*(?:example|test|invalid)\b|\.\.\.|<|\{")
KUBERNETES_DATA = re.compile(
    r"\b(?:data|stringData):\s*\n\s+[\w.-]+:[ \t]*[\"']?(?!your|xxx|chang|example)[\w+/=-]{6}"
)


def _is_assigned(found: SecretCandidate) -> bool:
    """Return whether a value that is assigned to a name such as `api_key` looks like a secret."""
    before, size = found.before(), found.end - found.start - VALUE_START
    head = ASSIGNMENT.fullmatch(found.text()[:size]) if size < LOOK_CHARS else None
    if not head or NO_SECRET_NAME.match(head[1]) or PUBLIC.search(before):
        return False
    name, operator, quote = head[1], head[2], head[3][-1:]
    value, after = _value(found.value(), quote if quote in QUOTED else "")
    if operator.endswith(">") and operator != "=>" and not after.startswith("</"):
        return False
    sentence = PASSWORD_NAME.search(name) and (head[4] or "").strip() == "is"
    if not operator and not sentence and not COMMAND_LINE.search(before):
        return False
    if operator in {"(", ","} and quote not in QUOTED:
        return False
    if operator == "," and not CALL.search(before):
        return False
    if looks_random(value):
        return True
    is_password = PASSWORD_NAME.search(name) and not ABOUT_SECRET.search(name)
    return bool(is_password) and looks_like_password(value)


def _value(text: str, quote: str) -> tuple[str, str]:
    """Return a value at the start of a text, or "", and the text that follows it."""
    value = (QUOTED[quote] if quote else UNQUOTED).match(text)
    if not value:
        return "", text
    if not quote and (IDENTIFIER.fullmatch(value[1]) or not DIGIT.search(value[1])):
        return "", text  # code
    return value[1], text[value.end() :]


def _is_address(found: SecretCandidate) -> bool:
    password = found.text()[3:-1].partition(":")[2]
    return not EXAMPLE_HOST.match(found.after()) and looks_like_password(password)


def _is_command(found: SecretCandidate) -> bool:
    value = COMMAND_VALUE.match(found.value())
    return value is not None and looks_like_password(value[0])


def _is_phrase(found: SecretCandidate) -> bool:
    return PHRASE.match(found.after()) is not None


def _is_kubernetes_secret(found: SecretCandidate) -> bool:
    return KUBERNETES_DATA.search(found.after(4 * LOOK_CHARS)) is not None


# -- values ------------------------------------------------------------------------------------

MIN_RANDOM_CHARS = 16
MIN_RANDOM_REST = 12  # characters; the words of examples do not count
MIN_CHANGES = 0.12  # changes to another kind of character, per character
MIN_TOKEN_CHANGES = 0.06  # changes per character; the start of a token says more
MIN_CAPITALS = 1 / 3  # share of capitals among random letters
MIN_ENTROPY = 2.8  # bits per character
MIN_PASSWORD_CHARS, MIN_PASSWORD_REST = 8, 5
EXAMPLE_WORD = re.compile(
    r"(?i)admin|change[_-]?(?:it|me)|correct|default|demo|dummy|example|fake|foo|bar|here|horse"
    r"|hunter2|insert|invalid|key|my|pass(?:w[o0]rd|wd|phrase)?|placeholder|pwd|qwerty|redacted"
    r"|replace|root|sample|s[e3]cr[e3]t|some|super|test(?:ing)?|token|user(?:name)?|value|your|wrong"
    r"|12345\d*|abcdef\w?|0{4,}|1{4,}"
)
EXPRESSION = re.compile(
    r"\$\{|\$\(\w[^)]*\)|^\$\w|\$[A-Z_]{3}|\{\{|\{\w*\}|%\(\w+\)|%[sdr]\b|%[A-Z_]{3,}%|^<|\*\*\*|\.\.\.|[xX]{4}|://"
    r"|^(?:\.{1,2}|~)/|^/[a-z]{3,}[\w.-]*(?:/|$)"
)
RANDOM = re.compile(r"[\w+/=.~:%@-]+")
CHANGE = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[0-9]|(?<=[0-9])[A-Za-z]")
DIGIT, WORD, SIGN = re.compile(r"\d"), re.compile(r"[a-z]{5}"), re.compile(r"[!@#^&*?~+%]")


def looks_random(value: str, changes: float = MIN_CHANGES) -> bool:
    """Return whether a value looks generated, rather than words, a path or an expression.

    A placeholder does not look generated either.
    """
    if len(value) < MIN_RANDOM_CHARS or not RANDOM.fullmatch(value) or EXPRESSION.search(value):
        return False
    rest = EXAMPLE_WORD.sub("", value)
    if len(rest) < MIN_RANDOM_REST or entropy(rest) <= MIN_ENTROPY:
        return False
    capitals = sum(map(str.isupper, rest))
    if WORD.search(rest) and not DIGIT.search(rest) and capitals < MIN_CAPITALS * len(rest):
        return False
    return len(CHANGE.findall(rest)) >= changes * len(rest)


def looks_like_password(value: str) -> bool:
    """Return whether a value looks like a password, rather than a word or an expression.

    A placeholder does not look like one either.
    """
    if not MIN_PASSWORD_CHARS <= len(value) <= LOOK_CHARS or EXPRESSION.search(value):
        return False
    rest = EXAMPLE_WORD.sub("", value)
    signs = DIGIT.search(rest) or SIGN.search(rest)
    return len(rest) >= MIN_PASSWORD_REST and signs is not None and any(map(str.isalpha, rest))


def entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


# -- rules -------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A kind of secret."""

    name: str
    pattern: str  # finds candidates, by RE2; counted repetitions would slow it down
    judge: Callable[[SecretCandidate], bool]


RULES = (
    Rule(
        "a private key", r"(?:PRIVATE KEY(?: BLOCK)?|OpenVPN [S]tatic key V\d)-----", _is_key_block
    ),
    Rule("a private key", "LS0tLS1CRUdJTi", _is_encoded_key_block),
    Rule(
        "a private key",
        r"-- BEGIN SSH2 ENCRYPTED [P]RIVATE KEY --|PuTTY-User-Key-File-\d: (?:ssh-|ecdsa-)"
        r"|\x22d\x22\s*:\s*\x22[\w-]{40}|<D>[A-Za-z0-9+/]{40}",
        _is_key,
    ),
    Rule("an AWS access key", r"\b(?:A3T[A-Z0-9]|A[BKS]IA|ACCA)[A-Z0-9]{16}\b", _is_aws_key),
    Rule("an access token", r"\b(?:api_org|hf)_[A-Za-z0-9]{34}", _is_letter_token),
    Rule("an access token", rf"\b(?:{'|'.join(ALPHANUMERIC_TOKENS)})[A-Za-z0-9]{{8}}", _is_token),
    Rule("an access token", rf"\b(?:{'|'.join(WIDE_TOKENS)})[\w%/@-]{{8}}", _is_wide_token),
    Rule("a registry password", "eyJhdXRocyI6[A-Za-z0-9+/]{16}", _is_key),
    Rule("a recovery phrase", "(?i:mnemonic|(?:recovery|seed)[ _-]?phrase)", _is_phrase),
    Rule("a JSON web token", r"\beyJ[\w-]+\.eyJ[\w-]+\.[\w-]{8}", _is_key),
    Rule("a password in an address", r"://[^\s/@'\x22<>()\\]*:[^\s/@'\x22<>()\\]+@", _is_address),
    Rule(
        "a password in a command",
        r"\s(?:-u|--user)[ =][\x22']?[\w.@+-]+:[^\s\x22'@:/]{8}"
        r"|\bsshpass\s+-p\s?[\x22']?[^\s\x22']{8}|\bmysql[a-z]*\s[^\n]*\s-p[\x22']?[^\s\x22']{8}"
        r"|(?:auth\s*=\s*|BasicAuth|\blogin)\(\s*[\x22'][^\s\x22']+[\x22'],\s*[\x22'][^\s\x22']{8}"
        r"|(?i:identified\s+by)\s+[\x22'][^\s\x22']{8}",
        _is_command,
    ),
    Rule("a Kubernetes Secret", r"\bkind:\s*[\x22']?Secret\b", _is_kubernetes_secret),
    Rule(
        "an assigned password or key",
        rf"(?i:{KEY_NAME})[\w.-]*[\x22'`\]\\]*(?:\s*(?:{OPERATOR})\s*|\s+)"
        rf"(?:[\x22'`@\\]*(?:{SCHEME})?[^\s\x22'`(){{}}<>\[\],;\\]{{8}}"
        rf"|[@\\]*[\x22'`][^\s\x22'`]{{8}})",
        _is_assigned,
    ),
)


def _compile() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # every byte is a character
    return re2.compile("|".join(f"({rule.pattern})" for rule in RULES).encode(), options)


_CANDIDATE = _compile()
