//! Our own stack in memory, on a virtual clock: a target without a wire, that always does the same.
//!
//! The program that uses it is quick: after each frame and each verb the device sends what it can,
//! and what has completed is polled, before the next thing happens. Time passes only while a
//! runner looks for what happens next, and jumps from timer to timer.

mod calls;
mod cm;
mod host;
mod queues;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ferroce_stack::congestion::{self, Algorithm, dcqcn};
use ferroce_stack::gid::Gid;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Ah, Cq, Event, Mr, Mw, MwType, Pd, QpType, Qpn, Srq, Wc, Xrcd};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, Device, GidEntry, GidType, LossRecovery};

use crate::target::{
    self, Broken, Call, Completion, Description, FIRST_DOMAIN, Object, Observation, Reply,
    SELECTIVE_REPEAT, Target,
};
use crate::words;
use cm::Services;
use host::Host;

/// Completions of one CQ.
const CQE: usize = 4096;
/// Scatter/gather entries of a work request.
const SGES: u32 = 16;
/// VLAN of [`Network::Vlan`].
const VLAN: u16 = 100;

/// What lies between the target and the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 on VLAN 100.
    Vlan,
}

impl Network {
    /// Every one.
    pub const ALL: [Network; 3] = [Network::Ipv4, Network::Ipv6, Network::Vlan];

    /// The word for `needs`.
    pub const fn feature(self) -> &'static str {
        match self {
            Network::Ipv4 => "ipv4",
            Network::Ipv6 => "ipv6",
            Network::Vlan => "vlan",
        }
    }

    /// The address of host 1, the target, or 2, the peer.
    fn address(self, host: u8) -> GidEntry {
        let gid = match self {
            Network::Ipv4 | Network::Vlan => Gid::from(Ipv4Addr::new(10, 0, 0, host)),
            Network::Ipv6 => {
                Gid::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)))
            }
        };
        let vlan = (self == Network::Vlan).then_some(VLAN);
        GidEntry { gid, gid_type: GidType::RoceV2, mac: Mac([2, 0, 0, 0, 0, host]), vlan }
    }
}

/// GUID of the peer's channel adapter.
const PEER_GUID: u64 = 0x0200_00ff_fe00_0002;

/// Words for `needs` that are fulfilled on every network.
const FEATURES: [&str; 20] = [
    "rc",
    "uc",
    "ud",
    "xrc",
    "atomic",
    "atomic-write",
    "flush",
    "flush-persistent",
    "reregister",
    "mtu-2048",
    "mtu-4096",
    "windows",
    "srq",
    "multicast",
    "resize-cq",
    "resize-srq",
    "cm",
    "cm-services",
    "counters",
    "exact-time",
];

/// The word for `needs` that asks for congestion control.
pub(crate) const CONGESTION: &str = "congestion";

/// Our stack as a [`Target`].
#[derive(Debug)]
pub struct MemoryTarget {
    description: Description,
    config: Config,
    now: Instant,
    device: Device<Host>,
    objects: Objects,
    /// Connection management, once it has begun.
    services: Option<Services>,
    /// What has happened and not been observed.
    happened: VecDeque<Observation>,
    /// Room for a frame.
    frame: Vec<u8>,
}

/// What the script has made, oldest first. A name finds the youngest of its kind.
#[derive(Debug, Default)]
struct Objects {
    pds: Vec<(Object, Pd)>,
    memories: Vec<(Object, Region)>,
    windows: Vec<(Object, Window)>,
    cqs: Vec<(Object, NamedCq)>,
    srqs: Vec<(Object, Srq)>,
    qps: Vec<(Object, QueuePair)>,
    xrcds: Vec<(Object, Xrcd)>,
}

