//! A chart as SVG: axes with labels, light lines across, a legend above.
//!
//! Coordinates have two decimals, so that curves stay smooth when a paper scales them.

use std::fmt::Write;

use super::axis::{Axis, Ruler, Scale};
use super::look::{colour, draw_bar, draw_mark, stroke};
use super::text::{escaped, lines, width_of};

/// Pixels that a chart is wide unless it is said.
pub const DEFAULT_WIDTH: u32 = 560;

/// What a chart may be wide.
pub const WIDTHS: std::ops::RangeInclusive<u32> = 240..=2000;

const TOP: f64 = 14.0;
/// Pixels from line to line of a text.
const LINE: f64 = 15.0;
const LEGEND_ROW: f64 = 19.0;
/// Where the legend begins.
const LEGEND_LEFT: f64 = 12.0;
/// A swatch of the legend with the gap behind it.
const SWATCH: f64 = 28.0;

/// Points that are more than so many are thinned out: no reader sees more.
const MAX_POINTS: usize = 1600;

/// Marks along a curve that tell it from others.
const MARKS: usize = 7;

/// Marks of several series that are less than so many pixels apart stand side by side.
const MARK_SIZE: f64 = 8.0;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line through the points.
    Line,
    /// A line that keeps its height up to the next point.
    Step,
    /// A mark on each point, and, if x has numbers, a line through them.
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
    /// Which of the points are at least so high, and not known better: their marks are open, with
    /// an arrow. Empty: none.
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
    /// The vertical axis, which begins at 0 unless it is logarithmic.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Dashed lines across with their names, drawn if they are within the axis.
    pub levels: Vec<(String, f64)>,
    /// What ranges of series show, for the legend.
    pub range: String,
    /// Pixels it is wide, of [`WIDTHS`]; texts have 13 whatever it is.
    pub width: u32,
}

/// An entry of the legend.
#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Series(usize),
    /// What bands or bars mean.
    Range {
        is_band: bool,
    },
    /// What open marks mean.
    Open(usize),
}

impl Chart {
    /// One of the usual width without ranges and levels.
    pub fn new(x: Axis, y: Axis, series: Vec<Series>) -> Chart {
        let (levels, range) = (Vec::new(), String::new());
        Chart { x, y, series, levels, range, width: DEFAULT_WIDTH }
    }

