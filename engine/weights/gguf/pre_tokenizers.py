"""The ways that byte-level BPE tokenizers split a text before merging, by `tokenizer.ggml.pre`.

A GGUF names its model's way of splitting and holds no regular expression. Each entry here is the
`pre_tokenizer` of the model's own tokenizer.json. A name that is not listed is refused, and so is
"default", which names none: another way of splitting gives other tokens, and answers that are
worse for no visible reason.
"""

from __future__ import annotations

from typing import Any

PreTokenizer = list[dict[str, Any]]  # steps of a tokenizer.json, in order

# Runs of characters, as Oniguruma writes them.
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"  # letters with the blank or sign before them
SIGNS = r" ?[^\s\p{L}\p{N}]+"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"

# Words of an upper-case part and a lower-case one; a letter without case may be in either.
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"


def _cased_words(end: str = "", but: str = "") -> str:
    """Write the expression of words of an upper-case part and a lower-case one.

    `end`: what may follow a word; `but`: letters that are not in words.
    """
    before, upper, lower = r"[^\r\n\p{L}\p{N}]?", f"[{UPPER}{but}]", f"[{LOWER}{but}]"
    return f"{before}{upper}*{lower}+{end}|{before}{upper}+{lower}*{end}"


LLAMA3 = rf"{CONTRACTION}|{LETTERS}|\p{{N}}{{1,3}}|{SIGNS}[\r\n]*|{BLANKS}"
QWEN2 = rf"{CONTRACTION}|{LETTERS}|\p{{N}}|{SIGNS}[\r\n]*|{BLANKS}"
QWEN35 = (
    rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{BLANKS}"
)
GPT4O = rf"{_cased_words(CONTRACTION + '?')}|\p{{N}}{{1,3}}|{SIGNS}[\r\n/]*|{BLANKS}"
TEKKEN = rf"{_cased_words()}|\p{{N}}|{SIGNS}[\r\n/]*|{BLANKS}"
KIMI_WORDS = _cased_words(CONTRACTION + "?", r"&&[^\p{Han}]")
KIMI = rf"[\p{{Han}}]+|{KIMI_WORDS}|\p{{N}}{{1,3}}|{SIGNS}[\r\n]*|{BLANKS}"
SEED_CODER = rf"{CONTRACTION}|{LETTERS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{BLANKS}"
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
    r"\s*[\r\n]|\s+(?!\S)|\s+"
)
EXAONE_MOE = (
    rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
    rf"{SIGNS}[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{BLANKS}"
)
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_SIGNS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Make the step that writes bytes as characters; `use_regex`: it splits as GPT-2 did, too."""
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return plain | {"use_regex": use_regex}


def _split(regex: str) -> dict[str, Any]:
    pattern = {"pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Split"} | pattern


def _splits(*regexes: str) -> PreTokenizer:
    return [*map(_split, regexes), byte_level(use_regex=False)]


GPT2 = [byte_level(use_regex=True)]
DIGIT = {"type": "Digits", "individual_digits": True}
SINGLE_DIGITS = [DIGIT, *GPT2]
DEEPSEEK_LLM = [
    _split("[\r\n]"),
    _split(rf"\s?[{DEEPSEEK_LETTERS}]+"),
    _split(rf"\s?[{DEEPSEEK_SIGNS}]+"),
    _split(r"\s+$"),
    _split(DEEPSEEK_CJK),
    DIGIT,
    byte_level(use_regex=False),
]
DEEPSEEK_CODER = [
    _split("[\r\n]"),
    _split(r"\s?\p{L}+"),
    _split(r"\s?\p{P}+"),
    _split(DEEPSEEK_CJK),
    DIGIT,
    byte_level(use_regex=False),
]
FALCON = [
    {"type": "Punctuation", "behavior": "Contiguous"},
    *GPT2,
    {"type": "Digits", "individual_digits": False},
    _split("[0-9][0-9][0-9]"),
]

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "mellum", "exaone4"), GPT2),
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
         "mellum2"), SINGLE_DIGITS
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0", "pixtral",
         "dbrx", "glm4", "chatglm-bpe"), _splits(LLAMA3)
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "grok-2"),
        _splits(QWEN2)
    ),
    "qwen35": _splits(QWEN35),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _splits(GPT4O)),
    "tekken": _splits(TEKKEN),
    "kimi-k2": _splits(KIMI),
    "seed-coder": _splits(SEED_CODER),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _splits(BAILING)),
    "exaone-moe": _splits(EXAONE_MOE),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _splits(r"\p{N}{1,3}", CJK, DEEPSEEK3)),
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-coder": DEEPSEEK_CODER,
    "falcon": FALCON,
    "minicpm5": _splits(r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _splits(r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O)),
}  # fmt: skip

# Pre-tokenizers of models that take a piece of text that is a token as that token, whatever the
# merges make of it.
IGNORES_MERGES = frozenset(
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0", "pixtral",
     "tekken", "minicpm5")
)  # fmt: skip

# Pre-tokenizers of models whose texts begin with the beginning-of-text token where the file does
# not say.
ADD_BOS = IGNORES_MERGES - {"minicpm5"}
