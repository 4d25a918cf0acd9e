//! Where the demo works: two nodes, connections between them, and a model of what every byte of
//! their memory must be.

use std::fmt;

use anyhow::Result;
use ferroce::frame::fault::{Action, Rule};
use ferroce::frame::wire::Link;
use ferroce::rand::Rng;
use ferroce::world::{Addressing, Buffer, ConnectOptions, Endpoint, RunError, World, WorldConfig};
use ferroce_stack::Config;
use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{
    Access, GSI_QKEY, Mtu, QpType, Qpn, RecvWr, SendOp, SendWr, Sge, Srq, UdTarget, VerbsError, Wc,
    WcStatus,
};

use super::operations::Transport;

/// The longest message.
pub const MAX_LEN: usize = 1 << 20;
/// Where messages begin in either buffer: off every boundary, with room for a UD receive's 40
/// bytes before.
pub const OFFSET: usize = 107;
/// Bytes of either buffer: what lies around a message must stay as it is.
const BUFFER_LEN: usize = OFFSET + MAX_LEN + 1024;
/// Bytes a UD receive puts before the message.
pub const GRH_LEN: usize = 40;
/// Virtual time any one operation may take.
const LIMIT_NS: u64 = 60_000_000_000;

/// What to run with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Path MTU, the link's too.
    pub mtu: Mtu,
    /// RoCE v2 over IPv6 rather than IPv4.
    pub ipv6: bool,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Decides which ones, and what the messages say.
    pub seed: u64,
}

/// Why an operation did not go as it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Failure {
        Failure(format!("a verb was refused: {error}"))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure(error.to_string())
    }
}

/// A failure unless `holds`.
pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(otherwise())) }
}

/// A node's buffer, and what it must hold.
struct Side {
    node: usize,
    addr: u64,
    model: Vec<u8>,
}

/// Two nodes and their memory. Node 0 asks, node 1 answers.
pub struct Lab {
    /// The two nodes and their link.
    pub world: World,
    settings: Settings,
    options: ConnectOptions,
    rng: Rng,
    sides: [Side; 2],
    next_wr_id: u64,
}

/// One connection of one operation.
pub struct Connection {
    /// Its service.
    pub transport: Transport,
    /// The asking end, on node 0.
    pub asker: Endpoint,
    /// The answering end, on node 1.
    pub answerer: Endpoint,
    /// A QP on node 1 that can bind windows for `answerer`.
    pub binder: Endpoint,
    /// Node 0's buffer.
    pub local: Buffer,
    /// Node 1's buffer.
    pub remote: Buffer,
    srq: Option<Srq>,
    target: Option<UdTarget>,
    /// Receives posted to `answerer` and not completed.
    receives: usize,
    /// How each work request completed, in the order it was first seen.
    pub statuses: Vec<(WcStatus, u64)>,
}

/// QPNs of the ends of a connection, by node.
#[derive(Clone, Copy, Debug)]
pub struct Ends(pub [Qpn; 2]);

impl Connection {
    /// Its ends.
    pub fn ends(&self) -> Ends {
        Ends([self.asker.qpn, self.answerer.qpn])
    }
}

/// What came of a work request.
pub struct Outcome {
    /// Its own completion.
    pub send: Wc,
    /// What completed at the peer's receive queue.
    pub received: Vec<Wc>,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.ipv6 { 6 } else { 4 };
        write!(f, "RoCE v2 over IPv{version}, path MTU {}, ", self.mtu.bytes())?;
        write!(f, "{} % loss, seed {}", (self.loss * 1e6).round() / 1e4, self.seed)
    }
}

impl Lab {
    /// Two nodes on a link of 100 Gbit/s, a microsecond apart.
    ///
    /// # Errors
    /// If a device refuses its address.
    pub fn new(settings: Settings) -> Result<Lab, Failure> {
        let faults = match settings.loss {
            0.0 => Vec::new(),
            loss => vec![Rule::random(Action::Drop, loss)],
        };
        let mut world = World::new(WorldConfig {
            seed: settings.seed,
            device: Config { active_mtu: settings.mtu, ..Config::default() },
            faults,
            link: Link { rate_bps: Some(100_000_000_000), ..Link::default() },
            addressing: if settings.ipv6 { Addressing::Ipv6 } else { Addressing::Ipv4 },
            arena_capacity: 2 * BUFFER_LEN,
            ..WorldConfig::default()
        })?;
        let sides = [0, 1].map(|node| {
            let addr = world.device(node).memory_mut().alloc(BUFFER_LEN);
            Side { node, addr, model: vec![0; BUFFER_LEN] }
        });
        let rng = Rng::new(settings.seed);
        let options = ConnectOptions { mtu: settings.mtu, ..ConnectOptions::default() };
        Ok(Lab { world, settings, options, rng, sides, next_wr_id: 1 })
    }

