//! Ethernet headers for frames that leave by an interface: who is the next hop, what waits until
//! that is known, and the tag of a VLAN.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ferroce_stack::gid::Gid;
use ferroce_stack::wire::{ETHERTYPE_IPV4, Ethernet, Mac, Vlan};

use super::neighbour::{Neighbours, NextHop, Way};
use super::{LinkCounters, count};
use crate::fabric::destination;

/// Bytes of an Ethernet header, and of a tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// Frames that wait for the address of a next hop, in all and for one destination.
const HELD: usize = 256;
const HELD_FOR_ONE: usize = 64;

/// The VLAN that frames are sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Which, 1 to 4094.
    pub vid: u16,
    /// The priority, 0 to 7; none: the top three bits of each frame's DSCP.
    pub pcp: Option<u8>,
}

/// Gives frames their Ethernet headers.
#[derive(Debug)]
pub struct Addressing {
    mac: Mac,
    mtu: usize,
    tag: Option<Tag>,
    neighbours: Neighbours,
    held: VecDeque<(Way, Vec<u8>)>,
    counters: Arc<LinkCounters>,
}

impl Addressing {
    /// That of an interface with this address and MTU, in bytes.
    pub fn new(
        mac: Mac,
        mtu: usize,
        tag: Option<Tag>,
        neighbours: Neighbours,
        counters: Arc<LinkCounters>,
    ) -> Addressing {
        Addressing { mac, mtu, tag, neighbours, held: VecDeque::new(), counters }
    }

    /// Addresses the frame that is the first `len` bytes of `room`, and gives its length then: a
    /// tag makes it longer. `None` if it does not go now: it waits here for its next hop, or is
    /// counted as lost.
    pub fn address(&mut self, room: &mut [u8], len: usize) -> Option<usize> {
        let frame = &room[..len];
        let lost = &self.counters.lost;
        let Some(way) = self.way(frame) else {
            count(&lost.not_roce, 1);
            return None;
        };
        if len > ETHERNET + self.mtu || len + TAG > room.len() {
            count(&lost.too_long, 1);
            return None;
        }
        match self.neighbours.next_hop(way) {
            NextHop::Mac(mac) => return Some(self.finish(room, len, mac)),
            NextHop::Asked => self.hold(way, frame),
            NextHop::None => count(&lost.no_neighbour, 1),
        }
        None
    }

    /// From where to where a RoCE frame goes; none if it is none, or has a tag already: in which
    /// VLAN it is sent is not for its sender to say.
    fn way(&self, frame: &[u8]) -> Option<Way> {
        let (eth, ethertype) = Ethernet::parse(frame)?;
        let (gid, ..) = destination(frame)?;
        if eth.vlan.is_some() {
            return None;
        }
        let own = match self.neighbours.has_own() {
            true => source(frame, ethertype).filter(|ip| self.neighbours.is_own(*ip)),
            false => None,
        };
        Some(Way { to: gid.to_ip(), own })
    }

    /// Keeps a frame until its next hop is known.
    fn hold(&mut self, way: Way, frame: &[u8]) {
        let for_one = self.held.iter().filter(|(other, _)| *other == way).count();
        if self.held.len() >= HELD || for_one >= HELD_FOR_ONE {
            count(&self.counters.lost.no_neighbour, 1);
            return;
        }
        self.held.push_back((way, frame.to_vec()));
    }

    /// Whether frames that wait may find a next hop now.
    pub fn may_release(&self) -> bool {
        !self.held.is_empty() && self.neighbours.have_changed()
    }

    /// Sends those of the frames that wait whose next hop has become known.
    ///
    /// # Errors
    /// What `send` says.
    pub fn release(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        for _ in 0..self.held.len() {
            let Some((way, mut frame)) = self.held.pop_front() else { break };
            match self.neighbours.outcome(way) {
                NextHop::Mac(mac) => {
                    let len = frame.len();
                    frame.resize(len + TAG, 0);
                    let len = self.finish(&mut frame, len, mac);
                    send(&frame[..len])?;
                }
                NextHop::Asked => self.held.push_back((way, frame)),
                NextHop::None => count(&self.counters.lost.no_neighbour, 1),
            }
        }
        Ok(())
    }

    /// Writes addresses and tag; gives the length then. `room` has room for a tag.
    fn finish(&self, room: &mut [u8], len: usize, to: Mac) -> usize {
        let Some(Tag { vid, pcp }) = self.tag else {
            room[..6].copy_from_slice(&to.0);
            room[6..12].copy_from_slice(&self.mac.0);
            return len;
        };
        let ethertype = ethertype(room);
        let pcp = pcp.unwrap_or_else(|| traffic_class(room, ethertype) >> 5);
        room.copy_within(ETHERNET..len, ETHERNET + TAG);
        let vlan = Some(Vlan { pcp, dei: false, vid });
        Ethernet { dst: to, src: self.mac, vlan }.emit(ethertype, room);
        len + TAG
    }
}

fn ethertype(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[12], frame[13]])
}

