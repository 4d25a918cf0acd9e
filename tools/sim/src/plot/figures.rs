//! Which charts a run has.

use super::{Axis, Chart, Scale, Series, Style};
use crate::outcome::Sample;
use crate::report::Run;
use crate::report::csv::{busiest_ports, goodput_gbps};
use crate::report::flows::{self, FlowFigures};
use crate::report::stats::{FIGURES, Spread, Times};

/// Flows and ports that have a line of their own; of more flows, each workload has one.
const MAX_LINES: usize = 7;

/// Points of a curve of goodput: each is a mean over its part of the time.
const GOODPUT_POINTS: usize = 200;

/// The charts of a run with the names of their files: those for which something was observed.
pub fn of_run(run: &Run<'_>, flows: &[FlowFigures]) -> Vec<(&'static str, Chart)> {
    let charts = [
        ("queue", queue(run)),
        ("goodput", goodput(run)),
        ("rate", rate(run)),
        ("pfc", pfc(run)),
        ("fct", fct(flows)),
        ("slowdown", slowdown(flows)),
    ];
    charts.into_iter().filter_map(|(name, chart)| Some((name, chart?))).collect()
}

/// Time in the unit that suits the run.
struct Clock {
    axis: Axis,
    unit: f64,
}

impl Clock {
    fn of(run: &Run<'_>) -> Clock {
        let (label, unit) = match run.outcome.ended {
            ..2_000_000 => ("time (us)", 1e3),
            2_000_000..2_000_000_000 => ("time (ms)", 1e6),
            _ => ("time (s)", 1e9),
        };
        Clock { axis: Axis::new(label, Scale::Linear), unit }
    }

    fn at(&self, nanos: u64) -> f64 {
        nanos as f64 / self.unit
    }
}

/// The queues of the busiest ports over time.
fn queue(run: &Run<'_>) -> Option<Chart> {
    let clock = Clock::of(run);
    let samples = &run.outcome.samples;
    let ports = busiest_ports(samples, MAX_LINES - 1);
    let kilobytes =
        |sample: &Sample, port: usize| sample.queues.get(port).copied().unwrap_or(0) as f64 / 1e3;
    let series: Vec<_> = ports
        .into_iter()
        .map(|port| {
            let at = |sample: &Sample| (clock.at(sample.at), kilobytes(sample, port));
            let name = run.experiment.network.port(port).to_owned();
            Series::new(name, Style::Step, samples.iter().map(at).collect())
        })
        .collect();
    let marking = run.experiment.plan.switch.ecn.iter().flatten().next();
    let levels = marking.map_or(Vec::new(), |ecn| {
        vec![("Kmin".to_owned(), ecn.kmin as f64 / 1e3), ("Kmax".to_owned(), ecn.kmax as f64 / 1e3)]
    });
    (!series.is_empty()).then(|| Chart {
        x: clock.axis,
        y: Axis::new("queue (KB)", Scale::Linear),
        series,
        levels,
    })
}

/// What flows bring over time, each, or per workload the mean with the least and the greatest.
fn goodput(run: &Run<'_>) -> Option<Chart> {
    let samples = &run.outcome.samples;
    let step = samples.len().div_ceil(GOODPUT_POINTS).max(1);
    let start = Sample::default();
    let coarse: Vec<&Sample> =
        [&start].into_iter().chain(samples.iter().skip(step - 1).step_by(step)).collect();
    let rate = |pair: &[&Sample], flow| goodput_gbps(pair[0], pair[1], flow);
    chart_of_flows(run, "goodput (Gbit/s)", &coarse, &rate)
}

/// What senders allow flows over time, as above.
fn rate(run: &Run<'_>) -> Option<Chart> {
    let samples = &run.outcome.samples;
    if samples.iter().all(|sample| sample.rates.iter().all(|rate| *rate == 0)) {
        return None;
    }
    let start = Sample::default();
    let all: Vec<&Sample> = [&start].into_iter().chain(samples).collect();
    let rate =
        |pair: &[&Sample], flow: usize| pair[1].rates.get(flow).copied().unwrap_or(0) as f64 / 1e9;
    chart_of_flows(run, "allowed rate (Gbit/s)", &all, &rate)
}

/// A value of each flow between two samples, over time.
fn chart_of_flows(
    run: &Run<'_>,
    label: &str,
    samples: &[&Sample],
    value: &dyn Fn(&[&Sample], usize) -> f64,
) -> Option<Chart> {
    let clock = Clock::of(run);
    let flows = &run.experiment.plan.flows;
    if samples.len() < 2 {
        return None;
    }
    let at = |pair: &[&Sample]| clock.at(pair[1].at);
    let series = match flows.len() {
        ..=MAX_LINES => (0..flows.len())
            .map(|flow| {
                let points = samples.windows(2).map(|pair| (at(pair), value(pair, flow)));
                Series::new(flow_name(run, flow), Style::Line, points.collect())
            })
            .collect(),
        _ => groups(flows.iter().map(|flow| flow.group.as_str()))
            .into_iter()
            .map(|(name, members)| {
                let spread = |pair: &[&Sample]| {
                    let active = members.iter().filter(|flow| flows[**flow].start < pair[1].at);
                    let values = active.map(|flow| value(pair, *flow)).collect();
                    Spread::of(values).map(|spread| (at(pair), spread))
                };
                let spreads: Vec<_> = samples.windows(2).filter_map(spread).collect();
                Series {
                    name: match members.len() {
                        1 => name.to_owned(),
                        count => format!("{name}: mean of {count} flows, least to greatest"),
                    },
                    style: Style::Line,
                    points: spreads.iter().map(|(at, spread)| (*at, spread.mean)).collect(),
                    range: spreads.iter().map(|(_, spread)| (spread.min, spread.max)).collect(),
                    at_least: Vec::new(),
                }
            })
            .collect(),
    };
    let y = Axis::new(label, Scale::Linear);
    Some(Chart { x: clock.axis, y, series, levels: Vec::new() })
}

