//! How a user names a link: its kind, what of this machine it uses, and options after commas.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Which link, and how.
///
/// ```
/// # use ferroce::link::LinkName;
/// let name: LinkName = "packet:eth0,vlan=7,pcp=3".parse().unwrap();
/// assert_eq!((name.vlan, name.pcp), (Some(7), Some(3)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkName {
    /// What it uses.
    pub kind: LinkKind,
    /// `vlan=N`: frames carry an 802.1Q tag of this VLAN, 1 to 4094.
    pub vlan: Option<u16>,
    /// `pcp=N`: the priority in their tags, 0 to 7; none: the top three bits of the DSCP.
    pub pcp: Option<u8>,
    /// `v1`: frames of RoCE v1, rather than v2.
    pub v1: bool,
    /// `generic`: of an AF_XDP link, that the kernel's generic XDP is used, whatever the driver
    /// can do.
    pub generic: bool,
}

/// What a link uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// `packet:IFACE`: whole frames on an interface. Needs CAP_NET_RAW.
    Packet(String),
    /// `xdp:IFACE`: whole frames on an interface, by AF_XDP. Needs CAP_NET_ADMIN, CAP_NET_RAW and
    /// CAP_BPF.
    Xdp(String),
    /// `udp:ADDR`: datagrams of an address of this machine. Needs nothing.
    Udp(IpAddr),
}

/// What a name may be.
const KINDS: &str = "packet:IFACE, xdp:IFACE or udp:ADDR";
const PACKET_OPTIONS: &str =
    "of options, packet:IFACE takes vlan=1..4094, pcp=0..7 and v1, each once, with commas between";
const XDP_OPTIONS: &str = "of options, xdp:IFACE takes vlan=1..4094, pcp=0..7, v1 and generic, \
                           each once, with commas between";

impl LinkName {
    /// A link of this kind with no options.
    pub fn plain(kind: LinkKind) -> LinkName {
        LinkName { kind, vlan: None, pcp: None, v1: false, generic: false }
    }

    /// Adds an option; an error says what would be right.
    fn add(&mut self, option: &str) -> Result<(), &'static str> {
        let options = match self.kind {
            LinkKind::Packet(_) => PACKET_OPTIONS,
            LinkKind::Xdp(_) => XDP_OPTIONS,
            LinkKind::Udp(_) => return Err("udp:ADDR has no options: the kernel writes headers"),
        };
        match option.split_once('=') {
            Some(("vlan", number)) if self.vlan.is_none() => {
                let vid = number.parse().ok().filter(|vid| (1..=4094).contains(vid));
                self.vlan = Some(vid.ok_or("vlan= and a number from 1 to 4094")?);
            }
            Some(("pcp", number)) if self.pcp.is_none() => {
                let pcp = number.parse().ok().filter(|pcp| *pcp <= 7);
                self.pcp = Some(pcp.ok_or("pcp= and a number from 0 to 7")?);
            }
            None if option == "v1" && !self.v1 => self.v1 = true,
            None if option == "generic" && !self.generic => match self.kind {
                LinkKind::Xdp(_) => self.generic = true,
                _ => return Err("generic with xdp:IFACE only"),
            },
            _ => return Err(options),
        }
        Ok(())
    }
}

impl FromStr for LinkName {
    type Err = &'static str;

    /// The error is what would be right.
    fn from_str(text: &str) -> Result<LinkName, &'static str> {
        let mut parts = text.trim().split(',');
        let kind = parts.next().unwrap_or_default().parse()?;
        let mut name = LinkName::plain(kind);
        for option in parts {
            name.add(option.trim())?;
        }
        match name.pcp.is_some() && name.vlan.is_none() {
            true => Err("vlan= as well: pcp= is the priority in a VLAN's tag"),
            false => Ok(name),
        }
    }
}

impl FromStr for LinkKind {
    type Err = &'static str;

