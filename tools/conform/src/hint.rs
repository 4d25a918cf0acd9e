//! What a mistyped or guessed word was perhaps meant to be.

use std::collections::BTreeSet;

/// Words that are all named if none of them is near.
const NAMED: usize = 24;

/// `"; is it `NEAREST`?"`; if none of the names is near, all of them, or nothing if they are many.
pub(crate) fn hint<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let family = family(name, &names);
    if let [first, rest @ ..] = &family[..]
        && !rest.is_empty()
    {
        let rest: Vec<String> = rest.iter().map(|name| format!(" or `{name}`")).collect();
        return format!("; is it `{first}`{}?", rest.concat());
    }
    let near = mistyped(name, &names).or_else(|| shortened(name, &names));
    let near = near.or_else(|| similar(name, &names));
    match near {
        Some(near) => format!("; is it `{near}`?"),
        None if (1..=NAMED).contains(&names.len()) => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("; there is {}", names.join(", "))
        }
        None => String::new(),
    }
}

/// The name that differs in so few letters that a word which may stand for itself was most likely
/// meant to be it. Only this makes a mistake of such a word; [`hint`] has something to say of any.
pub(crate) fn within_few_letters<'a>(
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let far = names.into_iter().map(|other| (strsim::osa_distance(name, other), other));
    let near = far.filter(|&(far, other)| far <= 1 + other.len().min(name.len()) / 3);
    near.min().map(|(_, nearest)| nearest)
}

/// Names that are this one and more, behind a hyphen (`write`: `write-first`, `write-only`), none of
/// which is meant more than another.
fn family<'a>(name: &str, names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let is_longer =
        |candidate: &&&str| candidate.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    names.iter().filter(is_longer).copied().collect()
}

/// The name that differs in few letters.
fn mistyped<'a>(name: &str, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    let far = names.iter().map(|&candidate| (strsim::osa_distance(name, candidate), candidate));
    let (far, nearest) = far.min()?;
    (far <= name.len().min(nearest.len()) / 4).then_some(nearest)
}

/// The name that begins alike and has most of the letters.
fn similar<'a>(name: &str, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    /// Of 1: `recv` and `receive` have 0.89, words that only begin alike about 0.8.
    const ALIKE: f64 = 0.85;
    let name = name.to_lowercase();
    let alike = |candidate: &str| strsim::jaro_winkler(&name, &candidate.to_lowercase());
    let names = names.iter().map(|&candidate| (alike(candidate), candidate));
    let (alike, nearest) = names.max_by(|one, other| one.0.total_cmp(&other.0))?;
    // Of one or two letters any name is near another.
    (alike >= ALIKE && name.len() >= 3).then_some(nearest)
}

/// The shortest name that has all the words of this one between its hyphens (`nak-access`:
/// `nak-remote-access`), or else the longest that is its end (`rkey`: `key`).
fn shortened<'a>(name: &str, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    let has =
        |candidate: &&&str| name.split('-').all(|word| candidate.split('-').any(|own| own == word));
    let longer = names.iter().filter(has).min_by_key(|candidate| candidate.len());
    let ends = |candidate: &&&str| candidate.len() >= 3 && name.ends_with(**candidate);
    longer.or_else(|| names.iter().filter(ends).max_by_key(|candidate| candidate.len())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words() {
        let names = [
            "nak-remote-access",
            "nak-remote-operational",
            "nak-sequence",
            "read",
            "read-request",
            "receive",
            "remote-access",
            "deregisters",
            "key",
            "length",
            "ERR",
            "write-only",
            "compare-swap",
        ];
        let table = [
            ("nak-access", "nak-remote-access"),
            ("request", "read-request"),
            ("recv", "receive"),
            ("remote-acces", "remote-access"),
            ("deregister", "deregisters"),
            ("rkey", "key"),
            ("lenght", "length"),
            ("ERROR", "ERR"),
            ("write-onyl", "write-only"),
        ];
        for (name, meant) in table {
            assert_eq!(hint(name, names), format!("; is it `{meant}`?"), "{name}");
        }
        for name in ["ok", "rd", "payload", "bananas"] {
            assert!(!hint(name, names).contains("is it"), "{name}");
        }
    }

    #[test]
    fn a_family_is_named_whole() {
        let names = ["nak-sequence", "nak-remote-access", "rnr-nak", "read-request", "write"];
        assert_eq!(hint("nak", names), "; is it `nak-remote-access` or `nak-sequence`?");
        assert_eq!(hint("read", names), "; is it `read-request`?");
    }

    #[test]
    fn few_words_are_all_named() {
        assert_eq!(hint("b", ["m", "a"]), "; there is `a`, `m`");
        assert_eq!(hint("b", []), "");
        let many: Vec<String> = (0..=NAMED).map(|number| format!("name-{number}")).collect();
        assert_eq!(hint("b", many.iter().map(String::as_str)), "");
    }

    #[test]
    fn a_word_far_from_every_name_is_no_mistake() {
        assert_eq!(within_few_letters("beginning", ["start"]), None);
        assert_eq!(within_few_letters("xx", ["xy", "start"]), Some("xy"));
    }
}
