//! Hosts: a device each, and the port its frames leave by.

use std::net::Ipv4Addr;

use ferroce_stack::gid::Gid;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Access, Cq, MrKeys, Pd, VerbsError};
use ferroce_stack::{Config, Device, GidEntry, GidType, MrInit};

use super::clock::{Event, PER_NANO};
use super::frames::{Meta, NONE};
use super::header::{Header, host_mac};
use super::memory::{Pattern, REGION_LEN};
use super::port::Port;
use super::{Network, SimError};
use crate::plan::{Node, Plan};

/// Frames a port holds that may not leave: CNPs, where their class is paused. Everything else waits
/// in the device.
const PULL_AHEAD: u32 = 64;
/// Completions looked at together.
pub const COMPLETIONS: usize = 16;
/// Completions a queue takes; it is emptied whenever there is one.
const CQE: usize = 1 << 24;

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Its device.
    pub device: Device<Pattern>,
    /// The protection domain of everything.
    pub pd: Pd,
    /// Where everything completes.
    pub cq: Cq,
    /// The keys of the one region, which begins at address 0.
    pub keys: MrKeys,
    /// Its end of its link.
    port: u32,
    /// When its device's timers are to be looked at, in picoseconds.
    timer_at: u64,
    /// Frames that wait at its port.
    waiting: u32,
    /// Classes that its device holds back, as bits.
    paused: u8,
}

impl Host {
    /// All of a plan's.
    ///
    /// # Errors
    /// [`SimError::Refused`] if the plan's sizes leave a device without room for them.
    pub fn all(plan: &Plan, ports: &[Port]) -> Result<Vec<Host>, SimError> {
        let mut port_of = vec![0; plan.topology.hosts];
        for (number, port) in ports.iter().enumerate() {
            if let Node::Host(host) = port.node {
                port_of[host] = number as u32;
            }
        }
        let host = |(host, &port)| {
            Host::new(plan, host, port).map_err(|(verb, error)| SimError::Refused {
                host,
                verb,
                error,
            })
        };
        port_of.iter().enumerate().map(host).collect()
    }

    fn new(plan: &Plan, host: usize, port: u32) -> Result<Host, (&'static str, VerbsError)> {
        let config = Config {
            active_mtu: plan.host.mtu,
            max_cqe: CQE,
            max_qp: (1 << 20) - 1,
            ..plan.host.device.clone()
        };
        let mut device = Device::new(config, Pattern::default());
        device.add_gid(address(host)).map_err(|error| ("an address", error))?;
        let pd = device.alloc_pd().map_err(|error| ("a protection domain", error))?;
        let cq = device.create_cq(CQE).map_err(|error| ("a CQ", error))?;
        let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE).with(Access::REMOTE_READ);
        let region = MrInit { addr: 0, length: REGION_LEN, iova: 0, access };
        let keys = device.reg_mr(pd, &region).map_err(|error| ("a region", error))?;
        while device.poll_event().is_some() {}
        Ok(Host { device, pd, cq, keys, port, timer_at: u64::MAX, waiting: 0, paused: 0 })
    }
}

/// The address of a host.
pub fn address(host: usize) -> GidEntry {
    let [_, a, b, c] = (host as u32 + 1).to_be_bytes();
    let gid = Gid::from(Ipv4Addr::new(10, a, b, c));
    GidEntry { gid, gid_type: GidType::RoceV2, mac: host_mac(host), vlan: None }
}

impl Network<'_> {
    /// A host receives a frame, and does what follows from it.
    pub(super) fn take_in(&mut self, host: usize, frame: u32) -> Result<(), SimError> {
        let now = self.now_for_devices();
        // Why a frame has no effect, the device counts.
        let _ = self.hosts[host].device.handle_frame(now, self.frames.bytes(frame));
        self.frames.give_back(frame);
        self.delivered += 1;
        self.drive(host)
    }

    /// Lets the timers of a host's device act that have run out.
    pub(super) fn run_timers(&mut self, host: usize) -> Result<(), SimError> {
        if self.hosts[host].timer_at != self.now {
            return Ok(());
        }
        self.hosts[host].timer_at = u64::MAX;
        let now = self.now_for_devices();
        self.hosts[host].device.handle_timeout(now);
        self.drive(host)
    }

    /// Lets a host's program see what has completed, and its port send.
    pub(super) fn drive(&mut self, host: usize) -> Result<(), SimError> {
        self.serve(host)?;
        while self.send(host) {
            self.serve(host)?;
        }
        let Host { device, timer_at, .. } = &mut self.hosts[host];
        if let Some(at) = device.poll_timeout() {
            let at = at.nanos().saturating_mul(PER_NANO).max(self.now);
            if at < *timer_at {
                *timer_at = at;
                self.clock.set(at, Event::Timer(host as u32));
            }
        }
        Ok(())
    }

    /// A host's device holds back what its port may not send, as the queues of a NIC do.
    pub(super) fn pause_device(&mut self, host: usize) {
        let Host { device, port, paused, .. } = &mut self.hosts[host];
        let classes = self.ports[*port as usize].pause.classes;
        if *paused != classes {
            *paused = classes;
            let of = self.plan.host.classes.iter().enumerate();
            let held = of.filter(|&(_, class)| classes >> class & 1 == 1);
            device.pause_dscps(held.fold(0, |dscps, (dscp, _)| dscps | 1 << dscp));
        }
    }

    /// Sends the next frame if the link is free; whether there was one.
    fn send(&mut self, host: usize) -> bool {
        let number = self.hosts[host].port;
        let port = &self.ports[number as usize];
        if port.free_at > self.now {
            if port.has_ready() || !self.hosts[host].device.is_quiet() {
                self.await_free(number);
            }
            return false;
        }
        if !port.has_ready() {
            self.pull(host);
        }
        let Some(frame) = self.ports[number as usize].pop(&self.frames) else { return false };
        self.hosts[host].waiting -= 1;
        self.launch(number, frame);
        true
    }

    /// Takes frames from a host's device until one may leave.
    fn pull(&mut self, host: usize) {
        let now = self.now_for_devices();
        let Host { device, port, waiting, .. } = &mut self.hosts[host];
        let port = &mut self.ports[*port as usize];
        while !port.has_ready() && *waiting < PULL_AHEAD {
            let frame = self.frames.take();
            let Some(len) = device.poll_transmit(now, self.frames.buffer_mut(frame)) else {
                self.frames.give_back(frame);
                break;
            };
            let source_qp = device.sender().map_or(NONE, |qpn| qpn.0);
            let header = Header::of(&self.frames.buffer_mut(frame)[..len]);
            *self.frames.meta_mut(frame) = Meta {
                len: len as u32,
                to: header.to,
                hash: header.hash,
                ingress: NONE,
                source_qp,
                class: self.plan.host.classes[usize::from(header.dscp)],
                ..Meta::default()
            };
            *waiting += 1;
            port.push(&mut self.frames, frame);
        }
    }

    pub(super) fn now_for_devices(&self) -> Instant {
        Instant::from_nanos(self.now / PER_NANO)
    }
}