/// "h1 to h0", with its workload if there are several of these.
fn flow_name(run: &Run<'_>, flow: usize) -> String {
    let flows = &run.experiment.plan.flows;
    let own = &flows[flow];
    let name = format!("h{} to h{}", own.from, own.to);
    let same: Vec<usize> = (0..flows.len())
        .filter(|other| (flows[*other].from, flows[*other].to) == (own.from, own.to))
        .collect();
    match same.len() {
        1 => name,
        _ => format!("{name} ({flow})"),
    }
}

/// How many ports stand paused over time.
fn pfc(run: &Run<'_>) -> Option<Chart> {
    let clock = Clock::of(run);
    let count =
        |sample: &Sample| sample.paused.iter().filter(|classes| **classes != 0).count() as f64;
    let points: Vec<_> =
        run.outcome.samples.iter().map(|sample| (clock.at(sample.at), count(sample))).collect();
    points.iter().any(|point| point.1 > 0.0).then(|| Chart {
        x: clock.axis,
        y: Axis::new("ports paused by PFC", Scale::Linear),
        series: vec![Series::new(String::new(), Style::Step, points)],
        levels: Vec::new(),
    })
}

/// Which share of each workload's flows takes no longer than a time: the steps that percentiles are
/// read from.
fn fct(flows: &[FlowFigures]) -> Option<Chart> {
    let mut series = Vec::new();
    for (name, members) in groups(flows.iter().map(|flow| flow.group.as_str())) {
        let members: Vec<&FlowFigures> = members.iter().map(|flow| &flows[*flow]).collect();
        let steps = flows::fct_shares(&members);
        if steps.len() < 2 {
            continue;
        }
        let mut points = vec![(steps[0].0, 0.0)];
        points.extend(steps);
        series.push(Series::new(name.to_owned(), Style::Step, points));
    }
    (!series.is_empty()).then(|| Chart {
        x: Axis::new("flow completion time (us)", Scale::Log),
        y: Axis::new("share of flows", Scale::Linear),
        series,
        levels: Vec::new(),
    })
}

/// Slowdown by size: each mark stands for a tenth of the flows.
fn slowdown(flows: &[FlowFigures]) -> Option<Chart> {
    let mut known: Vec<&FlowFigures> =
        flows.iter().filter(|flow| flow.slowdown.is_some() || flow.so_far_us.is_some()).collect();
    known.sort_by_key(|flow| flow.size);
    if known.len() < 20 || known.first()?.size == known.last()?.size {
        return None;
    }
    let parts: Vec<(f64, Times)> = known
        .chunks(known.len().div_ceil(10))
        .filter_map(|part| Some((part[part.len() / 2].size as f64 / 1e3, flows::slowdown(part)?)))
        .collect();
    let line = |name: &str, part: &str| {
        let (_, value, least) = FIGURES.into_iter().find(|figure| figure.0 == part)?;
        let value = |times: &Times| {
            let known = value(times).map(|value| (value, false));
            known.or_else(|| Some((least(times.at_least.as_ref()?), true)))
        };
        let marks: Vec<_> =
            parts.iter().filter_map(|(size, times)| Some((*size, value(times)?))).collect();
        let points = marks.iter().map(|(size, (value, _))| (*size, *value)).collect();
        let at_least = marks.iter().map(|(_, (_, at_least))| *at_least).collect();
        Some(Series { at_least, ..Series::new(name.to_owned(), Style::Marked, points) })
    };
    let series = [("median", "p50"), ("95th percentile", "p95"), ("99th percentile", "p99")]
        .into_iter()
        .filter_map(|(name, part)| line(name, part));
    Some(Chart {
        x: Axis::new("flow size (KB)", Scale::Log),
        y: Axis::new("FCT slowdown", Scale::Log),
        series: series.collect(),
        levels: Vec::new(),
    })
}

/// The members of each group, in the order in which the groups come.
fn groups<'n>(names: impl Iterator<Item = &'n str>) -> Vec<(&'n str, Vec<usize>)> {
    let mut groups = Vec::<(&str, Vec<usize>)>::new();
    for (index, name) in names.enumerate() {
        match groups.iter_mut().find(|group| group.0 == name) {
            Some(group) => group.1.push(index),
            None => groups.push((name, vec![index])),
        }
    }
    groups
}
