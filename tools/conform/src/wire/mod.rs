//! An implementation on the wire: frames by a [`link`](ferroce::link), its verbs by an agent on its
//! machine ([`agent`](crate::agent)); or without one, where a program accepts connections, the QPs
//! that these connect to (`handshake`).
//!
//! Frames leave as they are, byte for byte, by a packet socket on the link's interface. Those that
//! arrive come by the link, which keeps the kernel of this machine from answering them. Of these,
//! the ones for QPs of the scenario at hand count, whose numbers its calls have told.

mod connection;
mod handshake;
mod network;
mod resolve;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferroce::link::{LinkError, LinkName};
use ferroce_stack::gid::Gid;
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::agent::{Ask, Hello, Said, VERSION};
use crate::cm::CmCall;
use crate::frame::{self, cm::GSI};
use crate::target::{Broken, Call, Description, Observation, Reply, Target};
use crate::words;
use connection::Connection;
use handshake::Handshake;
use network::Network;

/// An agent that does not answer for so long is lost. Some kernels take a minute to destroy a QP.
const PATIENCE: Duration = Duration::from_secs(150);

/// After the connections of a scenario are destroyed, so long nothing counts that comes: what they
/// say as they go belongs to no other scenario.
const QUIET: Duration = Duration::from_millis(20);

/// Communication IDs remembered of scenarios before.
const PAST: usize = 4096;

/// Where a target is, and its agent.
#[derive(Clone, Debug)]
pub struct WireOptions {
    /// The link that frames pass by: an interface, by packet socket or AF_XDP.
    pub link: LinkName,
    /// Addresses of the peer's own; else it has the interface's.
    pub own: Vec<IpAddr>,
    /// The target's address.
    pub target: IpAddr,
    /// How it comes to QPs.
    pub means: Means,
}

/// How a target comes to QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// An agent there calls verbs.
    Agent(SocketAddr),
    /// A program there accepts connections at this port of the space of TCP.
    Program(u16),
}

impl Means {
    /// Events that are not waited for: nobody there tells of any.
    pub fn unraised(self) -> Vec<String> {
        match self {
            Means::Agent(_) => Vec::new(),
            Means::Program(_) => words::events().map(str::to_owned).collect(),
        }
    }
}

/// Why there is no such target.
#[derive(Debug)]
pub enum WireError {
    /// The link cannot be opened.
    Link(LinkError),
    /// It is of a kind that carries frames not as they are.
    Unfit(&'static str),
    /// The peer has no address of the target's kind.
    NoAddress(IpAddr),
    /// An address of the peer's own is somebody else's.
    Taken(IpAddr),
    /// The target does not tell its Ethernet address.
    Silent(IpAddr),
    /// The system refuses something.
    Io {
        /// What.
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The agent says no, or nothing.
    Agent(String),
    /// No program takes connections.
    Program(String),
}

impl WireError {
    fn io<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> WireError {
        move |error| WireError::Io { action, source: error.into() }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Link(error) => error.fmt(f),
            WireError::Unfit(why) => f.write_str(why),
            WireError::NoAddress(target) => {
                write!(f, "the link has no address from which {target} can be talked to")
            }
            WireError::Taken(ip) => write!(f, "somebody else on the link has {ip}"),
            WireError::Silent(target) => write!(f, "nobody on the link says that it is {target}"),
            WireError::Io { action, source } => write!(f, "cannot {action}: {source}"),
            WireError::Agent(why) => write!(f, "the agent: {why}"),
            WireError::Program(why) => f.write_str(why),
        }
    }
}

// What the system says is in its words already.
impl std::error::Error for WireError {}

/// A target on the wire.
#[derive(Debug)]
pub struct WireTarget {
    description: Description,
    network: Network,
    /// None where a program accepts connections.
    agent: Option<Connection>,
    /// The peer's connection management, where it is not the script's.
    handshake: Handshake,
    began: Instant,
    /// QPNs of the peer that the scenario's QPs know.
    peers: BTreeSet<u32>,
    /// Communication IDs that the target has told in this scenario, and in those before.
    told: VecDeque<u32>,
    past: VecDeque<u32>,
    /// What has happened and not been observed.
    happened: VecDeque<Observation>,
}

impl WireTarget {
    /// Opens the link, finds the target on it, and greets its agent; or makes a connection with its
    /// program, on trial.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn open(options: &WireOptions) -> Result<WireTarget, WireError> {
        let network = Network::open(&options.link, &options.own, options.target)?;
        let entry = |ip: IpAddr, mac: Mac| GidEntry {
            gid: Gid::from_ip(ip),
            gid_type: GidType::RoceV2,
            mac,
            vlan: None,
        };
        let mut description = Description {
            name: String::new(),
            address: entry(options.target, network.target_mac),
            peer: entry(network.own, network.own_mac),
            peer_guid: fresh_guid(),
            features: Vec::new(),
        };
        let (agent, handshake) = match options.means {
            Means::Agent(agent) => {
                let (agent, hello) = greet(agent, description.address.gid)?;
                (description.name, description.features) = (hello.name, hello.features);
                (Some(agent), Handshake::new(&description, None))
            }
            Means::Program(port) => {
                description.name = format!("whoever accepts connections at port {port}");
                description.features = handshake::FEATURES.map(str::to_owned).to_vec();
                (None, Handshake::new(&description, Some(port)))
            }
        };
        let family = if options.target.is_ipv4() { "ipv4" } else { "ipv6" };
        description.features.push(family.to_owned());
        let mut target = WireTarget {
            description,
            network,
            agent,
            handshake,
            began: Instant::now(),
            peers: BTreeSet::new(),
            told: VecDeque::new(),
            past: VecDeque::new(),
            happened: VecDeque::new(),
        };
        if let Means::Program(port) = options.means {
            target.try_out(port)?;
        }
        Ok(target)
    }