    /// It as SVG.
    pub fn svg(&self) -> String {
        let rows = self.legend_rows();
        let canvas = Canvas::new(self, TOP + LEGEND_ROW * rows.len() as f64);
        let (width, height) = (self.width, canvas.height);
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', \
             sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>"
        );
        canvas.draw_axes(&mut out);
        canvas.draw_labels(&mut out);
        canvas.draw_levels(&mut out);
        for (index, series) in self.series.iter().enumerate() {
            canvas.draw_line(series, index, &mut out);
        }
        // Above all lines: no line hides a mark.
        canvas.draw_marks(&mut out);
        self.draw_legend(&rows, &mut out);
        out.push_str("</svg>\n");
        out
    }

    /// Numbers that points and their ranges have on the vertical axis.
    fn heights(&self) -> impl Iterator<Item = f64> {
        let of = |series: &Series| {
            let points = series.points.iter().map(|point| point.1).collect::<Vec<_>>();
            let range = series.range.iter().flat_map(|range| [range.0, range.1]);
            points.into_iter().chain(range.collect::<Vec<_>>())
        };
        self.series.iter().flat_map(of).chain((self.y.reach > 0.0).then_some(self.y.reach))
    }

    /// What the legend explains, in order. A series without a name needs no entry.
    fn entries(&self) -> Vec<(Entry, &str)> {
        let all = self.series.iter().enumerate();
        let mut entries: Vec<(Entry, &str)> =
            all.map(|(index, series)| (Entry::Series(index), series.name.as_str())).collect();
        if let Some(ranged) = self.series.iter().find(|series| !series.range.is_empty()) {
            let is_band = ranged.style != Style::Marked;
            entries.push((Entry::Range { is_band }, &self.range));
        }
        if let Some(open) = self.series.iter().position(|series| series.at_least.contains(&true)) {
            entries.push((Entry::Open(open), "at least: some had not finished"));
        }
        entries.retain(|entry| !entry.1.is_empty());
        entries
    }

    /// Which entries stand in which row of the legend.
    fn legend_rows(&self) -> Vec<Vec<(Entry, &str)>> {
        let mut rows = Vec::<Vec<(Entry, &str)>>::new();
        let mut used = f64::INFINITY;
        for entry in self.entries() {
            let width = SWATCH + width_of(entry.1) + 14.0;
            if used + width > f64::from(self.width) - LEGEND_LEFT {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push(entry);
            }
        }
        rows
    }

    fn draw_legend(&self, rows: &[Vec<(Entry, &str)>], out: &mut String) {
        for (row, entries) in rows.iter().enumerate() {
            let y = TOP + LEGEND_ROW * row as f64;
            let mut x = LEGEND_LEFT;
            for (entry, name) in entries {
                self.draw_swatch(entry, x, y, out);
                // One that is longer than the chart is wide is pressed together.
                let (room, width) = (f64::from(self.width) - x - SWATCH - 4.0, width_of(name));
                let pressed = match width > room {
                    true => format!(" textLength=\"{room:.2}\" lengthAdjust=\"spacingAndGlyphs\""),
                    false => String::new(),
                };
                let _ = writeln!(
                    out,
                    "<text x=\"{:.2}\" y=\"{:.2}\"{pressed}>{}</text>",
                    x + SWATCH,
                    y + 4.5,
                    escaped(name)
                );
                x += SWATCH + width + 14.0;
            }
        }
    }

    fn draw_swatch(&self, entry: &Entry, x: f64, y: f64, out: &mut String) {
        match *entry {
            Entry::Series(index) => {
                let style = self.series[index].style;
                if style != Style::Marked || self.x.names.is_empty() {
                    let stroke = stroke(index, style);
                    let _ = writeln!(out, "<path d=\"M{x:.2} {y:.2}h22\" {stroke}/>");
                }
                if style == Style::Marked || self.series.len() > 1 {
                    draw_mark(index, x + 11.0, y, false, out);
                }
            }
            Entry::Range { is_band: true } => {
                let y = y - 5.0;
                let _ = writeln!(
                    out,
                    "<path d=\"M{x:.2} {y:.2}h22v10h-22z\" fill=\"#444\" fill-opacity=\"0.22\"/>"
                );
            }
            Entry::Range { is_band: false } => draw_bar("#444", x + 11.0, y + 6.0, y - 6.0, out),
            Entry::Open(index) => draw_mark(index, x + 11.0, y + 4.0, true, out),
        }
    }
}

/// Where things are drawn.
struct Canvas<'c> {
    chart: &'c Chart,
    x: Ruler,
    y: Ruler,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    height: f64,
    /// Lines of the labels of x and y.
    labels: [Vec<String>; 2],
    /// Names along x are too many to stand side by side.
    is_slanted: bool,
}