    /// The error is what would be right.
    fn from_str(text: &str) -> Result<LinkKind, &'static str> {
        match text.split_once(':') {
            Some(("packet", name)) if is_interface_name(name) => Ok(LinkKind::Packet(name.into())),
            Some(("xdp", name)) if is_interface_name(name) => Ok(LinkKind::Xdp(name.into())),
            Some(("packet", _)) => Err("packet: and the name of an interface"),
            Some(("xdp", _)) => Err("xdp: and the name of an interface"),
            Some(("udp", text)) => match text.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
                Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
                    Err("udp: and an address that means one interface without being told which")
                }
                Ok(ip) if !ip.is_unspecified() && !ip.is_multicast() => Ok(LinkKind::Udp(ip)),
                _ => Err("udp: and one address of this machine"),
            },
            _ => Err(KINDS),
        }
    }
}

/// The kernel's rules for names of interfaces; a comma begins the options here.
fn is_interface_name(name: &str) -> bool {
    let forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace();
    (1..16).contains(&name.len()) && name != "." && name != ".." && !name.contains(forbidden)
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            LinkKind::Packet(name) => write!(f, "packet:{name}")?,
            LinkKind::Xdp(name) => write!(f, "xdp:{name}")?,
            LinkKind::Udp(ip) => write!(f, "udp:{ip}")?,
        }
        if let Some(vid) = self.vlan {
            write!(f, ",vlan={vid}")?;
        }
        if let Some(pcp) = self.pcp {
            write!(f, ",pcp={pcp}")?;
        }
        for (name, is_set) in [("v1", self.v1), ("generic", self.generic)] {
            if is_set {
                write!(f, ",{name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_as_it_is_shown() {
        let table = [
            "packet:eth0",
            "packet:br-lan.7",
            "udp:192.0.2.1",
            "udp:fd00::1",
            "xdp:eth0",
            "xdp:eth0,generic",
            "packet:eth0,v1",
            "packet:eth0,vlan=1",
            "packet:eth0,vlan=4094,pcp=7,v1",
            "xdp:eth0,vlan=7,pcp=0,v1,generic",
        ];
        for text in table {
            assert_eq!(text.parse::<LinkName>().unwrap().to_string(), text);
        }
        let mixed: LinkName = " packet:eth0, v1 , pcp=2,vlan=9 ".parse().unwrap();
        assert_eq!(mixed.to_string(), "packet:eth0,vlan=9,pcp=2,v1");
    }

    #[test]
    fn what_is_no_link_is_told_what_would_be() {
        let table = [
            ("eth0", KINDS),
            ("raw:eth0", KINDS),
            ("", KINDS),
            ("packet:", "packet: and the name of an interface"),
            ("packet:a/b", "packet: and the name of an interface"),
            ("packet:sixteen-letters-", "packet: and the name of an interface"),
            ("xdp:..", "xdp: and the name of an interface"),
            ("udp:", "udp: and one address of this machine"),
            ("udp:0.0.0.0", "udp: and one address of this machine"),
            ("udp:::", "udp: and one address of this machine"),
            ("udp:ff02::1", "udp: and one address of this machine"),
            ("udp:host", "udp: and one address of this machine"),
            ("packet:eth0,", PACKET_OPTIONS),
            ("packet:eth0,vlan", PACKET_OPTIONS),
            ("packet:eth0,v2", PACKET_OPTIONS),
            ("packet:eth0,v1=1", PACKET_OPTIONS),
            ("packet:eth0,v1,v1", PACKET_OPTIONS),
            ("packet:eth0,vlan=7,vlan=8", PACKET_OPTIONS),
            ("xdp:eth0,native", XDP_OPTIONS),
            ("packet:eth0,vlan=0", "vlan= and a number from 1 to 4094"),
            ("packet:eth0,vlan=4095", "vlan= and a number from 1 to 4094"),
            ("packet:eth0,vlan=x", "vlan= and a number from 1 to 4094"),
            ("packet:eth0,vlan=7,pcp=8", "pcp= and a number from 0 to 7"),
            ("packet:eth0,pcp=3", "vlan= as well: pcp= is the priority in a VLAN's tag"),
            ("packet:eth0,generic", "generic with xdp:IFACE only"),
            ("udp:192.0.2.1,v1", "udp:ADDR has no options: the kernel writes headers"),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<LinkName>(), Err(expected), "{text}");
        }
    }
}
