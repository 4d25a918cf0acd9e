//! Text into [`ast`](crate::ast): files, scenarios and blocks. `docs/scenarios.md` has the grammar.
//!
//! Whatever the text, parsing ends with a file or an error; depth and length are bounded.

mod cursor;
mod error;
mod sentence;
#[cfg(test)]
mod tests;
mod value;

use std::collections::HashMap;

use cursor::Cursor;
pub use error::ParseError;

use crate::ast::{File, Kind, Scenario, Statement, Word};
use crate::lex::{Fault, Lexer, Sentence, Token, at};

/// Bytes of a file, at most.
const FILE: usize = 1 << 20;

/// Blocks that may be nested.
const DEPTH: usize = 16;

/// Reads a file of scenarios.
///
/// # Errors
/// [`ParseError`] with the place of the first fault, what was found there, and what would be right.
pub fn parse(text: &str) -> Result<File, ParseError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    file(text).map_err(|fault| ParseError::new(text, fault))
}

fn file(text: &str) -> Result<File, Fault> {
    let start = Word { value: String::new(), line: 1, column: 1 };
    if text.len() > FILE {
        return Err(at(&start, format!("a file has at most {FILE} bytes")));
    }
    let mut lexer = Lexer::new(text);
    let first = lexer.sentence()?;
    version(first.as_ref().ok_or_else(|| at(&start, format!("the file is empty; {VERSION}")))?)?;
    let next = lexer.sentence()?;
    let mut parser = Parser { lexer, next };
    let mut scenarios = Vec::new();
    let mut lines = HashMap::new();
    while let Some(first) = parser.advance()? {
        let scenario = parser.scenario(&first)?;
        let name = &scenario.name;
        if let Some(line) = lines.insert(name.value.clone(), name.line) {
            let message =
                format!("`{}` is the name of the scenario in line {line} too", name.value);
            return Err(at(name, message));
        }
        scenarios.push(scenario);
    }
    if scenarios.is_empty() {
        return Err(at(&start, "the file has no `scenario`"));
    }
    Ok(File { scenarios })
}

const VERSION: &str = "a file begins with `ferroce scenarios 1`";

fn version(sentence: &Sentence) -> Result<(), Fault> {
    let mut cursor = Cursor::new(sentence);
    if !cursor.takes("ferroce") || !cursor.takes("scenarios") {
        return Err(at(sentence.start(), VERSION));
    }
    match cursor.peek(0) {
        Some(Token::Number(1)) => cursor.skip(),
        Some(Token::Number(other)) => {
            let message = format!("this is version {other} of the language, expected 1");
            return Err(at(&cursor.place(), message));
        }
        _ => return Err(cursor.expected("1, the version of the language")),
    }
    cursor.finish()
}

/// Reads with one sentence in sight.
struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Option<Sentence>,
}

