//! A run as tables: flows, ports, samples.

use std::borrow::Cow;
use std::io::{self, Write};

use super::Run;
use super::flows::FlowFigures;
use crate::outcome::Sample;
use crate::plan::{FRAMING_LEN, Verb};

/// The most flows, and the most ports, that samples are written of.
pub const MAX_SAMPLED: usize = 64;

/// A text as a field: quoted if it must be.
pub(crate) fn field(text: &str) -> Cow<'_, str> {
    match text.contains([',', '"', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", text.replace('"', "\"\""))),
        false => Cow::Borrowed(text),
    }
}

/// A number with three decimals; empty if there is none.
fn decimal(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| format!("{value:.3}"))
}

/// A line for each flow.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_flows(run: &Run<'_>, flows: &[FlowFigures], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "flow,group,from,to,verb,message_bytes,messages,start_us,status,fct_us,ideal_us,slowdown,\
         delivered_bytes,goodput_gbps,latency_p50_us,latency_p99_us,retransmitted"
    )?;
    let plan = &run.experiment.plan;
    let records = plan.flows.iter().zip(&run.outcome.flows).zip(flows);
    for (index, ((flow, record), figures)) in records.enumerate() {
        let status = match (&record.failed, figures.fct_us) {
            (Some(reason), _) => reason.as_str(),
            (None, Some(_)) => "finished",
            (None, None) => "unfinished",
        };
        let latency = figures.latency();
        writeln!(
            out,
            "{index},{},h{},h{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            field(&flow.group),
            flow.from,
            flow.to,
            verb(flow.verb),
            flow.message,
            flow.messages,
            decimal(Some(flow.start as f64 / 1e3)),
            field(status),
            decimal(figures.fct_us),
            decimal(Some(figures.ideal_us)),
            decimal(figures.slowdown),
            figures.delivered,
            decimal(figures.goodput_gbps),
            decimal(latency.as_ref().and_then(|times| times.p50)),
            decimal(latency.as_ref().and_then(|times| times.p99)),
            figures.retransmitted,
        )?;
    }
    Ok(())
}

fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Write => "write",
        Verb::Send => "send",
        Verb::Read => "read",
        Verb::Request(_) => "request",
    }
}

/// A line for each port.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_ports(run: &Run<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "port,rate_gbps,frames,bytes,utilization,marked,dropped,struck,pauses,paused_us,\
         max_queue_bytes,pauses_sent"
    )?;
    let experiment = run.experiment;
    for (port, record) in run.outcome.ports.iter().enumerate() {
        let rate = experiment.plan.topology.links[port / 2].rate as f64;
        let capacity = rate * run.outcome.ended.max(1) as f64 / 8e9;
        let used = (record.bytes + FRAMING_LEN * record.frames) as f64 / capacity;
        writeln!(
            out,
            "{},{},{},{},{used:.4},{},{},{},{},{},{},{}",
            field(experiment.network.port(port)),
            rate / 1e9,
            record.frames,
            record.bytes,
            record.marked,
            record.dropped,
            record.struck,
            record.pauses.iter().sum::<u64>(),
            decimal(Some(record.paused.iter().sum::<u64>() as f64 / 1e3)),
            record.max_queue,
            record.pauses_sent.iter().sum::<u64>(),
        )?;
    }
    Ok(())
}

/// A line for each value of each sample: queues in bytes, at that moment and the most since the
/// sample before, and paused classes (as bits) of the ports that are to be plotted and of the
/// [`MAX_SAMPLED`] that held most, of those that held anything or were paused; goodput since the
/// sample before and the sender's rate of the first [`MAX_SAMPLED`] flows.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_samples(run: &Run<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "at_us,what,name,value")?;
    let network = &run.experiment.network;
    let mut ports = run.experiment.plots.ports.clone();
    for port in busiest_ports(run.outcome.samples.iter(), MAX_SAMPLED) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    let flows = run.outcome.flows.len().min(MAX_SAMPLED);
    let start = Sample::default();
    let mut before = &start;
    for sample in &run.outcome.samples {
        let at = decimal(Some(sample.at as f64 / 1e3));
        for &port in &ports {
            let name = field(network.port(port));
            let queue = sample.queues.get(port).copied().unwrap_or(0);
            let longest = sample.longest.get(port).copied().unwrap_or(0);
            let paused = sample.paused.get(port).copied().unwrap_or(0);
            writeln!(out, "{at},queue_bytes,{name},{queue}")?;
            writeln!(out, "{at},queue_max_bytes,{name},{longest}")?;
            writeln!(out, "{at},paused_classes,{name},{paused}")?;
        }
        for flow in 0..flows {
            let goodput = goodput_gbps(before, sample, flow);
            writeln!(out, "{at},goodput_gbps,{flow},{}", decimal(Some(goodput)))?;
            let rate = sample.rates.get(flow).copied().unwrap_or(0);
            if rate > 0 {
                writeln!(out, "{at},rate_gbps,{flow},{}", decimal(Some(rate as f64 / 1e9)))?;
            }
        }
        before = sample;
    }
    Ok(())
}

/// What a flow brought between two samples.
pub(crate) fn goodput_gbps(before: &Sample, after: &Sample, flow: usize) -> f64 {
    let bytes = |sample: &Sample| sample.delivered.get(flow).copied().unwrap_or(0);
    let time = after.at.saturating_sub(before.at).max(1);
    bytes(after).saturating_sub(bytes(before)) as f64 * 8.0 / time as f64
}

/// The ports whose queues were longest, the longest first; without those that neither held
/// anything nor were paused.
pub(crate) fn busiest_ports<'s>(
    samples: impl Iterator<Item = &'s Sample>,
    most: usize,
) -> Vec<usize> {
    let mut longest = Vec::new();
    for sample in samples {
        longest.resize(sample.longest.len().max(longest.len()), 0);
        for (port, longest) in longest.iter_mut().enumerate() {
            let paused = sample.paused.get(port).is_some_and(|classes| *classes != 0);
            let queue = sample.longest.get(port).copied().unwrap_or(0);
            *longest = queue.max(*longest).max(u64::from(paused));
        }
    }
    let mut ports: Vec<usize> = (0..longest.len()).filter(|port| longest[*port] > 0).collect();
    ports.sort_by_key(|port| (u64::MAX - longest[*port], *port));
    ports.truncate(most);
    ports
}

/// The most bytes that a port held.
pub(crate) fn longest_queue<'s>(samples: impl Iterator<Item = &'s Sample>, port: usize) -> u64 {
    samples.filter_map(|sample| sample.longest.get(port)).copied().max().unwrap_or(0)
}
