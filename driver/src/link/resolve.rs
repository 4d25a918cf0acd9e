//! What a link would be, without opening it.

use std::net::IpAddr;

use super::interface::Ground;
use super::{LinkError, LinkKind, LinkName};
use crate::identity;

/// What a name stands for at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// The rate of the interface's link in bit/s, if it knows it.
    pub line_rate: Option<u64>,
    /// Its own addresses, the one that others should use first.
    pub addresses: Vec<IpAddr>,
}

/// Looks up the interface of a link. As [`Link`](super::Link) has it, once it is open.
///
/// # Errors
/// [`LinkError`] if there is none.
pub fn resolve(name: &LinkName) -> Result<Resolved, LinkError> {
    let (interface, own) = match &name.kind {
        LinkKind::Packet(interface) | LinkKind::Xdp(interface) => (interface.clone(), None),
        LinkKind::Udp(address) => {
            let interface = identity::interface_of(*address).map_err(LinkError::interfaces)?;
            (interface.ok_or(LinkError::NoAddress(*address))?, Some(*address))
        }
    };
    let ground = Ground::find(name, &interface)?;
    let addresses = own.map_or(ground.addresses, |address| vec![address]);
    Ok(Resolved { mtu: ground.mtu, line_rate: ground.line_rate, addresses })
}
