"""Updates that add a definition, next to one that it could replace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.apply.tasks import update_of
from engine.editing.apply_snippet import merge, ways_of
from engine.editing.edits import EditRefused

MARK = "# ... existing code ..."

# Method -> lines. The first three begin and end alike, and the last two do.
METHODS = {
    "read": ["@abstractmethod", "def read(self):", "    raise NotImplementedError"],
    "write": ["@abstractmethod", "def write(self, data):", "    raise NotImplementedError"],
    "size": ["@abstractmethod", "def size(self):", "    raise NotImplementedError"],
    "close": ["def close(self):", "    self.file.close()", "    return self"],
    "flush": ["def flush(self):", "    self.file.flush()", "    return self"],
}


def _class(names: list[str]) -> list[str]:
    lines = ["class Store:"]
    for name in names:
        lines += [*("    " + line for line in METHODS[name]), ""]
    return lines[:-1]


@given(st.permutations([*METHODS]), st.integers(0, 4), st.integers(1, 4))
def test_no_method_is_lost_where_one_is_added(names: list[str], place: int, context: int) -> None:
    old, new = _class(names[:place] + names[place + 1 :]), _class(names)
    try:
        text = merge("\n".join(old), update_of(old, new, context, "    " + MARK), "store.py").text
    except EditRefused:
        return
    assert text is None or text == "\n".join(new)


def test_a_method_above_a_decorator_may_be_new() -> None:
    old = _class(["close", "read", "write"])
    shown = _class(["close", "read"])[-7:]
    update = "\n".join(["    " + MARK, *shown, "", "    @abstractmethod", "    " + MARK])
    update = update.replace("def read(self)", "def has(self, name)")
    found = merge("\n".join(old), update, "store.py")
    assert found.text is None
    assert found.doubt == "the update may add `has` as well as replace `read` by it"
    replaced = [line.replace("def read(self)", "def has(self, name)") for line in old]
    added = [*old[:5], *replaced[5:9], *old[5:]]
    ways = ways_of("\n".join(old), update, "store.py")
    assert ways and ways.likeliest == added
    assert [*map(ways.allow, (added, replaced, old))] == [True, True, False]


def test_a_class_below_an_end_that_others_have_may_be_new() -> None:
    classes = [
        f"class {name}Decoder(Decoder):\n    kind = {name!r}\n\n"
        "    def flush(self):\n        return self.end()\n\n"
        for name in ("Plain", "Zip", "Brotli", "Zstd")
    ]
    old, new = ("\n".join(each) for each in (classes[:3], classes))
    update = f"{MARK}\n        return self.end()\n\n\n{classes[3]}"
    found = merge(old, update, "decoders.py")
    assert found.text in (None, new.strip())


def test_a_function_below_a_comment_of_its_own_may_be_new() -> None:
    parts = [
        f"/*!\n * {name}\n */\n\nfunction {name}(a) {{\n  if (a) {{\n    {name}s(a);\n  }}\n}}\n\n"
        for name in ("load", "check", "fix")
    ]
    old, new = "".join(parts[:2]) + "end();", "".join(parts) + "end();"
    mark = "// ... existing code ..."
    update = "\n".join([mark, "  }", "}", "", *parts[2].split("\n"), "end();"])
    assert merge(old, update, "a.js").text in (None, new)


def test_a_method_between_lines_of_others_has_a_new_name() -> None:
    old = _class(["close", "flush", "read"])
    new = "\n".join(old).replace("flush(self)", "sync(self)")
    update = "\n".join(["    " + MARK, *new.split("\n")[2:10], "    " + MARK])
    assert merge("\n".join(old), update, "store.py").text == new


def test_a_method_of_which_the_update_hides_lines_has_a_new_name() -> None:
    old = _class(["close", "flush", "read"])
    old[6:6] = [f"        self.step({number})" for number in range(5)]
    new = "\n".join(old).replace("flush(self)", "sync(self)")
    update = "\n".join(["    " + MARK, *new.split("\n")[2:8], "        " + MARK])
    assert merge("\n".join(old), update, "store.py").text == new
