//! Two samples as a page of rates: a function of what is known to what is seen.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use ferroce::fabric::QpReport;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table};

use super::sample::{Details, Process, Sample};
use super::text::qpn_text;
use crate::view::grouped;

/// What the page shows.
#[derive(Debug)]
pub struct State {
    /// Name of the fabric.
    pub fabric: String,
    /// Between two samples.
    pub interval: Duration,
    /// The sample before, if there was one.
    pub before: Option<Sample>,
    /// The last sample.
    pub now: Sample,
}

impl State {
    /// Puts a new sample in the place of the last.
    pub fn update(&mut self, sample: Sample) {
        self.before = Some(std::mem::replace(&mut self.now, sample));
    }

    /// Seconds between the samples; none while there is one.
    fn seconds(&self) -> Option<f64> {
        let before = self.before.as_ref()?;
        let seconds = self.now.at.saturating_duration_since(before.at).as_secs_f64();
        (seconds > 0.0).then_some(seconds)
    }

    /// How much a count moves in a second. A count that was not there before has no rate.
    fn rate(&self, now: u64, before: Option<u64>) -> Option<f64> {
        let (seconds, before) = self.seconds().zip(before)?;
        Some(now.saturating_sub(before) as f64 / seconds)
    }

    fn earlier(&self, process: &Process) -> Option<&Details> {
        self.before.as_ref()?.find(process)?.details.as_ref()
    }
}

/// One table, and what its rows are.
struct Section<'a> {
    title: &'static str,
    columns: &'static [(&'static str, Constraint)],
    rows: Vec<Row<'a>>,
}

impl Section<'_> {
    /// With its header, and a line that sets it apart.
    fn height(&self) -> u16 {
        u16::try_from(self.rows.len()).unwrap_or(u16::MAX).saturating_add(2)
    }
}

// With these widths the peer's QPN is seen on 80 columns, and its GID on more.
const PROCESS_COLUMNS: &[(&str, Constraint)] = &[
    ("PID", Constraint::Length(7)),
    ("PROGRAM", Constraint::Fill(1)),
    ("DEVICE", Constraint::Length(10)),
    ("QPS", Constraint::Length(5)),
    ("SENT/S", Constraint::Length(9)),
    ("RCVD/S", Constraint::Length(9)),
    ("RESENT/S", Constraint::Length(8)),
    ("DROPS/S", Constraint::Length(8)),
];

const QP_COLUMNS: &[(&str, Constraint)] = &[
    ("PID", Constraint::Length(7)),
    ("QPN", Constraint::Length(8)),
    ("TYPE", Constraint::Length(7)),
    ("STATE", Constraint::Length(5)),
    ("PEER", Constraint::Fill(1)),
    ("SQ", Constraint::Length(5)),
    ("RQ", Constraint::Length(5)),
    ("SENT/S", Constraint::Length(9)),
    ("RCVD/S", Constraint::Length(9)),
    ("RESENT/S", Constraint::Length(8)),
];

const COUNTER_COLUMNS: &[(&str, Constraint)] = &[
    ("OF ALL", Constraint::Length(28)),
    ("TOTAL", Constraint::Length(20)),
    ("PER SECOND", Constraint::Length(14)),
];

