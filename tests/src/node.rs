//! A device with one address, a protection domain, a region over all its memory and two CQs, on a
//! virtual clock of its own. What the device refuses ends the test: the methods panic.

use std::net::Ipv4Addr;

use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, Cq, Event, Mr, MrKeys, Mtu, Pd, QpAttr, QpCap, QpInit, QpState,
    QpType, Qpn, RecvWr, Remote, SendOp, SendWr, Sge, Srq, Wc, WcStatus, Xrcd,
};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, Device, GidEntry, GidType, MrInit, SrqInit};

use crate::expect::Seen;
use crate::memory::{BASE, Flat};
use crate::transitions::{self, FORWARD};

/// First PSN of every node's requester.
const FIRST_PSN: u32 = 0x800;

/// Every right a region can give.
const ALL_ACCESS: Access = Access::REMOTE.with(Access::LOCAL_WRITE).with(Access::MW_BIND);

/// A device and what a test needs around it.
#[derive(Debug)]
pub struct Node {
    /// The device.
    pub device: Device<Flat>,
    /// Its clock.
    pub now: Instant,
    /// Its address, index 0 of its GID table.
    pub entry: GidEntry,
    /// Its protection domain.
    pub pd: Pd,
    /// Where sends complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// All its memory, every right.
    pub mr: MrKeys,
}

/// `(wr_id, status)` of each completion.
pub fn statuses(completions: &[Wc]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// The address of node `number`: 10.0.0.`number`.
pub fn address(number: u8) -> GidEntry {
    GidEntry {
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, number)),
        gid_type: GidType::RoceV2,
        mac: Mac([2, 0, 0, 0, 0, number]),
        vlan: None,
    }
}

impl Node {
    /// Node `number`, at 10.0.0.`number`.
    pub fn new(number: u8) -> Node {
        Node::with_config(address(number), Config::default())
    }

    /// A node at `entry`.
    pub fn with_config(entry: GidEntry, config: Config) -> Node {
        let mut device = Device::new(config, Flat::default());
        device.add_gid(entry).expect("GID");
        let pd = device.alloc_pd().expect("PD");
        let send_cq = device.create_cq(4096).expect("CQ");
        let recv_cq = device.create_cq(4096).expect("CQ");
        let length = device.memory().size();
        let all = MrInit { addr: BASE, length, iova: BASE, access: ALL_ACCESS };
        let mr = device.reg_mr(pd, &all).expect("MR");
        let mut node = Node { device, now: Instant::ZERO, entry, pd, send_cq, recv_cq, mr };
        node.events();
        node
    }

    /// What a QP of this type is made of here; the XRC domain is the caller's.
    pub fn qp_init(&self, qp_type: QpType, xrcd: Option<Xrcd>) -> QpInit {
        let target = qp_type == QpType::XrcRecv;
        let xrc = target || qp_type == QpType::XrcSend;
        QpInit {
            qp_type,
            pd: (!target).then_some(self.pd),
            send_cq: (!target).then_some(self.send_cq),
            recv_cq: (!xrc).then_some(self.recv_cq),
            srq: None,
            xrcd: xrcd.filter(|_| target),
            cap: QpCap::default(),
            sq_sig_all: false,
        }
    }

    /// A QP in RESET; an XRC target gets a domain of its own.
    pub fn create(&mut self, qp_type: QpType) -> Qpn {
        let xrcd = (qp_type == QpType::XrcRecv).then(|| self.device.open_xrcd().expect("XRCD"));
        let init = self.qp_init(qp_type, xrcd);
        self.device.create_qp(&init).expect("QP")
    }

    /// An SRQ for `max_wr` receives; with a domain an XRC SRQ that completes at `recv_cq`.
    pub fn create_srq(&mut self, max_wr: u32, xrcd: Option<Xrcd>) -> Srq {
        let xrc = xrcd.map(|xrcd| (xrcd, self.recv_cq));
        let init = SrqInit { pd: self.pd, max_wr, max_sge: 4, xrc };
        self.device.create_srq(&init).expect("SRQ")
    }

    /// Attributes of a QP connected to `qpn` at `to`, all of them legal.
    pub fn attr_to(&self, to: &GidEntry, qpn: Qpn) -> QpAttr {
        QpAttr {
            path_mtu: Mtu::Mtu1024,
            qkey: 0x1111_1111,
            rq_psn: Psn::new(FIRST_PSN),
            sq_psn: Psn::new(FIRST_PSN),
            dest_qp_num: qpn,
            qp_access_flags: Access::REMOTE,
            ah_attr: AhAttr { dgid: to.gid, dmac: to.mac, hop_limit: 64, ..AhAttr::default() },
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            port_num: 1,
            timeout: 14,
            retry_cnt: 3,
            rnr_retry: 7,
            ..QpAttr::default()
        }
    }

