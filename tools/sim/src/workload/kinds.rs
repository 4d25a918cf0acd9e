//! The kinds of workload that need no file.

use std::collections::BTreeMap;

use super::sizes::{Sizes, exponential};
use super::{MAX_FLOWS, Maker, two_hosts};
use crate::config::document::read_text;
use crate::config::error::Problem;
use crate::config::units::{Pair, Size};
use crate::plan::{Flow, Verb};

impl Maker<'_> {
    /// Pairs of hosts, one by one.
    pub(super) fn make_flows(&mut self) -> Result<(), Problem> {
        let hosts = self.network.topology.hosts;
        let Some(pairs) = self.keys.pairs.clone() else {
            return Err(self.problem("pairs", "missing: expected pairs such as [[0, 2], [1, 2]]"));
        };
        for (index, Pair(from, to)) in pairs.into_iter().enumerate() {
            two_hosts(from, to, hosts)
                .map_err(|message| self.problem(&format!("pairs[{index}]"), message))?;
            self.connect(from, to)?;
        }
        Ok(())
    }

    /// Many send to one.
    pub(super) fn make_incast(&mut self) -> Result<(), Problem> {
        let to = match &self.keys.to {
            None => 0,
            Some(_) => match self.hosts("to", &self.keys.to)?[..] {
                [to] => to,
                _ => return Err(self.problem("to", "expected one host")),
            },
        };
        let mut from = self.hosts("from", &self.keys.from)?;
        match self.keys.from {
            None => from.retain(|host| *host != to),
            Some(_) if from.contains(&to) => {
                return Err(self.problem("from", format!("h{to} is the receiver")));
            }
            Some(_) => {}
        }
        if let Some(senders) = self.keys.senders {
            if senders > from.len() {
                let message = format!("expected at most {}, the hosts there are", from.len());
                return Err(self.problem("senders", message));
            }
            from.truncate(senders);
        }
        from.into_iter().try_for_each(|host| self.connect(host, to))
    }

    /// Every host sends to one and receives from one, by chance.
    pub(super) fn make_permutation(&mut self) -> Result<(), Problem> {
        let hosts = self.hosts("hosts", &self.keys.hosts)?;
        if hosts.len() < 2 {
            return Err(self.problem("hosts", "expected at least two"));
        }
        // Sattolo's shuffle: one cycle, so that nobody sends to itself.
        let mut to = hosts.clone();
        for last in (1..to.len()).rev() {
            to.swap(last, self.rng.below(last as u64) as usize);
        }
        hosts.into_iter().zip(to).try_for_each(|(from, to)| self.connect(from, to))
    }

    /// Every host sends to every other.
    pub(super) fn make_all_to_all(&mut self) -> Result<(), Problem> {
        let hosts = self.hosts("hosts", &self.keys.hosts)?;
        for step in 1..hosts.len() {
            for (index, from) in hosts.iter().enumerate() {
                self.connect(*from, hosts[(index + step) % hosts.len()])?;
            }
        }
        Ok(())
    }

    /// Every client asks every server, and waits for the answers.
    pub(super) fn make_request_response(&mut self) -> Result<(), Problem> {
        let clients = self.hosts("clients", &self.keys.clients)?;
        let servers = self.hosts("servers", &self.keys.servers)?;
        let request = self.message("request", self.keys.request.unwrap_or(Size(64)))?;
        let response = self.message("response", self.keys.response.unwrap_or(Size(4096)))?;
        let depth = self.depth(1)?;
        let requests = match self.keys.requests.unwrap_or(100) {
            0 => return Err(self.problem("requests", "expected at least 1")),
            requests => requests,
        };
        for client in clients {
            for server in servers.iter().filter(|server| **server != client) {
                self.add(client, *server, request, requests, depth, Verb::Request(response))?;
            }
        }
        Ok(())
    }

    /// Flows of random size between random hosts, after random times.
    pub(super) fn make_poisson(&mut self) -> Result<(), Problem> {
        let from = self.hosts("from", &self.keys.from)?;
        let to = self.hosts("to", &self.keys.to)?;
        if from.iter().any(|host| to.iter().all(|other| other == host)) {
            return Err(self.problem("to", "expected a host other than the sender"));
        }
        let sizes = self.sizes()?;
        let load = match self.keys.load {
            Some(load) if load.0 > 0.0 => load.0,
            _ => return Err(self.problem("load", "expected a share of the hosts' rate, above 0")),
        };
        let until = self.keys.until.map_or(self.until, |until| until.0.min(self.until));
        let most = self.keys.flows.unwrap_or(MAX_FLOWS).min(MAX_FLOWS);
        let verb = self.verb()?;
        let rate: f64 = from.iter().map(|host| self.network.host_rate(*host) as f64).sum();
        let mean_gap = sizes.mean() * 8.0 * 1e9 / (rate * load);
        let mut now = self.keys.start.unwrap_or_default().0 as f64;
        while self.flows.len() < most {
            now += exponential(&mut self.rng) * mean_gap;
            if now >= until as f64 {
                break;
            }
            let sender = from[self.rng.below(from.len() as u64) as usize];
            let receiver = loop {
                let host = to[self.rng.below(to.len() as u64) as usize];
                if host != sender {
                    break host;
                }
            };
            let message = sizes.draw(&mut self.rng);
            self.add(sender, receiver, message, 1, 1, verb)?;
            if let Some(flow) = self.flows.last_mut() {
                flow.start = now as u64;
            }
        }
        match self.flows.len() {
            0 => Err(self.problem("load", "so low that no flow starts")),
            MAX_FLOWS => Err(self.problem("load", format!("more than {MAX_FLOWS} flows"))),
            _ => {
                self.share_qps();
                Ok(())
            }
        }
    }

    /// The distribution that `sizes` names.
    fn sizes(&self) -> Result<Sizes, Problem> {
        let Some(name) = self.keys.sizes.as_deref() else {
            let message = "missing: expected \"web-search\", \"data-mining\", a CSV file or a size";
            return Err(self.problem("sizes", message));
        };
        if let Some(sizes) = Sizes::named(&name.replace('_', "-")) {
            return Ok(sizes);
        }
        if let Some(size) = Size::parse(name) {
            return Ok(Sizes::fixed(self.message("sizes", size)?));
        }
        let path = self.folder.join(name);
        let sizes = read_text(&path).and_then(|text| Sizes::from_csv(&text));
        sizes.map_err(|reason| {
            let message = format!(
                "{}: {reason} (there are also \"web-search\", \"data-mining\" and sizes)",
                path.display()
            );
            self.problem("sizes", message)
        })
    }

    /// Where `share_qp` says so, flows between the same hosts go over one QP pair.
    pub(super) fn share_qps(&mut self) {
        if self.keys.share_qp != Some(true) {
            return;
        }
        let key = |flow: &Flow| (flow.from, flow.to, flow.dscp);
        let mut numbers = BTreeMap::new();
        for flow in &mut self.flows {
            let next = self.next_qp + numbers.len();
            flow.qp = Some(*numbers.entry(key(flow)).or_insert(next));
        }
        self.next_qp += numbers.len();
    }
}