/// The traffic class of a RoCE frame without tag: the DSCP, and two bits of ECN.
fn traffic_class(frame: &[u8], ethertype: u16) -> u8 {
    match ethertype {
        ETHERTYPE_IPV4 => frame[15],
        _ => frame[14] << 4 | frame[15] >> 4,
    }
}

/// The source of a RoCE frame without tag.
fn source(frame: &[u8], ethertype: u16) -> Option<IpAddr> {
    match ethertype {
        ETHERTYPE_IPV4 => {
            let address = frame.get(26..30)?.first_chunk::<4>()?;
            Some(Ipv4Addr::from(*address).into())
        }
        _ => {
            let address = frame.get(22..38)?.first_chunk::<16>()?;
            Some(Gid::from(Ipv6Addr::from(*address)).to_ip())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use ferroce_stack::psn::Psn;
    use ferroce_stack::wire::{
        Bth, Extensions, Headers, Ipv4, Ipv6, Net, Opcode, Packet, Udp, seal,
    };

    use super::*;
    use crate::fabric::FRAME_MAX;
    use crate::link::neighbour::Sources;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);

    /// That of an interface that does not resolve addresses.
    fn addressing(tag: Option<Tag>) -> Addressing {
        let sources = Sources { is_mute: true, kernel: None, own: None };
        let neighbours = Neighbours::new(sources, Arc::new(AtomicU64::new(0)));
        Addressing::new(OURS, 1500, tag, neighbours, Arc::default())
    }

    fn nets(traffic_class: u8) -> [Net; 3] {
        let v4 = |last| Ipv4Addr::new(192, 0, 2, last);
        let v6 = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        let ip = Ipv6 { src: v6(1), dst: v6(2), traffic_class, flow_label: 0x12345, hop_limit: 9 };
        let (src, dst, tos) = (v4(1), v4(2), traffic_class);
        let ipv4 = Ipv4 { src, dst, tos, ident: 7, dont_fragment: true, ttl: 9 };
        [Net::V4(ipv4), Net::V6(ip), Net::V1(ip)]
    }

    fn frame(net: Net, vlan: Option<Vlan>) -> Vec<u8> {
        let headers = Headers {
            eth: Ethernet { dst: Mac::default(), src: Mac::default(), vlan },
            net,
            udp: Udp { source_port: 0xc000, checksum: 0 },
            bth: Bth::new(Opcode::RC_SEND_ONLY, 0x11, Psn::new(5)),
            ext: Extensions::default(),
        };
        let mut bytes = vec![0; 256];
        let layout = headers.emit(8, &mut bytes).unwrap();
        bytes[layout.payload..][..8].copy_from_slice(b"payload!");
        let len = seal(&mut bytes, &layout, 8);
        bytes.truncate(len);
        bytes
    }

    fn addressed(addressing: &mut Addressing, frame: &[u8]) -> Option<Vec<u8>> {
        let mut room = vec![0xa5; FRAME_MAX];
        room[..frame.len()].copy_from_slice(frame);
        let len = addressing.address(&mut room, frame.len())?;
        Some(room[..len].to_vec())
    }

    #[test]
    fn dscp_and_ecn_pass_and_give_the_priority() {
        for traffic_class in [0x00, 0x02, 0x60, 0x6b, 0xff] {
            for net in nets(traffic_class) {
                for (pcp, expected) in [(None, traffic_class >> 5), (Some(2), 2)] {
                    let mut addressing = addressing(Some(Tag { vid: 7, pcp }));
                    let sent = addressed(&mut addressing, &frame(net, None)).unwrap();
                    let packet = Packet::parse(&sent).unwrap();
                    assert!(packet.icrc_ok(&sent) && packet.payload == b"payload!");
                    assert_eq!(packet.headers.net, net);
                    let vlan = Some(Vlan { pcp: expected, dei: false, vid: 7 });
                    assert_eq!((packet.headers.eth.vlan, packet.headers.eth.src), (vlan, OURS));
                }
            }
        }
    }

    #[test]
    fn without_a_vlan_only_addresses_change() {
        for net in nets(0x6a) {
            let before = frame(net, None);
            let sent = addressed(&mut addressing(None), &before).unwrap();
            assert_eq!((&sent[6..12], &sent[12..]), (&OURS.0[..], &before[12..]));
        }
    }

    #[test]
    fn a_sender_does_not_choose_its_vlan() {
        let vlan = Some(Vlan { pcp: 0, dei: false, vid: 9 });
        for tag in [None, Some(Tag { vid: 7, pcp: None })] {
            let mut addressing = addressing(tag);
            assert_eq!(addressed(&mut addressing, &frame(nets(0)[0], vlan)), None);
        }
    }

    #[test]
    fn source_is_read_where_it_stands() {
        let sources = nets(0).map(|net| {
            source(
                &frame(net, None),
                match net {
                    Net::V4(_) => ETHERTYPE_IPV4,
                    _ => 0x86dd,
                },
            )
        });
        let expected = ["192.0.2.1", "fd00::1", "fd00::1"].map(|text| text.parse().ok());
        assert_eq!(sources, expected);
    }
}
