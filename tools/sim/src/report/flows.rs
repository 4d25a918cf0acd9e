//! Each flow in numbers.

use super::Run;
use super::ideal::Ideal;
use crate::outcome::{FlowRecord, Outcome};
use crate::plan::Flow;

/// A flow in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowFigures {
    /// Its workload's name.
    pub group: String,
    /// Bytes of all its messages.
    pub size: u64,
    /// Bytes of payload that arrived, each once.
    pub delivered: u64,
    /// From here it is measured, in nanoseconds: its start, or the warm-up's end.
    pub begin: u64,
    /// Up to here: its end, or the simulation's.
    pub end: u64,
    /// Bytes that arrived between the two.
    pub measured: u64,
    /// What that makes; `None` if it was over before.
    pub goodput_gbps: Option<f64>,
    /// From start to last completion; `None` if it has not finished.
    pub fct_us: Option<f64>,
    /// What that would be if it were alone.
    pub ideal_us: f64,
    /// One divided by the other.
    pub slowdown: Option<f64>,
    /// From post to completion, of each message.
    pub latencies_us: Vec<f64>,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Whether it has failed.
    pub failed: bool,
}

/// All flows of a run.
pub fn figures(run: &Run<'_>) -> Vec<FlowFigures> {
    let experiment = run.experiment;
    let mut ideal = Ideal::new(&experiment.plan, &experiment.network);
    let records = experiment.plan.flows.iter().zip(&run.outcome.flows).enumerate();
    records
        .map(|(index, (flow, record))| {
            figures_of(index, flow, record, run.outcome, experiment.warmup, ideal.flow(flow))
        })
        .collect()
}

fn figures_of(
    index: usize,
    flow: &Flow,
    record: &FlowRecord,
    outcome: &Outcome,
    warmup: u64,
    ideal: f64,
) -> FlowFigures {
    let end = record.finished.unwrap_or(outcome.ended);
    // What had arrived when the warm-up ended is what the last sample by then says.
    let warm = outcome.samples.partition_point(|sample| sample.at <= warmup);
    let warm = match warm.checked_sub(1).map(|last| &outcome.samples[last]) {
        Some(sample) if warmup > flow.start => {
            Some((sample.at, sample.delivered.get(index).copied().unwrap_or(0)))
        }
        _ => None,
    };
    let begin = warm.map_or(flow.start, |(at, _)| at.max(flow.start));
    let measured = record.delivered.saturating_sub(warm.map_or(0, |(_, bytes)| bytes));
    let time = end.saturating_sub(begin);
    let failed = record.failed.is_some();
    let fct = match failed {
        true => None,
        false => record.finished.map(|at| at.saturating_sub(flow.start) as f64),
    };
    FlowFigures {
        group: flow.group.clone(),
        size: flow.message.saturating_mul(flow.messages),
        delivered: record.delivered,
        begin,
        end,
        measured,
        goodput_gbps: (time > 0).then(|| measured as f64 * 8.0 / time as f64),
        fct_us: fct.map(|time| time / 1e3),
        ideal_us: ideal / 1e3,
        slowdown: fct.map(|time| time / ideal),
        latencies_us: record.latencies.iter().map(|time| *time as f64 / 1e3).collect(),
        retransmitted: record.retransmitted,
        failed,
    }
}
