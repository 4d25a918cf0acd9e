//! A chart as SVG: axes with labels, light lines across, a legend above. Colours are those of Okabe
//! and Ito, which colour-blind readers tell apart; marks have shapes of their own, too.
//!
//! Coordinates have two decimals, so that curves stay smooth when a paper scales them.

use std::fmt::Write;

use super::axis::{Axis, Ruler};

const WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 270.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 38.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 52.0;
const LEGEND_ROW: f64 = 19.0;
/// About the width of a letter.
const LETTER: f64 = 6.8;

/// Okabe and Ito's, without the yellow, which is pale on white.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// From the eighth series on, colours come again with another dash.
const DASHES: [&str; 3] = ["none", "6 3", "2 2"];

/// Points that are more than so many are thinned out: no reader sees more.
const MAX_POINTS: usize = 1600;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line through the points.
    Line,
    /// A line that keeps its height up to the next point.
    Step,
    /// A mark on each point, and a line through them.
    Marked,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Points, by x.
    pub points: Vec<(f64, f64)>,
    /// Least and greatest at each point: bars at marks, a band along a line. Empty: none.
    pub range: Vec<(f64, f64)>,
    /// Which of the points are at least so high, and not known better: their marks are open, with an
    /// arrow. Empty: none.
    pub at_least: Vec<bool>,
}

impl Series {
    /// Points that are known, without ranges.
    pub fn new(name: String, style: Style, points: Vec<(f64, f64)>) -> Series {
        Series { name, style, points, range: Vec::new(), at_least: Vec::new() }
    }

    fn is_open(&self, point: usize) -> bool {
        self.at_least.get(point).is_some_and(|is_open| *is_open)
    }
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Dashed lines across with their names, drawn if they are within the axis.
    pub levels: Vec<(String, f64)>,
}

impl Chart {
    /// It as SVG.
    pub fn svg(&self) -> String {
        let rows = self.legend_rows();
        let has_note = self.series.iter().any(|series| series.at_least.contains(&true));
        let top = TOP + LEGEND_ROW * (rows.len() + usize::from(has_note)) as f64;
        let canvas = Canvas {
            x: Ruler::new(&self.x, self.values(|point, _| vec![point.0]), 6.0),
            y: Ruler::new(
                &self.y,
                self.values(|point, range| vec![point.1, range.0, range.1]),
                5.0,
            ),
            top,
        };
        let height = top + PLOT_HEIGHT + BOTTOM;
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', \
             sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>"
        );
        self.draw_axes(&canvas, &mut out);
        self.draw_levels(&canvas, &mut out);
        for (index, series) in self.series.iter().enumerate() {
            canvas.draw(series, index, &mut out);
        }
        self.draw_legend(&rows, &mut out);
        self.draw_note(top - LEGEND_ROW, &mut out);
        out.push_str("</svg>\n");
        out
    }

    /// Numbers that points and their ranges have on an axis.
    fn values<'c>(
        &'c self,
        of: impl Fn((f64, f64), (f64, f64)) -> Vec<f64> + 'c,
    ) -> impl Iterator<Item = f64> + 'c {
        let points = self.series.iter().flat_map(|series| {
            let range = |index, y| series.range.get(index).copied().unwrap_or((y, y));
            series
                .points
                .iter()
                .enumerate()
                .map(move |(index, point)| (*point, range(index, point.1)))
        });
        points.flat_map(move |(point, range)| of(point, range))
    }

    fn draw_axes(&self, canvas: &Canvas, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, canvas.top + PLOT_HEIGHT);
        for (value, text) in &canvas.y.ticks {
            let y = canvas.y(*value);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {y:.2}H{right}\" stroke=\"#ddd\" stroke-width=\"0.7\"/>\
                 <text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                y + 4.5,
                escaped(text)
            );
        }
        for (value, text) in &canvas.x.ticks {
            let x = canvas.x(*value);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.2} {bottom}v4\" stroke=\"#222\"/>\
                 <text x=\"{x:.2}\" y=\"{:.2}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                escaped(text)
            );
        }
        let middle = canvas.top + PLOT_HEIGHT / 2.0;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n\
             <text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(15 {middle:.2}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            canvas.top,
            (LEFT + right) / 2.0,
            bottom + 40.0,
            escaped(&self.x.label),
            escaped(&self.y.label)
        );
    }

    fn draw_levels(&self, canvas: &Canvas, out: &mut String) {
        let right = WIDTH - RIGHT;
        for (name, value) in self.levels.iter().filter(|(_, value)| canvas.y.holds(*value)) {
            let y = canvas.y(*value);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {y:.2}H{right}\" stroke=\"#666\" stroke-dasharray=\"5 4\"/>\
                 <text x=\"{:.2}\" y=\"{:.2}\" font-size=\"11\" fill=\"#666\">{}</text>",
                right + 4.0,
                y + 4.0,
                escaped(name)
            );
        }
    }

    /// Which series stand in which row of the legend. One without a name needs none.
    fn legend_rows(&self) -> Vec<Vec<usize>> {
        let mut rows = Vec::<Vec<usize>>::new();
        let mut used = f64::INFINITY;
        for (index, series) in self.series.iter().enumerate() {
            if series.name.is_empty() {
                continue;
            }
            let width = legend_width(series);
            if used + width > WIDTH - LEFT - RIGHT {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push(index);
            }
        }
        rows
    }

    /// Says what open marks mean, if there are any.
    fn draw_note(&self, y: f64, out: &mut String) {
        if self.series.iter().any(|series| series.at_least.contains(&true)) {
            let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{:.2}\">{NOTE}</text>", y + 4.5);
        }
    }

    fn draw_legend(&self, rows: &[Vec<usize>], out: &mut String) {
        for (row, members) in rows.iter().enumerate() {
            let y = TOP + LEGEND_ROW * row as f64;
            let mut x = LEFT;
            for &index in members {
                let series = &self.series[index];
                let _ = writeln!(
                    out,
                    "<path d=\"M{x:.2} {y:.2}h22\" {}/>",
                    stroke(index, series.style)
                );
                if series.style == Style::Marked {
                    draw_mark(index, x + 11.0, y, false, out);
                }
                let _ = writeln!(
                    out,
                    "<text x=\"{:.2}\" y=\"{:.2}\">{}</text>",
                    x + 28.0,
                    y + 4.5,
                    escaped(&series.name)
                );
                x += legend_width(series);
            }
        }
    }
}

