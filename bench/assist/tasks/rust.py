"""The tasks in Rust: instructions, and places to complete."""

from __future__ import annotations

from bench.assist.task import EditTask, every, place, swap
from bench.assist.tokens import COMMENT

LEXER, MATRIX = "lexer.rs", "matrix.rs"

EDITS = [
    EditTask(
        "rename-local", "rename", "lexer.rs", "pub fn tokenize", "    Ok(tokens)\n}",
        "Rename the variable `c` to `current`.",
        every(r"\bc\b(?!')", "current"),
    ),
    EditTask(
        "unused-import", "imports", "lexer.rs", "//! Splits", "    Close,\n}",
        "Remove the unused import.",
        swap("use std::io::Write;\n", ""),
    ),
    EditTask(
        "unwrap", "fix", "lexer.rs", "pub fn tokenize", "    Ok(tokens)\n}",
        "Return Error::UnexpectedChar(c, start) instead of calling unwrap.",
        swap(".parse().unwrap()", ".parse().map_err(|_| Error::UnexpectedChar(c, start))?")
        + swap(".parse().unwrap()", ".parse::<f64>().map_err(|_| Error::UnexpectedChar(c, start))?")
        + swap(
            "let value = digits.parse().unwrap();",
            "let value = match digits.parse() {\n    Ok(value) => value,\n"
            "    Err(_) => return Err(Error::UnexpectedChar(c, start)),\n};",
        ),
    ),
    EditTask(
        "missing-close", "fix", "lexer.rs",
        "    fn atom", "(Error::UnexpectedEnd),\n        }\n    }",
        "atom: return Error::UnexpectedEnd if the closing parenthesis is missing.",
        swap(
            "                self.next();\n                Ok(value)\n",
            "                match self.next() {\n"
            "                    Some(Token::Close) => Ok(value),\n"
            "                    _ => Err(Error::UnexpectedEnd),\n                }\n",
        ),
        needs=(r"Token::Close\b", r"(?s)UnexpectedEnd.*UnexpectedEnd"),
        within=("    fn atom",),
    ),
    EditTask(
        "doc-comments", "comments", "matrix.rs", "    pub fn zeros", "self.columns]\n    }",
        "Add a doc comment to every function.",
        every("(?m)^    pub fn", "    /// C\n    pub fn"),
        free=(COMMENT,), needs=("///",),
    ),
    EditTask(
        "derive", "rewrite", "lexer.rs",
        "#[derive(Debug, PartialEq)]", '"division by zero"),\n        }\n    }\n}',
        "Derive Clone for Error as well.",
        swap("(Debug, PartialEq)", "(Debug, Clone, PartialEq)")
        + swap("(Debug, PartialEq)", "(Debug, PartialEq, Clone)")
        + swap("(Debug, PartialEq)", "(Clone, Debug, PartialEq)"),
    ),
    EditTask(
        "clamp", "rewrite", "matrix.rs", "pub fn mean", "        }\n    }\n}",
        "Use f64::clamp in clamp_all.",
        tuple(
            rewrite
            for new in ("value.clamp(low, high)", "f64::clamp(*value, low, high)",
                        "(*value).clamp(low, high)")
            for rewrite in swap(
                "        if *value < low {\n            *value = low;\n"
                "        } else if *value > high {\n            *value = high;\n        }\n",
                f"        *value = {new};\n",
            )
        ),
    ),
    EditTask(
        "assert", "rewrite", "matrix.rs", "    pub fn get", "        made\n    }",
        "set must panic with an assert! if the row or the column is out of range.",
        swap(
            "value: f64) {\n", "value: f64) {\n"
            "        assert!(row < self.rows && column < self.columns);\n",
        ),
        needs=(r"assert!\([^;]*row < self\.rows", r"assert!\([^;]*column < self\.columns"),
        within=("    pub fn set",),
    ),
]  # fmt: skip

COMPLETIONS = [
    place(LEXER, "Error::UnexpectedEnd => write!(f, ¦\"the expression ends too early\"¦),",
          r'"[^"]*"'),
    place(LEXER, "')' => {\n                ¦tokens.push(Token::Close);¦\n"),
    place(LEXER, "let digits: String = ¦chars[start..at].iter().collect();¦"),
    place(LEXER, "fn peek(&self) -> Option<&Token> {\n        ¦self.tokens.get(self.at)¦"),
    place(LEXER, "left = if op == '+' { left + right } else { ¦left - right¦ };"),
    place(LEXER, "right == 0.0 {\n                ¦return Err(Error::DivisionByZero);¦"),
    place(LEXER, "None => ¦Err(Error::UnknownName(name))¦,"),
    place(LEXER, "while at < chars.len() && ¦chars[at].is_alphanumeric()¦ {"),
    place(LEXER, "Parser::new(¦tokens, HashMap::new()¦).sum()"),
    place(LEXER, "let c = ¦chars[at];¦\n"),
    place(MATRIX, "Matrix { rows, columns, values: ¦vec![0.0; rows * columns]¦ }"),
    place(MATRIX, "let start = ¦row * self.columns;¦"),
    place(MATRIX, "column: usize) -> f64 {\n        self.values[¦row * self.columns + column]¦"),
    place(MATRIX, "made.set(j, i, ¦self.get(i, j)¦);"),
    place(MATRIX, "if self.columns != other.rows {\n            ¦return None;¦"),
    place(MATRIX, "sum += ¦self.get(i, k) * other.get(k, j);¦"),
    place(MATRIX, "for value in &mut self.values {\n            ¦*value *= factor;¦"),
]  # fmt: skip
