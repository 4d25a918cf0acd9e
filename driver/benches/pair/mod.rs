//! Two devices in one thread, frames handed over by reference: what the transport costs and
//! nothing else. And the bound: one copy and one CRC on each side, over the same bytes.

use std::hint::black_box;

use ferroce::memory::Arena;
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, Cq, Mtu, Pd, QpAttr, QpCap, QpInit, QpState, QpType, Qpn, RecvWr,
    Remote, SendOp, SendWr, Sge, Wc, WcStatus,
};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, Device, GidEntry, GidType, MrInit};

/// Frames a side sends before the other has its turn, as a link's batch.
const BATCH: usize = 64;

/// Nanoseconds from frame to frame: one of 1024 bytes leaves in less at 100 Gbit/s.
const FRAME_NS: u64 = 100;

/// Bytes of headers and ICRC around the payload of a RoCE v2 packet over IPv4, Ethernet left out.
const HEADERS: usize = 20 + 8 + 12 + 4;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Send,
    Write,
    Read,
}

impl Operation {
    pub const ALL: [Operation; 3] = [Operation::Write, Operation::Read, Operation::Send];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Send => "SEND",
            Operation::Write => "WRITE",
            Operation::Read => "READ",
        }
    }
}

struct Node {
    device: Device<Arena>,
    pd: Pd,
    cq: Cq,
    buffer: Sge,
    rkey: u32,
}

/// Two devices and the QPs that connect them.
pub struct Pair {
    nodes: [Node; 2],
    qps: Vec<[Qpn; 2]>,
    next_qp: usize,
    frame: Vec<u8>,
    completions: Vec<Wc>,
    now: Instant,
    /// Frames handed over so far, ACKs included.
    pub frames: u64,
}

impl Pair {
    /// `qp_count` connections with `mtu`; messages of up to `len` bytes.
    pub fn new(qp_count: usize, mtu: Mtu, len: usize) -> Pair {
        Pair::with_config(qp_count, mtu, len, &Config::default())
    }

    /// The same, of devices that are made so.
    pub fn with_config(qp_count: usize, mtu: Mtu, len: usize, config: &Config) -> Pair {
        let mut nodes = [1, 2].map(|number| Node::new(number, len, config));
        let qps = (0..qp_count).map(|_| connect(&mut nodes, mtu)).collect();
        let frame = vec![0; nodes[0].device.max_frame_len()];
        let completions = vec![Wc::default(); BATCH];
        let now = Instant::ZERO;
        Pair { nodes, qps, next_qp: 0, frame, completions, now, frames: 0 }
    }

    /// Runs `count` messages of `len` bytes, at most 64, each on the next QP, to completion.
    pub fn run(&mut self, operation: Operation, len: u32, count: usize) {
        for _ in 0..count {
            let [qp, peer] = self.qps[self.next_qp];
            self.next_qp = (self.next_qp + 1) % self.qps.len();
            self.post(operation, len, qp, peer);
        }
        self.drain();
        let [active, passive] = &mut self.nodes;
        let done = active.device.poll_cq(active.cq, &mut self.completions).unwrap();
        assert_eq!(done, count);
        assert!(self.completions[..done].iter().all(|wc| wc.status == WcStatus::Success));
        while passive.device.poll_cq(passive.cq, &mut self.completions).unwrap() > 0 {}
    }

    fn post(&mut self, operation: Operation, len: u32, qp: Qpn, peer: Qpn) {
        let [active, passive] = &mut self.nodes;
        let local = [Sge { length: len, ..active.buffer }];
        let remote = Remote { addr: passive.buffer.addr, rkey: passive.rkey };
        let op = match operation {
            Operation::Write => SendOp::Write(remote),
            Operation::Read => SendOp::Read(remote),
            Operation::Send => {
                let sges = &[passive.buffer];
                passive.device.post_recv(peer, &RecvWr { wr_id: 0, sges }).unwrap();
                SendOp::Send
            }
        };
        active.device.post_send(qp, &SendWr::new(0, op, &local)).unwrap();
    }