/// What open marks mean.
const NOTE: &str = "open, with an arrow: at least, as some had not finished";

/// Where things are drawn.
struct Canvas {
    x: Ruler,
    y: Ruler,
    top: f64,
}

impl Canvas {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value)) * PLOT_HEIGHT
    }

    fn draw(&self, series: &Series, index: usize, out: &mut String) {
        let is_marked = series.style == Style::Marked;
        if !series.range.is_empty() && !is_marked {
            self.draw_band(series, index, out);
        }
        let points = thinned(&series.points);
        let mut path = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            let (x, y) = (self.x(*x), self.y(*y));
            let _ = match (place, series.style) {
                (0, _) => write!(path, "M{x:.2} {y:.2}"),
                (_, Style::Step) => write!(path, "H{x:.2}V{y:.2}"),
                _ => write!(path, "L{x:.2} {y:.2}"),
            };
        }
        let _ = writeln!(out, "<path d=\"{path}\" {}/>", stroke(index, series.style));
        if is_marked {
            for (place, (x, y)) in series.points.iter().enumerate() {
                let (x, y) = (self.x(*x), self.y(*y));
                if let Some((low, high)) = series.range.get(place) {
                    let (low, high) = (self.y(*low), self.y(*high));
                    let _ = writeln!(
                        out,
                        "<path d=\"M{:.2} {low:.2}h6m-3 0V{high:.2}m-3 0h6\" fill=\"none\" \
                         stroke=\"{}\"/>",
                        x - 3.0,
                        colour(index)
                    );
                }
                draw_mark(index, x, y, series.is_open(place), out);
            }
        }
    }

    fn draw_band(&self, series: &Series, index: usize, out: &mut String) {
        let mut path = String::new();
        let edges = series.points.iter().zip(&series.range);
        let upper = edges.clone().map(|(point, range)| (point.0, range.1));
        for (place, (x, y)) in upper.chain(edges.rev().map(|(p, range)| (p.0, range.0))).enumerate()
        {
            let command = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.2} {:.2}", self.x(x), self.y(y));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}Z\" fill=\"{}\" fill-opacity=\"0.18\" stroke=\"none\"/>",
            colour(index)
        );
    }
}

