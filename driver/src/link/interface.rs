//! What links on an interface have in common, however they move frames: its MTU, its addresses and
//! those of the fabric's own, neighbours, VLAN.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ferroce_stack::wire::Vlan;
use nix::net::if_::if_indextoname;

use super::addressing::{Addressing, Tag};
use super::kernel_neighbours::KernelNeighbours;
use super::neighbour::{Neighbours, Sources, Watch};
use super::netlink::{Changes, LinkInfo, Netlink, VlanInfo};
use super::own::{OwnAddresses, Place, Tell};
use super::silence::Silence;
use super::{LinkCounters, LinkError, LinkName, LinkPort};
use crate::identity;

/// What a link is opened for.
pub struct Purpose<'a> {
    /// The addresses by which the network is to know the fabric; empty: the link's own.
    pub addresses: &'a [IpAddr],
    /// What is counted.
    pub counters: &'a Arc<LinkCounters>,
    /// Told of conflicts.
    pub tell: &'a Tell,
}

/// An interface that frames are to pass by.
#[derive(Debug)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// The VLAN of received frames; 0 is that of frames without.
    pub vid: u16,
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// Its rate in bit/s, if it knows it.
    pub line_rate: Option<u64>,
    /// The addresses that the kernel has there.
    pub addresses: Vec<IpAddr>,
    /// Gives frames their Ethernet headers.
    pub addressing: Addressing,
    /// Tells of changes.
    pub watch: Watch,
    /// The kernel's interface on the link, or in a VLAN that it has none in, the one below.
    pub port: LinkPort,
    /// Keeps the kernel quiet.
    pub silence: Silence,
}

/// As whom the kernel is on the link.
#[derive(Debug)]
struct KernelSide {
    name: String,
    info: LinkInfo,
}

impl Interface {
    /// Finds the interface of this name, and begins to use the addresses that are not its.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn open(
        link: &LinkName,
        name: &str,
        purpose: &Purpose<'_>,
    ) -> Result<Interface, LinkError> {
        let Ground { netlink, info, kernel, addresses, mtu, line_rate } = Ground::find(link, name)?;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&info.hardware) {
            return Err(LinkError::NotEthernet(name.to_owned()));
        }
        let own = own_addresses(purpose.addresses, &addresses)?;
        let mac = kernel.as_ref().map_or(info.mac, |side| side.info.mac);
        let tag = link.vlan.map(|vid| Tag { vid, pcp: link.pcp });
        let place = Place {
            index: info.index,
            mac,
            tag: tag.map(|Tag { vid, pcp }| Vlan { pcp: pcp.unwrap_or(0), dei: false, vid }),
        };
        let is_mute = info.flags & (libc::IFF_NOARP | libc::IFF_LOOPBACK) as u32 != 0;
        let own = if is_mute { Vec::new() } else { own };
        let silence = match &kernel {
            Some(KernelSide { name, .. }) => Silence::of_interface(name),
            // The kernel has no part in the VLAN.
            None => Silence::default(),
        };
        let side = kernel.as_ref().map(|side| (side.name.as_str(), side.info.index));
        let (neighbours, watch) = neighbours(netlink, side, is_mute, own, place, purpose)
            .map_err(LinkError::io("follow the neighbours"))?;
        let port_index = side.map_or(info.index, |(_, index)| index);
        let port = LinkPort::of_interface(port_index, purpose.counters)
            .map_err(LinkError::io("follow the interface"))?;
        let counters = purpose.counters.clone();
        let addressing = Addressing::new(mac, mtu, tag, neighbours, counters);
        let vid = link.vlan.unwrap_or(0);
        let index = info.index;
        Ok(Interface { index, vid, mtu, line_rate, addresses, addressing, watch, port, silence })
    }
}

/// Makes sure that an interface is still there.
///
/// # Errors
/// Raw `ENODEV` if it is not.
pub fn look(index: u32) -> io::Result<()> {
    // To sockets, an interface that is gone is one that is down. No name is what a number has that
    // is none's.
    match if_indextoname(index) {
        Ok(name) if !name.is_empty() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    }
}

/// An interface as it is found.
#[derive(Debug)]
pub struct Ground {
    netlink: Netlink,
    info: LinkInfo,
    /// None in a VLAN in which the kernel has no part.
    kernel: Option<KernelSide>,
    /// The addresses that the kernel has there.
    pub addresses: Vec<IpAddr>,
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// Its rate in bit/s, if it knows it.
    pub line_rate: Option<u64>,
}

impl Ground {
    /// Finds the interface of this name, and who the kernel is there.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn find(link: &LinkName, name: &str) -> Result<Ground, LinkError> {
        let mut netlink =
            Netlink::open().map_err(LinkError::io("ask the kernel for interfaces"))?;
        let info = netlink.link(name).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => LinkError::NoInterface(name.to_owned()),
            _ => LinkError::Io { action: "ask the kernel for the interface", source: error },
        })?;
        let kernel = match link.vlan {
            None => Some(KernelSide { name: name.to_owned(), info: info.clone() }),
            Some(vid) => vlan_over(&mut netlink, info.index, vid)
                .map_err(LinkError::io("ask the kernel for the VLAN's interface"))?,
        };
        let addresses = match &kernel {
            Some(KernelSide { name, .. }) => {
                identity::addresses_of(name).map_err(LinkError::interfaces)?
            }
            None => Vec::new(),
        };
        let mtu = kernel.as_ref().map_or(info.mtu, |side| side.info.mtu.min(info.mtu));
        let line_rate = netlink.line_rate(name);
        Ok(Ground { netlink, info, kernel, addresses, mtu, line_rate })
    }
}

/// Those of the addresses asked for that the kernel does not have, with the link-local addresses of
/// their devices.
fn own_addresses(asked: &[IpAddr], kernel: &[IpAddr]) -> Result<Vec<IpAddr>, LinkError> {
    let mut own = Vec::new();
    for ip in asked.iter().filter(|ip| !kernel.contains(ip)) {
        let local = identity::own_link_local(*ip).map_err(LinkError::interfaces)?;
        own.push(*ip);
        own.extend(local.map(IpAddr::V6));
    }
    Ok(own)
}

/// The kernel's interface in a VLAN over an interface.
fn vlan_over(netlink: &mut Netlink, over: u32, vid: u16) -> io::Result<Option<KernelSide>> {
    for name in identity::interface_names().map_err(|error| io::Error::from(error.errno))? {
        match netlink.link(&name) {
            Ok(info) if info.vlan == Some(VlanInfo { over, vid }) => {
                return Ok(Some(KernelSide { name, info }));
            }
            // Gone meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(None)
}

fn neighbours(
    netlink: Netlink,
    kernel: Option<(&str, u32)>,
    is_mute: bool,
    own: Vec<IpAddr>,
    place: Place,
    purpose: &Purpose<'_>,
) -> io::Result<(Neighbours, Watch)> {
    let changes = Arc::new(AtomicU64::new(0));
    let kernel = match kernel {
        Some((name, index)) => Some(KernelNeighbours::open(netlink, name, index)?),
        None => None,
    };
    let (own, watch) = if own.is_empty() {
        (None, Watch::of_kernel(Changes::open()?, changes.clone()))
    } else {
        let (counters, tell) = (purpose.counters.clone(), purpose.tell.clone());
        let (own, told) = OwnAddresses::open(place, own, changes.clone(), counters, tell)?;
        (Some(own), Watch::told(told))
    };
    let sources = Sources { is_mute, kernel, own };
    Ok((Neighbours::new(sources, changes), watch))
}
