//! Sentences of one line; those that begin a block only up to it.

use ferroce::frame::fault::RuleError;

use super::cursor::Cursor;
use super::error::nearest;
use super::value::{argument, bytes, expr, field, fields, name, time};
use crate::ast::{Expr, Field, Kind, Rule, Value, Values, Word};
use crate::lex::{Fault, Token, at};

/// Objects that a scenario can make.
const MAKES: [&str; 7] = ["memory", "qp", "cq", "srq", "window", "domain", "xrc-domain"];

/// What sentences begin with, to guess what a word was meant to be.
const BEGINNINGS: [&str; 18] = [
    "rule",
    "let",
    "memory",
    "qp",
    "cq",
    "srq",
    "window",
    "domain",
    "xrc-domain",
    "peer",
    "target",
    "counter",
    "fault",
    "wait",
    "for",
    "repeat",
    "in",
    "either",
];

/// What a target must do; other verbs are what it is told to do.
const EXPECTED: [&str; 6] = ["sends", "acknowledges", "completes", "raises", "reports", "stays"];

/// A sentence that does not begin a block.
pub(super) fn sentence(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    match (cursor.peek_word(0), cursor.peek_word(2)) {
        ("rule", _) => rule(cursor),
        ("let", _) => assignment(cursor),
        ("peer", _) => peer(cursor),
        ("target", _) => target(cursor),
        ("qp", "is") => state(cursor),
        ("qp" | "srq", "has") => has(cursor),
        ("memory", "holds" | "is") => memory(cursor),
        ("counter", _) => counter(cursor),
        ("fault", _) => fault(cursor),
        ("wait", _) => {
            cursor.skip();
            let kind = Kind::Wait(time(cursor)?);
            cursor.finish()?;
            Ok(kind)
        }
        ("needs" | "tags", _) => {
            Err(at(&cursor.place(), "`needs` and `tags` stand right below the title of a scenario"))
        }
        (what, _) if MAKES.contains(&what) => make(cursor),
        (word, _) => Err(unknown(cursor, "", word, &BEGINNINGS)),
    }
}

