//! What the demo has found, as a table or as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, Table, Width};
use ferroce_stack::verbs::WcStatus;
use serde::Serialize;

use super::lab::{Settings, status_name};
use crate::table::{empty_table, write_table};
use crate::view::{grouped, style};

/// How narrow status and verdict may become: the longest status between blanks, and a verdict of
/// two lines. With the other columns that makes 80.
const FOLDED_WIDTHS: [u16; 2] = [16, 9];

/// The column of the verdict.
const VERDICT: usize = 7;

/// Columns that hold numbers.
const NUMBERS: std::ops::Range<usize> = 2..6;

/// One operation over one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The operation.
    pub operation: &'static str,
    /// The transport.
    pub transport: &'static str,
    /// Send work requests completed.
    pub requests: u64,
    /// Payload bytes of what arrived.
    pub bytes: u64,
    /// Packets sent by both nodes.
    pub packets: u64,
    /// Request packets sent again.
    pub retransmissions: u64,
    /// How often requests completed how.
    pub statuses: Vec<(WcStatus, u64)>,
    /// Messages sent.
    pub messages: u64,
    /// Messages an unreliable transport lost, as it may.
    pub lost: u64,
    /// What is wrong.
    pub failure: Option<String>,
}

/// What the demo has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What it ran with.
    pub settings: Settings,
    /// Every operation.
    pub rows: Vec<Row>,
    /// Frames lost on the way.
    pub frames_lost: u64,
    /// Nanoseconds the run took on the virtual clock.
    pub time_ns: u64,
    /// The capture, and how many frames it holds.
    pub capture: Option<(PathBuf, u64)>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    operation: &'a str,
    transport: &'a str,
    requests: u64,
    bytes: u64,
    packets: u64,
    retransmissions: u64,
    statuses: BTreeMap<String, u64>,
    messages: u64,
    lost: u64,
    right: bool,
    verdict: String,
}

#[derive(Serialize)]
struct JsonSummary {
    mtu: usize,
    ipv6: bool,
    loss: f64,
    seed: u64,
    operations: usize,
    failed: usize,
    requests: u64,
    bytes: u64,
    packets: u64,
    retransmissions: u64,
    frames_lost: u64,
    virtual_time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcap: Option<String>,
    right: bool,
}

impl Row {
    /// The verdict in words.
    pub fn verdict(&self) -> String {
        match (&self.failure, self.lost) {
            (Some(failure), _) => format!("FAILED: {failure}"),
            (None, 0) => String::from("ok"),
            (None, lost) => format!("ok (lost {lost} of {})", self.messages),
        }
    }

    /// `SUCCESS`, or each status with its number.
    fn status(&self) -> String {
        match self.statuses[..] {
            [(status, _)] => status_name(status),
            ref all => {
                let named = all.iter().map(|(status, n)| format!("{n} {}", status_name(*status)));
                named.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl Report {
    /// Whether every operation went as it must.
    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.failure.is_none())
    }

    fn sum(&self, count: fn(&Row) -> u64) -> u64 {
        self.rows.iter().map(count).sum()
    }

    fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.failure.is_some()).count()
    }