    fn drain(&mut self) {
        loop {
            let sent: usize = [0, 1].into_iter().map(|from| self.hand_over(from)).sum();
            if sent == 0 {
                return;
            }
            self.frames += sent as u64;
        }
    }

    fn hand_over(&mut self, from: usize) -> usize {
        let [first, second] = &mut self.nodes;
        let (from, to) = if from == 0 { (first, second) } else { (second, first) };
        for sent in 0..BATCH {
            self.now = self.now + FRAME_NS;
            match from.device.poll_transmit(self.now, &mut self.frame) {
                Some(len) => to.device.handle_frame(self.now, &self.frame[..len]).unwrap(),
                None => return sent,
            }
        }
        BATCH
    }
}

impl Node {
    fn new(number: u8, len: usize, config: &Config) -> Node {
        let mut arena = Arena::with_capacity(len + 4096);
        let addr = arena.alloc(len);
        let mut device = Device::new(config.clone(), arena);
        let gid_type = GidType::RoceV2;
        let entry = GidEntry { gid: gid(number), gid_type, mac: mac(number), vlan: None };
        device.add_gid(entry).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(1 << 16).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let init = MrInit { addr, length: len as u64, iova: addr, access };
        let keys = device.reg_mr(pd, &init).unwrap();
        let buffer = Sge { addr, length: len as u32, lkey: keys.lkey };
        Node { device, pd, cq, buffer, rkey: keys.rkey }
    }

    fn create_qp(&mut self) -> Qpn {
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(self.pd),
            send_cq: Some(self.cq),
            recv_cq: Some(self.cq),
            srq: None,
            xrcd: None,
            cap: QpCap::default(),
            sq_sig_all: false,
        };
        self.device.create_qp(&init).unwrap()
    }

    fn connect(&mut self, qpn: Qpn, peer: u8, dest_qp_num: Qpn, path_mtu: Mtu) {
        use AttrMask as M;
        let ah_attr =
            AhAttr { dgid: gid(peer), hop_limit: 64, dmac: mac(peer), ..AhAttr::default() };
        let attr = QpAttr {
            port_num: 1,
            qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ,
            path_mtu,
            dest_qp_num,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ah_attr,
            ..QpAttr::default()
        };
        let init = M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
        let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let rtr = rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let rts = M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        let steps = [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)];
        for (qp_state, mask) in steps {
            let attr = QpAttr { qp_state, ..attr };
            self.device.modify_qp(qpn, &attr, M::STATE | mask).unwrap();
        }
    }
}

fn connect(nodes: &mut [Node; 2], mtu: Mtu) -> [Qpn; 2] {
    let [first, second] = nodes.each_mut().map(Node::create_qp);
    nodes[0].connect(first, 2, second, mtu);
    nodes[1].connect(second, 1, first, mtu);
    [first, second]
}

fn gid(number: u8) -> Gid {
    Gid::from_ip([192, 0, 2, number].into())
}

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

/// What no transport can beat: the payload copied into a frame and out of it, a CRC over the
/// frame at each side.
pub struct Bound {
    source: Vec<u8>,
    frame: Vec<u8>,
    target: Vec<u8>,
}

impl Bound {
    pub fn new(len: usize) -> Bound {
        Bound { source: vec![1; len], frame: vec![0; 4096 + HEADERS], target: vec![2; len] }
    }

    /// One message in packets of `mtu` bytes.
    pub fn run(&mut self, len: usize, mtu: Mtu) {
        for start in (0..len).step_by(mtu.bytes()) {
            let end = (start + mtu.bytes()).min(len);
            let frame = &mut self.frame[..end - start + HEADERS];
            frame[HEADERS - 4..end - start + HEADERS - 4].copy_from_slice(&self.source[start..end]);
            black_box(crc32fast::hash(frame));
            black_box(crc32fast::hash(black_box(frame)));
            self.target[start..end].copy_from_slice(&frame[HEADERS - 4..end - start + HEADERS - 4]);
        }
        black_box(&mut self.target);
    }
}
