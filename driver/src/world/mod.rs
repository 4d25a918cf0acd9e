//! A world of devices on one in-memory link and a virtual clock: what scenarios, the simulation,
//! the demo and the benchmarks run in.
//!
//! Nothing happens but in [`World::step`], and nothing depends on anything but the configuration
//! and the calls: the same ones give the same frames at the same moments.
//!
//! A WRITE from node 0 to node 1, whose third packet is lost:
//!
//! ```
//! use ferroce::world::{ConnectOptions, World, WorldConfig};
//! use ferroce_stack::verbs::{Access, SendOp, SendWr, WcStatus};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let faults = vec!["drop 3rd rc-write".parse()?];
//! let mut world = World::new(WorldConfig { faults, ..WorldConfig::default() })?;
//! let (a, b) = world.connect_rc(0, 1, &ConnectOptions::default())?;
//! let from = world.register(&a, 5000, Access::NONE)?;
//! let to = world.register(&b, 5000, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! world.bytes_mut(&from).fill(7);
//!
//! let sges = [from.sge()];
//! world.device(0).post_send(a.qpn, &SendWr::new(1, SendOp::Write(to.remote()), &sges))?;
//! world.run_until_idle(1_000_000_000)?;
//!
//! assert_eq!(world.poll(0, a.send_cq)?[0].status, WcStatus::Success);
//! assert_eq!(world.bytes(&to), [7; 5000]);
//! assert_eq!(world.wire().counters().dropped, 1);
//! # Ok(())
//! # }
//! ```

mod connect;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ferroce_stack::gid::Gid;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{AhAttr, Cq, VerbsError, Wc};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, Device, GidEntry, GidType};

use crate::frame::fault::{Injector, Rule};
use crate::frame::wire::{Filled, Link, Wire};
use crate::memory::Arena;

pub use connect::{Buffer, ConnectOptions, Endpoint, XrcPair, bring_up};

/// Frames a node sends before what has arrived is looked at.
const TRANSMIT_BATCH: usize = 16;

/// How the nodes address each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// RoCE v2 over IPv4, 10.0.0.1 and on.
    #[default]
    Ipv4,
    /// RoCE v2 over IPv6, fd00::1 and on.
    Ipv6,
    /// RoCE v1, GIDs fe80::1 and on.
    RoceV1,
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// How many devices.
    pub nodes: usize,
    /// Decides what chances the faults take.
    pub seed: u64,
    /// Sizes and bounds of each device.
    pub device: Config,
    /// Those of the first devices, where they are others.
    pub devices: Vec<Config>,
    /// Faults of the link.
    pub faults: Vec<Rule>,
    /// The link.
    pub link: Link,
    /// Addresses.
    pub addressing: Addressing,
    /// VLAN of every frame, 1 to 4094.
    pub vlan: Option<u16>,
    /// Bytes each node's memory takes before it has to move.
    pub arena_capacity: usize,
}

impl Default for WorldConfig {
    fn default() -> WorldConfig {
        WorldConfig {
            nodes: 2,
            seed: 1,
            device: Config::default(),
            devices: Vec::new(),
            faults: Vec::new(),
            link: Link::default(),
            addressing: Addressing::default(),
            vlan: None,
            arena_capacity: 1 << 20,
        }
    }
}

/// Why a world did not come to where it was to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The time was up.
    TimeLimit(Instant),
    /// Nothing is left to happen.
    Idle(Instant),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::TimeLimit(at) => write!(f, "still busy at {} ns, the limit", at.nanos()),
            RunError::Idle(at) => write!(f, "nothing left to happen after {} ns", at.nanos()),
        }
    }
}

impl std::error::Error for RunError {}

/// Devices, their link, and the clock.
pub struct World {
    now: Instant,
    devices: Vec<Device<Arena>>,
    wire: Wire,
    /// Nodes that had to stop sending because their side of the link was not free.
    waiting: Vec<bool>,
}

impl World {
    /// A world at time 0; every device has one address.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if a device refuses its address.
    pub fn new(config: WorldConfig) -> Result<World, VerbsError> {
        let gids: Vec<GidEntry> = (0..config.nodes).map(|node| gid(node, &config)).collect();
        let mut devices = Vec::with_capacity(config.nodes);
        for (node, entry) in gids.iter().enumerate() {
            let arena = Arena::with_capacity(config.arena_capacity);
            let own = config.devices.get(node).unwrap_or(&config.device);
            let mut device = Device::new(own.clone(), arena);
            device.add_gid(*entry)?;
            while device.poll_event().is_some() {}
            devices.push(device);
        }
        let frame_len = devices.iter().map(Device::max_frame_len).max().unwrap_or_default();
        let stations = gids.iter().map(|entry| entry.mac).collect();
        let injector = Injector::new(config.faults, config.seed);
        let wire = Wire::new(config.link, stations, frame_len, injector);
        let waiting = vec![false; config.nodes];
        Ok(World { now: Instant::ZERO, devices, wire, waiting })
    }

