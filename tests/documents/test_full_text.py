"""Keyword search: whole and split identifiers, any language, and no query syntax."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.documents.documents import Documents
from index.documents.formats.parser import DocumentParser
from index.documents.full_text import query_terms

TEXTS = {
    "retry.py": "max_retry_count = 3  # of http_client.send()\n",
    "hosts.md": "The TrustedHostMiddleware checks the header. It is an HTTPServer's part.\n",
    "paths.md": "Join them by os.path.join, or std::filesystem::path in C++.\n",
    "coffee.txt": "Un cafe\u0301 na\u00efve co\u00fbte cher. Die Stra\u00dfe ist gesperrt.\n",
    "tokyo.txt": "\u6771\u4eac\u90fd\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002\n",
    "moscow.txt": "\u041c\u043e\u0441\u043a\u0432\u0430 - \u0433\u043e\u0440\u043e\u0434.\n",
    "config.rst": "Values\n======\n\nDEBUG\n-----\n\nWhether errors are shown to the visitor.\n",
    "wohnung.md": "Die Kündigungsfrist beträgt drei Monate. Die Zahlung der Miete erfolgt im "
    "Voraus. Für jede Nutzung der Waschküche wird Geld verlangt.\n",
    "mediatheque.md": "Les abonnés peuvent emprunter dix livres. Les retards coûtent un euro par "
    "jour, et la résiliation se fait par lettre.\n",
    "returns.md": "自签收之日起七天内可以退货。退款会在三天内到账。\n",
    "thai.md": "ผู้เช่าต้องจ่ายเงินประกันสองเดือน\n",
    "korea.md": "회사는 매달 급여를 지급한다.\n",
    "arab.md": "يدفع المستأجر الإيجار كل شهر.\n",
    "hindi.md": "किराया हर महीने देना होगा।\n",
    "runs.md": "She was running three tests in parallel, and waited for an answer.\n",
}


@pytest.fixture(scope="module")
def documents() -> Iterator[Documents]:
    with Documents() as opened:
        for name, text in TEXTS.items():
            opened.add_data(name, text.encode())
        yield opened


@pytest.fixture(scope="module")
def parser() -> Iterator[DocumentParser]:
    with DocumentParser() as opened:
        yield opened


def first(documents: Documents, query: str) -> str:
    """The document of the best hit."""
    hits = documents.search(query)
    return hits[0].name if hits else ""


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("max_retry_count", "retry.py"), ("retry", "retry.py"), ("max retry count", "retry.py"),
        ("maxRetryCount", "retry.py"), ("http_client.send", "retry.py"), ("client", "retry.py"),
        ("TrustedHostMiddleware", "hosts.md"), ("trusted host", "hosts.md"),
        ("trusted_host_middleware", "hosts.md"), ("trustedhostmiddleware", "hosts.md"),
        ("which middleware?", "hosts.md"), ("server", "hosts.md"), ("HTTP server", "hosts.md"),
        ("os.path.join", "paths.md"), ("os.path", "paths.md"), ("join", "paths.md"),
        ("std::filesystem", "paths.md"), ("filesystem path", "paths.md"),
        ("caf\u00e9", "coffee.txt"), ("CAFE", "coffee.txt"), ("naive", "coffee.txt"),
        ("stra\u00dfe", "coffee.txt"), ("\u9996\u90fd", "tokyo.txt"),
        ("\u65e5\u672c\u306e\u9996\u90fd\u306f\u3069\u3053", "tokyo.txt"), ("\u90fd", "tokyo.txt"),
        ("\u041c\u041e\u0421\u041a\u0412\u0410", "moscow.txt"), ("DEBUG", "config.rst"),
        ("what does the debug value say?", "config.rst"), ("config", "config.rst"),
        ("run a test", "runs.md"), ("parallel answers", "runs.md"),
        ("какие есть города?", "moscow.txt"),
        ("Welche Fristen gelten für eine Kündigung?", "wohnung.md"),
        ("Kuche", "wohnung.md"), ("Mietzahlung", "wohnung.md"), ("der Monat", "wohnung.md"),
        ("Combien de livre puis-je emprunter ?", "mediatheque.md"),
        ("comment résilier", "mediatheque.md"), ("un retard", "mediatheque.md"),
        ("退货的期限是多久？", "returns.md"), ("什么时候退款", "returns.md"),
        ("เงินประกันกี่เดือน", "thai.md"),
        ("회사가", "korea.md"), ("급여에 대해", "korea.md"),
        ("المستأجرين", "arab.md"), ("महीना", "hindi.md"),
    ],
)  # fmt: skip
def test_queries_that_find_their_document(documents: Documents, query: str, name: str) -> None:
    assert first(documents, query) == name


@pytest.mark.parametrize(
    "query", ["", " ", "?!", "elephant", "\u5317", "max_retry_counter_of", "'\"", "*", "_"]
)
def test_queries_that_find_nothing(documents: Documents, query: str) -> None:
    words = [word for word in ("max", "retry") if word in query]
    assert bool(documents.search(query)) == bool(words)


WORDS = [
    "AND",
    "OR",
    "NOT",
    "NEAR(a b, 3)",
    '"',
    "'",
    "*",
    "^",
    "text:",
    "-",
    "+",
    "{a b}:",
    "(",
    ")",
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=9), max_size=9).map(" ".join))
def test_no_query_is_syntax(documents: Documents, query: str) -> None:
    for hit in documents.search(f"{query} test"):
        assert 0 <= hit.coverage <= 1.0001


# Letters, digits and combining marks of many scripts, and what is between words.
ALPHABET = st.sampled_from(
    "aZ9_. \néß\u0301жΩا\u064eא\u05b8क\u093f\u094dก\u0e31\u0e49ทက\u103cក\u17d2東京あカー\u309a가𠀀"
)


@settings(max_examples=60)
@given(st.text(ALPHABET, max_size=40))
def test_the_words_of_a_text_find_it(parser: DocumentParser, text: str) -> None:
    with Documents() as documents:
        documents.add_data("a.txt", b"x " + text.encode(), parser)
        for term in query_terms(text)[:5]:
            (hit,) = documents.search(term.word)
            assert hit.coverage == pytest.approx(1) and not hit.missing


@settings(max_examples=30)
@given(st.text(st.characters(exclude_characters="\0"), max_size=60))
def test_any_text_may_be_indexed_and_asked_for(parser: DocumentParser, text: str) -> None:
    with Documents() as documents:
        documents.add_data("a.txt", ("x " + text).encode(errors="replace"), parser)
        for hit in documents.search(text + " x"):
            assert 0 <= hit.coverage <= 1.0001


def test_headings_are_searched(documents: Documents) -> None:
    hit = documents.search("values")[0]
    assert hit.name == "config.rst" and "Values" in hit.chunk.heading


def test_coverage_is_weighted_by_rarity(documents: Documents) -> None:
    """1 if all words are found; words that no document has weigh most."""
    (hit,) = documents.search("is it running in parallel")
    assert hit.coverage == pytest.approx(1)
    (hit,) = documents.search("parallel elephants and crocodiles")
    assert 0 < hit.coverage < 0.4
    rare, common = documents.search("running", 1)[0], documents.search("running elephants", 1)[0]
    assert rare.coverage == pytest.approx(1) and common.coverage < 0.5


def query_words(query: str) -> list[str]:
    return [term.word for term in query_terms(query)]


def test_stop_words_are_left_out_unless_there_are_no_others() -> None:
    assert query_words("What is the value of PERMANENT_SESSION_LIFETIME?") == [
        *("value", "PERMANENT", "SESSION", "LIFETIME"),
    ]
    assert query_words("To be or not to be") == ["To", "be", "or", "not"]
    assert query_words("What is it?") == ["What", "is", "it"]
    assert query_words("getHTTPResponse, twice: getHTTPResponse") == [
        *("get", "HTTP", "Response", "getHTTPResponse", "twice"),
    ]


def test_a_hit_says_which_words_it_has(documents: Documents) -> None:
    (hit,) = documents.search("Do crocodiles run in PARALLEL?")
    assert (hit.found, hit.missing) == (("run", "parallel"), ("crocodiles",))


def test_long_queries_are_answered(documents: Documents) -> None:
    query = "max_retry_count " + " ".join(f"word{n}" for n in range(3000))
    assert first(documents, query) == "retry.py"
    assert first(documents, "a_" * 50_000 + " retry") == "retry.py"
