//! What the processes of a fabric say of themselves at one moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ferroce::fabric::{self, Answer, FabricError, QpReport, Report};
use serde::Serialize;

/// A longer name is cut: it is some process's, and could be anything.
const NAME_MAX: usize = 64;

/// All processes at one moment.
#[derive(Debug)]
pub struct Sample {
    /// When all had answered.
    pub at: Instant,
    /// By slot.
    pub processes: Vec<Process>,
}

/// A process.
#[derive(Debug, Serialize)]
pub struct Process {
    /// Its slot in the fabric.
    pub slot: u8,
    /// Tells it from earlier processes in the slot.
    pub generation: u64,
    /// Its number.
    pub pid: u32,
    /// GIDs of its device.
    pub gids: Vec<String>,
    /// Why it has said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it has said.
    #[serde(flatten)]
    pub details: Option<Details>,
}

/// What a process says of itself.
#[derive(Debug, Serialize)]
pub struct Details {
    /// File name of its program.
    pub program: String,
    /// Name of its device.
    pub device: String,
    /// Every counter of its device.
    pub counters: BTreeMap<String, u64>,
    /// Frames without effect by reason, those that have occurred.
    pub discards: BTreeMap<String, u64>,
    /// Frames that never reached anybody, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Its QPs.
    pub qps: Vec<QpReport>,
}

impl Sample {
    /// Asks every process of the fabric in `dir` and waits for answers, at most `patience`.
    ///
    /// # Errors
    /// If the directory is not a fabric, or is another user's.
    pub fn take(dir: &Path, patience: Duration) -> Result<Sample, FabricError> {
        let answers = fabric::observe(dir)?.ask(patience);
        Ok(Sample { at: Instant::now(), processes: answers.into_iter().map(process).collect() })
    }

    /// The process that `other`, of another moment, is.
    pub fn find(&self, other: &Process) -> Option<&Process> {
        let is_it = |process: &&Process| {
            (process.slot, process.generation) == (other.slot, other.generation)
        };
        self.processes.iter().find(is_it)
    }
}

impl Details {
    /// A counter of the device; 0 if it has none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Counters that have moved.
    pub fn counted(&self) -> impl Iterator<Item = (&str, u64)> {
        counted(&self.counters)
    }

    /// Reasons for which frames were dropped, received or sent.
    pub fn drops(&self) -> impl Iterator<Item = (&str, u64)> {
        counted(&self.discards).chain(counted(&self.lost))
    }
}

fn counted(counters: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    counters.iter().map(|(name, &count)| (name.as_str(), count)).filter(|&(_, count)| count > 0)
}

fn process(Answer { process, report }: Answer) -> Process {
    let gids = match &report {
        Ok(report) => report.gids.iter().map(|gid| clean(gid)).collect(),
        Err(_) => process.gids.iter().map(ToString::to_string).collect(),
    };
    let error = report.as_ref().err().map(ToString::to_string);
    let fabric::Process { slot, generation, pid, .. } = process;
    Process { slot, generation, pid, gids, error, details: report.ok().map(details) }
}

fn details(report: Report) -> Details {
    let Report { program, device, counters, discards, lost, qps, .. } = report;
    Details {
        program: clean(&program),
        device: clean(&device),
        counters: cleaned(counters),
        discards: cleaned(discards),
        lost: cleaned(lost),
        qps: qps.into_iter().map(clean_qp).collect(),
    }
}

fn clean_qp(qp: QpReport) -> QpReport {
    QpReport {
        qp_type: clean(&qp.qp_type),
        state: clean(&qp.state),
        peer_gid: qp.peer_gid.as_deref().map(clean),
        ..qp
    }
}

fn cleaned(counters: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    counters.into_iter().map(|(name, count)| (clean(&name), count)).collect()
}

/// Text of another process, for a terminal: without control characters, and not too long.
fn clean(text: &str) -> String {
    let shown = |char: char| if char.is_control() { '?' } else { char };
    text.chars().take(NAME_MAX).map(shown).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two processes, the second silent, `ms` after the first such sample.
    pub fn sample(ms: u64, count: u64) -> Sample {
        let named = |names: &[&str]| names.iter().map(|&name| (name.to_owned(), count)).collect();
        let qp = QpReport {
            qpn: 0x11,
            qp_type: "RC".into(),
            state: "RTS".into(),
            peer_gid: Some("::ffff:192.0.2.2".into()),
            peer_qpn: Some(0x1_0011),
            sq_outstanding: 3,
            rq_outstanding: 64,
            sent_pkts: 1000 * count,
            rcvd_pkts: 500 * count,
            ..QpReport::default()
        };
        let idle = QpReport {
            qpn: 0x10,
            qp_type: "UD".into(),
            state: "RESET".into(),
            ..QpReport::default()
        };
        let details = Details {
            program: "ib_send_bw".into(),
            device: "ferroce0".into(),
            counters: BTreeMap::from([
                ("sent_pkts".into(), 1000 * count),
                ("rcvd_pkts".into(), 500 * count),
                ("retransmitted_pkts".into(), 0),
            ]),
            discards: named(&["bad_icrc"]),
            lost: named(&["injected"]),
            qps: vec![idle, qp],
        };
        let answering = Process {
            slot: 0,
            generation: 2,
            pid: 41,
            gids: vec!["::ffff:192.0.2.1".into()],
            error: None,
            details: Some(details),
        };
        let silent = Process {
            slot: 1,
            generation: 2,
            pid: 42,
            gids: vec!["::ffff:192.0.2.2".into()],
            error: Some("did not answer in time".into()),
            details: None,
        };
        Sample { at: start() + Duration::from_millis(ms), processes: vec![answering, silent] }
    }

    /// The moment of the first sample.
    fn start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    #[test]
    fn text_of_other_processes_is_fit_for_a_terminal() {
        let long = "x".repeat(1000);
        assert_eq!(clean("a\x1b[2Jb\nc"), "a?[2Jb?c");
        assert_eq!(clean(&long).len(), NAME_MAX);
    }
}
