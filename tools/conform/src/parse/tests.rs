use std::fmt::Write;
use std::time::Duration;

use super::{ParseError, parse};
use crate::ast::{Bytes, Expr, Kind, Operator, Statement, Value, Values};

const HEAD: &str = "ferroce scenarios 1\nscenario one\n\"Shows it.\"\n";

/// The sentences of a scenario with this body.
fn body(text: &str) -> Vec<Statement> {
    let file = parse(&format!("{HEAD}{text}\n")).unwrap_or_else(|error| panic!("{error}"));
    file.scenarios.into_iter().next().unwrap().body
}

fn kind(text: &str) -> Kind {
    body(text).into_iter().next().unwrap().kind
}

/// The value of the field `x`.
fn field(value: &str) -> Value {
    match kind(&format!("peer sends ack, x {value}")) {
        Kind::PeerSends { mut fields, .. } => fields.remove(0).value,
        other => panic!("{other:?}"),
    }
}

/// A calculation with its parentheses.
fn shown(expr: &Expr) -> String {
    match expr {
        Expr::Number(number) => number.to_string(),
        Expr::Name(word) => word.value.clone(),
        Expr::Property(object, property) => format!("{}.{}", object.value, property.value),
        Expr::Negative(inner) => format!("-{}", shown(inner)),
        Expr::Binary(left, operator, right) => {
            let sign = match operator {
                Operator::Add => '+',
                Operator::Subtract => '-',
                Operator::Multiply => '*',
            };
            format!("({} {sign} {})", shown(left), shown(right))
        }
    }
}

/// Any value, in one line.
fn told(value: &Value) -> String {
    match value {
        Value::Flag => "flag".to_owned(),
        Value::Expr(expr) => shown(expr),
        Value::Any(name) => format!("any {:?}", name.as_ref().map(|name| &name.value)),
        Value::Range(from, to) => format!("{} to {}", shown(from), shown(to)),
        Value::Time(time) => format!("{} ns", time.as_nanos()),
        Value::Words(words) => {
            words.iter().fold("words".to_owned(), |all, word| format!("{all} {}", word.value))
        }
        Value::Bytes(bytes) => told_bytes(bytes),
        Value::Text(text) => format!("text {}", text.value),
    }
}

fn told_bytes(bytes: &Bytes) -> String {
    match bytes {
        Bytes::Of(count, byte) => format!("{} of {}", shown(count), shown(byte)),
        Bytes::Counting(count, byte) => format!("{} counting {}", shown(count), shown(byte)),
        Bytes::Hex(bytes) => format!("hex {bytes:02x?}"),
        Bytes::Quad(value) => format!("quad {}", shown(value)),
    }
}

#[test]
fn a_value_is_told_by_its_shape() {
    let table = [
        ("", "flag"),
        ("5", "5"),
        ("0x_ff", "255"),
        ("0b1010", "10"),
        ("1_000", "1000"),
        ("18446744073709551615", "18446744073709551615"),
        ("n", "n"),
        ("n - 1", "(n - 1)"),
        ("n-1", "n-1"),
        ("-1", "-1"),
        ("- -1", "--1"),
        ("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)"),
        ("(1 + 2) * 3", "((1 + 2) * 3)"),
        ("m.address + 64", "(m.address + 64)"),
        ("any", "any None"),
        ("any as y", "any Some(\"y\")"),
        ("1 to 255", "1 to 255"),
        ("n + 1 to n + 3", "(n + 1) to (n + 3)"),
        ("5 ms", "5000000 ns"),
        ("3 s", "3000000000 ns"),
        ("7 us", "7000 ns"),
        ("9 ns", "9 ns"),
        ("s", "s"),
        ("read", "read"),
        ("read write atomic", "words read write atomic"),
        ("64 of 0xab", "64 of 171"),
        ("n * 2 of n", "(n * 2) of n"),
        ("64 counting from 1", "64 counting 1"),
        ("hex \"00 11 fF\"", "hex [00, 11, ff]"),
        ("hex \"\"", "hex []"),
        ("quad m.key + 1", "quad (m.key + 1)"),
        ("\"ff0e::1, or so # yes\"", "text ff0e::1, or so # yes"),
    ];
    for (written, expected) in table {
        assert_eq!(told(&field(written)), expected, "{written}");
    }
}

