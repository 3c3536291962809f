"""The tasks in Go: instructions, and places to complete."""

from __future__ import annotations

from bench.assist.task import EditTask, every, place, renamed, swap
from bench.assist.tokens import COMMENT

LIMITER, NOTES = "limiter.go", "notes.go"

EDITS = [
    EditTask(
        "rename-local", "rename", "limiter.go", "func (l *Limiter) Clients", "return removed\n}",
        "Rename the variable `names` to `clients`.",
        renamed("names", "clients"),
    ),
    EditTask(
        "rename-receiver", "rename", "notes.go", "// Save writes", "return note, err\n}",
        "Rename the receiver `s` to `store`.",
        every(r"\bs\b(?=\.| \*Store)", "store"),
    ),
    EditTask(
        "doc-comments", "comments", "limiter.go", "func (l *Limiter) Remaining", "return names\n}",
        "Add a doc comment to every method.",
        every(r"(?m)^func \(l \*Limiter\) (\w+)", r"// \1 does.\nfunc (l *Limiter) \1"),
        free=(COMMENT,), needs=("// Remaining ", "// Forget ", "// Clients "),
    ),
    EditTask(
        "wrap-error", "fix", "limiter.go", "func (l *Limiter) Forget", "return names\n}",
        "Wrap the error so that errors.Is finds it.",
        swap("%v", "%w"),
    ),
    EditTask(
        "sorted", "rewrite", "limiter.go", "func (l *Limiter) Clients", "return removed\n}",
        "Clients should return the names sorted.",
        swap("\treturn names\n", "\tsort.Strings(names)\n\treturn names\n")
        + swap("\treturn names\n", "\tslices.Sort(names)\n\treturn names\n"),
    ),
    EditTask(
        "json-tags", "rewrite", "notes.go", "type Note struct", 'id+".json")\n}',
        "Add JSON tags in lower case to the fields of Note.",
        every(r"(?m)^\t(ID|Title|Body|Tags)( +)(\S+)$",
              lambda found: f'\t{found[1]}{found[2]}{found[3]} `json:"{found[1].lower()}"`'),
    ),
    EditTask(
        "empty-slice", "rewrite", "notes.go", "// WithTag", "return counts\n}",
        "WithTag should return an empty slice instead of nil if there is no such note.",
        swap("var found []Note", "found := []Note{}")
        + swap("var found []Note", "found := make([]Note, 0)")
        + swap("var found []Note", "var found = []Note{}")
        + swap("var found []Note", "found := make([]Note, 0, len(notes))")
        + swap("\treturn found\n",
               "\tif found == nil {\n\t\treturn []Note{}\n\t}\n\treturn found\n")
        + swap("\treturn found\n",
               "\tif len(found) == 0 {\n\t\treturn []Note{}\n\t}\n\treturn found\n"),
    ),
    EditTask(
        "trim", "rewrite", "notes.go", "func Slug", "return b.String()\n}",
        "Ignore white space around the title.",
        swap("strings.ToLower(title)", "strings.ToLower(strings.TrimSpace(title))")
        + swap("strings.ToLower(title)", "strings.TrimSpace(strings.ToLower(title))")
        + swap("\tvar b strings", "\ttitle = strings.TrimSpace(title)\n\tvar b strings")
        + swap("Builder\n", "Builder\n\ttitle = strings.TrimSpace(title)\n"),
    ),
]  # fmt: skip

COMPLETIONS = [
    place(LIMITER, "if b.tokens < 1 {\n\t\t¦return false¦\n\t}"),
    place(LIMITER, "now := l.now()\n\t¦b, ok := l.buckets[client]¦\n"),
    place(LIMITER, "b = &bucket{¦tokens: float64(l.burst), last: now¦}",
          r"last: now, tokens: float64\(l\.burst\)"),
    place(LIMITER, "elapsed := ¦now.Sub(b.last).Seconds()¦"),
    place(LIMITER, "if b.tokens > float64(l.burst) {\n\t\t¦b.tokens = float64(l.burst)¦"),
    place(LIMITER, "if !ok {\n\t\t¦return 0, ErrUnknownClient¦", r"return 0, fmt\.Errorf\(.*\)"),
    place(LIMITER, "for name := range l.buckets {\n\t\t¦names = append(names, name)¦"),
    place(LIMITER, "rate:    rate,\n\t\t¦burst:   burst,¦\n"),
    place(LIMITER, "if ¦b.last.Before(limit)¦ {"),
    place(LIMITER, "limit := ¦l.now().Add(-age)¦"),
    place(NOTES, 'filepath.Glob(¦filepath.Join(s.Folder, "*.json")¦)'),
    place(NOTES, "note, err := s.Load(id)\n\t\t¦if err != nil {\n"
          '\t\t\treturn nil, fmt.Errorf("%s: %w", name, err)\n\t\t}¦\n', r"if err != nil \{"),
    place(NOTES, 'id := strings.TrimSuffix(¦filepath.Base(name), ".json"¦)',
          r'name, "\.json"'),
    place(NOTES, 'return filepath.Join(¦s.Folder, id+".json"¦)'),
    place(NOTES, "data, err := os.ReadFile(s.path(id))\n"
          "\t¦if err != nil {\n\t\treturn note, err\n\t}¦"
          "\n\terr = json.Unmarshal(data, &note)\n\treturn note, err§"),
    place(NOTES, "func(i, j int) bool {\n\t\treturn ¦found[i].Title < found[j].Title¦"),
    place(NOTES, "if ¦strings.EqualFold(one, tag)¦ {", "one == tag"),
    place(NOTES, "for _, tag := range note.Tags {\n\t\t\t¦counts[strings.ToLower(tag)]++¦",
          r"counts\[tag\]\+\+"),
]  # fmt: skip