    /// Takes what has come, from the link and from the agent; waits for it until a time, unless
    /// there is something.
    fn gather(&mut self, until: Instant) -> Result<(), Broken> {
        let until = self.handshake.timeout().map_or(until, |at| until.min(at));
        let wait = until.saturating_duration_since(Instant::now());
        let agent = self.agent.as_ref().map(AsFd::as_fd);
        let descriptors = [self.network.descriptor()].into_iter().chain(agent);
        let mut waits: Vec<PollFd<'_>> =
            descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        match ppoll(&mut waits, Some(TimeSpec::from_duration(wait)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(broken("waiting", errno)),
        }
        let has_said = waits.get(1).is_some_and(|wait| wait.any().unwrap_or(false));
        let at = self.began.elapsed();
        while let Some(bytes) = self.network.receive().map_err(|error| broken("the link", error))? {
            self.sort(at, bytes);
        }
        let mut sent = self.handshake.frames().into_iter();
        sent.try_for_each(|frame| self.network.send(&frame))
            .map_err(|error| broken("the link", error))?;
        match &mut self.agent {
            Some(agent) if has_said => agent.read().map_err(|error| broken("its agent", error)),
            _ => Ok(()),
        }
    }

    /// Takes a frame that has come: it is the script's, or about connections that it knows nothing
    /// of, or nobody's.
    fn sort(&mut self, at: Duration, bytes: Vec<u8>) {
        let Some(qpn) = destination(&bytes) else { return };
        let is_known = self.peers.contains(&qpn);
        if qpn == GSI {
            let id = frame::cm::sender_id(&bytes).unwrap_or_default();
            if !is_known || self.past.contains(&id) {
                return self.handshake.take(&bytes);
            }
            if id != 0 && self.told.len() < PAST && !self.told.contains(&id) {
                self.told.push_back(id);
            }
        }
        if is_known {
            self.happened.push_back(Observation::Frame { at, bytes });
        }
    }

    /// What is left of the scenario before is nobody's from here on.
    fn leave_behind(&mut self) {
        self.past.append(&mut self.told);
        self.past.drain(..self.past.len().saturating_sub(PAST));
        self.peers.clear();
    }

    /// Lets what comes pass, for [`QUIET`].
    fn pass_over(&mut self) -> Result<(), Broken> {
        let until = Instant::now() + QUIET;
        while Instant::now() < until {
            self.gather(until)?;
        }
        Ok(())
    }

    /// The next line of the agent.
    fn said(&mut self) -> Result<Option<Said>, Broken> {
        let Some(agent) = &mut self.agent else { return Ok(None) };
        agent.next().map_err(|error| broken("its agent", error))
    }

    /// Takes a line of the agent that answers nothing.
    fn hear(&mut self, said: Said) -> Result<(), Broken> {
        match said {
            Said::Completion(completion) => {
                self.happened.push_back(Observation::Completion(completion));
            }
            Said::Event(event) => self.happened.push_back(Observation::Event(event)),
            Said::Report(report) => self.happened.push_back(Observation::Report(report)),
            Said::Wrong { error, .. } => return Err(Broken(error)),
            // Answers are taken by who has asked.
            Said::Reply { .. } | Said::Hello(_) => {}
        }
        Ok(())
    }

    /// Asks the agent, and takes what happens until it answers.
    fn ask(&mut self, ask: Ask) -> Result<Reply, Broken> {
        let lost = |error| broken("its agent", error);
        let Some(agent) = &mut self.agent else {
            return Ok(Reply::Unable { why: handshake::NO_VERBS.to_owned() });
        };
        let asked = agent.send(ask).map_err(lost)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(said) = self.said()? {
                match said {
                    Said::Reply { id, reply } if id == asked => return Ok(reply),
                    // The scenario asks for what makes no sense there; the next may not.
                    Said::Wrong { id: Some(id), error } if id == asked => {
                        return Ok(Reply::Refused { errno: error });
                    }
                    other => self.hear(other)?,
                }
            }
            if Instant::now() >= deadline {
                return Err(Broken("its agent does not answer".to_owned()));
            }
            self.gather(deadline)?;
        }
    }

