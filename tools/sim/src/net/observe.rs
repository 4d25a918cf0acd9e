//! What is seen on the way and at the end.

use super::Network;
use super::clock::{Event, PER_NANO};
use super::port::Port;
use crate::outcome::{Outcome, Sample};

impl Network<'_> {
    /// Looks at queues and flows, and sets when to look again.
    pub(super) fn sample(&mut self) {
        let delivered = self.programs.records().map(|record| record.delivered).collect();
        let rates = (0..self.plan.flows.len()).map(|flow| self.rate(flow)).collect();
        self.samples.push(Sample {
            at: self.now / PER_NANO,
            queues: self.ports.iter().map(|port| port.queued).collect(),
            longest: self.ports.iter_mut().map(Port::take_longest).collect(),
            paused: self.ports.iter().map(|port| port.pause.classes).collect(),
            delivered,
            rates,
        });
        let next = self.now.saturating_add(self.plan.sample_every.saturating_mul(PER_NANO));
        self.clock.set(next, Event::Sample);
    }

    /// What a flow's sender, of a READ the responder, allows it; 0 if nothing limits it.
    fn rate(&self, flow: usize) -> u64 {
        let Some((host, qpn)) = self.programs.sender(flow, self.plan.flows[flow].verb) else {
            return 0;
        };
        let rate = self.hosts[host].device.qp_rate(self.now_for_devices(), qpn);
        rate.map_or(0, |limits| limits.rate)
    }

    /// All that was observed.
    pub(super) fn outcome(mut self) -> Outcome {
        let now = self.now;
        // What was longest, or arrived, after the last sample is seen, too.
        let is_sampled = self.samples.last().is_none_or(|last| last.at >= now / PER_NANO);
        if self.plan.sample_every > 0 && !is_sampled {
            self.sample();
        }
        for port in &mut self.ports {
            port.end_pauses(now, true);
            port.take_longest();
        }
        let under_way = self.programs.under_way(now);
        let records = self.programs.records().zip(under_way).enumerate();
        let flows = records.map(|(flow, (record, under_way))| {
            let requester = self.programs.requester(flow);
            let counters =
                requester.and_then(|(host, qpn)| self.hosts[host].device.qp_counters(qpn));
            let retransmitted = counters.map_or(0, |counters| counters.retransmitted_pkts);
            crate::outcome::FlowRecord { retransmitted, under_way, ..record.clone() }
        });
        Outcome {
            ended: now / PER_NANO,
            flows: flows.collect(),
            ports: self.ports.iter().map(|port| port.record.clone()).collect(),
            samples: self.samples,
            counters: self.hosts.iter().map(|host| counters(host.device.counters())).collect(),
            hops: self.hops,
            delivered: self.delivered,
            captures: self.captures,
        }
    }
}

/// Those that are not 0.
fn counters(counters: &ferroce_stack::Counters) -> Vec<(&'static str, u64)> {
    let discards = counters.discards().map(|(discard, count)| (discard.name(), count));
    counters.iter().chain(discards).filter(|&(_, count)| count > 0).collect()
}
