//! Whether a plan can be simulated.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::clock;
use super::error::SimError;
use super::memory::INDEX_MAX;
use crate::plan::{CLASSES, Flow, Link, Node, Plan, Switch, Verb};
use crate::workload::MAX_FLOW;

/// Hosts there may be: each has an address in 10.0.0.0/8.
const HOSTS_MAX: usize = (1 << 24) - 2;
/// Bytes of the longest message.
const MESSAGE_MAX: u64 = 1 << 31;
/// Bits per second of the fastest link: a byte takes a picosecond.
const RATE_MAX: u64 = 8_000_000_000_000;
/// Nanoseconds of the longest delay.
const DELAY_MAX: u64 = 10_000_000_000;
const DSCP_MAX: u8 = 63;

type Checked = Result<(), SimError>;

/// Checks all but whether there is a way between the hosts of each flow.
///
/// # Errors
/// The first fault found.
pub fn check(plan: &Plan) -> Checked {
    check_topology(plan)?;
    check_switches(plan)?;
    check_host(plan)?;
    check_flows(plan)?;
    let links = plan.topology.links.len();
    let named = plan.faults.iter().filter_map(|fault| fault.link);
    for link in named {
        value(link < links, || "fault".into(), "link", link, || format!("below {links}"))?;
    }
    for &port in &plan.captures {
        let ports = 2 * links;
        value(port < ports, || "captures".into(), "port", port, || format!("below {ports}"))?;
    }
    Ok(())
}

/// An error about `given` unless it is right.
fn value(
    is_right: bool,
    of: impl FnOnce() -> String,
    name: &'static str,
    given: impl Display,
    right: impl FnOnce() -> String,
) -> Checked {
    if is_right {
        return Ok(());
    }
    Err(SimError::Value { of: of(), name, value: given.to_string(), right: right() })
}

fn check_topology(plan: &Plan) -> Checked {
    let topology = &plan.topology;
    let of = || "topology".to_string();
    let hosts = topology.hosts;
    value(hosts <= HOSTS_MAX, of, "hosts", hosts, || format!("at most {HOSTS_MAX}"))?;
    let (links, most) = (topology.links.len(), clock::INDEX_MAX / 2);
    value(links <= most, of, "number of links", links, || format!("at most {most}"))?;
    let mut links_of = vec![0; hosts];
    for (number, Link { ends, rate, delay }) in topology.links.iter().enumerate() {
        for node in *ends {
            match node {
                Node::Host(host) if host < hosts => links_of[host] += 1,
                Node::Switch(switch) if switch < topology.switches => {}
                _ => return Err(SimError::NoSuchNode { link: number, node }),
            }
        }
        if ends[0] == ends[1] {
            return Err(SimError::LinkToItself { link: number });
        }
        let of = || format!("link {number}");
        let right = || format!("1 to {RATE_MAX} bits per second");
        value((1..=RATE_MAX).contains(rate), of, "rate", rate, right)?;
        let right = || format!("at most {DELAY_MAX} ns");
        value(*delay <= DELAY_MAX, of, "delay", delay, right)?;
    }
    match links_of.iter().position(|&links| links != 1) {
        Some(host) => Err(SimError::HostLinks { host, links: links_of[host] }),
        None => Ok(()),
    }
}

fn check_switches(plan: &Plan) -> Checked {
    check_switch(&plan.switch, "switch")?;
    for (&number, switch) in &plan.other_switches {
        let most = plan.topology.switches;
        let of = || "other_switches".to_string();
        value(number < most, of, "switch", number, || format!("below {most}"))?;
        check_switch(switch, &format!("switch {number}"))?;
    }
    Ok(())
}

fn check_switch(switch: &Switch, name: &str) -> Checked {
    let alpha = switch.alpha;
    let is_share = alpha > 0.0 && alpha.is_finite();
    value(is_share, || name.into(), "alpha", alpha, || "a number above 0".into())?;
    for class in 0..CLASSES {
        let of = || format!("{name}, class {class}");
        if let Some(ecn) = switch.ecn[class] {
            let is_right = (0.0..=1.0).contains(&ecn.pmax);
            value(is_right, of, "pmax", ecn.pmax, || "0 to 1".into())?;
            let right = || format!("at most kmax, {}", ecn.kmax);
            value(ecn.kmin <= ecn.kmax, of, "kmin", ecn.kmin, right)?;
        }
        if let Some(pfc) = switch.pfc[class] {
            let right = || format!("at most xoff, {}", pfc.xoff);
            value(pfc.xon <= pfc.xoff, of, "xon", pfc.xon, right)?;
        }
    }
    Ok(())
}

fn check_host(plan: &Plan) -> Checked {
    let of = || "host".to_string();
    let host = &plan.host;
    value(host.timeout <= 31, of, "timeout", host.timeout, || "0 to 31".into())?;
    value(host.retry_cnt <= 7, of, "retry_cnt", host.retry_cnt, || "0 to 7".into())?;
    value(host.device.max_wr > 0, of, "max_wr", 0, || "1 or more".into())?;
    let wrong = host.classes.iter().find(|&&class| usize::from(class) >= CLASSES);
    match wrong {
        Some(class) => value(false, of, "class of a DSCP", class, || "0 to 7".into()),
        None => Ok(()),
    }
}

fn check_flows(plan: &Plan) -> Checked {
    let of = || "plan".to_string();
    let (flows, most) = (plan.flows.len(), INDEX_MAX / 2);
    value(flows <= most, of, "number of flows", flows, || format!("at most {most}"))?;
    let mut pairs: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, flow) in plan.flows.iter().enumerate() {
        check_flow(plan, number, flow)?;
        let Some(qp) = flow.qp else { continue };
        let first = *pairs.entry(qp).or_insert(number);
        let shared = |flow: &Flow| (flow.from, flow.to, flow.dscp);
        if shared(&plan.flows[first]) != shared(flow) {
            return Err(SimError::UnequalFlows { flows: [first, number], qp });
        }
    }
    Ok(())
}

fn check_flow(plan: &Plan, number: usize, flow: &Flow) -> Checked {
    let of = || format!("flow {number}");
    let hosts = plan.topology.hosts;
    for (name, host) in [("from", flow.from), ("to", flow.to)] {
        value(host < hosts, of, name, host, || format!("a host, below {hosts}"))?;
    }
    value(flow.from != flow.to, of, "to", flow.to, || "another host than from".into())?;
    let right = || format!("1 to {MESSAGE_MAX} bytes");
    value((1..=MESSAGE_MAX).contains(&flow.message), of, "message", flow.message, right)?;
    if let Verb::Request(answer) = flow.verb {
        let right = || format!("at most {MESSAGE_MAX} bytes");
        value(answer <= MESSAGE_MAX, of, "answer", answer, right)?;
    }
    let most = MAX_FLOW / flow.message;
    let right = || format!("1 to {most} of {} bytes", flow.message);
    value((1..=most).contains(&flow.messages), of, "messages", flow.messages, right)?;
    value(flow.depth > 0, of, "depth", flow.depth, || "1 or more".into())?;
    value(flow.dscp <= DSCP_MAX, of, "dscp", flow.dscp, || format!("0 to {DSCP_MAX}"))
}
