//! Each flow in numbers.

use super::Run;
use super::ideal::Ideal;
use super::stats::{Times, survivals};
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
    /// How long it had had when the clock stopped, or it failed; `None` if it has finished, or is
    /// endless.
    pub so_far_us: Option<f64>,
    /// From post to completion, of each message.
    pub latencies_us: Vec<f64>,
    /// From post to the end, of each message that has not completed.
    pub under_way_us: Vec<f64>,
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

impl FlowFigures {
    /// Whether its time for it was up before it had finished.
    pub fn is_unfinished(&self) -> bool {
        self.so_far_us.is_some() && !self.failed
    }

    /// From post to completion of its messages.
    pub fn latency(&self) -> Option<Times> {
        latency(&[self])
    }
}

/// Flow completion times of some flows; without the endless ones.
pub fn fct(flows: &[&FlowFigures]) -> Option<Times> {
    times(flows, |flow| flow.fct_us, |_, so_far| so_far)
}

/// Flow completion times as steps: each with the share of flows that takes no longer.
pub fn fct_shares(flows: &[&FlowFigures]) -> Vec<(f64, f64)> {
    let ended: Vec<f64> = flows.iter().filter_map(|flow| flow.fct_us).collect();
    let unfinished = flows.iter().filter(|flow| flow.so_far_us.is_some()).count();
    let count = (ended.len() + unfinished) as f64;
    let steps = survivals(ended, &[], unfinished);
    steps.into_iter().map(|(time, over)| (time, over / count)).collect()
}

/// Their slowdown.
pub fn slowdown(flows: &[&FlowFigures]) -> Option<Times> {
    times(flows, |flow| flow.slowdown, |flow, so_far| so_far / flow.ideal_us)
}

/// The latencies of all their messages.
pub fn latency(flows: &[&FlowFigures]) -> Option<Times> {
    let ended = flows.iter().flat_map(|flow| &flow.latencies_us).copied().collect();
    let under_way = |failed| {
        let some = flows.iter().filter(move |flow| flow.failed == failed);
        some.flat_map(|flow| &flow.under_way_us).copied().collect::<Vec<_>>()
    };
    Times::of(ended, &under_way(false), &under_way(true))
}

/// Of flows that have not finished it is only known that they have not: each counts as one that
/// takes longer than all that have, even one that began late, as the tail would else rest on few.
fn times(
    flows: &[&FlowFigures],
    ended: impl Fn(&FlowFigures) -> Option<f64>,
    so_far: impl Fn(&FlowFigures, f64) -> f64,
) -> Option<Times> {
    let unfinished = flows.iter().filter_map(|flow| Some(so_far(flow, flow.so_far_us?)));
    let unfinished: Vec<f64> = unfinished.collect();
    Times::of(flows.iter().filter_map(|flow| ended(flow)).collect(), &[], &unfinished)
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
    let is_unfinished = fct.is_none() && (failed || !flow.is_endless);
    let micros = |times: &[u64]| times.iter().map(|time| *time as f64 / 1e3).collect();
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
        so_far_us: is_unfinished.then(|| outcome.ended.saturating_sub(flow.start) as f64 / 1e3),
        latencies_us: micros(&record.latencies),
        under_way_us: micros(&record.under_way),
        retransmitted: record.retransmitted,
        failed,
    }
}
