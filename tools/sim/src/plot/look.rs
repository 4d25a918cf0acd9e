//! What tells series apart: a colour, a mark and a dash each, so that neither colour-blind readers
//! nor a printer without colours confuse them.
//!
//! Colours are those of Okabe and Ito.

use std::fmt::Write;

use super::chart::Style;

/// Okabe and Ito's, without the yellow, which is pale on white.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Dashes of lines between marks; with seven colours they make 28 pairs.
const DASHES: [&str; 4] = ["none", "7 3", "2 2.5", "9 3 2 3"];

/// As many marks as colours.
const SHAPES: [&str; 7] = [
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "m-3.2 -3.2h6.4v6.4h-6.4z",
    "m0 -4.2l4 7h-8z",
    "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "m0 4.2l4 -7h-8z",
    "m-4.2 0l7 -4v8z",
    "m4.2 0l-7 -4v8z",
];

/// The colour of the series of this number.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// How the line of a series is drawn. Curves with many bends stay solid as long as there are
/// colours: their marks tell them apart.
pub(super) fn stroke(index: usize, style: Style) -> String {
    let (width, dash) = match style {
        Style::Marked => (1.2, index),
        Style::Line | Style::Step => (1.4, index / COLOURS.len()),
    };
    format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\" \
         stroke-dasharray=\"{}\"",
        colour(index),
        DASHES[dash % DASHES.len()]
    )
}

/// A mark; an open one has an arrow upwards.
pub(super) fn draw_mark(index: usize, x: f64, y: f64, is_open: bool, out: &mut String) {
    let shape = SHAPES[index % SHAPES.len()];
    let colour = colour(index);
    // Writing to a String cannot fail.
    let _ = match is_open {
        false => writeln!(
            out,
            "<path d=\"M{x:.2} {y:.2}{shape}\" fill=\"{colour}\" stroke=\"#fff\" \
             stroke-width=\"0.6\"/>"
        ),
        true => writeln!(
            out,
            "<path d=\"M{x:.2} {y:.2}{shape}M{x:.2} {:.2}v-10m-3 4l3 -4l3 4\" fill=\"#fff\" \
             stroke=\"{colour}\" stroke-width=\"1.2\"/>",
            y - 4.0
        ),
    };
}

/// A bar from the lowest to the greatest, both in pixels.
pub(super) fn draw_bar(colour: &str, x: f64, low: f64, high: f64, out: &mut String) {
    let _ = writeln!(
        out,
        "<path d=\"M{:.2} {low:.2}h6m-3 0V{high:.2}m-3 0h6\" fill=\"none\" stroke=\"{colour}\"/>",
        x - 3.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_28_series_look_alike_even_without_colours() {
        let look = |index: usize| {
            let mut mark = String::new();
            draw_mark(index, 0.0, 0.0, false, &mut mark);
            let mark = mark.replace(colour(index), "");
            (mark, stroke(index, Style::Marked).replace(colour(index), ""))
        };
        let looks: std::collections::BTreeSet<_> = (0..28).map(look).collect();
        assert_eq!(looks.len(), 28);
    }
}