#[test]
fn each_sentence_is_understood() {
    let table = [
        ("rule \"A 1\": \"so\"", "Rule"),
        ("rule \"A 1\":\n  \"so\"", "Rule"),
        ("let n = 5 * 2", "Let"),
        ("memory m 4096 bytes", "Make"),
        ("memory m n bytes, access read, at 0x1000, holds 64 of 1", "Make"),
        ("memory m 4096", "Make"),
        ("qp a rc, mtu 256", "Make"),
        ("srq s 16", "Make"),
        ("cq c 16, unpolled", "Make"),
        ("xrc-domain x", "Make"),
        ("window w 2", "Make"),
        ("domain d", "Make"),
        ("peer sends write-only, psn 0, to m.address", "PeerSends"),
        ("peer resends first", "PeerResends"),
        ("target sends ack, psn 0", "TargetSends"),
        ("target sends nothing for 5 ms", "Silence"),
        ("target stays silent for 5 ms", "Silence"),
        ("fault \"drop 2nd rc-send-last\"", "Fault"),
        ("target acknowledges psn n + 1, msn 1", "TargetAcknowledges"),
        ("target completes 7, status success", "TargetCompletes"),
        ("target raises qp-fatal, on a", "TargetRaises"),
        ("target reports connect-request, as c, status 5", "TargetReports"),
        ("target posts send 1, from m", "Call"),
        ("qp a is ERR", "QpIs"),
        ("qp a has timeout 14, access read write", "Has"),
        ("srq s has limit 0", "Has"),
        ("memory m holds 64 of 1 at 128", "MemoryHolds"),
        ("memory m holds quad 7", "MemoryHolds"),
        ("memory m is untouched", "MemoryHolds"),
        ("counter bad_icrc rises by 1", "CounterRises"),
        ("wait 10 us", "Wait"),
        ("for n in 1 to 5\nwait 1 ms\nend", "For"),
        ("for n in send-only,\n  write-only\nend", "For"),
        ("repeat 5 times\nwait 1 ms\nend", "Repeat"),
        ("in any order\ntarget completes 1\ntarget completes 2\nend", "AnyOrder"),
        ("either\ntarget sends ack, psn 0\nor\ntarget sends nothing for 1 ms\nend", "Either"),
    ];
    for (written, expected) in table {
        let told = format!("{:?}", kind(written));
        assert!(told.starts_with(expected), "{written}: {told}");
    }
}

#[test]
fn small_words_between_the_arguments_of_a_call_are_for_the_ear() {
    let table = [
        ("target posts send 1", "posts: send 1"),
        ("target moves a to SQD", "moves: a SQD"),
        ("target arms s at 5", "arms: s 5"),
        ("target stores 64 of 1 at 128, in m", "stores: 64 of 1 128"),
        ("target joins \"ff0e::1\"", "joins: text ff0e::1"),
        ("target destroys a", "destroys: a"),
    ];
    for (written, expected) in table {
        let Kind::Call { verb, arguments, .. } = kind(written) else { panic!("{written}") };
        let arguments: Vec<String> = arguments.iter().map(told).collect();
        assert_eq!(format!("{}: {}", verb.value, arguments.join(" ")), expected);
    }
}