impl<'c> Canvas<'c> {
    /// Room for everything that stands around the plot: texts are as long as they are.
    fn new(chart: &'c Chart, top: f64) -> Canvas<'c> {
        let width = f64::from(chart.width);
        let plot_height = (width * 0.48).round().clamp(190.0, 480.0);
        let y = Ruler::new(&chart.y, chart.heights(), 5.0, true);
        let across = chart.series.iter().flat_map(|series| series.points.iter().map(|p| p.0));
        let x = Ruler::new(&chart.x, across, (width / 90.0).max(3.0), false);
        let longest =
            |ruler: &Ruler| ruler.ticks.iter().map(|(_, text)| width_of(text)).fold(0.0, f64::max);
        let label_y = lines(&titled(&chart.y), plot_height);
        let left = 8.0 + LINE * label_y.len() as f64 + 6.0 + longest(&y) + 7.0;
        let level = chart.levels.iter().filter(|(_, value)| y.holds(*value));
        let level = level.map(|(name, _)| 8.0 + width_of(name)).fold(0.0, f64::max);
        let last = x.ticks.last().map_or(0.0, |(_, text)| width_of(text) / 2.0);
        let names = !chart.x.names.is_empty();
        let right = width - level.max(if names { 0.0 } else { last }).max(8.0) - 4.0;
        let each = (right - left) / x.ticks.len().max(1) as f64;
        let is_slanted = names && longest(&x) + 8.0 > each;
        let label_x = lines(&titled(&chart.x), right - left);
        let texts = if is_slanted { 10.0 + 0.6 * longest(&x) } else { 18.0 };
        let bottom = top + plot_height;
        let height = bottom + texts + 8.0 + LINE * label_x.len() as f64 + 6.0;
        let height = height.ceil();
        let labels = [label_x, label_y];
        Canvas { chart, x, y, left, right, top, bottom, height, labels, is_slanted }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }

    fn draw_axes(&self, out: &mut String) {
        let Canvas { left, right, top, bottom, .. } = *self;
        for (value, text) in &self.y.ticks {
            let y = self.y(*value);
            let _ = writeln!(
                out,
                "<path d=\"M{left:.2} {y:.2}H{right:.2}\" stroke=\"#ddd\" stroke-width=\"0.7\"/>\
                 <text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>",
                left - 7.0,
                y + 4.5,
                escaped(text)
            );
        }
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &self.x.ticks {
            let (x, half) = (self.x(*value), width_of(text) / 2.0);
            let _ = writeln!(out, "<path d=\"M{x:.2} {bottom:.2}v4\" stroke=\"#222\"/>");
            let text = escaped(text);
            let _ = if self.is_slanted {
                let y = bottom + 15.0;
                writeln!(
                    out,
                    "<text transform=\"translate({x:.2} {y:.2}) rotate(-35)\" \
                     text-anchor=\"end\">{text}</text>"
                )
            } else if x - half >= free {
                free = x + half + 4.0;
                let y = bottom + 18.0;
                writeln!(
                    out,
                    "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"middle\">{text}</text>"
                )
            } else {
                Ok(())
            };
        }
        let _ = writeln!(
            out,
            "<path d=\"M{left:.2} {top:.2}V{bottom:.2}H{right:.2}\" fill=\"none\" \
             stroke=\"#222\"/>"
        );
    }

    fn draw_labels(&self, out: &mut String) {
        let [label_x, label_y] = &self.labels;
        let middle = (self.left + self.right) / 2.0;
        for (line, text) in label_x.iter().rev().enumerate() {
            let y = self.height - 8.0 - LINE * line as f64;
            let text = escaped(text);
            let _ = writeln!(
                out,
                "<text x=\"{middle:.2}\" y=\"{y:.2}\" text-anchor=\"middle\">{text}</text>"
            );
        }
        let middle = (self.top + self.bottom) / 2.0;
        for (line, text) in label_y.iter().enumerate() {
            let x = 17.0 + LINE * line as f64;
            let text = escaped(text);
            let _ = writeln!(
                out,
                "<text transform=\"translate({x:.2} {middle:.2}) rotate(-90)\" \
                 text-anchor=\"middle\">{text}</text>"
            );
        }
    }

    fn draw_levels(&self, out: &mut String) {
        let Canvas { left, right, .. } = *self;
        let levels = self.chart.levels.iter().filter(|(_, value)| self.y.holds(*value));
        for (name, value) in levels {
            let y = self.y(*value);
            let _ = writeln!(
                out,
                "<path d=\"M{left:.2} {y:.2}H{right:.2}\" stroke=\"#666\" \
                 stroke-dasharray=\"5 4\"/><text x=\"{:.2}\" y=\"{:.2}\" fill=\"#666\">{}</text>",
                right + 4.0,
                y + 4.5,
                escaped(name)
            );
        }
    }

    /// The line of a series with its band.
    fn draw_line(&self, series: &Series, index: usize, out: &mut String) {
        if series.style == Style::Marked {
            // Between names there is nothing: a line would say that there were.
            if self.chart.x.names.is_empty() {
                self.draw_path(&series.points, series.style, index, out);
            }
            return;
        }
        if !series.range.is_empty() {
            self.draw_band(series, index, out);
        }
        self.draw_path(&thinned(&series.points), series.style, index, out);
    }

    fn draw_path(&self, points: &[(f64, f64)], style: Style, index: usize, out: &mut String) {
        let mut path = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            let (x, y) = (self.x(*x), self.y(*y));
            let _ = match (place, style) {
                (0, _) => write!(path, "M{x:.2} {y:.2}"),
                (_, Style::Step) => write!(path, "H{x:.2}V{y:.2}"),
                _ => write!(path, "L{x:.2} {y:.2}"),
            };
        }
        let _ = writeln!(out, "<path d=\"{path}\" {}/>", stroke(index, style));
    }

