//! Attributes of QPs and of the paths between them (IBA 11.2.5).

use super::{Access, Cq, Pd, Qpn, Srq, Xrcd};
use crate::gid::Gid;
use crate::psn::Psn;
use crate::wire::Mac;

/// State of a QP (IBA 10.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Fresh; nothing may be posted.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained or draining.
    Sqd = 4,
    /// Send queue error (UC, UD, raw packets).
    Sqe = 5,
    /// Error; all work requests are flushed.
    Err = 6,
}

impl QpState {
    /// Every state, by its value.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];
}

/// Service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpType {
    /// General services (QP1): UD with the Q_Key 0x80010000.
    Gsi = 1,
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// Raw packets: sends whole Ethernet frames of the application's own making. Receives may be
    /// posted, but nothing is steered to such a QP: they only ever complete flushed.
    RawPacket = 8,
    /// XRC initiator.
    XrcSend = 9,
    /// XRC target.
    XrcRecv = 10,
}

/// Path MTU: payload bytes of a full packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    #[default]
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// Every MTU, ascending.
    pub const ALL: [Mtu; 5] = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096];

    /// In bytes.
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// The MTU of exactly `bytes`.
    pub fn from_bytes(bytes: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The largest path MTU of an interface that takes IP packets of `link_mtu` bytes; `None`
    /// below 256 + 80. All RoCE headers fit into 80 bytes.
    pub fn of_link(link_mtu: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().rev().find(|mtu| mtu.bytes() + 80 <= link_mtu)
    }
}

/// Address of a peer (`ibv_ah_attr` with its neighbour already resolved).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AhAttr {
    /// Destination GID; multicast for UD only.
    pub dgid: Gid,
    /// Index of the source GID in the port's table.
    pub sgid_index: u8,
    /// IPv6 flow label, 20 bits; decides the UDP source port where it is not 0.
    pub flow_label: u32,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The whole IPv4 ToS or IPv6 traffic class byte: DSCP and ECN.
    pub traffic_class: u8,
    /// Service level, 0 to 7: the PCP where the source GID has a VLAN.
    pub sl: u8,
    /// Next hop. Not looked at for a multicast `dgid`.
    pub dmac: Mac,
}

/// Attributes of a QP (`ibv_qp_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// State.
    pub qp_state: QpState,
    /// Claimed present state.
    pub cur_qp_state: QpState,
    /// Payload bytes of a full packet.
    pub path_mtu: Mtu,
    /// Q_Key.
    pub qkey: u32,
    /// First PSN expected from the peer.
    pub rq_psn: Psn,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// QPN of the peer.
    pub dest_qp_num: Qpn,
    /// Operations the peer may ask for.
    pub qp_access_flags: Access,
    /// Path to the peer.
    pub ah_attr: AhAttr,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// Raise [`super::EventKind::SqDrained`].
    pub en_sqd_async_notify: bool,
    /// Read only: the send queue still drains.
    pub sq_draining: bool,
    /// READs and atomics this side may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code this side sends, 0 to 31 (wire table: 0 is 655.36 ms).
    pub min_rnr_timer: u8,
    /// Port, from 1.
    pub port_num: u8,
    /// ACK timeout code, 0 to 31.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
}

/// Sizes of a QP's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receive work requests.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send work request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive work request.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request.
    pub max_inline_data: u32,
}

impl Default for QpCap {
    fn default() -> QpCap {
        QpCap {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 256,
        }
    }
}

/// What a QP is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInit {
    /// Service.
    pub qp_type: QpType,
    /// Protection domain; none for an XRC target.
    pub pd: Option<Pd>,
    /// Where sends complete; none for an XRC target.
    pub send_cq: Option<Cq>,
    /// Where receives complete; none for XRC.
    pub recv_cq: Option<Cq>,
    /// Shared receive queue instead of an own one.
    pub srq: Option<Srq>,
    /// Domain of an XRC target.
    pub xrcd: Option<Xrcd>,
    /// Queue sizes.
    pub cap: QpCap,
    /// Every send makes a completion.
    pub sq_sig_all: bool,
}