/// Draws the page. What does not fit is counted, not shown.
pub fn draw(frame: &mut Frame, state: &State) {
    let (processes, qps, counters) = (processes(state), qps(state), counters(state));
    let [title, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(frame.area());
    let heading = format!(
        "fabric {}   {} processes   every {:.1} s   q quits",
        state.fabric,
        state.now.processes.len(),
        state.interval.as_secs_f64()
    );
    frame.render_widget(Line::from(heading).bold(), title);
    if state.now.processes.is_empty() {
        frame.render_widget(Paragraph::new("no process in the fabric"), body);
        return;
    }
    // None gets more than a third while the others need it.
    let third = body.height / 3;
    let [of_processes, of_qps, of_counters] = [&processes, &qps, &counters].map(Section::height);
    let first = of_processes.min(third);
    let last = of_counters.min(third.max(body.height.saturating_sub(first.saturating_add(of_qps))));
    let heights = [Constraint::Length(first), Constraint::Fill(1), Constraint::Length(last)];
    let areas: [Rect; 3] = Layout::vertical(heights).areas(body);
    for (section, area) in [processes, qps, counters].into_iter().zip(areas) {
        draw_section(frame, section, area);
    }
}

fn draw_section(frame: &mut Frame, section: Section, area: Rect) {
    let Section { title, columns, mut rows } = section;
    // The header, and an empty line below the table.
    let room = usize::from(area.height.saturating_sub(2));
    let count = rows.len();
    let shown = if count > room { room.saturating_sub(1) } else { count };
    rows.truncate(shown);
    let header = Row::new(columns.iter().map(|(name, _)| *name)).style(Style::new().bold());
    let widths = columns.iter().map(|(_, width)| *width);
    frame.render_widget(Table::new(rows, widths).header(header), area);
    if shown < count && room > 0 {
        let below = Rect { y: area.y + 1 + shown as u16, height: 1, ..area };
        let more = format!("{} more {title}", count - shown);
        frame.render_widget(Line::from(more).dim(), below);
    }
}

fn processes(state: &State) -> Section<'static> {
    let row = |process: &Process| {
        let pid = process.pid.to_string();
        let Some(details) = &process.details else {
            let error = process.error.clone().unwrap_or_default();
            return Row::new([pid, error]).red();
        };
        let earlier = state.earlier(process);
        let rate = |count: &dyn Fn(&Details) -> u64| {
            right(&rate_text(state.rate(count(details), earlier.map(count))))
        };
        let counter = |name: &'static str| rate(&|details: &Details| details.counter(name));
        Row::new([
            Text::from(pid),
            Text::from(details.program.clone()),
            Text::from(details.device.clone()),
            right(&grouped(details.qps.len() as u64)),
            counter("sent_pkts"),
            counter("rcvd_pkts"),
            counter("retransmitted_pkts"),
            rate(&|details| details.drops().map(|(_, count)| count).sum()),
        ])
    };
    let rows = state.now.processes.iter().map(row).collect();
    Section { title: "processes", columns: PROCESS_COLUMNS, rows }
}

/// The busiest first.
fn qps(state: &State) -> Section<'static> {
    let mut all: Vec<(u64, Row)> = Vec::new();
    for process in &state.now.processes {
        let earlier: BTreeMap<u32, &QpReport> = match state.earlier(process) {
            Some(details) => details.qps.iter().map(|qp| (qp.qpn, qp)).collect(),
            None => BTreeMap::new(),
        };
        for qp in process.details.iter().flat_map(|details| &details.qps) {
            let before = earlier.get(&qp.qpn).copied();
            let moved = before.map_or(0, |before| {
                let packets = |qp: &QpReport| qp.sent_pkts.saturating_add(qp.rcvd_pkts);
                packets(qp).saturating_sub(packets(before))
            });
            all.push((moved, qp_row(state, process.pid, qp, before)));
        }
    }
    all.sort_by_key(|(moved, _)| Reverse(*moved));
    let rows = all.into_iter().map(|(_, row)| row).collect();
    Section { title: "QPs", columns: QP_COLUMNS, rows }
}

fn qp_row(state: &State, pid: u32, qp: &QpReport, before: Option<&QpReport>) -> Row<'static> {
    let rate =
        |count: fn(&QpReport) -> u64| right(&rate_text(state.rate(count(qp), before.map(count))));
    let peer = match (qp.peer_qpn, &qp.peer_gid) {
        (Some(qpn), Some(gid)) => format!("{} {gid}", qpn_text(qpn)),
        _ => "-".to_owned(),
    };
    Row::new([
        Text::from(pid.to_string()),
        Text::from(qpn_text(qp.qpn)),
        Text::from(qp.qp_type.clone()),
        Text::from(qp.state.clone()),
        Text::from(peer),
        right(&qp.sq_outstanding.to_string()),
        right(&qp.rq_outstanding.to_string()),
        rate(|qp| qp.sent_pkts),
        rate(|qp| qp.rcvd_pkts),
        rate(|qp| qp.retransmitted_pkts),
    ])
}

