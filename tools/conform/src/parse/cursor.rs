//! A place in a sentence.

use crate::ast::{At, Word};
use crate::lex::{Fault, Sentence, Token, at};

/// Goes through the tokens of a sentence.
pub(super) struct Cursor<'s> {
    tokens: &'s [At<Token>],
    end: At<()>,
    line: u32,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(sentence: &'s Sentence) -> Cursor<'s> {
        let line = sentence.start().line;
        Cursor { tokens: &sentence.tokens, end: sentence.end.clone(), line }
    }

    /// The token after this many others.
    pub(super) fn peek(&self, after: usize) -> Option<&'s Token> {
        self.tokens.get(after).map(|token| &token.value)
    }

    /// The word after this many tokens, or an empty one.
    pub(super) fn peek_word(&self, after: usize) -> &'s str {
        match self.peek(after) {
            Some(Token::Word(word)) => word,
            _ => "",
        }
    }

    pub(super) fn skip(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }

    /// The place of the next token, or behind the last.
    pub(super) fn place(&self) -> At<()> {
        match self.tokens.first() {
            Some(next) => At { value: (), line: next.line, column: next.column },
            None => self.end.clone(),
        }
    }

    /// Whether the next token is in a later line of the sentence than its first.
    pub(super) fn is_in_later_line(&self) -> bool {
        self.place().line > self.line
    }

    /// Takes this word if it is next.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let found = self.peek_word(0) == word;
        if found {
            self.skip();
        }
        found
    }

    /// Takes this symbol if it is next.
    pub(super) fn takes_symbol(&mut self, symbol: char) -> bool {
        let found = self.peek(0) == Some(&Token::Symbol(symbol));
        if found {
            self.skip();
        }
        found
    }

    /// This word must be next.
    pub(super) fn keyword(&mut self, word: &str) -> Result<(), Fault> {
        if self.takes(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// This symbol must be next; `what` names it.
    pub(super) fn symbol(&mut self, symbol: char, what: &str) -> Result<(), Fault> {
        if self.takes_symbol(symbol) { Ok(()) } else { Err(self.expected(what)) }
    }

    /// A word must be next; `what` says which.
    pub(super) fn word(&mut self, what: &str) -> Result<Word, Fault> {
        let place = self.place();
        let Some(Token::Word(word)) = self.peek(0) else { return Err(self.expected(what)) };
        self.skip();
        Ok(At { value: word.clone(), line: place.line, column: place.column })
    }

    /// A text must be next; `what` says which.
    pub(super) fn text(&mut self, what: &str) -> Result<At<String>, Fault> {
        let place = self.place();
        let Some(Token::Text(text)) = self.peek(0) else { return Err(self.expected(what)) };
        self.skip();
        Ok(At { value: text.clone(), line: place.line, column: place.column })
    }

    /// The sentence must end.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        if self.tokens.is_empty() { Ok(()) } else { Err(self.expected("the end of the sentence")) }
    }

    /// The fault of having found something else than `what`.
    pub(super) fn expected(&self, what: &str) -> Fault {
        let found = match self.peek(0) {
            Some(token) => token.describe(),
            None => "the end of the sentence".to_owned(),
        };
        at(&self.place(), format!("found {found}, expected {what}"))
    }
}
