//! XML written so that no text can break out of its place.

use std::fmt::{Display, Write as _};

/// A document in the making. What goes between the tags and into attributes is escaped; names are
/// the program's own.
pub(crate) struct Xml {
    text: String,
    open: Vec<&'static str>,
}

/// An attribute.
pub(crate) type Attribute<'a> = (&'static str, &'a dyn Display);

impl Xml {
    pub fn new() -> Xml {
        Xml { text: String::new(), open: Vec::new() }
    }

    /// Opens an element.
    pub fn open(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.text.push('>');
        self.open.push(name);
    }

    /// Closes the element opened last.
    pub fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            self.text.push_str("</");
            self.text.push_str(name);
            self.text.push_str(">\n");
        }
    }

    /// An element without content.
    pub fn empty(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.text.push_str("/>\n");
    }

    /// An element that holds text.
    pub fn element(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.open(name, attributes);
        self.text.extend(text.chars().map(escaped).flat_map(Escaped::chars));
        self.close();
    }

    /// Text that is markup of the program's own.
    pub fn raw(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    /// The document, with all that is open closed.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }

    fn tag(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(name);
        for (key, value) in attributes {
            let mut text = String::new();
            let result = write!(text, "{value}");
            debug_assert!(result.is_ok(), "text takes everything");
            self.text.push(' ');
            self.text.push_str(key);
            self.text.push_str("=\"");
            self.text.extend(text.chars().map(escaped).flat_map(Escaped::chars));
            self.text.push('"');
        }
    }
}

/// A character as it stands in a document.
enum Escaped {
    Char(char),
    Name(&'static str),
}

impl Escaped {
    fn chars(self) -> impl Iterator<Item = char> {
        let (char, name) = match self {
            Escaped::Char(char) => (Some(char), ""),
            Escaped::Name(name) => (None, name),
        };
        char.into_iter().chain(name.chars())
    }
}

fn escaped(char: char) -> Escaped {
    match char {
        '<' => Escaped::Name("&lt;"),
        '>' => Escaped::Name("&gt;"),
        '&' => Escaped::Name("&amp;"),
        '"' => Escaped::Name("&quot;"),
        '\'' => Escaped::Name("&#39;"),
        '\n' | '\t' => Escaped::Char(char),
        // XML has no way to say these.
        '\0'..' ' | '\u{fffe}' | '\u{ffff}' => Escaped::Char(char::REPLACEMENT_CHARACTER),
        // Nor should text turn the reader's eye around.
        '\u{7f}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Escaped::Char(char::REPLACEMENT_CHARACTER)
        }
        char => Escaped::Char(char),
    }
}

/// At most `max` characters of `text`, on one line; an ellipsis stands for the rest.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    let mut chars = text.chars().map(|char| if char.is_whitespace() { ' ' } else { char });
    let mut short: String = chars.by_ref().take(max).collect();
    if chars.next().is_some() {
        short.pop();
        short.push('\u{2026}');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let hostile = "</text><script>\"'&\0\u{1b}\u{202e}\u{ffff}]]>";
        let mut xml = Xml::new();
        xml.open("a", &[("b", &hostile)]);
        xml.element("c", &[], hostile);
        let text = xml.finish();
        let document = roxmltree::Document::parse(&text).expect("well-formed");
        let read = document.root_element();
        let expected = "</text><script>\"'&\u{fffd}\u{fffd}\u{fffd}\u{fffd}]]>";
        assert_eq!(read.attribute("b"), Some(expected));
        assert_eq!(
            read.children().find(|node| node.has_tag_name("c")).unwrap().text(),
            Some(expected)
        );
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö\u{2026}");
        assert_eq!(shortened("a\nb", 9), "a b");
    }
}
