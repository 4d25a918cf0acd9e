//! Which charts a run has.

use super::{Axis, Chart, Scale, Series, Style, units};
use crate::outcome::Sample;
use crate::plan::{Ecn, Node, Plan, Switch};
use crate::report::Run;
use crate::report::csv::{busiest_ports, goodput_gbps, longest_queue};
use crate::report::flows::{self, FlowFigures};
use crate::report::stats::{FIGURES, Spread, Times};

/// Flows and ports that have a line of their own; of more flows, each workload has one.
const MAX_LINES: usize = 7;

/// Queues that are never more than such a part of the longest are not drawn unless they are named.
const SMALL_QUEUE: u64 = 50;

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
    let width = run.experiment.plots.width;
    let drawn = charts.into_iter().filter_map(|(name, chart)| Some((name, chart?)));
    drawn.map(|(name, chart)| (name, Chart { width, ..chart })).collect()
}

/// Time in the unit that suits the run, and the part of it that is drawn.
struct Clock {
    axis: Axis,
    /// Nanoseconds.
    unit: f64,
    from: u64,
    until: u64,
}

impl Clock {
    fn of(run: &Run<'_>) -> Clock {
        let plots = &run.experiment.plots;
        let until = plots.until.unwrap_or(u64::MAX);
        let (unit, micros) = units::of_time(run.outcome.ended.min(until) as f64 / 1e3);
        Clock {
            axis: Axis::new(&format!("time ({unit})"), Scale::Linear),
            unit: micros * 1e3,
            from: plots.from,
            until,
        }
    }

    fn at(&self, nanos: u64) -> f64 {
        nanos as f64 / self.unit
    }

    fn shows(&self, nanos: u64) -> bool {
        (self.from..=self.until).contains(&nanos)
    }
}

