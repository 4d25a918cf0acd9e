//! A scripted peer: it knows both addresses and QPNs, and builds any packet with any field right
//! or wrong and an ICRC that is right unless the script says otherwise.

use ferroce_stack::GidEntry;
use ferroce_stack::gid::Gid;
use ferroce_stack::icrc;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{Qpn, Remote};
use ferroce_stack::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ethernet, Extensions, Feth, Headers, Ieth, ImmDt,
    Ipv4, Ipv6, Net, Opcode, Packet, Reth, Syndrome, Transport, Udp, XrcEth, seal,
};

/// The other end of a connection, without a device.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub own: GidEntry,
    /// Its QPN, which goes into datagrams.
    pub own_qpn: Qpn,
    /// Address of the device under test.
    pub to: GidEntry,
    /// QPN of the device under test.
    pub to_qpn: Qpn,
    /// Q_Key of its datagrams.
    pub qkey: u32,
    /// SRQ number of its XRC requests.
    pub srqn: u32,
}

/// A packet in the making.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Every header.
    pub headers: Headers,
    /// Payload without pad.
    pub payload: Vec<u8>,
    /// XORed into the ICRC.
    icrc_damage: u32,
}

impl Peer {
    /// A packet with the headers its service always has; the others are the script's.
    pub fn packet(&self, opcode: Opcode, psn: u32) -> Builder {
        let transport = opcode.transport();
        let is_response = opcode.info().is_some_and(|info| info.kind.is_response());
        let deth = (transport == Some(Transport::Ud)).then_some(Deth {
            qkey: self.qkey,
            reserved: 0,
            src_qp: self.own_qpn.0,
        });
        let xrceth = (transport == Some(Transport::Xrc) && !is_response)
            .then_some(XrcEth { reserved: 0, srqn: self.srqn });
        let bth = Bth::new(opcode, self.to_qpn.0, Psn::new(psn));
        let headers = Headers {
            eth: Ethernet { dst: self.to.mac, src: self.own.mac, vlan: None },
            net: net(self.own.gid, self.to.gid),
            udp: Udp { source_port: 0xc001, checksum: 0 },
            bth,
            ext: Extensions { deth, xrceth, ..Extensions::default() },
        };
        Builder { headers, payload: Vec::new(), icrc_damage: 0 }
    }
}

fn net(from: Gid, to: Gid) -> Net {
    match (from.ipv4(), to.ipv4()) {
        (Some(src), Some(dst)) => {
            Net::V4(Ipv4 { src, dst, tos: 0, ident: 7, dont_fragment: true, ttl: 64 })
        }
        _ => Net::V6(Ipv6 {
            src: from.0.into(),
            dst: to.0.into(),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
        }),
    }
}

impl Builder {
    /// AckReq.
    pub fn ack_req(mut self) -> Builder {
        self.headers.bth.ack_req = true;
        self
    }

    /// SE.
    pub fn solicited(mut self) -> Builder {
        self.headers.bth.solicited = true;
        self
    }

    /// Any change to the headers.
    pub fn change(mut self, change: impl FnOnce(&mut Headers)) -> Builder {
        change(&mut self.headers);
        self
    }

    /// RETH.
    pub fn reth(mut self, remote: Remote, dma_len: u32) -> Builder {
        self.headers.ext.reth = Some(Reth { va: remote.addr, rkey: remote.rkey, dma_len });
        self
    }

    /// AtomicETH.
    pub fn atomic(mut self, remote: Remote, swap_or_add: u64, compare: u64) -> Builder {
        let (va, rkey) = (remote.addr, remote.rkey);
        self.headers.ext.atomic_eth = Some(AtomicEth { va, rkey, swap_or_add, compare });
        self
    }

    /// FETH.
    pub fn feth(mut self, level: u8, placement: u8) -> Builder {
        self.headers.ext.feth = Some(Feth { reserved: 0, level, placement });
        self
    }

    /// AETH.
    pub fn aeth(mut self, syndrome: u8, msn: u32) -> Builder {
        self.headers.ext.aeth = Some(Aeth { syndrome: Syndrome(syndrome), msn });
        self
    }

    /// AtomicAckETH.
    pub fn original(mut self, original: u64) -> Builder {
        self.headers.ext.atomic_ack_eth = Some(AtomicAckEth { original });
        self
    }

    /// Immediate data.
    pub fn imm(mut self, imm: [u8; 4]) -> Builder {
        self.headers.ext.imm_dt = Some(ImmDt(imm));
        self
    }

    /// Key to invalidate.
    pub fn ieth(mut self, rkey: u32) -> Builder {
        self.headers.ext.ieth = Some(Ieth { rkey });
        self
    }

    /// `len` payload bytes of value `byte`.
    pub fn fill(mut self, byte: u8, len: usize) -> Builder {
        self.payload = vec![byte; len];
        self
    }

    /// These payload bytes.
    pub fn payload(mut self, payload: &[u8]) -> Builder {
        self.payload = payload.to_vec();
        self
    }

    /// An ICRC with one bit wrong.
    pub fn bad_icrc(mut self) -> Builder {
        self.icrc_damage = 1 << 13;
        self
    }

    /// The frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; self.payload.len() + 200];
        let layout = self.headers.emit(self.payload.len(), &mut frame).expect("fits");
        frame[layout.payload..layout.payload + self.payload.len()].copy_from_slice(&self.payload);
        let len = seal(&mut frame, &layout, self.payload.len());
        frame.truncate(len);
        for (byte, damage) in frame[layout.icrc..].iter_mut().zip(self.icrc_damage.to_le_bytes()) {
            *byte ^= damage;
        }
        frame
    }
}

/// A frame whose bytes were changed by hand, with an ICRC that is right for them.
///
/// # Panics
/// If it is no RoCE packet.
pub fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let layout = Packet::parse(&frame).expect("a RoCE packet").layout;
    let icrc = icrc::compute(&frame, &layout).to_le_bytes();
    frame[layout.icrc..layout.icrc + icrc.len()].copy_from_slice(&icrc);
    frame
}
