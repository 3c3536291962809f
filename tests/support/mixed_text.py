"""Mixed text on which two tokenizers are compared: code, prose, many scripts, white space."""

from __future__ import annotations

import random

from tests.support.weights import REPOSITORY

PROSE = (
    "It's what we've SAID: they'll go, I'm sure'd. HELLO'S WON'T cAmelCase snake_case HTTPServer2",
    "1 22 333 4444 55555 1234567890 3.14159 0xFF 1_000,000 ½ ² ³ Ⅷ ٣٤٥ १२३ 一二三 1st 2nd",
    "Straße, naïve café, Ångström; œuvre: ﬁne ſharp İstanbul DŽ Dž dž K Ω",
    "e\u0301 n\u0303 a\u0308\u0323 กำลัง हिन्दी தமிழ் বাংলা मराठी",
    "Привет, мир! Ελληνικά. עברית, العربية؟ 中文字符。日本語カタカナひらがな、한국어 텍스트",
    "🙂👩‍💻🏳️‍🌈 ←→ ∑∫√≠ ¿qué? «guillemets» “quotes” ‘single’ — … ・ ！？：；（）",
    "a/b/c.py:12 --flag=1 foo::bar<T>() [0]{1}|2&&3 #define X\\\n@decorator $VAR %d ^_^ ~/.rc `x`",
    "\u200b\u00a0\u3000\u2028\ufeff\u00ad\x00\x1f\x7f\x85\ufffd",
)
SPACES = ("", " ", "  ", "    ", "\t", "\t\t ", "\n", "\n\n", "\r\n", " \n", "\n \n\t", "\u3000")


def mixed_lines(count: int, seed: int = 0) -> list[str]:
    """`count` texts of a line or a few. None spells a control token, or has U+2581, which
    SentencePiece reads as a blank."""
    chance = random.Random(seed)
    files = sorted((REPOSITORY / "engine").rglob("*.py")) + sorted(REPOSITORY.glob("docs/*.md"))
    code = [line for file in files for line in file.read_text("utf-8").splitlines()]
    words = [word for line in PROSE for word in line.split(" ")]
    found: list[str] = []
    while len(found) < count:
        kind = chance.randrange(4)
        if kind == 0:
            at = chance.randrange(len(code) - 4)
            text = "\n".join(code[at : at + chance.randint(1, 4)])
        elif kind == 1:
            line = chance.choice(PROSE)
            at = chance.randrange(len(line))
            text = line[at : at + chance.randint(1, 60)]
        elif kind == 2:
            text = "".join(_character(chance) for _ in range(chance.randint(1, 30)))
        else:
            count_words = chance.randint(1, 12)
            pairs = (chance.choice(SPACES) + chance.choice(words) for _ in range(count_words))
            text = "".join(pairs) + chance.choice(SPACES)
        if not any(mark in text for mark in ("<|", "<\uff5c", "[INST]", "\u2581")):
            found.append(text)
    return found


def _character(chance: random.Random) -> str:
    """A character of any plane, ASCII and the first planes most often."""
    while True:
        point = chance.randrange(chance.choice((0x80, 0x250, 0x3000, 0x10000, 0x30000)))
        if not 0xD800 <= point < 0xE000:
            return chr(point)
