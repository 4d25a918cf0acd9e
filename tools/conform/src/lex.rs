//! Text into sentences of words, numbers, texts and symbols. A sentence is a line, and goes on in
//! the next one where it ends with a comma or a colon.

use std::str::Lines;

use crate::ast::At;

/// What is wrong, and where.
pub(crate) type Fault = At<String>;

/// The smallest part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Letters, digits, hyphens and underscores, beginning with a letter.
    Word(String),
    /// Decimal, `0x` or `0b`.
    Number(u64),
    /// What stands between two quotes.
    Text(String),
    /// One of the symbols.
    Symbol(char),
}

const SYMBOLS: &str = ",:.=+-*()";

impl Token {
    /// As a message names it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Word(word) => format!("`{}`", clip(word)),
            Token::Number(number) => format!("`{number}`"),
            Token::Text(text) => format!("the text \"{}\"", clip(text)),
            Token::Symbol(symbol) => format!("`{symbol}`"),
        }
    }
}

/// The beginning of something that may be long.
fn clip(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// One sentence; it has a token at least.
#[derive(Clone, Debug)]
pub(crate) struct Sentence {
    /// Its tokens with their places.
    pub(crate) tokens: Vec<At<Token>>,
    /// The place behind the last one.
    pub(crate) end: At<()>,
    /// As written, without comments and with one space between its lines.
    pub(crate) text: String,
}

impl Sentence {
    /// Whether it begins with this word.
    pub(crate) fn begins_with(&self, word: &str) -> bool {
        matches!(&self.tokens[0].value, Token::Word(first) if first == word)
    }

    /// The place of its first token.
    pub(crate) fn start(&self) -> &At<Token> {
        &self.tokens[0]
    }
}

/// Reads sentence by sentence, so that the first fault of a file is the one that is found.
pub(crate) struct Lexer<'a> {
    lines: Lines<'a>,
    line: u32,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { lines: text.lines(), line: 0 }
    }

    /// The next sentence, or nothing at the end of the file.
    pub(crate) fn sentence(&mut self) -> Result<Option<Sentence>, Fault> {
        let mut tokens = Vec::new();
        let mut text = String::new();
        for line in self.lines.by_ref() {
            self.line += 1;
            let mut reader = Reader { rest: line, line: self.line, column: 1 };
            let before = tokens.len();
            while let Some(token) = reader.token()? {
                tokens.push(token);
            }
            if tokens.len() > before {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(line[..line.len() - reader.rest.len()].trim());
            }
            let open = tokens.last().is_none_or(|last| is_open(&last.value));
            if !open {
                let end = At { value: (), line: self.line, column: reader.column };
                return Ok(Some(Sentence { tokens, end, text }));
            }
        }
        match tokens.last() {
            None => Ok(None),
            Some(last) => Err(at(last, "the sentence goes on after this, but the file ends")),
        }
    }
}

/// Whether a sentence goes on in the next line after it.
fn is_open(token: &Token) -> bool {
    matches!(token, Token::Symbol(',' | ':'))
}

/// A message about a place.
pub(crate) fn at<T>(place: &At<T>, message: impl Into<String>) -> Fault {
    At { value: message.into(), line: place.line, column: place.column }
}

/// Reads the tokens of a line. At its end `rest` is the comment, and `column` the one behind the
/// last token.
struct Reader<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Reader<'a> {
    fn token(&mut self) -> Result<Option<At<Token>>, Fault> {
        let trimmed = self.rest.trim_start();
        let Some(first) = trimmed.chars().next().filter(|&first| first != '#') else {
            return Ok(None);
        };
        self.take(self.rest.len() - trimmed.len());
        let place = At { value: (), line: self.line, column: self.column };
        let value = match first {
            '"' => self.text()?,
            'a'..='z' | 'A'..='Z' => self.word()?,
            '0'..='9' => self.number()?,
            _ if SYMBOLS.contains(first) => {
                self.take(1);
                Token::Symbol(first)
            }
            _ => {
                let shown = first.escape_debug();
                return Err(at(&place, format!("`{shown}` has no meaning outside of texts")));
            }
        };
        Ok(Some(At { value, line: place.line, column: place.column }))
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        let characters = u32::try_from(taken.chars().count()).unwrap_or(u32::MAX);
        self.column = self.column.saturating_add(characters);
        taken
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let len = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        self.take(len)
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        At { value: message.into(), line: self.line, column: self.column }
    }

    fn text(&mut self) -> Result<Token, Fault> {
        let Some(len) = self.rest[1..].find('"') else {
            return Err(self.fault("this text has no closing `\"` in its line"));
        };
        self.take(1);
        let text = self.take(len);
        self.take(1);
        Ok(Token::Text(text.to_owned()))
    }

    fn word(&mut self) -> Result<Token, Fault> {
        let place = self.fault("");
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if word.ends_with('-') {
            let message = "a word cannot end with a hyphen; a minus needs a space before it";
            return Err(at(&place, message));
        }
        Ok(Token::Word(word.to_owned()))
    }

    fn number(&mut self) -> Result<Token, Fault> {
        let place = self.fault("");
        let written = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let digits = written.replace('_', "");
        let number = if let Some(hexadecimal) = digits.strip_prefix("0x") {
            u64::from_str_radix(hexadecimal, 16)
        } else if let Some(binary) = digits.strip_prefix("0b") {
            u64::from_str_radix(binary, 2)
        } else {
            digits.parse()
        };
        number.map(Token::Number).map_err(|_| at(&place, wrong_number(written)))
    }
}

/// What is wrong with something that begins with a digit.
fn wrong_number(written: &str) -> String {
    let unit = written.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    let shown = clip(written);
    if ["ns", "us", "ms", "s"].contains(&unit) {
        let number = &written[..written.len() - unit.len()];
        format!("found `{shown}`, expected a space before the unit: `{} {unit}`", clip(number))
    } else if unit.is_empty() {
        format!("`{shown}` does not fit in 64 bits")
    } else {
        format!("`{shown}` is not a number of up to 64 bits: decimal, `0x` or `0b`")
    }
}
