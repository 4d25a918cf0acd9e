//! Fields, values, bytes and calculations.

use std::time::Duration;

use super::cursor::Cursor;
use crate::ast::{At, Bytes, Expr, Field, Operator, Value, Word};
use crate::lex::{Fault, Token, at};

/// How deep parentheses and minus signs may be nested.
const DEPTH: usize = 32;

/// How many terms a calculation may have, those in its parentheses not counted.
const TERMS: usize = 64;

/// Words that begin a sentence and name no field: before them the comma was one too many.
const SENTENCES: [&str; 10] =
    ["peer", "target", "rule", "let", "wait", "for", "repeat", "either", "end", "scenario"];

/// Words with a meaning of their own in values, which name nothing.
const RESERVED: [&str; 12] =
    ["any", "as", "at", "counting", "from", "hex", "holds", "is", "of", "on", "quad", "to"];

/// The rest of a sentence: `, NAME VALUE` again and again.
pub(super) fn fields(cursor: &mut Cursor<'_>) -> Result<Vec<Field>, Fault> {
    let mut fields = Vec::new();
    while cursor.takes_symbol(',') {
        let opening = SENTENCES.contains(&cursor.peek_word(0)) && cursor.is_in_later_line();
        if opening {
            let message = "a new sentence begins here, but the line before ends with a comma";
            return Err(at(&cursor.place(), message));
        }
        fields.push(field(cursor)?);
    }
    match cursor.peek(0) {
        None => Ok(fields),
        Some(_) => Err(cursor.expected("a comma or the end of the sentence")),
    }
}

/// One field: `NAME VALUE`.
pub(super) fn field(cursor: &mut Cursor<'_>) -> Result<Field, Fault> {
    let name = cursor.word("the name of a field")?;
    let value = match cursor.peek(0) {
        None | Some(Token::Symbol(',')) => Value::Flag,
        Some(_) => value(cursor)?,
    };
    Ok(Field { name, value })
}

/// A word that is to name something.
pub(super) fn name(cursor: &mut Cursor<'_>, what: &str) -> Result<Word, Fault> {
    if RESERVED.contains(&cursor.peek_word(0)) {
        return Err(cursor.expected(&format!("{what}; this word has a meaning of its own")));
    }
    cursor.word(what)
}

/// The value of a field.
fn value(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    if cursor.takes("any") {
        let named = cursor.takes("as");
        let variable = named.then(|| name(cursor, "the name of a variable")).transpose()?;
        return Ok(Value::Any(variable));
    }
    let first = argument(cursor)?;
    match first {
        Value::Expr(from) if cursor.takes("to") => Ok(Value::Range(from, expr(cursor)?)),
        Value::Expr(Expr::Name(word)) if !cursor.peek_word(0).is_empty() => {
            let mut words = vec![word];
            while !cursor.peek_word(0).is_empty() {
                words.push(cursor.word("a word")?);
            }
            Ok(Value::Words(words))
        }
        first => Ok(first),
    }
}

/// A value that ends where its sense does: a calculation, bytes, a time or a text.
pub(super) fn argument(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    if let Some(Token::Text(_)) = cursor.peek(0) {
        return Ok(Value::Text(cursor.text("a text")?));
    }
    if let Some(bytes) = prefixed(cursor)? {
        return Ok(Value::Bytes(bytes));
    }
    if is_time(cursor) {
        return Ok(Value::Time(time(cursor)?));
    }
    let first = expr(cursor)?;
    if cursor.takes("of") {
        return Ok(Value::Bytes(Bytes::Of(first, expr(cursor)?)));
    }
    if cursor.takes("counting") {
        cursor.keyword("from")?;
        return Ok(Value::Bytes(Bytes::Counting(first, expr(cursor)?)));
    }
    Ok(Value::Expr(first))
}

/// Bytes must be next.
pub(super) fn bytes(cursor: &mut Cursor<'_>) -> Result<Bytes, Fault> {
    let place = cursor.place();
    match argument(cursor)? {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(at(
            &place,
            "expected bytes: `64 of 0xab`, `64 counting from 1`, `hex \"00 11\"` or `quad 5`",
        )),
    }
}

