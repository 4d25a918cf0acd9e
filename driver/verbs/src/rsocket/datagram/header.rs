//! The two headers in front of a program's datagram, in network order: one where it goes through
//! UDP, since the peer's QP is not known, and one where it goes from QP to QP.

use crate::rsocket::addr::SockAddr;

/// Marks UDP datagrams of rsockets.
const TAG: [u8; 4] = [0x55; 4];
/// Ends of the two forms of each header, by the version of the addresses.
const UDP_V4: usize = 16;
const UDP_V6: usize = 28;
const UD_V4: usize = 8;
const UD_V6: usize = 24;

/// What a UDP datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It has data of the program, and wants an answer.
    Data,
    /// It is the answer: the sender's QP.
    Control,
}

const OP_DATA: u8 = 0;
const OP_CONTROL: u8 = 7;

/// The header of a UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// What it is for.
    pub op: Op,
    /// The sender's QPN.
    pub qpn: u32,
    /// The sender's address, of 4 or 16 bytes.
    pub addr: Vec<u8>,
}

impl UdpHeader {
    /// The longer form.
    pub const MAX: usize = UDP_V6;

    /// The header, and what follows it.
    pub fn parse(datagram: &[u8]) -> Option<(UdpHeader, &[u8])> {
        let (head, addr) = datagram.split_at_checked(12)?;
        let [t0, t1, t2, t3, version, op, length, _, _, q0, q1, q2] = *head else { return None };
        if [t0, t1, t2, t3] != TAG {
            return None;
        }
        let length = match (version, usize::from(length)) {
            (4, UDP_V4) | (6, UDP_V6) => usize::from(length),
            _ => return None,
        };
        let op = match op {
            OP_DATA => Op::Data,
            OP_CONTROL => Op::Control,
            _ => return None,
        };
        let (addr, data) = addr.split_at_checked(length - 12)?;
        let qpn = u32::from_be_bytes([0, q0, q1, q2]);
        Some((UdpHeader { op, qpn, addr: addr.to_vec() }, data))
    }

    /// As bytes.
    pub fn emit(&self) -> Vec<u8> {
        let (version, length) = if self.addr.len() == 4 { (4, UDP_V4) } else { (6, UDP_V6) };
        let op = match self.op {
            Op::Data => OP_DATA,
            Op::Control => OP_CONTROL,
        };
        let mut header = TAG.to_vec();
        header.extend([version, op, length as u8, 0]);
        header.extend((self.qpn & 0xff_ffff).to_be_bytes());
        header.extend(&self.addr);
        header
    }
}

/// The header of a datagram from QP to QP: who sends it.
pub struct UdHeader;

impl UdHeader {
    /// The longer form.
    pub const MAX: usize = UD_V6;

    /// The sender and the length of the header.
    pub fn parse(datagram: &[u8]) -> Option<(SockAddr, usize)> {
        let [version, length, p0, p1, rest @ ..] = datagram else { return None };
        let addr = match (version, usize::from(*length)) {
            (4, UD_V4) => rest.get(..4)?,
            // Between port and address lies the flow label.
            (6, UD_V6) => rest.get(4..20)?,
            _ => return None,
        };
        Some((SockAddr::from_parts(addr, [*p0, *p1])?, usize::from(*length)))
    }

    /// As bytes.
    pub fn emit(sender: &SockAddr) -> Vec<u8> {
        let addr = sender.address();
        let (version, length) = if addr.len() == 4 { (4, UD_V4) } else { (6, UD_V6) };
        let mut header = vec![version, length as u8];
        header.extend(sender.port());
        if addr.len() == 16 {
            header.extend([0; 4]);
        }
        header.extend(addr);
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_udp_header() {
        let v4 = UdpHeader { op: Op::Data, qpn: 0x1_0203, addr: vec![10, 0, 0, 1] };
        let wanted = [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 1, 2, 3, 10, 0, 0, 1];
        assert_eq!(v4.emit(), wanted);
        assert_eq!(UdpHeader::parse(&[&wanted[..], b"abc"].concat()), Some((v4, &b"abc"[..])));
        let v6 = UdpHeader { op: Op::Control, qpn: 7, addr: (0..16).collect() };
        let bytes = v6.emit();
        assert_eq!((bytes.len(), bytes[4], bytes[5], bytes[6]), (28, 6, 7, 28));
        assert_eq!(UdpHeader::parse(&bytes), Some((v6, &[][..])));
    }

    #[test]
    fn udp_datagrams_of_others_are_nothing() {
        let good = UdpHeader { op: Op::Data, qpn: 1, addr: vec![1, 2, 3, 4] }.emit();
        for len in 0..good.len() {
            assert_eq!(UdpHeader::parse(&good[..len]), None);
        }
        for (at, byte) in [(0, 0x54), (4, 6), (4, 5), (5, 1), (6, 28), (6, 0), (6, 255)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(UdpHeader::parse(&bad), None);
        }
    }

    #[test]
    fn both_forms_of_the_ud_header() {
        let v4 = SockAddr::from_parts(&[10, 0, 0, 1], [0x1c, 0x06]).unwrap();
        let bytes = UdHeader::emit(&v4);
        assert_eq!(bytes, [4, 8, 0x1c, 0x06, 10, 0, 0, 1]);
        let (addr, length) = UdHeader::parse(&[&bytes[..], b"data"].concat()).unwrap();
        assert!(addr == v4 && length == 8);
        let v6 = SockAddr::from_parts(&[7; 16], [1, 2]).unwrap();
        let bytes = UdHeader::emit(&v6);
        assert_eq!((bytes.len(), &bytes[4..8]), (24, &[0; 4][..]));
        assert!(UdHeader::parse(&bytes).unwrap().0 == v6);
        for bad in [&bytes[..23], &[4, 8, 0, 0, 1, 2, 3], &[4, 24], &[5, 8, 0, 0, 1, 2, 3, 4], &[]]
        {
            assert!(UdHeader::parse(bad).is_none());
        }
    }
}