fn legend_width(series: &Series) -> f64 {
    28.0 + LETTER * series.name.chars().count() as f64 + 16.0
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn stroke(index: usize, style: Style) -> String {
    let width = if style == Style::Marked { 1.2 } else { 1.4 };
    let dash = DASHES[index / COLOURS.len() % DASHES.len()];
    format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\" \
         stroke-dasharray=\"{dash}\"",
        colour(index)
    )
}

/// A mark of a shape of its own; an open one has an arrow upwards.
fn draw_mark(index: usize, x: f64, y: f64, is_open: bool, out: &mut String) {
    let shape = match index % 5 {
        0 => "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        1 => "m-3.2 -3.2h6.4v6.4h-6.4z",
        2 => "m0 -4.2l4 7h-8z",
        3 => "m0 -4.4l4.4 4.4l-4.4 4.4l-4.4 -4.4z",
        _ => "m0 4.2l4 -7h-8z",
    };
    let colour = colour(index);
    let _ = match is_open {
        false => writeln!(out, "<path d=\"M{x:.2} {y:.2}{shape}\" fill=\"{colour}\"/>"),
        true => writeln!(
            out,
            "<path d=\"M{x:.2} {y:.2}{shape}M{x:.2} {:.2}v-10m-3 4l3 -4l3 4\" fill=\"#fff\" \
             stroke=\"{colour}\" stroke-width=\"1.2\"/>",
            y - 4.0
        ),
    };
}

/// Of many points, the lowest and the highest of each stretch.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let mut thin = Vec::with_capacity(MAX_POINTS + 2);
    for stretch in points.chunks(points.len().div_ceil(MAX_POINTS / 2)) {
        let by = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [stretch.iter().min_by(by), stretch.iter().max_by(by)];
        let mut ends: Vec<(f64, f64)> = ends.into_iter().flatten().copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        thin.extend(ends);
    }
    thin
}

fn escaped(text: &str) -> String {
    let allowed = text.chars().filter(|char| !char.is_control());
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
    use crate::plot::Scale;

    fn chart(style: Style, points: Vec<(f64, f64)>) -> Chart {
        let range = points.iter().map(|point| (point.1 - 1.0, point.1 + 1.0)).collect();
        Chart {
            x: Axis::new("time (us)", Scale::Linear),
            y: Axis::new("queue (KB) & <more>", Scale::Linear),
            series: vec![Series { range, ..Series::new("a < b".to_owned(), style, points) }],
            levels: vec![("Kmin".to_owned(), 3.0)],
        }
    }

    #[test]
    fn every_style_is_well_formed_xml_whatever_the_names() {
        for style in [Style::Line, Style::Step, Style::Marked] {
            for points in [vec![], vec![(1.0, 5.0)], vec![(0.0, 1.0), (2.0, 9.0)]] {
                let svg = chart(style, points).svg();
                let document = roxmltree::Document::parse(&svg).expect("well formed");
                let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
                assert!(texts.contains(&"a < b") && texts.contains(&"queue (KB) & <more>"));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn marks_of_what_had_not_finished_are_open_and_explained() {
        let mut chart = chart(Style::Marked, vec![(0.0, 1.0), (1.0, 2.0)]);
        assert!(!chart.svg().contains(NOTE));
        chart.series[0].at_least = vec![false, true];
        let svg = chart.svg();
        assert!(svg.contains(NOTE));
        assert_eq!(svg.matches("fill=\"#fff\" stroke=").count(), 1, "one mark of two is open");
    }

    #[test]
    fn a_thinned_line_keeps_its_extremes() {
        let mut points: Vec<_> = (0..100_000).map(|x| (f64::from(x), 0.0)).collect();
        points[54_321].1 = 7.0;
        points[54_322].1 = -7.0;
        let thin = thinned(&points);
        assert!(thin.len() <= MAX_POINTS + 2);
        assert!(thin.contains(&(54_321.0, 7.0)) && thin.contains(&(54_322.0, -7.0)));
        assert!(thin.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn a_long_legend_is_broken_into_rows() {
        let mut chart = chart(Style::Line, vec![(0.0, 1.0)]);
        chart.series = vec![chart.series[0].clone(); 20];
        assert!(chart.legend_rows().len() > 1);
        assert_eq!(chart.legend_rows().concat(), (0..20).collect::<Vec<_>>());
    }
}