    fn draw_band(&self, series: &Series, index: usize, out: &mut String) {
        let edges = series.points.iter().zip(&series.range);
        let upper =
            thinned(&edges.clone().map(|(point, range)| (point.0, range.1)).collect::<Vec<_>>());
        let lower = thinned(&edges.map(|(point, range)| (point.0, range.0)).collect::<Vec<_>>());
        let mut path = String::new();
        for (place, (x, y)) in upper.iter().chain(lower.iter().rev()).enumerate() {
            let command = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.2} {:.2}", self.x(*x), self.y(*y));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}Z\" fill=\"{}\" fill-opacity=\"0.22\" stroke=\"none\"/>",
            colour(index)
        );
    }

    fn draw_marks(&self, out: &mut String) {
        for (index, series) in self.chart.series.iter().enumerate() {
            if series.style != Style::Marked {
                for (x, y) in self.marks_along(series, index) {
                    draw_mark(index, self.x(x), self.y(y), false, out);
                }
                continue;
            }
            for (place, (x, y)) in series.points.iter().enumerate() {
                let (left, right) = (self.left + MARK_SIZE / 2.0, self.right - MARK_SIZE / 2.0);
                let at = (self.x(*x) + self.shift(index, *x, *y)).clamp(left, right);
                if let Some((low, high)) = series.range.get(place) {
                    draw_bar(colour(index), at, self.y(*low), self.y(*high), out);
                }
                draw_mark(index, at, self.y(*y), series.is_open(place), out);
            }
        }
    }

    /// Pixels that a mark stands beside its place, since others are there, too, but never among
    /// those of the next place. Of names each series has its own place.
    fn shift(&self, index: usize, x: f64, y: f64) -> f64 {
        let all = &self.chart.series;
        let names = self.chart.x.names.len();
        if names > 0 {
            let each = 0.7 * (self.right - self.left) / (names * all.len()) as f64;
            return (index as f64 - (all.len() - 1) as f64 / 2.0) * each.min(16.0);
        }
        let is_close = |other: &f64| (self.y(*other) - self.y(y)).abs() < MARK_SIZE;
        let has_one = |series: &Series| {
            let here = series.points.iter().filter(|point| point.0 == x);
            here.map(|point| point.1).any(|other| is_close(&other))
        };
        let close: Vec<usize> = (0..all.len()).filter(|other| has_one(&all[*other])).collect();
        let place = close.iter().position(|other| *other == index).unwrap_or(0);
        let count = close.len().max(1) as f64;
        let distances = all.iter().flat_map(|series| &series.points);
        let distances = distances.map(|point| (self.x(point.0) - self.x(x)).abs());
        let next = distances.filter(|distance| *distance > 0.0).fold(f64::INFINITY, f64::min);
        let step = (MARK_SIZE - 1.0).min(0.6 * next / count);
        (place as f64 - (count - 1.0) / 2.0) * step
    }

    /// Points of a curve that are marked, if there are several curves: at places of its own.
    fn marks_along(&self, series: &Series, index: usize) -> Vec<(f64, f64)> {
        let all = self.chart.series.len();
        let mut marks = Vec::new();
        if all < 2 {
            return marks;
        }
        for mark in 0..MARKS {
            let wanted = (mark as f64 + (index as f64 + 0.5) / all as f64) / MARKS as f64;
            let behind = series.points.partition_point(|point| self.x.place(point.0) < wanted);
            // Nothing is marked that the curve does not reach.
            let Some(point) = series.points.get(behind).filter(|_| behind > 0) else { continue };
            if !marks.contains(point) {
                marks.push(*point);
            }
        }
        // One that is too short for that has a mark at its end.
        if marks.is_empty() {
            marks.extend(series.points.last());
        }
        marks
    }
}