    /// Takes a QP from RESET to `target` (INIT, RTR or RTS) by the required attributes alone, and
    /// the access flags where they are allowed.
    pub fn bring_up(&mut self, qpn: Qpn, attr: &QpAttr, target: QpState) {
        let qp_type = self.device.query_qp(qpn).expect("QP").1.qp_type;
        for (from, to) in FORWARD {
            let row = transitions::row(qp_type, from, to).expect("the way up exists");
            let attr = QpAttr { qp_state: to, ..*attr };
            let outcome = self.device.modify_qp(qpn, &attr, row.required | AttrMask::STATE);
            assert_eq!(outcome, Ok(()), "{qp_type:?} {from:?} to {to:?}");
            if to == target {
                return;
            }
        }
    }

    /// Moves a QP with only its state given.
    pub fn to_state(&mut self, qpn: Qpn, state: QpState) {
        let attr = QpAttr { qp_state: state, ..QpAttr::default() };
        let outcome = self.device.modify_qp(qpn, &attr, AttrMask::STATE);
        assert_eq!(outcome, Ok(()), "{qpn:?} to {state:?}");
    }

    /// State of a QP.
    pub fn state(&self, qpn: Qpn) -> QpState {
        self.device.qp_state(qpn).expect("QP")
    }

    /// `length` bytes of local memory, `offset` bytes from its beginning.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: BASE + offset, length, lkey: self.mr.lkey }
    }

    /// This node's memory for a peer, `offset` bytes from its beginning.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: BASE + offset, rkey: self.mr.rkey }
    }

    /// Registers `length` bytes at `offset`.
    pub fn reg_mr(&mut self, offset: u64, length: u64, access: Access) -> MrKeys {
        let addr = BASE + offset;
        self.device.reg_mr(self.pd, &MrInit { addr, length, iova: addr, access }).expect("MR")
    }

    /// Deregisters a region.
    pub fn dereg_mr(&mut self, mr: Mr) {
        self.device.dereg_mr(mr).expect("deregistered");
    }

    /// Posts a signaled work request over `length` bytes at `offset`.
    pub fn post(&mut self, qpn: Qpn, wr_id: u64, op: SendOp, offset: u64, length: u32) {
        let sges = [self.sge(offset, length)];
        let sges = if length == 0 { &[][..] } else { &sges[..] };
        self.post_wr(qpn, &SendWr::new(wr_id, op, sges));
    }

    /// Posts a work request that has to be taken.
    pub fn post_wr(&mut self, qpn: Qpn, wr: &SendWr) {
        assert_eq!(self.device.post_send(qpn, wr), Ok(()), "post_send of {wr:?}");
    }

    /// Posts a receive of `length` bytes at `offset`.
    pub fn post_recv(&mut self, qpn: Qpn, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.sge(offset, length)];
        let wr = RecvWr { wr_id, sges: &sges };
        assert_eq!(self.device.post_recv(qpn, &wr), Ok(()), "post_recv of {wr:?}");
    }

    /// Posts a receive of `length` bytes at `offset` to an SRQ.
    pub fn post_srq(&mut self, srq: Srq, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.sge(offset, length)];
        let wr = RecvWr { wr_id, sges: &sges };
        assert_eq!(self.device.post_srq_recv(srq, &wr), Ok(()), "post_srq_recv of {wr:?}");
    }

    /// Completions of the send CQ.
    pub fn sent(&mut self) -> Vec<Wc> {
        self.poll(self.send_cq)
    }

    /// Completions of the receive CQ.
    pub fn received(&mut self) -> Vec<Wc> {
        self.poll(self.recv_cq)
    }

    /// Every completion of a CQ.
    pub fn poll(&mut self, cq: Cq) -> Vec<Wc> {
        let mut all = Vec::new();
        let mut some = [Wc::default(); 16];
        loop {
            let count = self.device.poll_cq(cq, &mut some).expect("CQ");
            all.extend_from_slice(&some[..count]);
            if count < some.len() {
                return all;
            }
        }
    }

    /// Every event that waits.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }

    /// Takes a frame from the wire.
    ///
    /// # Errors
    /// As [`Device::handle_frame`].
    pub fn receive(&mut self, frame: &[u8]) -> Result<(), Discard> {
        self.device.handle_frame(self.now, frame)
    }

    /// The next frame it wants to send now.
    pub fn next_frame(&mut self) -> Option<Seen> {
        let mut frame = vec![0; self.device.max_frame_len()];
        let len = self.device.poll_transmit(self.now, &mut frame)?;
        frame.truncate(len);
        Some(Seen::new(frame))
    }

    /// Every frame it wants to send now.
    pub fn transmit(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }

    /// Lets `ns` nanoseconds pass; every frame sent meanwhile, with its moment.
    pub fn run_for(&mut self, ns: u64) -> Vec<(Instant, Seen)> {
        let until = self.now + ns;
        let mut sent = Vec::new();
        loop {
            sent.extend(self.transmit().into_iter().map(|seen| (self.now, seen)));
            match self.device.poll_timeout() {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.device.handle_timeout(self.now);
                }
                _ => break,
            }
        }
        self.now = until;
        sent
    }
}