#[derive(Clone, Copy, Debug)]
struct NamedCq {
    cq: Cq,
    /// The program leaves in it what completes.
    unpolled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    mr: Mr,
    lkey: u32,
    /// Where its first byte is in the host.
    at: u64,
    length: u64,
    /// What accesses call its first byte.
    address: u64,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    mw: Mw,
    mw_type: MwType,
    /// The key it has once what is posted is done.
    key: u32,
}

#[derive(Clone, Debug)]
struct QueuePair {
    qpn: Qpn,
    qp_type: QpType,
    pd: Pd,
    cqs: Vec<Cq>,
    /// UD: the way to the peer.
    ah: Option<Ah>,
}

/// The youngest of this name.
fn find<'a, T>(objects: &'a [(Object, T)], name: &str) -> Option<&'a T> {
    objects.iter().rev().find(|(own, _)| own == name).map(|(_, object)| object)
}

/// The same, to change.
fn find_mut<'a, T>(objects: &'a mut [(Object, T)], name: &str) -> Option<&'a mut T> {
    objects.iter_mut().rev().find(|(own, _)| own == name).map(|(_, object)| object)
}

impl Default for MemoryTarget {
    fn default() -> MemoryTarget {
        MemoryTarget::new(Network::Ipv4)
    }
}

impl MemoryTarget {
    /// A target on this network.
    pub fn new(network: Network) -> MemoryTarget {
        let features = FEATURES.into_iter().chain([network.feature()]).map(String::from).collect();
        let version = env!("CARGO_PKG_VERSION");
        let description = Description {
            name: format!("ferroce {version} in memory, {}", network.feature()),
            address: network.address(1),
            peer: network.address(2),
            peer_guid: PEER_GUID,
            features,
        };
        let config = Config::default();
        let device = device(&config, &description.address);
        let frame = vec![0; device.max_frame_len()];
        let mut target = MemoryTarget {
            description,
            config,
            now: Instant::ZERO,
            device,
            objects: Objects::default(),
            services: None,
            happened: VecDeque::new(),
            frame,
        };
        target.reset();
        target
    }

    /// The same, with congestion control: DCQCN on a link of 10 Gbit/s.
    #[must_use]
    pub fn with_congestion_control(mut self) -> MemoryTarget {
        let dcqcn = Algorithm::Dcqcn(dcqcn::Params::paper());
        let rate = congestion::Config::DEFAULT_LINE_RATE;
        self.config.congestion = Some(congestion::Config::new(dcqcn, rate));
        self.description.features.push(CONGESTION.to_owned());
        self.reset();
        self
    }

    /// The same, offering selective repeat.
    #[must_use]
    pub fn with_selective_repeat(mut self) -> MemoryTarget {
        self.config.loss_recovery = LossRecovery::SelectiveRepeat;
        self.description.features.push(SELECTIVE_REPEAT.to_owned());
        self.reset();
        self
    }

    fn reset(&mut self) {
        self.now = Instant::ZERO;
        self.device = device(&self.config, &self.description.address);
        self.objects = Objects::default();
        self.services = None;
        self.happened.clear();
        if let Ok(pd) = self.device.alloc_pd() {
            self.objects.pds.push((String::from(FIRST_DOMAIN), pd));
        }
        while self.device.poll_event().is_some() {}
    }

    /// Lets the device send, and takes what it tells.
    fn drive(&mut self) {
        loop {
            self.drive_device();
            if !self.serve() {
                return;
            }
        }
    }

    fn drive_device(&mut self) {
        self.transmit();
        while let Some(cq) = self.device.poll_ready_cq() {
            if !self.objects.cqs.iter().any(|(_, named)| named.cq == cq && named.unpolled) {
                self.poll(cq);
            }
        }
        while let Some(event) = self.device.poll_event() {
            self.happened.extend(self.event(event).map(Observation::Event));
        }
    }

    /// Sends what the device has to send.
    fn transmit(&mut self) {
        while let Some(len) = self.device.poll_transmit(self.now, &mut self.frame) {
            let bytes = self.frame[..len].to_vec();
            self.happened.push_back(Observation::Frame { at: self.elapsed(), bytes });
        }
    }

