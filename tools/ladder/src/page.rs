//! The HTML page around the picture.

use crate::draw;
use crate::scene::Scene;
use crate::xml::{Xml, shortened};
use crate::{Axis, Options};

const TITLE_MAX: usize = 120;

/// A page that needs nothing else.
pub(crate) fn html(scene: &Scene, options: &Options) -> String {
    let mut xml = Xml::new();
    xml.raw("<!DOCTYPE html>\n");
    xml.open("html", &[("lang", &"en")]);
    xml.open("head", &[]);
    xml.empty("meta", &[("charset", &"utf-8")]);
    xml.empty(
        "meta",
        &[
            ("http-equiv", &"Content-Security-Policy"),
            (
                "content",
                &"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'",
            ),
        ],
    );
    xml.element("title", &[], &shortened(&options.title, TITLE_MAX));
    xml.open("style", &[]);
    xml.raw(include_str!("page.css"));
    xml.close();
    xml.close();
    xml.open("body", &[]);
    xml.open("main", &[("data-collapse", &(options.axis == Axis::Order))]);
    xml.raw(&draw::svg(scene, options));
    xml.close();
    xml.open("aside", &[]);
    xml.element("h2", &[], "Flows");
    xml.open("p", &[]);
    for (id, words) in [("all", "all"), ("none", "none")] {
        xml.element("button", &[("type", &"button"), ("id", &id)], words);
    }
    xml.close();
    xml.open("ul", &[]);
    for (index, name) in scene.flows.iter().enumerate() {
        xml.open("li", &[]);
        xml.open("label", &[]);
        let flow = index.to_string();
        xml.empty("input", &[("type", &"checkbox"), ("checked", &"checked"), ("value", &flow)]);
        xml.element("span", &[], name);
        xml.close();
        xml.close();
    }
    xml.close();
    xml.element("h2", &[], "Packet");
    xml.element("pre", &[("id", &"details")], "Point at one; click to keep it.");
    xml.close();
    xml.open("script", &[]);
    xml.raw(include_str!("page.js"));
    xml.close();
    xml.finish()
}
