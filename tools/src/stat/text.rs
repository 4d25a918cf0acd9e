//! One sample as tables: for each process its QPs, its counters, and why frames were dropped.

use std::io::{self, Write};
use std::path::Path;

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width};
use ferroce::fabric::QpReport;

use super::sample::{Details, Process, Sample};
use crate::table::{empty_table, write_table};
use crate::view::{grouped, style};

const QP_HEADER: [&str; 10] =
    ["QPN", "Type", "State", "Peer QPN", "Peer GID", "SQ", "RQ", "Sent", "Received", "Resent"];

/// The column that is folded where the terminal is narrow, and the narrowest it becomes.
const PEER_GID: usize = 4;
const FOLDED_WIDTH: u16 = 12;

/// Writes the tables, with a line below each header if `is_terminal`.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(
    sample: &Sample,
    dir: &Path,
    out: &mut impl Write,
    is_terminal: bool,
) -> io::Result<()> {
    if sample.processes.is_empty() {
        return writeln!(out, "no process in fabric {}", dir.display());
    }
    for (index, process) in sample.processes.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_process(process, out, is_terminal)?;
    }
    Ok(())
}

fn write_process(process: &Process, out: &mut impl Write, is_terminal: bool) -> io::Result<()> {
    let (title, bad) = (style::TITLE, style::BAD);
    let Process { pid, gids, details, error, .. } = process;
    let gids = gids.join(" ");
    if let Some(error) = error {
        writeln!(out, "{title}{pid}{title:#}  {gids}")?;
        return writeln!(out, " {bad}{error}{bad:#}");
    }
    let Some(details) = details else { return Ok(()) };
    let Details { program, device, qps, .. } = details;
    writeln!(out, "{title}{pid}  {program}  {device}{title:#}  {gids}")?;
    match qps.is_empty() {
        true => writeln!(out, " no QPs")?,
        false => write_table(&qp_table(qps, is_terminal), out)?,
    }
    for (titles, counters) in [
        (["Counter", "Count"], details.counted().collect::<Vec<_>>()),
        (["Drops by reason", "Frames"], details.drops().collect()),
    ] {
        if !counters.is_empty() {
            write_table(&counter_table(titles, &counters, is_terminal), out)?;
        }
    }
    Ok(())
}

fn qp_table(qps: &[QpReport], is_terminal: bool) -> Table {
    let mut table = empty_table(QP_HEADER, is_terminal);
    for qp in qps {
        table.add_row([
            qpn_text(qp.qpn),
            qp.qp_type.clone(),
            qp.state.clone(),
            qp.peer_qpn.map_or_else(|| "-".to_owned(), qpn_text),
            qp.peer_gid.clone().unwrap_or_else(|| "-".to_owned()),
            grouped(qp.sq_outstanding),
            grouped(qp.rq_outstanding),
            grouped(qp.sent_pkts),
            grouped(qp.rcvd_pkts),
            grouped(qp.retransmitted_pkts),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > PEER_GID {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_constraint(match index {
            PEER_GID => ColumnConstraint::LowerBoundary(Width::Fixed(FOLDED_WIDTH)),
            _ => ColumnConstraint::ContentWidth,
        });
        if index > 0 {
            column.set_padding((0, 1));
        }
    }
    table
}

fn counter_table(titles: [&str; 2], counters: &[(&str, u64)], is_terminal: bool) -> Table {
    let mut table = empty_table(titles, is_terminal);
    for &(name, count) in counters {
        table.add_row([name.to_owned(), grouped(count)]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A QPN as `ibv_rc_pingpong` and perftest write it.
pub fn qpn_text(qpn: u32) -> String {
    format!("0x{qpn:06x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::sample::tests::sample;

    fn text(sample: &Sample) -> String {
        let mut out = Vec::new();
        let mut plain = anstream::StripStream::new(&mut out);
        write(sample, Path::new("/dev/shm/lab"), &mut plain, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_show_what_has_moved() {
        let text = text(&sample(0, 2));
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "41 ib_send_bw ferroce0 ::ffff:192.0.2.1",
            "QPN Type State Peer QPN Peer GID SQ RQ Sent Received Resent",
            "0x000010 UD RESET - - 0 0 0 0 0",
            "0x000011 RC RTS 0x010011 ::ffff:192.0.2.2 3 64 2,000 1,000 0",
            "Counter Count",
            "rcvd_pkts 1,000",
            "sent_pkts 2,000",
            "Drops by reason Frames",
            "bad_icrc 2",
            "injected 2",
            "",
            "42 ::ffff:192.0.2.2",
            "did not answer in time",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn empty_fabric_is_named() {
        let sample = Sample { processes: Vec::new(), ..sample(0, 0) };
        assert_eq!(text(&sample), "no process in fabric /dev/shm/lab\n");
    }
}