    fn poll(&mut self, cq: Cq) {
        if self.services.as_ref().is_some_and(|services| services.owns(cq)) {
            return;
        }
        let mut some = [Wc::default(); 16];
        while let Ok(count) = self.device.poll_cq(cq, &mut some) {
            for wc in &some[..count] {
                let told = self.completion(wc);
                self.happened.extend(told.map(Observation::Completion));
            }
            if count < some.len() {
                return;
            }
        }
    }

    fn completion(&self, wc: &Wc) -> Option<Completion> {
        let (name, qp) = self.objects.qps.iter().rfind(|(_, qp)| qp.qpn == wc.qp_num)?;
        let is_datagram = matches!(qp.qp_type, QpType::Ud | QpType::XrcRecv);
        let is_receive = wc.opcode as u8 >= 128;
        Some(Completion {
            qp: name.clone(),
            wr_id: wc.wr_id,
            status: words::status(wc.status as i32),
            opcode: words::opcode(wc.opcode as i32),
            length: wc.byte_len,
            imm: wc.imm_data,
            invalidated: wc.invalidated_rkey,
            source_qp: (is_datagram && is_receive).then_some(wc.src_qp.0),
        })
    }

    fn event(&self, event: Event) -> Option<target::Event> {
        let objects = &self.objects;
        let qp = |of: &dyn Fn(&QueuePair) -> bool| {
            objects.qps.iter().rfind(|(_, qp)| of(qp)).map(|(name, _)| name.clone())
        };
        let (kind, of) = match event {
            Event::Completion(_) | Event::Port(_) => return None,
            Event::Cq(cq, kind) => {
                let named = objects.cqs.iter().rfind(|(_, named)| named.cq == cq);
                let named = named.map(|(name, _)| name.clone());
                (kind, named.or_else(|| qp(&|qp| qp.cqs.contains(&cq))))
            }
            Event::Qp(qpn, kind) => (kind, qp(&|qp| qp.qpn == qpn)),
            Event::Srq(srq, kind) => {
                let named = objects.srqs.iter().rfind(|&&(_, own)| own == srq);
                (kind, named.map(|(name, _)| name.clone()))
            }
        };
        Some(target::Event { event: words::event(kind as i32)?.to_owned(), of })
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now.nanos())
    }
}

impl Target for MemoryTarget {
    fn description(&self) -> &Description {
        &self.description
    }

    fn begin(&mut self) -> Result<(), Broken> {
        self.reset();
        Ok(())
    }

    fn now(&self) -> Duration {
        self.elapsed()
    }

    fn inject(&mut self, frame: &[u8]) -> Result<(), Broken> {
        // Why a frame was discarded is in the counters.
        let _ = self.device.handle_frame(self.now, frame);
        self.drive();
        Ok(())
    }

    fn observe(&mut self, until: Duration) -> Result<Option<Observation>, Broken> {
        let until = Instant::from_nanos(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        loop {
            if let Some(observation) = self.happened.pop_front() {
                return Ok(Some(observation));
            }
            let next = [self.device.poll_timeout(), self.services_timeout()];
            match next.into_iter().flatten().min() {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.device.handle_timeout(self.now);
                    self.drive();
                }
                _ => {
                    self.now = self.now.max(until);
                    return Ok(None);
                }
            }
        }
    }

    fn call(&mut self, call: &Call) -> Result<Reply, Broken> {
        let reply = self.carry_out(call);
        self.drive();
        Ok(reply)
    }
}

fn device(config: &Config, address: &GidEntry) -> Device<Host> {
    let mut device = Device::new(config.clone(), Host::default());
    if device.add_gid(*address).is_err() {
        unreachable!("an empty GID table takes a unicast address");
    }
    device
}

#[cfg(test)]
mod tests;