    /// What the lab runs with.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// A fresh connection of `transport`; the answering end's buffer gives these rights. Both
    /// buffers are filled anew.
    ///
    /// # Errors
    /// If a device refuses.
    pub fn connect(&mut self, transport: Transport, rights: Access) -> Result<Connection, Failure> {
        let (options, world) = (self.options, &mut self.world);
        let (asker, answerer, srq) = match transport {
            Transport::Rc => with_no_srq(world.connect_rc(0, 1, &options)?),
            Transport::Uc => with_no_srq(world.connect_uc(0, 1, &options)?),
            Transport::Ud => with_no_srq((world.ud(0, &options)?, world.ud(1, &options)?)),
            Transport::Gsi => with_no_srq((world.gsi(0, &options)?, world.gsi(1, &options)?)),
            Transport::Xrc => {
                let pair = world.connect_xrc(0, 1, &options)?;
                (pair.initiator, pair.target, Some(pair.srq))
            }
        };
        let target = match transport {
            Transport::Ud | Transport::Gsi => {
                let path = world.ah_attr(1);
                let ah = world.create_ah(&asker, &path)?;
                let qkey = match transport {
                    Transport::Gsi => GSI_QKEY,
                    _ => options.qkey,
                };
                Some(UdTarget { ah, qpn: answerer.qpn, qkey })
            }
            _ => None,
        };
        let binder = match transport {
            Transport::Xrc => self.binder_beside(&answerer)?,
            _ => answerer,
        };
        for node in [0, 1] {
            self.refill(node, 0, BUFFER_LEN);
        }
        let [local, remote] = self.sides.each_ref().map(|side| side.addr);
        let local = self.world.register_at(&asker, local, BUFFER_LEN, Access::LOCAL_WRITE)?;
        let rights = rights | Access::LOCAL_WRITE;
        let remote = self.world.register_at(&answerer, remote, BUFFER_LEN, rights)?;
        let (receives, statuses) = (0, Vec::new());
        Ok(Connection {
            transport,
            asker,
            answerer,
            binder,
            local,
            remote,
            srq,
            target,
            receives,
            statuses,
        })
    }

    /// An XRC target has no send queue; an initiator in its protection domain binds for it.
    fn binder_beside(&mut self, answerer: &Endpoint) -> Result<Endpoint, Failure> {
        let mut initiator =
            || self.world.endpoint_in(1, answerer.pd, QpType::XrcSend, &self.options);
        let (binder, idle) = (initiator()?, initiator()?);
        self.world.connect(&binder, &idle, &self.options)?;
        Ok(binder)
    }

    /// Makes a second member of a multicast group beside `connection`'s answering end, and points
    /// the connection at the group.
    ///
    /// # Errors
    /// If a device refuses.
    pub fn join_group(&mut self, connection: &mut Connection) -> Result<Endpoint, Failure> {
        let group = match self.settings.ipv6 {
            true => Gid(*b"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\x07\x05"),
            false => Gid::from(std::net::Ipv4Addr::new(239, 205, 7, 5)),
        };
        let other = self.world.ud(1, &self.options)?;
        for member in [connection.answerer.qpn, other.qpn] {
            self.world.device(1).attach_mcast(member, group)?;
        }
        let path = ferroce_stack::verbs::AhAttr { dgid: group, ..self.world.ah_attr(1) };
        let ah = self.world.create_ah(&connection.asker, &path)?;
        connection.target = Some(UdTarget { ah, qpn: Qpn::MULTICAST, qkey: self.options.qkey });
        Ok(other)
    }

