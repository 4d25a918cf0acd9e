//! Writes a scene as SVG.

use std::time::Duration;

use crate::axis::{Gap, Places, ROW, place};
use crate::label::Class;
use crate::scene::{Arrow, Column, Scene, Tip, Wait};
use crate::xml::{Xml, shortened};
use crate::{Mark, Options};

const MARGIN: i64 = 24;
/// Right edges of the frame numbers and of the times.
const NUMBERS_X: i64 = 64;
const TIMES_X: i64 = 150;
/// Room beside a column for the words of RNR waits.
const WAITS_WIDTH: i64 = 104;
const COLUMN_HEIGHT: i64 = 42;
/// Between two columns.
const SPAN_MIN: i64 = 330;
const SPAN_MAX: i64 = 640;
/// About the width of a character of a label, of a note and of the title.
const LABEL_CHAR: i64 = 7;
const NOTE_CHAR: i64 = 7;
const TITLE_CHAR: i64 = 13;
const NOTE_LINE: i64 = 14;
const NOTE_CHARS: usize = 64;
const REMARK_CHARS: usize = 110;
const TITLE_MAX: usize = 120;
/// Longer pictures have the columns' names at the bottom, too.
const TALL: i64 = 25 * ROW;
/// Labels of steeper arrows stay level.
const STEEPEST: f64 = 14.0;

/// How wide things are, and where they stand across.
struct Sheet {
    columns: Vec<i64>,
    notes_x: i64,
    width: i64,
    /// Where the columns begin.
    head_y: i64,
}

/// A duration's unit for all times of a picture: nanoseconds in it, decimals, name.
type Unit = (u128, usize, &'static str);

/// The SVG document.
pub(crate) fn svg(scene: &Scene, options: &Options) -> String {
    let notes: Vec<Vec<(Mark, String)>> = scene.arrows.iter().map(wrapped_notes).collect();
    let extra: Vec<i64> =
        notes.iter().map(|lines| (lines.len() as i64 - 2).max(0) * NOTE_LINE).collect();
    let remarks: Vec<String> =
        scene.remarks.iter().flat_map(|remark| wrapped(remark, REMARK_CHARS)).collect();
    let sheet = Sheet::new(scene, options, &remarks, &notes);
    let top = sheet.head_y + COLUMN_HEIGHT + 8;
    let places = place(&scene.arrows, &extra, options.axis, top);
    let remarks: Vec<String> = remarks.into_iter().chain(places.scale.clone()).collect();
    let tall = places.end - top > TALL;
    let legend_y = places.end + if tall { COLUMN_HEIGHT } else { 0 } + 34;
    let legend = legend(scene, sheet.width);
    let height = legend_y + legend.last().map_or(0, |entry| entry.y) + MARGIN;

    let mut xml = Xml::new();
    let view = format!("0 0 {} {height}", sheet.width);
    xml.open(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("class", &"ladder"),
            ("role", &"img"),
            ("width", &sheet.width),
            ("height", &height),
            ("viewBox", &view),
        ],
    );
    xml.element("title", &[], &shortened(&options.title, TITLE_MAX));
    xml.open("style", &[]);
    xml.raw(include_str!("draw.css"));
    xml.close();
    xml.empty("rect", &[("class", &"paper"), ("width", &"100%"), ("height", &"100%")]);
    heading(&mut xml, options, &remarks);
    for &x in &sheet.columns {
        let y = sheet.head_y + COLUMN_HEIGHT;
        xml.empty(
            "line",
            &[("class", &"lifeline"), ("x1", &x), ("y1", &y), ("x2", &x), ("y2", &places.end)],
        );
    }
    heads(&mut xml, scene, &sheet, sheet.head_y);
    let unit = unit(scene);
    gutter_heads(&mut xml, &sheet, unit);
    places.gaps.iter().for_each(|gap| silence(&mut xml, gap, &sheet));
    for (index, notes) in notes.iter().enumerate() {
        packet(&mut xml, scene, index, &places, &sheet, (notes, unit));
    }
    scene.waits.iter().for_each(|each| wait(&mut xml, each, scene, &places, &sheet));
    xml.open("g", &[("class", &"foot")]);
    if tall {
        heads(&mut xml, scene, &sheet, places.end);
    }
    legend.iter().for_each(|entry| legend_entry(&mut xml, entry, legend_y));
    xml.close();
    xml.finish()
}

