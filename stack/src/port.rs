//! The one port of a device: GID table, P_Key table, MTU, link state (IBA 11.2.1.3, A17.6).

use crate::gid::Gid;
use crate::verbs::{Mtu, VerbsError};
use crate::wire::{Mac, Net};

/// Framing of a GID's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidType {
    /// Ethertype 0x8915 and a GRH.
    RoceV1,
    /// UDP port 4791.
    RoceV2,
}

/// One entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Framing.
    pub gid_type: GidType,
    /// Ethernet address of its interface.
    pub mac: Mac,
    /// 802.1Q VLAN of its interface, 1 to 4094.
    pub vlan: Option<u16>,
}

/// Port attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// The largest path MTU the link takes.
    pub active_mtu: Mtu,
    /// The link is up.
    pub active: bool,
    /// The longest message, in bytes.
    pub max_msg_sz: u32,
    /// GID table length.
    pub gid_tbl_len: usize,
    /// P_Key table length.
    pub pkey_tbl_len: usize,
    /// Packets dropped for their P_Key.
    pub bad_pkey_cntr: u64,
    /// Datagrams dropped for their Q_Key.
    pub qkey_viol_cntr: u64,
}

#[derive(Debug)]
pub(crate) struct Port {
    pub gids: Vec<Option<GidEntry>>,
    pub pkeys: Vec<u16>,
    pub active_mtu: Mtu,
    pub active: bool,
    /// Peers whose ICRC of FLUSH is [`crate::icrc::rxe_flush`].
    pub rxe_flush_peers: Vec<Gid>,
}

impl Port {
    pub fn gid(&self, index: u8) -> Result<&GidEntry, VerbsError> {
        self.gids.get(usize::from(index)).and_then(Option::as_ref).ok_or(VerbsError::Invalid)
    }

    /// Whether packets to `net`'s destination, framed so, are for this port.
    pub fn has_gid_of(&self, net: &Net) -> bool {
        let gid = net.destination();
        let gid_type = gid_type_of(net);
        self.gids.iter().flatten().any(|entry| entry.gid == gid && entry.gid_type == gid_type)
    }

    pub fn pkey(&self, index: u16) -> Result<u16, VerbsError> {
        self.pkeys.get(usize::from(index)).copied().ok_or(VerbsError::Invalid)
    }
}

/// The framing a packet has.
pub(crate) fn gid_type_of(net: &Net) -> GidType {
    if net.is_v1() { GidType::RoceV1 } else { GidType::RoceV2 }
}

/// Whether two P_Keys belong together: same key, not 0, and one of them a full member (IBA 10.9.3).
pub(crate) fn pkeys_match(a: u16, b: u16) -> bool {
    (a ^ b) & 0x7fff == 0 && a & 0x7fff != 0 && (a | b) & 0x8000 != 0
}
