//! Texts of a chart: how wide they are, about, and how they stand in XML.

/// Pixels that a text takes, about: letters of 13 pixels of Helvetica, rather a little more.
pub(super) fn width_of(text: &str) -> f64 {
    let of = |char: char| match char {
        '\u{2009}' => 2.6,
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 3.7,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | ' ' | '-' => 4.7,
        'm' | 'M' | 'W' | '%' | '…' => 11.8,
        'A'..='Z' | 'w' | '=' => 9.2,
        _ => 7.4,
    };
    text.chars().map(of).sum()
}

/// A text in as few lines of at most `width` pixels as its words allow.
pub(super) fn lines(text: &str, width: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if width_of(line) + width_of(word) + 4.7 <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A text as XML has it.
pub(super) fn escaped(text: &str) -> String {
    // XML has no way to say the latter, nor most of the former.
    let allowed = |char: &char| !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}');
    let allowed = text.chars().filter(allowed);
    let mut escaped = String::new();
    for char in allowed {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(lines("time (us)", 200.0), ["time (us)"]);
        assert_eq!(lines("a long label", 40.0), ["a long", "label"]);
        assert_eq!(lines("", 40.0), [""]);
    }
}