impl Sheet {
    fn new(
        scene: &Scene,
        options: &Options,
        remarks: &[String],
        notes: &[Vec<(Mark, String)>],
    ) -> Sheet {
        let last = scene.columns.len().saturating_sub(1);
        let waits_at = |column| {
            let requester = |wait: &Wait| scene.arrows[wait.to].from;
            scene.waits.iter().any(|wait| requester(wait) == column)
        };
        let longest = scene.arrows.iter().map(label_chars).max().unwrap_or_default();
        let span = (longest as i64 * LABEL_CHAR + 40).clamp(SPAN_MIN, SPAN_MAX);
        let half = scene.columns.iter().map(head_width).max().unwrap_or_default() / 2;
        let span = span.max(2 * half + 20);
        let left = if waits_at(0) { WAITS_WIDTH } else { 0 };
        let first_x = TIMES_X + 24 + left.max(half);
        let columns: Vec<i64> = (0..=last as i64).map(|index| first_x + index * span).collect();
        let last_x = columns.last().copied().unwrap_or_default();
        let right = if last > 0 && waits_at(last) { WAITS_WIDTH } else { 0 };
        let notes_x = last_x + 24 + right;
        let widest = |lines: &mut dyn Iterator<Item = &String>| {
            lines.map(|line| line.chars().count() as i64).max().unwrap_or_default() * NOTE_CHAR
        };
        let title_width = shortened(&options.title, TITLE_MAX).chars().count() as i64 * TITLE_CHAR;
        let text_width = title_width.max(widest(&mut remarks.iter()));
        let notes_width = widest(&mut notes.iter().flatten().map(|(_, line)| line));
        let width = (notes_x + notes_width).max(last_x + half).max(MARGIN + text_width) + MARGIN;
        // A line more is kept for the scale of the time axis.
        let head_y = MARGIN + 30 + 16 * (remarks.len() as i64 + 1) + 10;
        Sheet { columns, notes_x, width, head_y }
    }
}

fn head_width(column: &Column) -> i64 {
    let (name, qps) = (column.name.chars().count() as i64, column.qps.len() as i64);
    (name * 10 + 24).max(qps * NOTE_CHAR + 24).max(120)
}

fn heading(xml: &mut Xml, options: &Options, remarks: &[String]) {
    let title = shortened(&options.title, TITLE_MAX);
    xml.element("text", &[("class", &"title"), ("x", &MARGIN), ("y", &(MARGIN + 18))], &title);
    for (index, remark) in remarks.iter().enumerate() {
        let y = MARGIN + 38 + 16 * index as i64;
        xml.element("text", &[("class", &"remark"), ("x", &MARGIN), ("y", &y)], remark);
    }
}

/// The names of the columns.
fn heads(xml: &mut Xml, scene: &Scene, sheet: &Sheet, y: i64) {
    for (column, &x) in scene.columns.iter().zip(&sheet.columns) {
        let width = head_width(column);
        xml.empty(
            "rect",
            &[
                ("class", &"end"),
                ("x", &(x - width / 2)),
                ("y", &y),
                ("width", &width),
                ("height", &COLUMN_HEIGHT),
                ("rx", &6),
            ],
        );
        let name_y = if column.qps.is_empty() { y + 26 } else { y + 19 };
        xml.element("text", &[("class", &"name"), ("x", &x), ("y", &name_y)], &column.name);
        if !column.qps.is_empty() {
            xml.element("text", &[("class", &"qps"), ("x", &x), ("y", &(y + 34))], &column.qps);
        }
    }
}

fn gutter_heads(xml: &mut Xml, sheet: &Sheet, (_, _, unit): Unit) {
    let y = sheet.head_y + COLUMN_HEIGHT - 4;
    xml.element("text", &[("class", &"gutter"), ("x", &NUMBERS_X), ("y", &y)], "frame");
    let time = format!("time, {unit}");
    xml.element("text", &[("class", &"gutter"), ("x", &TIMES_X), ("y", &y)], &time);
}