    /// Writes a heading, the table and a summary; with frames and as wide as the terminal if
    /// `is_terminal`.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_table(&self, out: &mut impl Write, is_terminal: bool) -> io::Result<()> {
        let title = style::TITLE;
        writeln!(out, "{title}Two nodes, {}{title:#}", self.settings)?;
        write_table(&self.table(is_terminal), out)?;
        self.write_summary(out, is_terminal)
    }

    fn table(&self, is_terminal: bool) -> Table {
        let titles =
            ["Operation", "Transport", "WRs", "Bytes", "Packets", "Resent", "Status", "Verdict"];
        let mut table = empty_table(titles, is_terminal);
        for row in &self.rows {
            table.add_row(cells(row));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            if NUMBERS.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            // In a narrow terminal only status and verdict, behind the numbers, are folded.
            column.set_constraint(match index.checked_sub(NUMBERS.end) {
                None => ColumnConstraint::ContentWidth,
                Some(index) => ColumnConstraint::LowerBoundary(Width::Fixed(FOLDED_WIDTHS[index])),
            });
            if (1..NUMBERS.end).contains(&index) || index == VERDICT {
                column.set_padding((0, 1));
            }
        }
        table
    }

    fn write_summary(&self, out: &mut impl Write, is_terminal: bool) -> io::Result<()> {
        let (good, bad) = (style::GOOD, style::BAD);
        // In one line it is wider than most terminals, and the verdict would be cut in two.
        let break_or_blank = if is_terminal { '\n' } else { ' ' };
        write!(
            out,
            "{} operations, {} WRs, {} bytes,{break_or_blank}",
            self.rows.len(),
            grouped(self.sum(|row| row.requests)),
            grouped(self.sum(|row| row.bytes)),
        )?;
        write!(
            out,
            "{} packets, {} resent, {} frames lost: ",
            grouped(self.sum(|row| row.packets)),
            grouped(self.sum(|row| row.retransmissions)),
            grouped(self.frames_lost),
        )?;
        match self.failed() {
            0 => writeln!(out, "{good}all right{good:#}")?,
            failed => writeln!(out, "{bad}{failed} FAILED{bad:#}")?,
        }
        if let Some((path, frames)) = &self.capture {
            let path = path.display();
            writeln!(out, "{} frames in {path}", grouped(*frames))?;
        }
        Ok(())
    }

    /// Writes an object a line for each row, then the summary.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            let statuses = row.statuses.iter().map(|(status, n)| (status_name(*status), *n));
            let row = JsonRow {
                operation: row.operation,
                transport: row.transport,
                requests: row.requests,
                bytes: row.bytes,
                packets: row.packets,
                retransmissions: row.retransmissions,
                statuses: statuses.collect(),
                messages: row.messages,
                lost: row.lost,
                right: row.failure.is_none(),
                verdict: row.verdict(),
            };
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        }
        let summary = JsonSummary {
            mtu: self.settings.mtu.bytes(),
            ipv6: self.settings.ipv6,
            loss: self.settings.loss,
            seed: self.settings.seed,
            operations: self.rows.len(),
            failed: self.failed(),
            requests: self.sum(|row| row.requests),
            bytes: self.sum(|row| row.bytes),
            packets: self.sum(|row| row.packets),
            retransmissions: self.sum(|row| row.retransmissions),
            frames_lost: self.frames_lost,
            virtual_time_ns: self.time_ns,
            pcap: self.capture.as_ref().map(|(path, _)| path.display().to_string()),
            right: self.is_right(),
        };
        let summary = serde_json::to_string(&BTreeMap::from([("summary", summary)]))?;
        writeln!(out, "{summary}")
    }
}

fn cells(row: &Row) -> Vec<Cell> {
    let number = |value| Cell::new(grouped(value));
    let resent = number(row.retransmissions);
    let verdict = Cell::new(row.verdict());
    vec![
        Cell::new(row.operation),
        Cell::new(row.transport).fg(Color::DarkCyan),
        number(row.requests),
        number(row.bytes),
        number(row.packets),
        if row.retransmissions > 0 { resent.fg(Color::DarkYellow) } else { resent },
        Cell::new(row.status()),
        match (&row.failure, row.lost) {
            (Some(_), _) => verdict.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            (None, 0) => verdict.fg(Color::DarkGreen),
            (None, _) => verdict.fg(Color::DarkYellow),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_stack::verbs::Mtu;

    fn report(lost: u64, failure: Option<&str>) -> Report {
        let row = Row {
            operation: "SEND",
            transport: "UC",
            requests: 4,
            bytes: 1_048_576,
            packets: 1026,
            retransmissions: 0,
            statuses: vec![(WcStatus::Success, 4)],
            messages: 4,
            lost,
            failure: failure.map(String::from),
        };
        let settings = Settings { mtu: Mtu::Mtu1024, ipv6: false, loss: 0.05, seed: 3 };
        Report { settings, rows: vec![row], frames_lost: 2, time_ns: 9, capture: None }
    }

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        report.write_table(&mut anstream::StripStream::new(&mut out), false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_text_has_no_frames_and_no_colours() {
        let text = text(&report(1, None));
        assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
        let row = text.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row, "SEND UC 4 1,048,576 1,026 0 SUCCESS ok (lost 1 of 4)");
        assert!(text.ends_with("2 frames lost: all right\n"));
    }

    #[test]
    fn json_ends_in_a_summary() {
        let mut out = Vec::new();
        report(0, Some("byte 3 differs")).write_json(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["verdict"], "FAILED: byte 3 differs");
        assert_eq!(lines[0]["statuses"]["SUCCESS"], 4);
        assert_eq!(lines[1]["summary"]["right"], false);
    }
}