impl Parser<'_> {
    /// Takes the sentence in sight and reads another.
    fn advance(&mut self) -> Result<Option<Sentence>, Fault> {
        let next = self.lexer.sentence()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn sees(&self, word: &str) -> bool {
        self.next.as_ref().is_some_and(|next| next.begins_with(word))
    }

    fn scenario(&mut self, first: &Sentence) -> Result<Scenario, Fault> {
        let mut cursor = Cursor::new(first);
        cursor.keyword("scenario")?;
        let name = cursor.word("the name of the scenario")?;
        cursor.finish()?;
        let title = self.title(&name)?;
        let (mut needs, mut tags) = (Vec::new(), Vec::new());
        while self.sees("needs") || self.sees("tags") {
            let into = if self.sees("needs") { &mut needs } else { &mut tags };
            let Some(sentence) = self.advance()? else { break };
            let mut cursor = Cursor::new(&sentence);
            cursor.skip();
            into.extend(sentence::words(&mut cursor)?);
        }
        let body = self.body(DEPTH)?;
        if let Some(stray) = self.next.as_ref().filter(|next| !next.begins_with("scenario")) {
            return Err(at(stray.start(), format!("`{}` outside of a block", stray.text)));
        }
        Ok(Scenario { name, title, needs, tags, body })
    }

    fn title(&mut self, name: &Word) -> Result<String, Fault> {
        const WHAT: &str = "what the scenario shows, a sentence in quotes in a line of its own";
        let Some(sentence) = self.advance()? else {
            return Err(at(name, format!("the file ends here, expected {WHAT}")));
        };
        let mut cursor = Cursor::new(&sentence);
        let title = cursor.text(WHAT)?.value;
        cursor.finish()?;
        Ok(title)
    }

    /// Sentences up to one that ends a block, a branch or a scenario; `depth` blocks may be nested.
    fn body(&mut self, depth: usize) -> Result<Vec<Statement>, Fault> {
        let mut body = Vec::new();
        while self.next.is_some() && !["end", "or", "scenario"].iter().any(|word| self.sees(word)) {
            let Some(sentence) = self.advance()? else { break };
            let kind = self.kind(&sentence, depth)?;
            body.push(Statement { line: sentence.start().line, text: sentence.text, kind });
        }
        Ok(body)
    }

    fn kind(&mut self, first: &Sentence, depth: usize) -> Result<Kind, Fault> {
        let mut cursor = Cursor::new(first);
        let word = cursor.peek_word(0);
        if !["for", "repeat", "in", "either"].contains(&word) {
            return sentence::sentence(&mut cursor);
        }
        let Some(depth) = depth.checked_sub(1) else {
            return Err(at(first.start(), format!("blocks are nested at most {DEPTH} deep")));
        };
        match word {
            "for" => {
                let (name, values) = sentence::for_values(&mut cursor)?;
                Ok(Kind::For { name, values, body: self.block(first, depth)? })
            }
            "repeat" => {
                let times = sentence::repeat_times(&mut cursor)?;
                Ok(Kind::Repeat { times, body: self.block(first, depth)? })
            }
            "in" => {
                cursor.skip();
                cursor.keyword("any")?;
                cursor.keyword("order")?;
                cursor.finish()?;
                Ok(Kind::AnyOrder(self.block(first, depth)?))
            }
            _ => {
                cursor.skip();
                cursor.finish()?;
                self.either(first, depth)
            }
        }
    }

    fn block(&mut self, first: &Sentence, depth: usize) -> Result<Vec<Statement>, Fault> {
        let body = self.body(depth)?;
        self.end(first)?;
        Ok(body)
    }

    fn either(&mut self, first: &Sentence, depth: usize) -> Result<Kind, Fault> {
        let mut branches = Vec::new();
        loop {
            let branch = self.body(depth)?;
            if branch.is_empty() {
                return Err(at(first.start(), "a branch of this `either` is empty"));
            }
            branches.push(branch);
            if !self.sees("or") {
                break;
            }
            if let Some(or) = self.advance()? {
                let mut cursor = Cursor::new(&or);
                cursor.skip();
                cursor.finish()?;
            }
        }
        if branches.len() < 2 && self.sees("end") {
            return Err(at(first.start(), "this `either` has no `or`"));
        }
        self.end(first)?;
        Ok(Kind::Either(branches))
    }

    /// The block that began with `first` must end.
    fn end(&mut self, first: &Sentence) -> Result<(), Fault> {
        if self.sees("end") {
            let Some(end) = self.advance()? else { return Ok(()) };
            let mut cursor = Cursor::new(&end);
            cursor.skip();
            return cursor.finish();
        }
        let found = match &self.next {
            Some(next) if next.begins_with("or") => {
                return Err(at(next.start(), "`or` belongs to `either`, expected `end` before it"));
            }
            Some(next) => format!("a scenario begins in line {}", next.start().line),
            None => "the file ends".to_owned(),
        };
        Err(at(first.start(), format!("this block has no `end`: {found}")))
    }
}