    /// Remembers the QPNs of the peer that a call tells the target.
    fn note(&mut self, call: &Call) {
        match call {
            Call::ModifyQp { attributes, .. } => {
                self.peers.insert(attributes.dest_qp_num);
            }
            Call::PostSend { wr, .. } => {
                self.peers.extend(wr.datagram.map(|(qpn, _)| qpn));
            }
            Call::Cm(CmCall::Start) => {
                self.peers.insert(GSI);
            }
            _ => {}
        }
    }
}

impl Target for WireTarget {
    fn description(&self) -> &Description {
        &self.description
    }

    fn begin(&mut self) -> Result<(), Broken> {
        let has_connections = self.peers.contains(&GSI);
        if self.agent.is_some() {
            let peer = self.description.peer.gid.0;
            match self.ask(Ask::Begin { peer })? {
                Reply::Done => {}
                Reply::Refused { errno } => {
                    return Err(Broken(format!("no scenario begins: {errno}")));
                }
                other => return Err(Broken(format!("no scenario begins: {other:?}"))),
            }
        } else {
            self.part()?;
        }
        // The QPs before are gone, and what they have sent is here.
        self.gather(Instant::now())?;
        self.leave_behind();
        if has_connections {
            self.pass_over()?;
        }
        self.happened.clear();
        self.description.peer_guid = fresh_guid();
        self.handshake.begin(&self.description);
        self.began = Instant::now();
        Ok(())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn inject(&mut self, frame: &[u8]) -> Result<(), Broken> {
        self.network.send(frame).map_err(|error| broken("the link", error))
    }

    fn observe(&mut self, until: Duration) -> Result<Option<Observation>, Broken> {
        let until = self.began + until;
        loop {
            while let Some(said) = self.said()? {
                self.hear(said)?;
            }
            if let Some(observation) = self.happened.pop_front() {
                return Ok(Some(observation));
            }
            let is_over = Instant::now() >= until;
            self.gather(until)?;
            if is_over
                && self.happened.is_empty()
                && !self.agent.as_ref().is_some_and(Connection::has_next)
            {
                return Ok(None);
            }
        }
    }

    fn call(&mut self, call: &Call) -> Result<Reply, Broken> {
        self.note(call);
        match self.agent {
            Some(_) => self.ask(Ask::Call(call.clone())),
            None => self.call_without_verbs(call),
        }
    }
}

/// Connects to an agent and has it say who it is, for a target of this address.
fn greet(agent: SocketAddr, target: Gid) -> Result<(Connection, Hello), WireError> {
    let mut agent =
        Connection::open(agent, PATIENCE).map_err(WireError::io("connect to the agent"))?;
    let ask = Ask::Hello { version: VERSION, target: Some(target.0) };
    match agent.ask(ask).map_err(WireError::io("talk to the agent"))? {
        Said::Hello(hello) if hello.version == VERSION => Ok((agent, hello)),
        Said::Wrong { error, .. } => Err(WireError::Agent(error)),
        _ => Err(WireError::Agent("it does not say hello".to_owned())),
    }
}

/// A GUID of a channel adapter that no target knows: of this moment.
fn fresh_guid() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // An identifier that its owner has chosen himself.
    (1 << 57) | (since.as_micros() as u64 & ((1 << 56) - 1))
}

fn broken(what: &str, error: impl fmt::Display) -> Broken {
    Broken(format!("{what}: {error}"))
}

/// The destination QPN of a RoCE v2 frame; the link lets others pass as well.
fn destination(frame: &[u8]) -> Option<u32> {
    ferroce::fabric::destination(frame).map(|(_, qpn, _)| qpn.0)
}