/// Counters of all processes together that have moved, drops first.
fn counters(state: &State) -> Section<'static> {
    let sums = |sample: &Sample, drops: bool| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for details in sample.processes.iter().filter_map(|process| process.details.as_ref()) {
            let counters: Vec<(&str, u64)> = match drops {
                true => details.drops().collect(),
                false => details.counted().collect(),
            };
            for (name, count) in counters {
                let sum = sums.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        sums
    };
    let mut rows = Vec::new();
    for drops in [true, false] {
        let before = state.before.as_ref().map(|before| sums(before, drops));
        for (name, total) in sums(&state.now, drops) {
            let before = before.as_ref().map(|sums| sums.get(&name).copied().unwrap_or(0));
            let rate = rate_text(state.rate(total, before));
            let name = if drops { format!("drop {name}") } else { name };
            let row = Row::new([Text::from(name), right(&grouped(total)), right(&rate)]);
            rows.push(if drops { row.yellow() } else { row });
        }
    }
    Section { title: "counters", columns: COUNTER_COLUMNS, rows }
}

fn rate_text(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| grouped(rate.round() as u64))
}

fn right(text: &str) -> Text<'static> {
    Text::from(text.to_owned()).right_aligned()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::stat::sample::tests::sample;

    /// Lines of the page, blanks between words reduced to one.
    fn page(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        (0..height).map(line).map(words).filter(|line| !line.is_empty()).collect()
    }

    fn state(before: Option<Sample>, now: Sample) -> State {
        State { fabric: "/dev/shm/lab".into(), interval: Duration::from_secs(1), before, now }
    }

    #[test]
    fn page_shows_rates_and_the_busiest_first() {
        let mut state = state(None, sample(0, 3));
        state.update(sample(500, 5));
        let expected = [
            "fabric /dev/shm/lab 2 processes every 1.0 s q quits",
            "PID PROGRAM DEVICE QPS SENT/S RCVD/S RESENT/S DROPS/S",
            "41 ib_send_bw ferroce0 2 4,000 2,000 0 8",
            "42 did not answer in time",
            "PID QPN TYPE STATE PEER SQ RQ SENT/S RCVD/S RESENT/S",
            "41 0x000011 RC RTS 0x010011 ::ffff:192.0.2.2 3 64 4,000 2,000 0",
            "41 0x000010 UD RESET - 0 0 0 0 0",
            "OF ALL TOTAL PER SECOND",
            "drop bad_icrc 5 4",
            "drop injected 5 4",
            "rcvd_pkts 2,500 2,000",
            "sent_pkts 5,000 4,000",
        ];
        assert_eq!(page(&state, 120, 40), expected);
    }

    #[test]
    fn first_page_has_no_rates() {
        let page = page(&state(None, sample(0, 3)), 120, 40);
        assert_eq!(page[2], "41 ib_send_bw ferroce0 2 - - - -");
    }

    #[test]
    fn narrow_page_still_has_all_columns() {
        let page = page(&state(Some(sample(0, 3)), sample(500, 5)), 80, 24);
        assert_eq!(page[2], "41 ib_send_bw ferroce0 2 4,000 2,000 0 8");
        assert!(page[5].starts_with("41 0x000011 RC RTS 0x010011 "), "{}", page[5]);
        assert!(page[5].ends_with(" 3 64 4,000 2,000 0"), "{}", page[5]);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut now = sample(0, 3);
        for _ in 0..6 {
            now.processes.extend(sample(0, 3).processes);
        }
        let page = page(&state(None, now), 120, 20);
        assert!(page.contains(&"11 more processes".to_owned()), "{page:?}");
        assert!(page.iter().any(|line| line.ends_with("more QPs")), "{page:?}");
        assert!(page.contains(&"sent_pkts 21,000 -".to_owned()), "{page:?}");
    }

    #[test]
    fn smallest_and_emptiest_pages_are_drawn() {
        for size in [(1, 1), (3, 2), (20, 5), (500, 3)] {
            page(&state(None, sample(0, 1)), size.0, size.1);
        }
        let nobody = Sample { processes: Vec::new(), ..sample(0, 0) };
        assert_eq!(page(&state(None, nobody), 80, 5)[1], "no process in the fabric");
    }
}
