//! The network itself: hosts, links and switches, and the clock that moves them.
//!
//! A host is a device and a port; what its device sends leaves when the link is free, and what
//! arrives is handled at once. `docs/simulator-model.md` says what is modelled and what is not.
//!
//! `program` does what the hosts' programs do, `host` moves frames between devices and ports,
//! `link` between ports, and `switch` from port to port.

mod check;
mod clock;
mod error;
mod frames;
mod header;
mod host;
mod link;
mod memory;
mod observe;
mod pause;
mod port;
mod program;
mod route;
mod switch;

#[cfg(test)]
mod tests;

use ferroce::frame::fault::Injector;
use ferroce::rand::Rng;
use ferroce_stack::verbs::Wc;

use crate::outcome::{Captured, Outcome, Sample};
use crate::plan::{Node, Plan};
use clock::{Clock, END, Event, PER_NANO};
use frames::Frames;
use host::Host;
use port::Port;
use program::Programs;
use route::Routes;
use switch::Switch;

pub use error::SimError;

/// Events between two reports of progress.
const REPORT_EVERY: u32 = 1 << 16;

/// How far a simulation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The virtual clock, in nanoseconds.
    pub at: u64,
    /// Flows that have finished or failed.
    pub flows_over: usize,
}

/// Simulates `plan`, and tells `progress` now and then how far it has come. The same plan gives the
/// same outcome, bit for bit.
///
/// # Errors
/// What makes the plan impossible.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, SimError> {
    Network::new(plan)?.run(progress)
}

/// Whether a plan can be simulated, as far as that is known without its hosts' devices.
///
/// # Errors
/// The first fault found.
pub(crate) fn check(plan: &Plan) -> Result<(), SimError> {
    check::check(plan)?;
    Switch::all(plan, &ports(plan, &mut Rng::new(plan.seed))).map(drop)
}

/// Of each link, both ends.
fn ports(plan: &Plan, rng: &mut Rng) -> Vec<Port> {
    let mut ports = Vec::with_capacity(2 * plan.topology.links.len());
    for (number, link) in plan.topology.links.iter().enumerate() {
        for (end, node) in link.ends.into_iter().enumerate() {
            let is_captured = plan.captures.contains(&(2 * number + end));
            let own = Rng::new(rng.next_u64());
            ports.push(Port::new(node, link, is_captured, own));
        }
    }
    ports
}

/// Everything that moves.
struct Network<'a> {
    plan: &'a Plan,
    /// Picoseconds.
    now: u64,
    clock: Clock,
    frames: Frames,
    /// `2 * link + end`.
    ports: Vec<Port>,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    routes: Routes,
    programs: Programs,
    /// Of each link that has rules.
    faults: Vec<Option<Injector>>,
    /// Room for completions while they are looked at.
    completions: Vec<Wc>,
    /// Frames handed to links.
    hops: u64,
    /// Frames handled by devices.
    delivered: u64,
    samples: Vec<Sample>,
    captures: Vec<Captured>,
}

impl<'a> Network<'a> {
    fn new(plan: &'a Plan) -> Result<Network<'a>, SimError> {
        check::check(plan)?;
        let mut rng = Rng::new(plan.seed);
        let topology = &plan.topology;
        let ports = ports(plan, &mut rng);
        let routes = Routes::new(topology, &ports, rng.next_u64());
        for (flow, ends) in plan.flows.iter().enumerate() {
            if !routes.connects(topology, ends.from, ends.to) {
                return Err(SimError::NoWay { flow, hosts: [ends.from, ends.to] });
            }
        }
        let programs = Programs::new(plan, rng.next_u64());
        let hosts = Host::all(plan, &ports)?;
        let frame_len = hosts.iter().map(|host| host.device.max_frame_len()).max();
        let faults = injectors(plan, rng.next_u64());
        Ok(Network {
            plan,
            now: 0,
            clock: Clock::default(),
            frames: Frames::new(frame_len.unwrap_or_default().max(pause::LEN)),
            switches: Switch::all(plan, &ports)?,
            ports,
            hosts,
            routes,
            programs,
            faults,
            completions: vec![Wc::default(); host::COMPLETIONS],
            hops: 0,
            delivered: 0,
            samples: Vec::new(),
            captures: Vec::new(),
        })
    }

    fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, SimError> {
        let until = self.plan.until.saturating_mul(PER_NANO).min(END);
        if self.plan.sample_every > 0 {
            self.clock.set(0, Event::Sample);
        }
        self.await_next_flow();
        let mut events = 0u32;
        while self.programs.over < self.plan.flows.len() {
            let Some((at, event)) = self.clock.next().filter(|&(at, _)| at <= until) else {
                self.now = until;
                break;
            };
            self.now = at;
            self.happen(event)?;
            events += 1;
            if events == REPORT_EVERY {
                events = 0;
                progress(self.progress());
            }
        }
        progress(self.progress());
        Ok(self.outcome())
    }

    fn progress(&self) -> Progress {
        Progress { at: self.now / PER_NANO, flows_over: self.programs.over }
    }

    fn happen(&mut self, event: Event) -> Result<(), SimError> {
        match event {
            Event::Arrive(port) => self.arrive(port),
            Event::Free(port) => {
                self.ports[port as usize].awaits_free = false;
                self.send_on(port)
            }
            Event::PauseEnd(port) => {
                let now = self.now;
                self.ports[port as usize].end_pauses(now, false);
                self.send_on(port)
            }
            Event::Refresh(port) => {
                self.refresh_pauses(port);
                Ok(())
            }
            Event::Timer(host) => self.run_timers(host as usize),
            Event::Post(flow) => {
                self.post_message(flow);
                self.drive(self.plan.flows[flow as usize].from)
            }
            Event::Late(frame) => {
                // Set aside, it remembers the port it left by.
                let port = self.frames.meta(frame).ingress;
                self.receive(port ^ 1, frame)
            }
            Event::Begin => self.begin_flows(),
            Event::Sample => {
                self.sample();
                Ok(())
            }
        }
    }

    /// Lets whoever a port belongs to send by it.
    fn send_on(&mut self, port: u32) -> Result<(), SimError> {
        match self.ports[port as usize].node {
            Node::Host(host) => {
                self.pause_device(host);
                self.drive(host)
            }
            Node::Switch(_) => {
                self.transmit(port);
                Ok(())
            }
        }
    }
}

/// Of each link: the rules for it, which count the frames of both directions.
fn injectors(plan: &Plan, seed: u64) -> Vec<Option<Injector>> {
    let mut rng = Rng::new(seed);
    let of_link = |link| {
        let seed = rng.next_u64();
        let here = plan.faults.iter().filter(|fault| fault.link.is_none_or(|place| place == link));
        let rules: Vec<_> = here.map(|fault| fault.rule.clone()).collect();
        (!rules.is_empty()).then(|| Injector::new(rules, seed))
    };
    (0..plan.topology.links.len()).map(of_link).collect()
}