fn unit(scene: &Scene) -> Unit {
    let latest = scene.arrows.iter().map(|arrow| arrow.at).max().unwrap_or_default();
    match latest.as_nanos() {
        0..1_000_000 => (1_000, 3, "\u{b5}s"),
        1_000_000..1_000_000_000 => (1_000_000, 3, "ms"),
        _ => (1_000_000_000, 6, "s"),
    }
}

fn time_text(at: Duration, (unit_ns, decimals, _): Unit) -> String {
    let fraction = at.as_nanos() % unit_ns / (unit_ns / 10_u128.pow(decimals as u32));
    format!("{}.{fraction:0decimals$}", at.as_nanos() / unit_ns)
}

/// The notes of an arrow in lines that fit beside it.
fn wrapped_notes(arrow: &Arrow) -> Vec<(Mark, String)> {
    let lines = |(mark, text): &(Mark, String)| {
        let mark = *mark;
        wrapped(text, NOTE_CHARS).into_iter().map(move |line| (mark, line))
    };
    arrow.notes.iter().flat_map(lines).collect()
}

/// Text in lines of at most `max` characters.
fn wrapped(text: &str, max: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + word.chars().count() >= max {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&shortened(word, max));
    }
    lines.push(line);
    lines
}

/// What stands behind the label, and its class.
fn marks(arrow: &Arrow) -> impl Iterator<Item = (&'static str, &'static str)> {
    let damaged = arrow.tip == Tip::Damaged;
    [
        (arrow.again, "mark", "again"),
        (arrow.copy, "mark", "copy"),
        (arrow.tip == Tip::Lost, "mark", "lost"),
        (damaged, "mark", "damaged"),
        (arrow.ce, "ce", "CE"),
    ]
    .into_iter()
    .filter_map(|(set, class, word)| set.then_some((class, word)))
}

fn label_chars(arrow: &Arrow) -> usize {
    arrow.label.chars().count() + marks(arrow).map(|(_, word)| word.len() + 3).sum::<usize>()
}

/// A packet: the arrow, what it says, when it was, and what is noted about it.
fn packet(
    xml: &mut Xml,
    scene: &Scene,
    index: usize,
    places: &Places,
    sheet: &Sheet,
    (notes, unit): (&[(Mark, String)], Unit),
) {
    let arrow = &scene.arrows[index];
    let (sent, arrived) = (places.sent[index], places.arrived[index]);
    let kind = match (arrow.number, arrow.again, arrow.copy) {
        (None, ..) => " missing",
        (_, true, _) => " again",
        (_, _, true) => " copy",
        _ => "",
    };
    let class = format!(
        "{} {}{kind}",
        if kind == " missing" { "loss" } else { "packet" },
        arrow.class.name()
    );
    let number = arrow.number.map_or(String::new(), |number| number.to_string());
    xml.open(
        "g",
        &[
            ("class", &class),
            ("data-frame", &number),
            ("data-flow", &arrow.flow),
            ("data-y", &sent.y),
            ("data-room", &sent.room),
            ("data-arrival", &arrived.map_or(sent.y, |arrived| arrived.y)),
            ("data-arrival-room", &arrived.map_or(0, |arrived| arrived.room)),
        ],
    );
    let flow = scene.flows.get(arrow.flow).map_or("", String::as_str);
    let heading = if number.is_empty() { String::new() } else { format!("frame {number}, ") };
    xml.element("title", &[], &format!("{heading}flow {flow}\n{}", arrow.details));
    let y = sent.y;
    xml.empty(
        "rect",
        &[
            ("class", &"hit"),
            ("x", &0),
            ("y", &(y - ROW / 2 - 4)),
            ("width", &sheet.width),
            ("height", &ROW),
        ],
    );
    xml.element("text", &[("class", &"gutter"), ("x", &NUMBERS_X), ("y", &(y + 4))], &number);
    if arrow.number.is_some() {
        let time = time_text(arrow.at, unit);
        xml.element("text", &[("class", &"gutter"), ("x", &TIMES_X), ("y", &(y + 4))], &time);
    }
    wire(xml, arrow, y, arrived.map_or(y, |arrived| arrived.y), sheet);
    for (line, (mark, text)) in notes.iter().enumerate() {
        let class = if *mark == Mark::Violation { "note violation" } else { "note" };
        let y = y + 4 + NOTE_LINE * line as i64;
        xml.element("text", &[("class", &class), ("x", &sheet.notes_x), ("y", &y)], text);
    }
    xml.close();
}

