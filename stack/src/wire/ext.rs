//! The extended headers of a packet, in the order in which they stand on the wire (IBA 9.3).

use super::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Feth, HeaderSet, Ieth, ImmDt, Rdeth, Reth, XrcEth,
};

/// The headers between BTH and payload. Which of them a packet has is up to its opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// RD.
    pub rdeth: Option<Rdeth>,
    /// RD and UD.
    pub deth: Option<Deth>,
    /// XRC requests.
    pub xrceth: Option<XrcEth>,
    /// FLUSH.
    pub feth: Option<Feth>,
    /// RDMA, FLUSH, ATOMIC WRITE.
    pub reth: Option<Reth>,
    /// Atomic requests.
    pub atomic_eth: Option<AtomicEth>,
    /// Responses.
    pub aeth: Option<Aeth>,
    /// Atomic responses.
    pub atomic_ack_eth: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm_dt: Option<ImmDt>,
    /// SEND with invalidate.
    pub ieth: Option<Ieth>,
}

/// Calls `$do!(field, Type, HeaderSet)` for each header, in wire order.
macro_rules! in_wire_order {
    ($do:ident) => {
        $do!(rdeth, Rdeth, RDETH);
        $do!(deth, Deth, DETH);
        $do!(xrceth, XrcEth, XRCETH);
        $do!(feth, Feth, FETH);
        $do!(reth, Reth, RETH);
        $do!(atomic_eth, AtomicEth, ATOMIC_ETH);
        $do!(aeth, Aeth, AETH);
        $do!(atomic_ack_eth, AtomicAckEth, ATOMIC_ACK_ETH);
        $do!(imm_dt, ImmDt, IMM_DT);
        $do!(ieth, Ieth, IETH);
    };
}

impl Extensions {
    /// Reads the headers of `set` from the bytes after the BTH: at least `set.len()` of them.
    #[inline]
    pub fn parse(set: HeaderSet, bytes: &[u8]) -> Extensions {
        let mut ext = Extensions::default();
        if set.is_empty() {
            return ext;
        }
        let mut at = 0;
        macro_rules! parse {
            ($field:ident, $header:ident, $bit:ident) => {
                if set.has(HeaderSet::$bit) {
                    ext.$field = Some($header::parse(&bytes[at..]));
                    at += $header::LEN;
                }
            };
        }
        in_wire_order!(parse);
        debug_assert_eq!(at, set.len());
        ext
    }

    /// Which headers there are.
    #[inline]
    pub fn set(&self) -> HeaderSet {
        let mut set = HeaderSet::NONE;
        macro_rules! add {
            ($field:ident, $header:ident, $bit:ident) => {
                if self.$field.is_some() {
                    set = set.with(HeaderSet::$bit);
                }
            };
        }
        in_wire_order!(add);
        set
    }

    /// Writes the headers there are and returns the bytes they take. `out` has room for
    /// `self.set().len()`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        macro_rules! emit {
            ($field:ident, $header:ident, $bit:ident) => {
                if let Some(header) = &self.$field {
                    header.emit(&mut out[at..]);
                    at += $header::LEN;
                }
            };
        }
        in_wire_order!(emit);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_their_order_and_every_bit() {
        let wire: Vec<u8> = (0..84).map(|byte| byte * 3 + 1).collect();
        for bits in 0..1 << 10 {
            let set = HeaderSet(bits);
            let ext = Extensions::parse(set, &wire);
            assert_eq!(ext.set(), set);
            let mut out = [0; 84];
            assert_eq!(ext.emit(&mut out), set.len());
            assert_eq!(out[..set.len()], wire[..set.len()]);
        }
    }
}
