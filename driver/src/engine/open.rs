//! What an engine is opened with, and why that may fail.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferroce_stack::congestion;
use ferroce_stack::verbs::Mtu;
use ferroce_stack::{GidEntry, LossRecovery};

use super::network::Network;
use super::sleeper::{Descriptors, Sleeper};
use crate::config::Settings;
use crate::fabric::{FabricError, FabricPort, Member, WakeSocket};
use crate::frame::fault::Rule;
use crate::gateway::{self, GatewayError, Notice};
use crate::identity::DeviceInfo;
use crate::keeper::{self, Keeper};
use crate::link::{Link, LinkCounters, LinkName, Purpose, Tell, Watch};
use crate::progress::Futex;
use crate::quirk::Quirk;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The name of the device, as reports give it.
    pub name: &'a str,
    /// The directory of the fabric.
    pub fabric: &'a Path,
    /// Addresses of the device.
    pub gids: &'a [GidEntry],
    /// Which of the addresses of the fabric's gateway the device has, and follows when it changes.
    pub follows: Option<usize>,
    /// The largest path MTU.
    pub active_mtu: Mtu,
    /// The rate in bit/s of the link that the fabric's gateway has, if it knows it. A link of its
    /// own says it itself.
    pub line_rate: Option<u64>,
    /// Faults of the frames it sends.
    pub faults: &'a [Rule],
    /// Decides what chances the faults take.
    pub seed: u64,
    /// A link of its own, unless the fabric has a gateway already.
    pub link: Option<OwnLink<'a>>,
    /// A capture of the frames it sends, and of those that no other process records there.
    pub pcap: Option<&'a Path>,
    /// Peers that depart from the standard.
    pub quirks: &'a [Quirk],
    /// How congestion is controlled, if it is.
    pub congestion: Option<&'a congestion::Config>,
    /// What is done about lost packets.
    pub loss_recovery: LossRecovery,
}

/// A link that an engine is to own: it is the fabric's gateway then.
#[derive(Clone, Copy, Debug)]
pub struct OwnLink<'a> {
    /// Where it leads.
    pub name: &'a LinkName,
    /// Addresses by which the network knows the fabric's devices; empty: the link's first one.
    pub addresses: &'a [IpAddr],
}

impl<'a> Options<'a> {
    /// A device with these addresses and nothing besides: no link, no faults, no capture, and
    /// packets as large as the fabric takes.
    pub fn plain(fabric: &'a Path, gids: &'a [GidEntry]) -> Options<'a> {
        Options {
            name: "ferroce0",
            fabric,
            gids,
            follows: None,
            active_mtu: Mtu::Mtu4096,
            line_rate: None,
            faults: &[],
            seed: 1,
            link: None,
            pcap: None,
            quirks: &[],
            congestion: None,
            loss_recovery: LossRecovery::default(),
        }
    }

    /// One of the devices that `settings` make ([`identity::devices`](crate::identity::devices)).
    pub fn new(settings: &'a Settings, device: &'a DeviceInfo) -> Options<'a> {
        Options {
            name: &device.name,
            fabric: &settings.fabric,
            gids: &device.gids,
            follows: device.follows,
            active_mtu: device.active_mtu,
            line_rate: device.line_rate,
            faults: &settings.fault,
            seed: settings.seed,
            link: settings.link.as_ref().map(|name| OwnLink { name, addresses: &settings.addr }),
            pcap: settings.pcap.as_deref(),
            quirks: &settings.quirk,
            congestion: settings.congestion.as_ref(),
            loss_recovery: settings.loss_recovery,
        }
    }
}

/// Why an engine could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The fabric cannot be joined.
    Fabric(FabricError),
    /// The link cannot be opened.
    Link(LinkName, GatewayError),
    /// The device refuses an address.
    Address(GidEntry),
    /// The capture cannot be written.
    Capture(PathBuf, io::Error),
    /// The system has no thread left.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Fabric(error) => error.fmt(f),
            OpenError::Link(name, error) => write!(f, "cannot open the link {name}: {error}"),
            OpenError::Address(entry) => write!(f, "{} cannot be an address", entry.gid),
            OpenError::Capture(path, error) => {
                write!(f, "cannot record to {}: {error}", path.display())
            }
            OpenError::Thread(error) => write!(f, "no thread for the engine: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What an engine's place in the fabric is made of.
#[derive(Debug)]
pub(super) struct Place {
    pub member: Member,
    pub sleeper: Sleeper,
    pub network: Option<Box<Network>>,
    /// The largest path MTU, which the link may have lowered.
    pub active_mtu: Mtu,
    /// The rate of the link in bit/s, if there is one that knows it.
    pub line_rate: Option<u64>,
}

impl Place {
    /// Joins the fabric, as its gateway if the engine is to have a link and there is none.
    pub fn take(options: &Options) -> Result<Place, OpenError> {
        if let Some(link) = &options.link {
            match Member::join_with_link(options.fabric, options.gids) {
                Ok((member, socket)) => {
                    let opened = Place::with_link(options, link, member, socket);
                    return opened.map_err(|error| OpenError::Link(link.name.clone(), error));
                }
                Err(error @ FabricError::HasGateway { .. }) => {
                    tracing::info!(link = %link.name, %error, "another process has the link");
                }
                Err(error) => return Err(OpenError::Fabric(error)),
            }
        }
        let member = Member::join(options.fabric, options.gids).map_err(OpenError::Fabric)?;
        let sleeper = Sleeper::Word(Futex(member.wake_handle()));
        let Options { active_mtu, line_rate, .. } = *options;
        Ok(Place { member, sleeper, network: None, active_mtu, line_rate })
    }

    fn with_link(
        options: &Options,
        own: &OwnLink,
        member: Member,
        socket: WakeSocket,
    ) -> Result<Place, GatewayError> {
        let counters = Arc::new(LinkCounters::default());
        let name = own.name.clone();
        let tell: Tell = Arc::new(move |conflict| {
            tracing::warn!(link = %name, "{}", Notice::Conflict(conflict));
        });
        let purpose = Purpose { addresses: own.addresses, counters: &counters, tell: &tell };
        let link = Link::open(own.name, &purpose).map_err(GatewayError::Link)?;
        let mtu = Some(options.active_mtu);
        let (note, notices) = gateway::describe(own.name, own.addresses, mtu, &link)?;
        for notice in notices {
            tracing::warn!(link = %own.name, "{notice}");
        }
        let descriptors = Descriptors::open(
            member.wake_handle(),
            socket,
            link.receiver.descriptor(),
            link.watch.as_ref().map(Watch::descriptor),
        );
        let descriptors = Arc::new(descriptors.map_err(GatewayError::Io)?);
        member.set_note(&note).map_err(GatewayError::Io)?;
        let fabric = FabricPort::open(options.fabric, &member).map_err(GatewayError::Fabric)?;
        let active_mtu = note.path_mtu().unwrap_or(options.active_mtu);
        let (line_rate, follows) = (note.line_rate, own.addresses.is_empty());
        let keep = |link| {
            let port = keeper::Port { fabric, link, note, follows };
            let name = own.name.clone();
            Keeper::start(port, move |notice| tracing::info!(link = %name, "{notice}"))
        };
        let network = Network::new(own.name, link, counters, descriptors.clone(), keep)
            .map_err(GatewayError::Io)?;
        Ok(Place {
            member,
            sleeper: Sleeper::Descriptors(descriptors),
            network: Some(Box::new(network)),
            active_mtu,
            line_rate,
        })
    }
}