/// The arrow itself, with its label.
fn wire(xml: &mut Xml, arrow: &Arrow, y1: i64, y2: i64, sheet: &Sheet) {
    let (x1, end_x) = (sheet.columns[arrow.from], sheet.columns[arrow.to]);
    let right = if end_x == x1 { 1 } else { (end_x - x1).signum() };
    // Who sends to itself does so on a short way.
    let full_x = if end_x == x1 { x1 + 60 } else { end_x };
    let percent = match arrow.tip {
        Tip::Arrives | Tip::Damaged => 100,
        Tip::Lost => 64,
        Tip::Missing => 40,
    };
    let x2 = x1 + (full_x - x1) * percent / 100;
    let y2 = y1 + (y2 - y1) * percent / 100;
    let angle = ((y2 - y1) as f64 / (x2 - x1) as f64).atan().to_degrees();
    xml.open("g", &[("class", &"wire"), ("data-x1", &x1), ("data-x2", &x2)]);
    xml.empty("line", &[("class", &"line"), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
    if matches!(arrow.tip, Tip::Arrives | Tip::Damaged) {
        let head = format!("M{x2} {y2}l{} -5v10z", -11 * right);
        let turn = format!("rotate({angle:.1} {x2} {y2})");
        match y1 == y2 {
            true => xml.empty("path", &[("class", &"head"), ("d", &head)]),
            false => xml.empty("path", &[("class", &"head"), ("d", &head), ("transform", &turn)]),
        }
    }
    if arrow.tip != Tip::Arrives {
        // That of a damaged packet stands on its arrow, before the head.
        let back = if arrow.tip == Tip::Damaged { 26 * right } else { 0 };
        let (x, y) = (x2 - back, y2 - back * (y2 - y1) / (x2 - x1));
        let cross = format!("M{} {}l12 12m0 -12l-12 12", x - 6, y - 6);
        xml.empty("path", &[("class", &"cross"), ("d", &cross)]);
    }
    // A level arrow has its label in the middle, another where it begins, so that those of arrows
    // that cross do not meet.
    let whole = matches!(arrow.tip, Tip::Arrives | Tip::Damaged);
    let level = y1 == y2 && whole && end_x != x1;
    let (x, anchor) = match (level, right) {
        (true, _) => ((x1 + full_x) / 2, "middle"),
        (false, 1) => (x1 + 12, "start"),
        (false, _) => (x1 - 12, "end"),
    };
    let turn = format!("rotate({angle:.1} {x1} {y1})");
    let y = y1 - 5;
    let mut attributes: Vec<crate::xml::Attribute<'_>> =
        vec![("class", &"label"), ("x", &x), ("y", &y), ("text-anchor", &anchor)];
    if y1 != y2 && angle.abs() <= STEEPEST {
        attributes.push(("transform", &turn));
    }
    xml.open("text", &attributes);
    xml.element("tspan", &[], &arrow.label);
    for (class, word) in marks(arrow) {
        xml.element("tspan", &[("class", &class), ("dx", &8)], word);
    }
    xml.close();
    xml.close();
}

/// The bracket of an RNR wait, on the requester's side.
fn wait(xml: &mut Xml, wait: &Wait, scene: &Scene, places: &Places, sheet: &Sheet) {
    let (nak, resend) = (&scene.arrows[wait.from], &scene.arrows[wait.to]);
    let y1 = places.arrived[wait.from].unwrap_or(places.sent[wait.from]).y;
    let y2 = places.sent[wait.to].y;
    let x = sheet.columns[resend.from];
    let is_last = resend.from > 0 && resend.from + 1 == sheet.columns.len();
    let out: i64 = if is_last { 1 } else { -1 };
    xml.open(
        "g",
        &[("class", &"wait"), ("data-flow", &nak.flow), ("data-y1", &y1), ("data-y2", &y2)],
    );
    let bracket = format!("M{} {y1}h{}V{y2}h{}", x + 3 * out, 9 * out, -9 * out);
    xml.empty("path", &[("d", &bracket)]);
    let (text_x, anchor) = (x + 18 * out, if is_last { "start" } else { "end" });
    let middle = (y1 + y2) / 2;
    for (line, text) in [&wait.asked, &wait.took].into_iter().enumerate() {
        let y = middle - 2 + NOTE_LINE * line as i64;
        xml.element("text", &[("x", &text_x), ("y", &y), ("text-anchor", &anchor)], text);
    }
    xml.close();
}

/// A silence cut out of the time axis.
fn silence(xml: &mut Xml, gap: &Gap, sheet: &Sheet) {
    xml.open("g", &[("class", &"gap")]);
    for &x in &sheet.columns {
        let (top, y) = (gap.y - 9, gap.y - 8);
        xml.empty(
            "rect",
            &[("class", &"paper"), ("x", &(x - 2)), ("y", &top), ("width", &4), ("height", &18)],
        );
        let zigzag = format!("M{x} {y}l7 3l-14 4l14 4l-7 5");
        xml.empty("path", &[("class", &"zigzag"), ("d", &zigzag)]);
    }
    let first = sheet.columns.first().copied().unwrap_or_default();
    let second = sheet.columns.get(1).copied().unwrap_or(first);
    let text = format!("{} without a packet", crate::label::short_time(gap.silence));
    xml.element(
        "text",
        &[
            ("class", &"silence"),
            ("x", &((first + second) / 2)),
            ("y", &(gap.y + 4)),
            ("text-anchor", &"middle"),
        ],
        &text,
    );
    xml.close();
}

/// One line of the legend, and where it stands.
struct Entry {
    x: i64,
    y: i64,
    class: String,
    tip: Tip,
    words: &'static str,
}

/// Explains what the picture has, and nothing else.
fn legend(scene: &Scene, width: i64) -> Vec<Entry> {
    let has = |is: &dyn Fn(&Arrow) -> bool| scene.arrows.iter().any(is);
    let mut entries: Vec<(String, Tip, &'static str)> = Class::ALL
        .into_iter()
        .filter(|&class| has(&|arrow| arrow.class == class && arrow.tip != Tip::Missing))
        .map(|class| (String::from(class.name()), Tip::Arrives, class.words()))
        .collect();
    let others: [(bool, &str, Tip, &'static str); 5] = [
        (has(&|arrow| arrow.again), "request again", Tip::Arrives, "sent again"),
        (has(&|arrow| arrow.copy), "request copy", Tip::Arrives, "copy the network made"),
        (has(&|arrow| arrow.tip == Tip::Lost), "request", Tip::Lost, "lost"),
        (has(&|arrow| arrow.tip == Tip::Damaged), "request", Tip::Damaged, "damaged"),
        (
            has(&|arrow| arrow.tip == Tip::Missing),
            "other missing",
            Tip::Missing,
            "not in the capture: lost or overtaken",
        ),
    ];
    for (_, class, tip, words) in others.into_iter().filter(|(has, ..)| *has) {
        entries.push((String::from(class), tip, words));
    }
    let (mut x, mut y) = (MARGIN, 0);
    let mut placed = Vec::new();
    for (class, tip, words) in entries {
        let entry_width = 64 + words.len() as i64 * NOTE_CHAR;
        if x > MARGIN && x + entry_width > width - MARGIN {
            (x, y) = (MARGIN, y + 22);
        }
        placed.push(Entry { x, y, class, tip, words });
        x += entry_width;
    }
    placed
}

fn legend_entry(xml: &mut Xml, entry: &Entry, top: i64) {
    let (x, y) = (entry.x, top + entry.y);
    xml.open("g", &[("class", &entry.class)]);
    let end = x + 36;
    xml.empty("line", &[("class", &"line"), ("x1", &x), ("y1", &y), ("x2", &end), ("y2", &y)]);
    if matches!(entry.tip, Tip::Arrives | Tip::Damaged) {
        xml.empty("path", &[("class", &"head"), ("d", &format!("M{end} {y}l-11 -5v10z"))]);
    }
    if entry.tip != Tip::Arrives {
        let at = if entry.tip == Tip::Damaged { end - 20 } else { end };
        let cross = format!("M{} {}l12 12m0 -12l-12 12", at - 6, y - 6);
        xml.empty("path", &[("class", &"cross"), ("d", &cross)]);
    }
    let text_x = end + 12;
    xml.element("text", &[("class", &"legend"), ("x", &text_x), ("y", &(y + 4))], entry.words);
    xml.close();
}
