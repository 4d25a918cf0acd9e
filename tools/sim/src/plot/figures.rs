//! Which charts a run has.

use super::{Axis, Chart, Scale, Series, Style};
use crate::outcome::Sample;
use crate::plan::{Ecn, Node, Plan, Switch};
use crate::report::Run;
use crate::report::csv::{busiest_ports, goodput_gbps};
use crate::report::flows::FlowFigures;
use crate::report::stats::Spread;

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
    let marking = marking(&run.experiment.plan, &ports);
    let kilobytes =
        |sample: &Sample, port: usize| sample.queues.get(port).copied().unwrap_or(0) as f64 / 1e3;
    let series: Vec<_> = ports
        .into_iter()
        .map(|port| Series {
            name: run.experiment.network.port(port).to_owned(),
            style: Style::Step,
            points: samples
                .iter()
                .map(|sample| (clock.at(sample.at), kilobytes(sample, port)))
                .collect(),
            range: Vec::new(),
        })
        .collect();
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

/// How these ports mark, if all do alike; if none is a switch's, how switches do.
fn marking<'p>(plan: &'p Plan, ports: &[usize]) -> Option<&'p Ecn> {
    let of = |switch: &'p Switch| switch.ecn.iter().flatten().next();
    let mut markings =
        ports.iter().filter_map(|port| match plan.topology.links[port / 2].ends[port % 2] {
            Node::Switch(switch) => Some(of(plan.switch(switch))),
            Node::Host(_) => None,
        });
    let Some(first) = markings.next() else { return of(&plan.switch) };
    first.filter(|_| markings.all(|other| other == first))
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
            .map(|flow| Series {
                name: flow_name(run, flow),
                style: Style::Line,
                points: samples.windows(2).map(|pair| (at(pair), value(pair, flow))).collect(),
                range: Vec::new(),
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
        series: vec![Series { name: String::new(), style: Style::Step, points, range: Vec::new() }],
        levels: Vec::new(),
    })
}

/// Which share of each workload's flows finished within a time.
fn fct(flows: &[FlowFigures]) -> Option<Chart> {
    let mut series = Vec::new();
    for (name, members) in groups(flows.iter().map(|flow| flow.group.as_str())) {
        let mut times: Vec<f64> = members
            .iter()
            .filter_map(|flow| flows[*flow].fct_us)
            .filter(|time| *time > 0.0)
            .collect();
        if times.len() < 2 {
            continue;
        }
        times.sort_by(f64::total_cmp);
        // A flow that did not finish counts as one that takes longer than all.
        let share = |index: usize| (index + 1) as f64 / members.len() as f64;
        let mut points = vec![(times[0], 0.0)];
        points.extend(times.iter().enumerate().map(|(index, time)| (*time, share(index))));
        series.push(Series {
            name: name.to_owned(),
            style: Style::Step,
            points,
            range: Vec::new(),
        });
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
    let mut known: Vec<(u64, f64)> =
        flows.iter().filter_map(|flow| Some((flow.size, flow.slowdown?))).collect();
    known.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    if known.len() < 20 || known.first()?.0 == known.last()?.0 {
        return None;
    }
    let parts: Vec<(f64, Spread)> = known
        .chunks(known.len().div_ceil(10))
        .filter_map(|part| {
            let spread = Spread::of(part.iter().map(|(_, slowdown)| *slowdown).collect());
            Some((part[part.len() / 2].0 as f64 / 1e3, spread?))
        })
        .collect();
    let line = |name: &str, of: fn(&Spread) -> f64| Series {
        name: name.to_owned(),
        style: Style::Marked,
        points: parts.iter().map(|(size, spread)| (*size, of(spread))).collect(),
        range: Vec::new(),
    };
    Some(Chart {
        x: Axis::new("flow size (KB)", Scale::Log),
        y: Axis::new("FCT slowdown", Scale::Log),
        series: vec![
            line("median", |spread| spread.p50),
            line("95th percentile", |spread| spread.p95),
            line("99th percentile", |spread| spread.p99),
        ],
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