    /// The virtual clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.devices.len()
    }

    /// The device of a node.
    ///
    /// # Panics
    /// If there is no such node, as for every method below.
    pub fn device(&mut self, node: usize) -> &mut Device<Arena> {
        &mut self.devices[node]
    }

    /// The device of a node, to look at.
    pub fn device_ref(&self, node: usize) -> &Device<Arena> {
        &self.devices[node]
    }

    /// The link.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The link, to look at.
    pub fn wire_ref(&self) -> &Wire {
        &self.wire
    }

    /// The address of a node.
    pub fn address(&self, node: usize) -> GidEntry {
        self.devices[node].query_gid(0).expect("every node has an address")
    }

    /// The path to node `to`.
    pub fn ah_attr(&self, to: usize) -> AhAttr {
        let GidEntry { gid, mac, .. } = self.address(to);
        AhAttr { dgid: gid, hop_limit: 64, dmac: mac, ..AhAttr::default() }
    }

    /// Puts a frame on the link as if node `from` had sent it.
    pub fn inject(&mut self, from: usize, frame: &[u8]) {
        self.wire.send(self.now, from, frame);
    }

    /// Takes all completions of a queue.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if it does not exist.
    pub fn poll(&mut self, node: usize, cq: Cq) -> Result<Vec<Wc>, VerbsError> {
        let mut all = Vec::new();
        let mut batch = [Wc::default(); 16];
        loop {
            let count = self.devices[node].poll_cq(cq, &mut batch)?;
            all.extend_from_slice(&batch[..count]);
            if count < batch.len() {
                return Ok(all);
            }
        }
    }

    /// Lets the next thing happen: sends what can be sent, delivers what has arrived, or else moves
    /// the clock to when something will. `false` if nothing is left to happen.
    pub fn step(&mut self) -> bool {
        let sent = self.transmit();
        let delivered = self.deliver();
        if sent || delivered {
            return true;
        }
        let Some(next) = self.next_event() else { return false };
        self.now = self.now.max(next);
        self.run_timers();
        true
    }

    /// Steps until nothing is left to happen.
    ///
    /// # Errors
    /// [`RunError::TimeLimit`] if that is not before `limit_ns` nanoseconds have passed.
    pub fn run_until_idle(&mut self, limit_ns: u64) -> Result<(), RunError> {
        match self.run_until(|_| false, limit_ns) {
            Ok(()) | Err(RunError::Idle(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Steps until `done`.
    ///
    /// # Errors
    /// [`RunError::TimeLimit`] if it is not before `limit_ns` nanoseconds have passed,
    /// [`RunError::Idle`] if it will never be.
    pub fn run_until(
        &mut self,
        mut done: impl FnMut(&mut World) -> bool,
        limit_ns: u64,
    ) -> Result<(), RunError> {
        let limit = self.now + limit_ns;
        while !done(self) {
            if self.now > limit {
                return Err(RunError::TimeLimit(self.now));
            }
            if !self.step() {
                return Err(RunError::Idle(self.now));
            }
        }
        Ok(())
    }

    /// Lets everything happen that is due in the next `nanos` nanoseconds, and moves the clock by
    /// as much.
    pub fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            while self.transmit() | self.deliver() {}
            match self.next_event() {
                Some(next) if next <= end => {
                    self.now = self.now.max(next);
                    self.run_timers();
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn transmit(&mut self) -> bool {
        let mut sent = false;
        for (node, device) in self.devices.iter_mut().enumerate() {
            self.waiting[node] = false;
            for _ in 0..TRANSMIT_BATCH {
                if self.wire.free_at(node) > self.now {
                    self.waiting[node] = true;
                    break;
                }
                let now = self.now;
                let fill = |buffer: &mut [u8]| {
                    let len = device.poll_transmit(now, buffer)?;
                    Some(Filled { len, source_qp: device.sender().map(|qpn| qpn.0) })
                };
                if !self.wire.transmit(now, node, fill) {
                    break;
                }
                sent = true;
            }
        }
        sent
    }

    fn deliver(&mut self) -> bool {
        let mut delivered = false;
        let now = self.now;
        let devices = &mut self.devices;
        // Why a frame had no effect, the device has counted.
        let mut receive = |node: usize, frame: &[u8]| {
            let _ = devices[node].handle_frame(now, frame);
        };
        while self.wire.deliver(now, &mut receive) {
            delivered = true;
        }
        delivered
    }

    fn run_timers(&mut self) {
        for device in &mut self.devices {
            if device.poll_timeout().is_some_and(|at| at <= self.now) {
                device.handle_timeout(self.now);
            }
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let timers = self.devices.iter().filter_map(Device::poll_timeout);
        let waiting = self.waiting.iter().enumerate().filter(|&(_, &waiting)| waiting);
        let free = waiting.map(|(node, _)| self.wire.free_at(node));
        timers.chain(free).chain(self.wire.next_arrival()).min()
    }
}

fn gid(node: usize, config: &WorldConfig) -> GidEntry {
    let number = node as u16 + 1;
    let [high, low] = number.to_be_bytes();
    let (gid, gid_type) = match config.addressing {
        Addressing::Ipv4 => (Gid::from(Ipv4Addr::new(10, 0, high, low)), GidType::RoceV2),
        Addressing::Ipv6 => (ipv6(0xfd00, number), GidType::RoceV2),
        Addressing::RoceV1 => (ipv6(0xfe80, number), GidType::RoceV1),
    };
    GidEntry { gid, gid_type, mac: Mac([2, 0, 0, 0, high, low]), vlan: config.vlan }
}

fn ipv6(prefix: u16, number: u16) -> Gid {
    Gid::from(Ipv6Addr::new(prefix, 0, 0, 0, 0, 0, 0, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_stack::verbs::{Access, QpState, SendOp, SendWr, WcStatus};

    const SECOND: u64 = 1_000_000_000;

    /// Node 0 writes `len` bytes to node 1; the completion's status.
    fn write(world: &mut World, len: usize) -> WcStatus {
        let (a, b) = world.connect_rc(0, 1, &ConnectOptions::default()).unwrap();
        let from = world.register(&a, len, Access::NONE).unwrap();
        let to = world.register(&b, len, ConnectOptions::default().access).unwrap();
        world.bytes_mut(&from).iter_mut().zip(0u8..=255).for_each(|(byte, value)| *byte = value);
        let sges = [from.sge()];
        world
            .device(0)
            .post_send(a.qpn, &SendWr::new(7, SendOp::Write(to.remote()), &sges))
            .unwrap();
        world.run_until_idle(60 * SECOND).unwrap();
        assert_eq!(world.bytes(&from).to_vec(), world.bytes(&to));
        let completions = world.poll(0, a.send_cq).unwrap();
        assert_eq!((completions.len(), completions[0].wr_id), (1, 7));
        for node in 0..world.nodes() {
            world.device(node).memory().check_canaries().unwrap();
        }
        completions[0].status
    }

    #[test]
    fn a_write_arrives_with_every_addressing() {
        for addressing in [Addressing::Ipv4, Addressing::Ipv6, Addressing::RoceV1] {
            for vlan in [None, Some(42)] {
                let config = WorldConfig { addressing, vlan, ..WorldConfig::default() };
                let mut world = World::new(config).unwrap();
                assert_eq!(write(&mut world, 10_000), WcStatus::Success, "{addressing:?} {vlan:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_frames() {
        let run = |seed| {
            let faults = Rule::parse_all("drop 5% of any\nreorder 5% of any").unwrap();
            let config = WorldConfig { seed, faults, ..WorldConfig::default() };
            let mut world = World::new(config).unwrap();
            world.wire().keep_log();
            assert_eq!(write(&mut world, 100_000), WcStatus::Success);
            world.wire().take_log()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_slow_link_takes_its_time() {
        let link = Link { rate_bps: Some(1_000_000_000), ..Link::default() };
        let mut world = World::new(WorldConfig { link, ..WorldConfig::default() }).unwrap();
        assert_eq!(write(&mut world, 1_000_000), WcStatus::Success);
        assert!(world.now() > Instant::from_nanos(8_000_000));
    }

    #[test]
    fn a_node_can_talk_to_itself() {
        let mut world = World::new(WorldConfig { nodes: 1, ..WorldConfig::default() }).unwrap();
        let (a, b) = world.connect_rc(0, 0, &ConnectOptions::default()).unwrap();
        assert_ne!(a.qpn, b.qpn);
        assert_eq!(world.device(0).qp_state(b.qpn), Ok(QpState::Rts));
    }
}