/// Bytes that begin with `hex` or `quad`.
fn prefixed(cursor: &mut Cursor<'_>) -> Result<Option<Bytes>, Fault> {
    if cursor.takes("hex") {
        let digits = cursor.text("digits in quotes: `hex \"00 11 22\"`")?;
        return Ok(Some(Bytes::Hex(hex(&digits)?)));
    }
    if cursor.takes("quad") {
        return Ok(Some(Bytes::Quad(expr(cursor)?)));
    }
    Ok(None)
}

fn hex(text: &At<String>) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut high = None;
    for (column, c) in (text.column + 1..).zip(text.value.chars()) {
        let Some(digit) = c.to_digit(16) else {
            if c == ' ' {
                continue;
            }
            let place = At { value: (), line: text.line, column };
            return Err(at(&place, "expected digits from 0 to f, two to a byte, and spaces"));
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push((high << 4 | digit) as u8),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(at(text, "the last byte has only one digit")),
    }
}

/// Whether a number and a unit of time are next.
fn is_time(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.peek(0), Some(Token::Number(_))) && unit(cursor.peek_word(1)).is_some()
}

/// Nanoseconds of a unit of time.
fn unit(word: &str) -> Option<u64> {
    match word {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    }
}

/// A time must be next.
pub(super) fn time(cursor: &mut Cursor<'_>) -> Result<Duration, Fault> {
    const WHAT: &str = "a time: a number and `ns`, `us`, `ms` or `s`";
    let Some(&Token::Number(number)) = cursor.peek(0) else { return Err(cursor.expected(WHAT)) };
    let place = cursor.place();
    cursor.skip();
    let Some(unit) = unit(cursor.peek_word(0)) else { return Err(cursor.expected(WHAT)) };
    cursor.skip();
    let nanoseconds = number.checked_mul(unit);
    nanoseconds.map(Duration::from_nanos).ok_or_else(|| at(&place, "longer than 500 years"))
}

/// A calculation must be next.
pub(super) fn expr(cursor: &mut Cursor<'_>) -> Result<Expr, Fault> {
    sum(cursor, 0)
}

fn sum(cursor: &mut Cursor<'_>, depth: usize) -> Result<Expr, Fault> {
    let mut terms = 0;
    let mut left = product(cursor, depth, &mut terms)?;
    loop {
        let operator = match cursor.peek(0) {
            Some(Token::Symbol('+')) => Operator::Add,
            Some(Token::Symbol('-')) => Operator::Subtract,
            _ => return Ok(left),
        };
        cursor.skip();
        let right = product(cursor, depth, &mut terms)?;
        left = Expr::Binary(Box::new(left), operator, Box::new(right));
    }
}

fn product(cursor: &mut Cursor<'_>, depth: usize, terms: &mut usize) -> Result<Expr, Fault> {
    let mut left = term(cursor, depth, terms)?;
    while cursor.takes_symbol('*') {
        let right = term(cursor, depth, terms)?;
        left = Expr::Binary(Box::new(left), Operator::Multiply, Box::new(right));
    }
    Ok(left)
}

fn term(cursor: &mut Cursor<'_>, depth: usize, terms: &mut usize) -> Result<Expr, Fault> {
    *terms += 1;
    if *terms > TERMS {
        return Err(at(&cursor.place(), format!("a calculation has at most {TERMS} terms")));
    }
    if depth > DEPTH {
        return Err(at(&cursor.place(), format!("nested more than {DEPTH} deep")));
    }
    match cursor.peek(0) {
        Some(&Token::Number(number)) => {
            cursor.skip();
            Ok(Expr::Number(number))
        }
        Some(Token::Word(_)) => {
            let word = cursor.word("a word")?;
            if cursor.takes_symbol('.') {
                let property = cursor.word("a property, such as `key` of a memory")?;
                return Ok(Expr::Property(word, property));
            }
            Ok(Expr::Name(word))
        }
        Some(Token::Symbol('-')) => {
            cursor.skip();
            Ok(Expr::Negative(Box::new(term(cursor, depth + 1, terms)?)))
        }
        Some(Token::Symbol('(')) => {
            cursor.skip();
            let inner = sum(cursor, depth + 1)?;
            cursor.symbol(')', "`)`")?;
            Ok(inner)
        }
        _ => Err(cursor.expected("a value")),
    }
}