/// What an axis is labelled with.
fn titled(axis: &Axis) -> String {
    match axis.scale {
        Scale::Log if axis.names.is_empty() => format!("{}, log scale", axis.label),
        _ => axis.label.clone(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(style: Style, points: Vec<(f64, f64)>) -> Chart {
        let range = points.iter().map(|point| (point.1 - 1.0, point.1 + 1.0)).collect();
        let series =
            Series { range, ..Series::new("\u{ffff}a <\u{1b} b".to_owned(), style, points) };
        Chart {
            levels: vec![("Kmin".to_owned(), 3.0)],
            range: "least to greatest".to_owned(),
            ..Chart::new(
                Axis::new("time (us)", Scale::Linear),
                Axis::new("queue (KB) & <more>", Scale::Linear),
                vec![series],
            )
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
        let rows = chart.legend_rows();
        assert!(rows.len() > 1);
        assert_eq!(rows.concat().len(), 21, "20 series and what the band means");
    }

    #[test]
    fn marks_of_what_had_not_finished_are_open_and_explained() {
        let mut chart = chart(Style::Marked, vec![(0.0, 1.0), (1.0, 2.0)]);
        let note = "some had not finished";
        assert!(!chart.svg().contains(note));
        chart.series[0].at_least = vec![false, true];
        let svg = chart.svg();
        assert!(svg.contains(note));
        let open = svg.matches("fill=\"#fff\" stroke=").count();
        assert_eq!(open, 2, "one mark of two, and that of the legend");
    }

    /// Left end, baseline and width of each text, in pixels, and whether it stands upright.
    fn places(svg: &str) -> Vec<(f64, f64, f64, bool)> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        let place = |node: roxmltree::Node<'_, '_>| {
            let width = width_of(node.text().unwrap_or_default());
            if let Some(transform) = node.attribute("transform") {
                let at = transform.trim_start_matches("translate(").split([' ', ')']);
                let at: Vec<f64> = at.take(2).map(|number| number.parse().unwrap()).collect();
                return (at[0], at[1], width, true);
            }
            let number = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
            let (x, y) = (number("x"), number("y"));
            let left = match node.attribute("text-anchor") {
                Some("end") => x - width,
                Some(_) => x - width / 2.0,
                None => x,
            };
            (left, y, width, false)
        };
        texts.map(place).collect()
    }

    #[test]
    fn no_label_lies_over_the_numbers_beside_it_nor_outside_of_the_chart() {
        for (high, label) in [
            (1_000_000.0, "packets dropped"),
            (0.5, "flow completion time, 99th percentile, of everything that was sent (ms)"),
            (1e14, "queue (KB)"),
        ] {
            for width in [240, 330, 560, 1200] {
                let mut chart = chart(Style::Line, vec![(1.0, high / 3.0), (1e6, high)]);
                chart.y.label = label.to_owned();
                chart.width = width;
                let places = places(&chart.svg());
                // Upright ones end, and numbers begin, beside each other.
                let upright = places.iter().filter(|place| place.3).map(|place| place.0 + 4.0);
                let upright = upright.fold(0.0, f64::max);
                let flat = places.iter().filter(|place| !place.3);
                let numbers = flat.filter(|place| place.1 > TOP + 2.0 * LEGEND_ROW);
                for (left, _, width_of_text, _) in numbers {
                    assert!(*left > upright, "{label} {high} {width}: {left} {upright}");
                    assert!(left + width_of_text <= f64::from(width) + 0.5, "{label} {width}");
                }
            }
        }
    }

    #[test]
    fn series_of_the_same_values_do_not_hide_each_other() {
        for names in [vec![], vec!["a".to_owned(), "b".to_owned()]] {
            let mut chart = chart(Style::Marked, vec![(0.0, 5.0), (1.0, 5.0)]);
            chart.series = vec![chart.series[0].clone(); 3];
            chart.x.names = names;
            let canvas = Canvas::new(&chart, TOP);
            let mut shifts: Vec<f64> = (0..3).map(|index| canvas.shift(index, 0.0, 5.0)).collect();
            assert_eq!(shifts.iter().sum::<f64>(), 0.0, "about the place itself");
            shifts.dedup_by(|a, b| (*a - *b).abs() < MARK_SIZE - 2.0);
            assert_eq!(shifts.len(), 3);
        }
        // Places that are near one another leave less room.
        let mut near = chart(Style::Marked, vec![(0.0, 5.0), (1.0, 5.0), (90.0, 5.0)]);
        near.series = vec![near.series[0].clone(); 8];
        let canvas = Canvas::new(&near, TOP);
        let first = canvas.x(1.0) + canvas.shift(0, 1.0, 5.0);
        let last = canvas.x(0.0) + canvas.shift(7, 0.0, 5.0);
        assert!(last < first, "{last} {first}");
        let mut apart = chart(Style::Marked, vec![(0.0, 5.0)]);
        apart.series.push(Series::new("c".to_owned(), Style::Marked, vec![(0.0, 50.0)]));
        assert_eq!(Canvas::new(&apart, TOP).shift(0, 0.0, 5.0), 0.0);
    }

    #[test]
    fn names_on_the_axis_are_not_joined_by_lines() {
        let mut chart = chart(Style::Marked, vec![(0.0, 5.0), (1.0, 6.0)]);
        let lines = |chart: &Chart| chart.svg().matches("stroke-dasharray=\"none\"").count();
        assert_eq!(lines(&chart), 2, "the line and its swatch");
        chart.x.names = vec!["none".to_owned(), "dcqcn".to_owned()];
        assert_eq!(lines(&chart), 0);
    }
}
