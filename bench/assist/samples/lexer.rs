//! Splits arithmetic expressions into tokens and evaluates them.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Number(f64),
    Name(String),
    Operator(char),
    Open,
    Close,
}

#[derive(Debug, PartialEq)]
pub enum Error {
    UnexpectedChar(char, usize),
    UnexpectedEnd,
    UnknownName(String),
    DivisionByZero,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnexpectedChar(c, at) => write!(f, "unexpected {c:?} at {at}"),
            Error::UnexpectedEnd => write!(f, "the expression ends too early"),
            Error::UnknownName(name) => write!(f, "unknown name {name}"),
            Error::DivisionByZero => write!(f, "division by zero"),
        }
    }
}

pub fn tokenize(text: &str) -> Result<Vec<Token>, Error> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        match c {
            ' ' | '\t' => at += 1,
            '+' | '-' | '*' | '/' => {
                tokens.push(Token::Operator(c));
                at += 1;
            }
            '(' => {
                tokens.push(Token::Open);
                at += 1;
            }
            ')' => {
                tokens.push(Token::Close);
                at += 1;
            }
            _ if c.is_ascii_digit() => {
                let start = at;
                while at < chars.len() && (chars[at].is_ascii_digit() || chars[at] == '.') {
                    at += 1;
                }
                let digits: String = chars[start..at].iter().collect();
                let value = digits.parse().unwrap();
                tokens.push(Token::Number(value));
            }
            _ if c.is_alphabetic() => {
                let start = at;
                while at < chars.len() && chars[at].is_alphanumeric() {
                    at += 1;
                }
                tokens.push(Token::Name(chars[start..at].iter().collect()));
            }
            _ => return Err(Error::UnexpectedChar(c, at)),
        }
    }
    Ok(tokens)
}

pub struct Parser {
    tokens: Vec<Token>,
    at: usize,
    names: HashMap<String, f64>,
}

impl Parser {
    pub fn new(tokens: Vec<Token>, names: HashMap<String, f64>) -> Self {
        Parser { tokens, at: 0, names }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    pub fn sum(&mut self) -> Result<f64, Error> {
        let mut left = self.product()?;
        while let Some(Token::Operator(op)) = self.peek().cloned() {
            if op != '+' && op != '-' {
                break;
            }
            self.next();
            let right = self.product()?;
            left = if op == '+' { left + right } else { left - right };
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<f64, Error> {
        let mut left = self.atom()?;
        while let Some(Token::Operator(op)) = self.peek().cloned() {
            if op != '*' && op != '/' {
                break;
            }
            self.next();
            let right = self.atom()?;
            if op == '/' && right == 0.0 {
                return Err(Error::DivisionByZero);
            }
            left = if op == '*' { left * right } else { left / right };
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<f64, Error> {
        match self.next() {
            Some(Token::Number(value)) => Ok(value),
            Some(Token::Name(name)) => match self.names.get(&name) {
                Some(value) => Ok(*value),
                None => Err(Error::UnknownName(name)),
            },
            Some(Token::Open) => {
                let value = self.sum()?;
                self.next();
                Ok(value)
            }
            _ => Err(Error::UnexpectedEnd),
        }
    }
}

pub fn evaluate(text: &str) -> Result<f64, Error> {
    let tokens = tokenize(text)?;
    Parser::new(tokens, HashMap::new()).sum()
}