/// Queues over time, of the ports that the file names or else of the busiest: at the moment of each
/// sample, and up to the longest since the sample before.
fn queue(run: &Run<'_>) -> Option<Chart> {
    let clock = Clock::of(run);
    let all = &run.outcome.samples;
    let samples: Vec<&Sample> = all.iter().filter(|sample| clock.shows(sample.at)).collect();
    let named = &run.experiment.plots.ports;
    let ports = match named.is_empty() {
        true => {
            let mut ports = busiest_ports(samples.iter().copied(), MAX_LINES - 1);
            let longest = |port: &usize| longest_queue(samples.iter().copied(), *port);
            let most = ports.first().map_or(0, longest);
            // Those by which now and then a packet passes show nothing.
            ports.retain(|port| SMALL_QUEUE * longest(port) >= most);
            ports
        }
        false => named.clone(),
    };
    let queue = |sample: &Sample, port: usize| {
        let of = |queues: &[u64]| queues.get(port).copied().unwrap_or(0) as f64;
        (of(&sample.queues), of(&sample.longest).max(of(&sample.queues)))
    };
    let of_all = ports.iter().flat_map(|port| samples.iter().map(|sample| queue(sample, *port).1));
    let (unit, bytes) = units::of_size(of_all.fold(0.0, f64::max));
    let marking = marking(&run.experiment.plan, &ports);
    let series: Vec<_> = ports
        .into_iter()
        .map(|port| {
            let values = samples.iter().map(|sample| (clock.at(sample.at), queue(sample, port)));
            let points = values.clone().map(|(at, (now, _))| (at, now / bytes)).collect();
            let range = values.map(|(_, (now, longest))| (now / bytes, longest / bytes)).collect();
            let name = run.experiment.network.port(port).to_owned();
            Series { range, ..Series::new(name, Style::Step, points) }
        })
        .collect();
    let levels = marking.map_or(Vec::new(), |ecn| {
        let level = |name: &str, size: u64| (name.to_owned(), size as f64 / bytes);
        vec![level("Kmin", ecn.kmin), level("Kmax", ecn.kmax)]
    });
    let y = Axis::new(&format!("queue ({unit})"), Scale::Linear);
    (!series.is_empty()).then(|| Chart {
        levels,
        range: "up to the longest since the sample before".to_owned(),
        ..Chart::new(clock.axis, y, series)
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

/// What flows bring over time while they last, each, or per workload the mean with the least and
/// the greatest.
fn goodput(run: &Run<'_>) -> Option<Chart> {
    let samples = &run.outcome.samples;
    let clock = Clock::of(run);
    let shown = samples.iter().filter(|sample| clock.shows(sample.at)).count();
    let step = shown.div_ceil(GOODPUT_POINTS).max(1);
    let start = Sample::default();
    let coarse: Vec<&Sample> =
        [&start].into_iter().chain(samples.iter().skip(step - 1).step_by(step)).collect();
    // Of the part of the time in which the flow is there.
    let rate = |pair: &[&Sample], flow| {
        let part = time_of(run, flow, pair) / (pair[1].at - pair[0].at).max(1) as f64;
        goodput_gbps(pair[0], pair[1], flow) / part
    };
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

/// How many nanoseconds between two samples a flow was there: begun, neither finished nor failed.
fn time_of(run: &Run<'_>, flow: usize, pair: &[&Sample]) -> f64 {
    let record = &run.outcome.flows[flow];
    let end = record.finished.or(record.failed_at).unwrap_or(u64::MAX);
    let begin = run.experiment.plan.flows[flow].start.max(pair[0].at);
    end.min(pair[1].at).saturating_sub(begin) as f64
}

/// A value of each flow between two samples, over time: as long as the flow is there for at least
/// half of the time between them.
fn chart_of_flows(
    run: &Run<'_>,
    label: &str,
    samples: &[&Sample],
    value: &dyn Fn(&[&Sample], usize) -> f64,
) -> Option<Chart> {
    let clock = Clock::of(run);
    let flows = &run.experiment.plan.flows;
    let pairs: Vec<&[&Sample]> =
        samples.windows(2).filter(|pair| clock.shows(pair[1].at)).collect();
    let is_there = |pair: &[&Sample], flow: usize| {
        2.0 * time_of(run, flow, pair) >= (pair[1].at - pair[0].at).max(1) as f64
    };
    let at = |pair: &[&Sample]| clock.at(pair[1].at);
    let line = |flow: usize| {
        let pairs = pairs.iter().filter(|pair| is_there(pair, flow));
        let points = pairs.map(|pair| (at(pair), value(pair, flow)));
        Series::new(flow_name(run, flow), Style::Line, points.collect())
    };
    let group = |(name, members): (&str, Vec<usize>)| {
        let spread = |pair: &&[&Sample]| {
            let there = members.iter().filter(|flow| is_there(pair, **flow));
            Some((at(pair), Spread::of(there.map(|flow| value(pair, *flow)).collect())?))
        };
        let spreads: Vec<_> = pairs.iter().filter_map(spread).collect();
        let points = spreads.iter().map(|(at, spread)| (*at, spread.mean)).collect();
        let (name, range) = match members.len() {
            1 => (name.to_owned(), Vec::new()),
            count => (
                format!("{name}: mean of {count} flows while they last"),
                spreads.iter().map(|(_, spread)| (spread.min, spread.max)).collect(),
            ),
        };
        Series { range, ..Series::new(name, Style::Line, points) }
    };
    let mut series: Vec<Series> = match flows.len() {
        ..=MAX_LINES => (0..flows.len()).map(line).collect(),
        _ => groups(flows.iter().map(|flow| flow.group.as_str())).into_iter().map(group).collect(),
    };
    // A flow that is shorter than the time between samples has no point.
    series.retain(|series| !series.points.is_empty());
    (!series.is_empty()).then(|| Chart {
        range: "least to greatest".to_owned(),
        ..Chart::new(clock.axis, Axis::new(label, Scale::Linear), series)
    })
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
    let samples = run.outcome.samples.iter().filter(|sample| clock.shows(sample.at));
    let points: Vec<_> = samples.map(|sample| (clock.at(sample.at), count(sample))).collect();
    points.iter().any(|point| point.1 > 0.0).then(|| {
        let y = Axis::new("ports paused by PFC", Scale::Linear);
        Chart::new(clock.axis, y, vec![Series::new(String::new(), Style::Step, points)])
    })
}

/// Which share of each workload's flows takes no longer than a time: the steps that percentiles are
/// read from.
fn fct(flows: &[FlowFigures]) -> Option<Chart> {
    let longest = flows.iter().filter_map(|flow| flow.fct_us).fold(0.0, f64::max);
    let (unit, micros) = units::of_time(longest);
    let mut series = Vec::new();
    for (name, members) in groups(flows.iter().map(|flow| flow.group.as_str())) {
        let members: Vec<&FlowFigures> = members.iter().map(|flow| &flows[*flow]).collect();
        let steps = flows::fct_shares(&members);
        if steps.len() < 2 {
            continue;
        }
        let mut points = vec![(steps[0].0 / micros, 0.0)];
        points.extend(steps.into_iter().map(|(time, share)| (time / micros, share)));
        series.push(Series::new(name.to_owned(), Style::Step, points));
    }
    let x = Axis::new(&format!("flow completion time ({unit})"), Scale::Log);
    let y = Axis { reach: 1.0, ..Axis::new("share of flows", Scale::Linear) };
    (!series.is_empty()).then(|| Chart::new(x, y, series))
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
    let (x, y) = (Axis::new("flow size (KB)", Scale::Log), Axis::new("FCT slowdown", Scale::Log));
    Some(Chart::new(x, y, series.collect()))
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
