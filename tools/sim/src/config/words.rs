//! What is wrong with a value, in words of the file: the deserializer's own are those of the
//! language this is written in.

use crate::near::did_you_mean;

/// Keys that are arrays of tables.
const TABLES: [&str; 3] = ["workload", "fault", "topology.link"];

/// A deserializer's message about `key`, in words of the file.
pub(super) fn in_words(message: &str, key: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return unknown_key(rest);
    }
    let after = |start| message.strip_prefix(start);
    let rest = after("invalid type: ").or(after("invalid value: ")).or(after("invalid length "));
    match rest.and_then(|rest| rest.split_once(", expected ")) {
        Some((found, expected)) => wrong_value(found, expected, key),
        None => message.to_owned(),
    }
}

/// "`a`, expected one of `b`, `c`": what stands in backticks.
fn unknown_key(rest: &str) -> String {
    let mut names = rest.split('`').skip(1).step_by(2);
    let name = names.next().unwrap_or_default();
    let names: Vec<&str> = names.collect();
    format!("no such key: {}expected {}", did_you_mean(name, &names), names.join(", "))
}

fn wrong_value(found: &str, expected: &str, key: &str) -> String {
    let short = key.rsplit('.').next().unwrap_or(key);
    let value = value(found);
    let right = match expected {
        "a sequence" if TABLES.contains(&key) => {
            let brackets = format!("[[{key}]] in double brackets");
            return match found {
                "map" => format!("is one table: expected an array of tables, {brackets}"),
                _ => format!("{value}: expected an array of tables, {brackets}"),
            };
        }
        "a sequence" => match found {
            "map" => "an array, in brackets".to_owned(),
            _ => format!("an array: {short} = [{value}]"),
        },
        "a map" => format!("a table, [{key}]"),
        _ if expected.starts_with("struct ") => format!("a table, [{key}]"),
        "a string" => "a text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "f64" => "a number".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => match found.contains("`-") {
            true => "a whole number, not negative".to_owned(),
            false => "a whole number".to_owned(),
        },
        other => other.to_owned(),
    };
    format!("{value}: expected {right}")
}

/// A value as the file has it: "string \"x\"", "integer `5`" without the kind.
fn value(found: &str) -> String {
    match found {
        "sequence" => "an array".to_owned(),
        "map" => "a table".to_owned(),
        _ => {
            let start = found.find(['`', '"']).unwrap_or(0);
            found[start..].trim_matches('`').to_owned()
        }
    }
}