/// The fault of a sentence that there is not.
fn unknown(cursor: &Cursor<'_>, before: &str, word: &str, candidates: &[&str]) -> Fault {
    let found = match cursor.peek(0) {
        Some(token) => token.describe(),
        None => return cursor.expected(&format!("one of {}", list(candidates))),
    };
    let hint = match nearest(word, candidates) {
        Some(meant) => format!("did you mean `{before}{meant}`?"),
        None => format!("expected one of {}", list(candidates)),
    };
    at(&cursor.place(), format!("no such sentence: found {found}, {hint}"))
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn rule(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    const FORM: &str = "as in `rule \"CLAUSE\": \"TEXT\"`";
    cursor.skip();
    let clause = cursor.text(&format!("the clause in quotes, {FORM}"))?.value;
    cursor.symbol(':', &format!("a colon, {FORM}"))?;
    let text = cursor.text(&format!("what it says in quotes, {FORM}"))?.value;
    cursor.finish()?;
    Ok(Kind::Rule(Rule { clause, text }))
}

fn fault(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    let text = cursor.text("a fault rule in quotes, as in `fault \"drop 2nd rc-send-last\"`")?;
    let rule = text.value.parse().map_err(|error: RuleError| at(&text, error.to_string()))?;
    cursor.finish()?;
    Ok(Kind::Fault(rule))
}

fn assignment(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    let name = name(cursor, "the name of a variable")?;
    cursor.symbol('=', "`=`")?;
    let value = expr(cursor)?;
    cursor.finish()?;
    Ok(Kind::Let { name, value })
}

fn make(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    let what = cursor.word("an object")?;
    let name = name(cursor, &format!("the name of the {}", what.value))?;
    let of = match cursor.peek(0) {
        None | Some(Token::Symbol(',')) => None,
        Some(_) => Some(argument(cursor)?),
    };
    if of.is_some() {
        cursor.takes("bytes");
    }
    Ok(Kind::Make { what, name, of, fields: fields(cursor)? })
}

fn peer(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    match cursor.peek_word(0) {
        "sends" => {
            cursor.skip();
            let frame = cursor.word("the name of a frame")?;
            Ok(Kind::PeerSends { frame, fields: fields(cursor)? })
        }
        "resends" => {
            cursor.skip();
            let label = cursor.word("the name that `as` gave to a frame")?;
            cursor.finish()?;
            Ok(Kind::PeerResends { label })
        }
        word => Err(unknown(cursor, "peer ", word, &["sends", "resends"])),
    }
}

fn target(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    let place = cursor.place();
    let verb = cursor.word("what the target does or must do")?;
    match verb.value.as_str() {
        "sends" if cursor.takes("nothing") => silence(cursor, true),
        "stays" => {
            cursor.keyword("silent")?;
            silence(cursor, false)
        }
        "sends" => {
            let frame = cursor.word("the name of a frame")?;
            Ok(Kind::TargetSends { frame, fields: fields(cursor)? })
        }
        "acknowledges" => acknowledged(cursor),
        "completes" => {
            let id = expr(cursor)?;
            Ok(Kind::TargetCompletes { id, fields: fields(cursor)? })
        }
        "raises" => {
            let event = cursor.word("the name of an event")?;
            Ok(Kind::TargetRaises { event, fields: fields(cursor)? })
        }
        "reports" => {
            let event = cursor.word("the name of an event of a connection")?;
            Ok(Kind::TargetReports { event, fields: fields(cursor)? })
        }
        word => match nearest(word, &EXPECTED) {
            Some(meant) => {
                let message = format!("no such sentence: did you mean `target {meant}`?");
                Err(at(&place, message))
            }
            None => call(cursor, verb),
        },
    }
}

fn silence(cursor: &mut Cursor<'_>, frames_only: bool) -> Result<Kind, Fault> {
    cursor.keyword("for")?;
    let time = time(cursor)?;
    cursor.finish()?;
    Ok(Kind::Silence { frames_only, time })
}

fn acknowledged(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    if cursor.peek_word(0) != "psn" {
        return Err(cursor.expected("`psn` and the last one that is acknowledged"));
    }
    let psn = Field { name: cursor.word("`psn`")?, value: Value::Expr(expr(cursor)?) };
    let mut all = vec![psn];
    all.extend(fields(cursor)?);
    Ok(Kind::TargetAcknowledges { fields: all })
}

fn call(cursor: &mut Cursor<'_>, verb: Word) -> Result<Kind, Fault> {
    let mut arguments = Vec::new();
    while !matches!(cursor.peek(0), None | Some(Token::Symbol(','))) {
        if !["to", "on", "at", "from"].contains(&cursor.peek_word(0)) {
            arguments.push(argument(cursor)?);
        } else {
            cursor.skip();
        }
    }
    Ok(Kind::Call { verb, arguments, fields: fields(cursor)? })
}

fn state(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    let name = cursor.word("the name of a QP")?;
    cursor.keyword("is")?;
    let state = cursor.word("a state")?;
    cursor.finish()?;
    Ok(Kind::QpIs { name, state })
}

fn has(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    let what = cursor.word("an object")?;
    let name = cursor.word(&format!("the name of the {}", what.value))?;
    cursor.keyword("has")?;
    let mut all = vec![field(cursor)?];
    all.extend(fields(cursor)?);
    Ok(Kind::Has { what, name, fields: all })
}

fn memory(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    let name = cursor.word("the name of a memory")?;
    if cursor.takes("is") {
        cursor.keyword("untouched")?;
        cursor.finish()?;
        return Ok(Kind::MemoryHolds { name, bytes: None, at: None });
    }
    cursor.keyword("holds")?;
    let bytes = Some(bytes(cursor)?);
    let at = if cursor.takes("at") { Some(expr(cursor)?) } else { None };
    cursor.finish()?;
    Ok(Kind::MemoryHolds { name, bytes, at })
}

fn counter(cursor: &mut Cursor<'_>) -> Result<Kind, Fault> {
    cursor.skip();
    let name = cursor.word("the name of a counter")?;
    cursor.keyword("rises")?;
    cursor.keyword("by")?;
    let by = expr(cursor)?;
    cursor.finish()?;
    Ok(Kind::CounterRises { name, by })
}

/// `for NAME in VALUES`, without its body.
pub(super) fn for_values(cursor: &mut Cursor<'_>) -> Result<(Word, Values), Fault> {
    cursor.skip();
    let name = name(cursor, "the name of a variable")?;
    cursor.keyword("in")?;
    let first = expr(cursor)?;
    if cursor.takes("to") {
        let last = expr(cursor)?;
        cursor.finish()?;
        return Ok((name, Values::Range(first, last)));
    }
    let mut values = vec![first];
    while cursor.takes_symbol(',') {
        values.push(expr(cursor)?);
    }
    if cursor.peek(0).is_some() {
        return Err(cursor.expected("a comma, `to` or the end of the sentence"));
    }
    Ok((name, Values::List(values)))
}

/// `repeat N times`, without its body.
pub(super) fn repeat_times(cursor: &mut Cursor<'_>) -> Result<Expr, Fault> {
    cursor.skip();
    let times = expr(cursor)?;
    cursor.keyword("times")?;
    cursor.finish()?;
    Ok(times)
}

/// Words up to the end of the sentence, one at least.
pub(super) fn words(cursor: &mut Cursor<'_>) -> Result<Vec<Word>, Fault> {
    let mut words = vec![cursor.word("a word")?];
    while cursor.peek(0).is_some() {
        words.push(cursor.word("a word or the end of the line")?);
    }
    Ok(words)
}
