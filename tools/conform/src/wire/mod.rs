//! An implementation on the wire: frames by a [`link`](ferroce::link), its verbs by an agent on its
//! machine ([`agent`](crate::agent)).
//!
//! Frames leave as they are, byte for byte, by a packet socket on the link's interface. Those that
//! arrive come by the link, which keeps the kernel of this machine from answering them. Of these,
//! the ones for QPs of the scenario at hand count, whose numbers its calls have told.

mod connection;
mod network;
mod resolve;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ferroce::link::{LinkError, LinkName};
use ferroce_stack::gid::Gid;
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::agent::{Ask, Said, VERSION};
use crate::target::{Broken, Call, Description, Observation, Reply, Target};
use connection::Connection;
use network::Network;

/// An agent that does not answer for so long is lost. Some kernels take a minute to destroy a QP.
const PATIENCE: Duration = Duration::from_secs(150);

/// Where a target is, and its agent.
#[derive(Clone, Debug)]
pub struct WireOptions {
    /// The link that frames pass by: an interface, by packet socket or AF_XDP.
    pub link: LinkName,
    /// Addresses of the peer's own; else it has the interface's.
    pub own: Vec<IpAddr>,
    /// The target's address.
    pub target: IpAddr,
    /// Its agent.
    pub agent: SocketAddr,
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
    agent: Connection,
    began: Instant,
    /// QPNs of the peer that the scenario's QPs know.
    peers: BTreeSet<u32>,
    /// What has happened and not been observed.
    happened: VecDeque<Observation>,
}

impl WireTarget {
    /// Opens the link, finds the target on it, and greets its agent.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn open(options: &WireOptions) -> Result<WireTarget, WireError> {
        let network = Network::open(&options.link, &options.own, options.target)?;
        let target = Gid::from_ip(options.target);
        let mut agent = Connection::open(options.agent, PATIENCE)
            .map_err(WireError::io("connect to the agent"))?;
        let ask = Ask::Hello { version: VERSION, target: Some(target.0) };
        let hello = match agent.ask(ask).map_err(WireError::io("talk to the agent"))? {
            Said::Hello(hello) if hello.version == VERSION => hello,
            Said::Wrong { error, .. } => return Err(WireError::Agent(error)),
            _ => return Err(WireError::Agent("it does not say hello".to_owned())),
        };
        let mut features = hello.features;
        features.push(if options.target.is_ipv4() { "ipv4" } else { "ipv6" }.to_owned());
        let entry =
            |gid: Gid, mac: Mac| GidEntry { gid, gid_type: GidType::RoceV2, mac, vlan: None };
        let description = Description {
            name: hello.name,
            address: entry(target, network.target_mac),
            peer: entry(Gid::from_ip(network.own), network.own_mac),
            features,
        };
        Ok(WireTarget {
            description,
            network,
            agent,
            began: Instant::now(),
            peers: BTreeSet::new(),
            happened: VecDeque::new(),
        })
    }

    /// Takes what has come, from the link and from the agent; waits for it until a time, unless
    /// there is something.
    fn gather(&mut self, until: Instant) -> Result<(), Broken> {
        let wait = until.saturating_duration_since(Instant::now());
        let descriptors = [self.network.descriptor(), self.agent.as_fd()];
        let mut waits = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        match ppoll(&mut waits, Some(TimeSpec::from_duration(wait)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(broken("waiting", errno)),
        }
        let has_said = waits[1].any().unwrap_or(false);
        let at = self.began.elapsed();
        while let Some(bytes) = self.network.receive().map_err(|error| broken("the link", error))? {
            if destination(&bytes).is_some_and(|qpn| self.peers.contains(&qpn)) {
                self.happened.push_back(Observation::Frame { at, bytes });
            }
        }
        if has_said {
            self.agent.read().map_err(|error| broken("its agent", error))?;
        }
        Ok(())
    }

    /// Takes a line of the agent that answers nothing.
    fn hear(&mut self, said: Said) -> Result<(), Broken> {
        match said {
            Said::Completion(completion) => {
                self.happened.push_back(Observation::Completion(completion));
            }
            Said::Event(event) => self.happened.push_back(Observation::Event(event)),
            Said::Wrong { error, .. } => return Err(Broken(error)),
            // Answers are taken by who has asked.
            Said::Reply { .. } | Said::Hello(_) => {}
        }
        Ok(())
    }

    /// Asks the agent, and takes what happens until it answers.
    fn ask(&mut self, ask: Ask) -> Result<Reply, Broken> {
        let asked = self.agent.send(ask).map_err(|error| broken("its agent", error))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(said) = self.agent.next().map_err(|error| broken("its agent", error))? {
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
            _ => {}
        }
    }
}

impl Target for WireTarget {
    fn description(&self) -> &Description {
        &self.description
    }

    fn begin(&mut self) -> Result<(), Broken> {
        let peer = self.description.peer.gid.0;
        match self.ask(Ask::Begin { peer })? {
            Reply::Done => {}
            Reply::Refused { errno } => return Err(Broken(format!("no scenario begins: {errno}"))),
            other => return Err(Broken(format!("no scenario begins: {other:?}"))),
        }
        // The QPs before are gone, and what they have sent is here.
        self.gather(Instant::now())?;
        self.peers.clear();
        self.happened.clear();
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
            while let Some(said) = self.agent.next().map_err(|error| broken("its agent", error))? {
                self.hear(said)?;
            }
            if let Some(observation) = self.happened.pop_front() {
                return Ok(Some(observation));
            }
            let is_over = Instant::now() >= until;
            self.gather(until)?;
            if is_over && self.happened.is_empty() && !self.agent.has_next() {
                return Ok(None);
            }
        }
    }

    fn call(&mut self, call: &Call) -> Result<Reply, Broken> {
        self.note(call);
        self.ask(Ask::Call(call.clone()))
    }
}

fn broken(what: &str, error: impl fmt::Display) -> Broken {
    Broken(format!("{what}: {error}"))
}

/// The destination QPN of a RoCE v2 frame; the link lets others pass as well.
fn destination(frame: &[u8]) -> Option<u32> {
    ferroce::fabric::destination(frame).map(|(_, qpn, _)| qpn.0)
}
