"""The scripts of a component are checked as code, and its markup is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.checks import check_edit
from engine.editing.script_parts import parse_scripts
from engine.records import Request

VUE = """<script lang="ts">
export const size: number = 3;
</script>

<script setup lang="ts" generic="T extends Record<string, number>">
import { ref } from "vue";

// Shown in the list, é.
const items = ref<string[]>([]);

function load(path: string): void {
  items.value = [path];
}
</script>

<template>
  <p v-for="item in items" @click="load(item)">it's {{ item }} :) </p>
</template>
"""
SVELTE = """<p>it's a list (</p>
<script>
  export let name;
  $: upper = name.toUpperCase();
  function load() { return upper; }
</script>
<style>p { color: red }</style>
"""


def kinds(path: str, old: str, new: str, instruction: str = "Sort the items") -> set[str]:
    request = Request("edit", old, path=path, instruction=instruction)
    return {failed.kind for failed in check_edit(request, new).failed}


@pytest.mark.parametrize(
    ("path", "text", "old", "new", "kind"),
    [
        ("a.vue", VUE, "= [path];", "= [path;", "syntax"),
        ("a.vue", VUE, "// Shown in the list, é.\n", "", "comments"),
        ("a.vue", VUE, "function load(path: string)", "const more = (path) =>", "definitions"),
        ("a.vue", VUE, "</script>\n\n<template", "<template", "syntax"),
        ("a.vue", VUE, "  items.value = [", "  return;\n  items.value = [", "unreachable"),
        ("a.svelte", SVELTE, "return upper; }", "return upper;", "syntax"),
        ("a.svelte", SVELTE, "function load", "function more", "definitions"),
    ],
)  # fmt: skip
def test_a_script_is_checked_as_its_language(
    path: str, text: str, old: str, new: str, kind: str
) -> None:
    assert old in text and kind in kinds(path, text, text.replace(old, new))


@pytest.mark.parametrize(
    ("path", "text", "old", "new", "asked"),
    [
        ("a.vue", VUE, "it's", "its (", "Sort the items"),
        ("a.vue", VUE, "  <p", "  <!-- A list. -->\n  <p", "Add a comment to the template"),
        ("a.vue", VUE, "<p v-for", '<p class="wide_list" v-for', "Add the class `wide_list`"),
        ("a.vue", VUE, "[path];", "[...items.value, path];", "Keep the items"),
        ("a.svelte", SVELTE, "color: red", "color: blue", "Make it blue"),
        ("a.svelte", SVELTE, "toUpperCase", "trim", "Trim the name"),
    ],
)
def test_what_is_right_passes(path: str, text: str, old: str, new: str, asked: str) -> None:
    assert old in text and kinds(path, text, text.replace(old, new), asked) == set()


@given(st.text(st.sampled_from("aé😋\n\r{(\"'`; "), max_size=30))
def test_code_is_found_at_its_place(before: str) -> None:
    text = f"{before}\n<script lang='ts'>\nconst x: number = 1;\n</script>\n{before}"
    tree = parse_scripts("a.vue", text)
    assert tree is not None and not tree.errors
    (statement,) = tree.root.named_children
    assert tree.text_of(statement) == "const x: number = 1;"
    assert parse_scripts("a.vue", before) is None


TAGS = [
    "<script>",
    "</script>",
    '<script lang="ts">',
    "<script type='x'>",
    "<script",
    "a",
    "\n",
    "'",
]


@given(st.lists(st.sampled_from(TAGS), max_size=9).map("".join), st.sampled_from(TAGS))
def test_any_component_is_checked(text: str, more: str) -> None:
    assert isinstance(kinds("a.svelte", text, text + more), set)


def test_many_scripts_take_no_long_time() -> None:
    for piece in ("<script ", "<script '", '"<script "', "<script>"):
        assert parse_scripts("a.vue", piece * 50_000) is None or piece == "<script>"