#[test]
fn blocks_nest_and_keep_their_sentences() {
    let body = body(
        "for n in 1 to 3
           repeat 2 times
             wait 1 ms   # for the other
           end
           either
             target completes n
             wait 1 ms
           or
             target stays silent for 1 ms
           end
         end
         wait 2 ms",
    );
    let [Statement { kind: Kind::For { name, values, body: inner }, text, line }, last] = &body[..]
    else {
        panic!("{body:?}")
    };
    assert_eq!((name.value.as_str(), text.as_str(), *line), ("n", "for n in 1 to 3", 4));
    assert!(matches!(values, Values::Range(..)));
    assert_eq!((last.line, &last.kind), (15, &Kind::Wait(Duration::from_millis(2))));
    let [Statement { kind: Kind::Repeat { body: waits, .. }, .. }, either] = &inner[..] else {
        panic!("{inner:?}")
    };
    assert_eq!(waits[0].text, "wait 1 ms");
    let Kind::Either(branches) = &either.kind else { panic!("{either:?}") };
    assert_eq!(branches.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_sentence_keeps_what_was_written_without_comments() {
    let text = "peer sends ack,   psn 0,  # the first\n\n  # more\n    msn 1 # and so on";
    let statement = &body(text)[0];
    assert_eq!(statement.text, "peer sends ack,   psn 0, msn 1");
    assert_eq!(statement.line, 4);
}

#[test]
fn headers_of_scenarios_are_kept() {
    let file = parse(
        "\u{feff}# A file.\r
ferroce scenarios 1\r
scenario one-two\r
\"It — this.\"\r
needs srq atomic\r
tags responder keys\r
wait 1 ms\r
scenario three\r
\"That.\"\r
",
    )
    .unwrap();
    let [one, three] = &file.scenarios[..] else { panic!("{file:?}") };
    let words = |words: &[crate::ast::Word]| {
        words.iter().map(|word| word.value.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((one.name.value.as_str(), one.name.line, one.name.column), ("one-two", 3, 10));
    assert_eq!(one.title, "It — this.");
    assert_eq!(words(&one.needs), "srq atomic");
    assert_eq!(words(&one.tags), "responder keys");
    assert_eq!(one.body.len(), 1);
    assert_eq!((three.needs.len(), three.tags.len(), three.body.len()), (0, 0, 0));
}

/// Body, place from its first line on, and a part of the message.
const FAULTS: &[(&str, (u32, u32), &str)] = &[
    ("peer sends ack, psn 0 msn 1", (1, 23), "found `msn`, expected a comma or the end of the sen"),
    ("peer sends ack psn 0", (1, 16), "found `psn`, expected a comma or the end of the sentence"),
    ("peer sends ack, 5", (1, 17), "found `5`, expected the name of a field"),
    ("peer sends", (1, 11), "found the end of the sentence, expected the name of a frame"),
    ("peer sedns ack", (1, 6), "did you mean `peer sends`?"),
    ("peer waits", (1, 6), "expected one of `sends`, `resends`"),
    ("target send ack", (1, 8), "no such sentence: did you mean `target sends`?"),
    ("target complete 5", (1, 8), "did you mean `target completes`?"),
    ("target", (1, 7), "expected what the target does or must do"),
    ("target stays quiet", (1, 14), "found `quiet`, expected `silent`"),
    ("target stays silent for 5", (1, 26), "expected a time: a number and `ns`"),
    ("target sends nothing for ever", (1, 26), "found `ever`, expected a time"),
    ("target acknowledges 5", (1, 21), "found `5`, expected `psn` and the last one that"),
    ("pere sends ack", (1, 1), "found `pere`, did you mean `peer`?"),
    ("somebody sends ack", (1, 1), "expected one of `rule`, `let`"),
    ("5 sends ack", (1, 1), "found `5`, expected one of"),
    ("qp a is", (1, 8), "expected a state"),
    ("qp", (1, 3), "expected the name of the qp"),
    ("memory of 5", (1, 8), "found `of`, expected the name of the memory; this word has a meaning"),
    ("memory m holds 5", (1, 16), "expected bytes: `64 of 0xab`"),
    ("memory m is clean", (1, 13), "found `clean`, expected `untouched`"),
    ("memory m 64 bites", (1, 13), "found `bites`, expected a comma or the end of the sentence"),
    ("counter x falls by 1", (1, 11), "expected `rises`"),
    ("let n 5", (1, 7), "found `5`, expected `=`"),
    ("let n = ", (1, 8), "found the end of the sentence, expected a value"),
    ("let n = (1 + 2", (1, 15), "expected `)`"),
    ("let n = 1 +", (1, 12), "expected a value"),
    ("let n = m.", (1, 11), "expected a property"),
    ("let n = 5 6", (1, 11), "found `6`, expected the end of the sentence"),
    ("let n = x-", (1, 9), "a word cannot end with a hyphen"),
    ("wait 5ms", (1, 6), "found `5ms`, expected a space before the unit: `5 ms`"),
    ("wait 99999999999 s", (1, 6), "longer than 500 years"),
    ("let n = 0xfg", (1, 9), "`0xfg` is not a number"),
    ("let n = 18446744073709551616", (1, 9), "does not fit in 64 bits"),
    ("let n = 5;", (1, 10), "`;` has no meaning outside of texts"),
    ("rule \"A\" \"b\"", (1, 10), "expected a colon, as in `rule \"CLAUSE\": \"TEXT\"`"),
    ("rule A: \"b\"", (1, 6), "found `A`, expected the clause in quotes"),
    ("rule \"A: b", (1, 6), "this text has no closing `\"`"),
    ("peer sends ack, x hex \"0g\"", (1, 25), "expected digits from 0 to f"),
    ("peer sends ack, x hex \"0\"", (1, 23), "the last byte has only one digit"),
    ("peer sends ack, x hex 0", (1, 23), "expected digits in quotes"),
    ("peer sends ack, x any as", (1, 25), "expected the name of a variable"),
    ("peer sends ack, x 5 counting 5", (1, 30), "found `5`, expected `from`"),
    ("peer sends ack,\npeer sends ack", (2, 1), "the line before ends with a comma"),
    ("peer sends ack, psn 0,", (1, 22), "the sentence goes on after this, but the file ends"),
    ("wait 1 ms\ntags atomic", (2, 1), "`needs` and `tags` stand right below the title"),
    ("repeat 5", (1, 9), "expected `times`"),
    ("repeat 5 times\nwait 1 ms", (1, 1), "this block has no `end`: the file ends"),
    ("for n in 1 to 2\nscenario two\n\"x\"", (1, 1), "no `end`: a scenario begins in line 5"),
    ("for n to 5", (1, 7), "found `to`, expected `in`"),
    ("for n in 1 2", (1, 12), "expected a comma, `to` or the end of the sentence"),
    ("in order", (1, 4), "found `order`, expected `any`"),
    ("either\ntarget completes 1\nend", (1, 1), "this `either` has no `or`"),
    ("either\ntarget completes 1\nor\nend", (1, 1), "a branch of this `either` is empty"),
    ("repeat 2 times\nor\nend", (2, 1), "`or` belongs to `either`"),
    ("end", (1, 1), "`end` outside of a block"),
    ("repeat 1 times\nend end", (2, 5), "found `end`, expected the end of the sentence"),
    ("scenario one\n\"Again.\"", (1, 10), "`one` is the name of the scenario in line 2 too"),
    ("scenario two", (1, 10), "expected what the scenario shows, a sentence in quotes"),
    ("scenario two\nwait 1 ms", (2, 1), "found `wait`, expected what the scenario shows"),
    ("scenario\n\"x\"", (1, 9), "expected the name of the scenario"),
];

#[test]
fn faults_say_where_what_and_what_would_be_right() {
    for &(text, (line, column), message) in FAULTS {
        let error = parse(&format!("{HEAD}{text}\n")).expect_err(text);
        assert!(error.message.contains(message), "{text}:\n{error}");
        assert_eq!((error.line, error.column), (line + 3, column), "{error}");
    }
}

#[test]
fn faults_of_the_beginning_of_a_file() {
    let table = [
        ("", 1, "the file is empty; a file begins with `ferroce scenarios 1`"),
        ("# nothing\n", 1, "the file is empty"),
        ("scenario one\n", 1, "a file begins with `ferroce scenarios 1`"),
        ("\nferroce scenarios 2\n", 2, "this is version 2 of the language, expected 1"),
        ("ferroce scenarios\n", 1, "expected 1, the version of the language"),
        ("ferroce scenarios 1\n", 1, "the file has no `scenario`"),
        ("ferroce scenarios 1\nwait 1 ms\n", 2, "found `wait`, expected `scenario`"),
    ];
    for (text, line, message) in table {
        let error = parse(text).expect_err(text);
        assert!(error.message.contains(message), "{text}:\n{error}");
        assert_eq!(error.line, line, "{error}");
    }
}

#[test]
fn an_error_shows_the_line_with_a_caret_below() {
    let error = parse(&format!("{HEAD}\tpeer sends ack, psn 0 msn 1 # é\n")).unwrap_err();
    let shown = "4:24: found `msn`, expected a comma or the end of the sentence
   peer sends ack, psn 0 msn 1 # é
                         ^";
    assert_eq!(error.to_string(), shown);
}

#[test]
fn of_a_long_line_the_part_around_the_fault_is_shown() {
    let error = parse(&format!("{HEAD}rule \"{}\" no\n", "é".repeat(5_000))).unwrap_err();
    assert_eq!(error.column, 5_009);
    assert!(error.excerpt.chars().count() <= 100, "{error}");
    assert_eq!(error.excerpt.chars().nth(error.caret), Some('n'));
}

#[test]
fn length_and_depth_are_bounded() {
    let nested = |depth: usize| {
        format!("{HEAD}{}{}", "repeat 1 times\n".repeat(depth), "end\n".repeat(depth))
    };
    let calculation = |before: &str, count: usize, after: &str| {
        let (before, after) = (before.repeat(count), after.repeat(count));
        format!("{HEAD}let n = {before}1{after}\n")
    };
    let table: [(String, Result<(), &str>); 8] = [
        (nested(16), Ok(())),
        (nested(17), Err("blocks are nested at most 16 deep")),
        (nested(30_000), Err("blocks are nested at most 16 deep")),
        (calculation("(", 32, ")"), Ok(())),
        (calculation("(", 100_000, ")"), Err("nested more than 32 deep")),
        (calculation("-", 100_000, ""), Err("nested more than 32 deep")),
        (calculation("1 + ", 100_000, ""), Err("a calculation has at most 64 terms")),
        (format!("{HEAD}# {}\n", "x".repeat(1 << 20)), Err("a file has at most 1048576 bytes")),
    ];
    for (text, expected) in table {
        let told = parse(&text).map_err(|error| error.message);
        match expected {
            Ok(()) => assert!(told.is_ok(), "{told:?}"),
            Err(message) => assert!(told.as_ref().is_err_and(|e| e.contains(message)), "{told:?}"),
        }
    }
}

/// A small generator of numbers, each below `n`.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) as usize) % n
    }
}

/// An error must be about a place of the text, and shown.
fn check(text: &str, result: Result<crate::ast::File, ParseError>) {
    let Err(error) = result else { return };
    let lines = text.lines().count().max(1);
    assert!((1..=lines).contains(&(error.line as usize)), "{error}\n{text}");
    let line = text.lines().nth(error.line as usize - 1).unwrap_or_default();
    assert!((error.column as usize) <= line.chars().count() + 1, "{error}\n{text}");
    assert!(error.to_string().lines().count() == 3, "{error}\n{text}");
}

#[test]
fn any_soup_of_tokens_ends_with_a_file_or_an_error() {
    const TOKENS: [&str; 64] = [
        "peer",
        "target",
        "sends",
        "resends",
        "acknowledges",
        "completes",
        "raises",
        "stays",
        "silent",
        "nothing",
        "for",
        "in",
        "any",
        "order",
        "either",
        "or",
        "end",
        "repeat",
        "times",
        "rule",
        "let",
        "memory",
        "qp",
        "srq",
        "is",
        "holds",
        "untouched",
        "counter",
        "rises",
        "by",
        "wait",
        "scenario",
        "needs",
        "tags",
        "psn",
        "a",
        "m",
        "of",
        "counting",
        "from",
        "hex",
        "quad",
        "to",
        "as",
        "at",
        "5",
        "0x10",
        "ms",
        "s",
        "\"00 11\"",
        "\"é\"",
        ",",
        ", ",
        ":",
        "=",
        "+",
        "-",
        "*",
        "(",
        ")",
        ".",
        "\n",
        "\n",
        "# x\n",
    ];
    let mut random = Random(1);
    for _ in 0..4_000 {
        let mut text = HEAD.to_owned();
        for _ in 0..random.below(40) {
            text.push_str(TOKENS[random.below(TOKENS.len())]);
            text.push_str([" ", " ", " ", ""][random.below(4)]);
        }
        check(&text, parse(&text));
    }
}

#[test]
fn any_change_of_a_good_file_ends_with_a_file_or_an_error() {
    let mut good = HEAD.to_owned();
    for example in examples() {
        write!(good, "{}", example.split_once('\n').unwrap().1).unwrap();
    }
    good.push_str("for n in 1 to 5\nrepeat n * (2 - n) times\nwait 1 ms\nend\nend\n");
    good.push_str("either\ntarget completes 1\nor\ntarget sends ack, psn any as p\nend\n");
    let mut random = Random(2);
    for _ in 0..4_000 {
        let mut characters: Vec<char> = good.chars().collect();
        for _ in 0..=random.below(3) {
            let place = random.below(characters.len());
            let count = random.below(20).min(characters.len() - place);
            match random.below(4) {
                0 => drop(characters.drain(place..place + count)),
                1 => {
                    characters[place] = ['"', ',', '\n', '#', '(', 'é', '\0', '9'][random.below(8)]
                }
                2 => {
                    let copy = characters[place..place + count].to_vec();
                    let other = random.below(characters.len());
                    characters.splice(other..other, copy);
                }
                _ => characters.truncate(place.max(60)),
            }
        }
        let text: String = characters.into_iter().collect();
        check(&text, parse(&text));
    }
}

/// The whole files in the description of the language.
fn examples() -> Vec<&'static str> {
    let document = include_str!("../../../../docs/scenarios.md");
    let fenced = document.split("```\n").filter(|part| part.starts_with("ferroce scenarios 1\n"));
    fenced.collect()
}

#[test]
fn every_example_of_the_description_is_understood() {
    let examples = examples();
    assert!(!examples.is_empty());
    for example in examples {
        parse(example).unwrap_or_else(|error| panic!("{error}"));
    }
}