    /// Fills `len` bytes at `offset` of a node's buffer with new random bytes and returns them.
    pub fn refill(&mut self, node: usize, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes);
        self.store(node, offset, &bytes);
        bytes
    }

    /// The application of a node writes to its buffer.
    pub fn store(&mut self, node: usize, offset: usize, bytes: &[u8]) {
        self.expect(node, offset, bytes);
        let addr = self.sides[node].addr + offset as u64;
        let memory = self.world.device(node).memory_mut();
        memory.bytes_mut(addr, bytes.len()).copy_from_slice(bytes);
    }

    /// From now on `bytes` must be at `offset` of a node's buffer.
    pub fn expect(&mut self, node: usize, offset: usize, bytes: &[u8]) {
        self.sides[node].model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// What is at `offset` of a node's buffer.
    pub fn actual(&self, node: usize, offset: usize, len: usize) -> &[u8] {
        let addr = self.sides[node].addr + offset as u64;
        self.world.device_ref(node).memory().bytes(addr, len)
    }

    /// What must be at `offset` of a node's buffer.
    pub fn expected(&self, node: usize, offset: usize, len: usize) -> &[u8] {
        &self.sides[node].model[offset..offset + len]
    }

    /// Compares every byte of both buffers with what it must be, and looks at what surrounds them.
    ///
    /// # Errors
    /// Where the first difference is.
    pub fn check_memory(&self) -> Result<(), Failure> {
        for side in &self.sides {
            let actual = self.actual(side.node, 0, BUFFER_LEN);
            if actual != side.model {
                let mut pairs = actual.iter().zip(&side.model);
                let at = pairs.position(|(actual, model)| actual != model).unwrap_or_default();
                return Err(Failure(format!(
                    "byte {at} of node {}'s buffer is {:#04x}, must be {:#04x}",
                    side.node, actual[at], side.model[at]
                )));
            }
            let memory = self.world.device_ref(side.node).memory();
            memory.check_canaries().map_err(|error| Failure(error.to_string()))?;
            ensure(memory.stray_accesses() == 0, || String::from("an access left the memory"))?;
        }
        Ok(())
    }

    /// Posts a receive for one message to the answering end, unless one waits there.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn post_receive(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if connection.receives > 0 {
            return Ok(());
        }
        let before = if connection.target.is_some() { GRH_LEN } else { 0 };
        let sges = [connection.remote.slice(OFFSET - before, before + MAX_LEN)];
        let wr = RecvWr { wr_id: self.new_wr_id(), sges: &sges };
        match connection.srq {
            Some(srq) => self.world.device(1).post_srq_recv(srq, &wr)?,
            None => self.world.device(1).post_recv(connection.answerer.qpn, &wr)?,
        }
        connection.receives += 1;
        Ok(())
    }

    /// Posts a work request at the asking end, lets everything happen, and collects what
    /// completes.
    ///
    /// # Errors
    /// If it does not complete exactly once.
    pub fn ask(
        &mut self,
        connection: &mut Connection,
        op: SendOp,
        sges: &[Sge],
    ) -> Result<Outcome, Failure> {
        let wr = SendWr {
            ud: connection.target,
            srqn: connection.srq.map(Srq::value),
            ..SendWr::new(self.new_wr_id(), op, sges)
        };
        let send = self.run(connection.asker, &wr, &mut connection.statuses)?;
        let received = self.world.poll(1, connection.answerer.recv_cq)?;
        connection.receives = connection.receives.saturating_sub(received.len());
        Ok(Outcome { send, received })
    }

    /// Runs a work request of the answering end that concerns its own memory only.
    ///
    /// # Errors
    /// If it does not succeed.
    pub fn run_local(&mut self, connection: &mut Connection, op: SendOp) -> Result<(), Failure> {
        let wr = SendWr::new(self.new_wr_id(), op, &[]);
        let wc = self.run(connection.binder, &wr, &mut connection.statuses)?;
        ensure(wc.status == WcStatus::Success, || status_name(wc.status))
    }

    fn run(
        &mut self,
        end: Endpoint,
        wr: &SendWr,
        statuses: &mut Vec<(WcStatus, u64)>,
    ) -> Result<Wc, Failure> {
        self.world.device(end.node).post_send(end.qpn, wr)?;
        self.world.run_until_idle(LIMIT_NS)?;
        let completions = self.world.poll(end.node, end.send_cq)?;
        let [wc] = completions[..] else {
            return Err(Failure(format!("{} completions instead of one", completions.len())));
        };
        ensure(wc.wr_id == wr.wr_id, || String::from("another work request completed"))?;
        match statuses.iter_mut().find(|(status, _)| *status == wc.status) {
            Some((_, count)) => *count += 1,
            None => statuses.push((wc.status, 1)),
        }
        Ok(wc)
    }

    fn new_wr_id(&mut self) -> u64 {
        self.next_wr_id += 1;
        self.next_wr_id
    }
}

fn with_no_srq((asker, answerer): (Endpoint, Endpoint)) -> (Endpoint, Endpoint, Option<Srq>) {
    (asker, answerer, None)
}

/// A status in the words of verbs, as in `RETRY_EXC_ERR`.
pub fn status_name(status: WcStatus) -> String {
    let mut name = String::new();
    for letter in format!("{status:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
