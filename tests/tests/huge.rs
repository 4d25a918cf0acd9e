//! Messages of 2 GiB, the longest there are (IBA 9.7.2), without 2 GiB of memory: the bytes follow
//! from their address and are checked as they arrive.
//!
//! A READ of 2 GiB at path MTU 256 has 2^23 responses, half of all PSNs, and so is asked for in
//! parts; it is here too, with a peer that serves one READ at a time.

use ferroce::world::bring_up;
use ferroce_stack::gid::Gid;
use ferroce_stack::memory::{AtomicOp, Memory, MemoryFault, Span};
use ferroce_stack::psn::Psn;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Access, AhAttr, Cq, MrKeys, Mtu, QpAttr, QpCap, QpInit, QpType, Qpn, RecvWr, Remote, SendOp,
    SendWr, Sge, Wc, WcStatus,
};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, Device, GidEntry, GidType, MAX_MESSAGE, MrInit};

/// Where messages come from and go to: the same in the low bits, which decide the bytes.
const SOURCE: u64 = 0x10_0000_0000;
const SINK: u64 = 0x20_0000_0000;

/// Memory of which nothing is stored.
#[derive(Debug)]
struct Sparse {
    /// Where the next byte must be stored.
    next: u64,
}

/// The word at an address; all addresses here are multiples of 8.
fn word(addr: u64) -> [u8; 8] {
    let low = addr & 0xf_ffff_ffff;
    (low >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

impl Memory for Sparse {
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault> {
        let end = span.addr() + out.len() as u64;
        let inside = span.addr() >= SOURCE && end <= SOURCE + MAX_MESSAGE;
        let (words, []) = out.as_chunks_mut() else { return Err(MemoryFault) };
        if !inside {
            return Err(MemoryFault);
        }
        for (index, out) in words.iter_mut().enumerate() {
            *out = word(span.addr() + 8 * index as u64);
        }
        Ok(())
    }

    /// Takes only the right bytes, each once, in order.
    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault> {
        let (words, []) = data.as_chunks() else { return Err(MemoryFault) };
        let differs =
            |(index, data): (usize, &[u8; 8])| *data != word(span.addr() + 8 * index as u64);
        // Without a way out in the middle this is done many words at a time.
        let wrong = words.iter().enumerate().map(differs).fold(false, |wrong, it| wrong | it);
        if span.addr() != self.next || wrong {
            return Err(MemoryFault);
        }
        self.next += data.len() as u64;
        Ok(())
    }

    fn atomic(&mut self, _: Span, _: AtomicOp) -> Result<u64, MemoryFault> {
        Err(MemoryFault)
    }
}

struct Node {
    device: Device<Sparse>,
    cq: Cq,
    qpn: Qpn,
    keys: MrKeys,
    sent: u64,
}

fn address(number: u8) -> GidEntry {
    GidEntry {
        gid: Gid::from(std::net::Ipv4Addr::new(10, 0, 0, number)),
        gid_type: GidType::RoceV2,
        mac: Mac([2, 0, 0, 0, 0, number]),
        vlan: None,
    }
}

fn node(number: u8, base: u64) -> Node {
    let mut device = Device::new(Config::default(), Sparse { next: SINK });
    device.add_gid(address(number)).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(16).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let init = MrInit { addr: base, length: MAX_MESSAGE, iova: base, access };
    let keys = device.reg_mr(pd, &init).unwrap();
    let qp = QpInit {
        qp_type: QpType::Rc,
        pd: Some(pd),
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        xrcd: None,
        cap: QpCap::default(),
        sq_sig_all: true,
    };
    let qpn = device.create_qp(&qp).unwrap();
    Node { device, cq, qpn, keys, sent: 0 }
}

fn connect(node: &mut Node, peer: (u8, Qpn), mtu: Mtu) {
    let GidEntry { gid, mac, .. } = address(peer.0);
    let attr = QpAttr {
        path_mtu: mtu,
        // The PSNs wrap on the way.
        rq_psn: Psn::new(0xff_f000),
        sq_psn: Psn::new(0xff_f000),
        dest_qp_num: peer.1,
        qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ,
        ah_attr: AhAttr { dgid: gid, hop_limit: 64, dmac: mac, ..AhAttr::default() },
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        ..QpAttr::default()
    };
    bring_up(&mut node.device, node.qpn, &attr).unwrap();
}

/// Nodes whose memory begins at `bases`, connected.
fn connected(bases: [u64; 2], mtu: Mtu) -> [Node; 2] {
    let [mut a, mut b] = [node(1, bases[0]), node(2, bases[1])];
    let qpns = [a.qpn, b.qpn];
    connect(&mut a, (2, qpns[1]), mtu);
    connect(&mut b, (1, qpns[0]), mtu);
    [a, b]
}

/// Frames under way at a time; those behind a lost READ response are sent in vain.
const BATCH: usize = 64;

/// Passes frames back and forth until there are none; every `lossy`th is lost.
///
/// The clock stands still, so what is lost is recovered without the timer, or never.
fn exchange([a, b]: &mut [Node; 2], lossy: u64) {
    let mut frame = vec![0; a.device.max_frame_len()];
    while pass(a, b, lossy, &mut frame) | pass(b, a, lossy, &mut frame) {}
}

/// Passes on what there is, up to a batch; whether there was anything.
fn pass(from: &mut Node, to: &mut Node, lossy: u64, frame: &mut [u8]) -> bool {
    let before = from.sent;
    for _ in 0..BATCH {
        let Some(len) = from.device.poll_transmit(Instant::ZERO, frame) else { break };
        from.sent += 1;
        if !from.sent.is_multiple_of(lossy) {
            // What has no effect is counted by the device.
            let _ = to.device.handle_frame(Instant::ZERO, &frame[..len]);
        }
    }
    from.sent > before
}

fn whole(node: &Node, base: u64) -> Sge {
    Sge { addr: base, length: MAX_MESSAGE as u32, lkey: node.keys.lkey }
}

fn completion(node: &mut Node) -> Wc {
    let mut all = [Wc::default(); 2];
    assert_eq!(node.device.poll_cq(node.cq, &mut all), Ok(1));
    assert_eq!(all[0].status, WcStatus::Success);
    all[0]
}

/// No packet of these is the last of its message and nothing else follows it.
const LOSSY: u64 = 100_003;

#[test]
fn send() {
    let mut nodes = connected([SOURCE, SINK], Mtu::Mtu4096);
    let sges = [whole(&nodes[1], SINK)];
    let (from, to) = (nodes[0].qpn, nodes[1].qpn);
    nodes[1].device.post_recv(to, &RecvWr { wr_id: 1, sges: &sges }).unwrap();
    let sges = [whole(&nodes[0], SOURCE)];
    nodes[0].device.post_send(from, &SendWr::new(2, SendOp::Send, &sges)).unwrap();
    exchange(&mut nodes, LOSSY);
    assert_eq!(u64::from(completion(&mut nodes[1]).byte_len), MAX_MESSAGE);
    completion(&mut nodes[0]);
    assert_eq!(nodes[1].device.memory().next, SINK + MAX_MESSAGE);
}

#[test]
fn write() {
    let mut nodes = connected([SOURCE, SINK], Mtu::Mtu4096);
    let sges = [whole(&nodes[0], SOURCE)];
    let (from, rkey) = (nodes[0].qpn, nodes[1].keys.rkey);
    let op = SendOp::Write(Remote { addr: SINK, rkey });
    nodes[0].device.post_send(from, &SendWr::new(2, op, &sges)).unwrap();
    exchange(&mut nodes, LOSSY);
    completion(&mut nodes[0]);
    assert_eq!(nodes[1].device.memory().next, SINK + MAX_MESSAGE);
}

fn read(mtu: Mtu) {
    let mut nodes = connected([SINK, SOURCE], mtu);
    let sges = [whole(&nodes[0], SINK)];
    let (to, rkey) = (nodes[0].qpn, nodes[1].keys.rkey);
    let op = SendOp::Read(Remote { addr: SOURCE, rkey });
    nodes[0].device.post_send(to, &SendWr::new(2, op, &sges)).unwrap();
    exchange(&mut nodes, LOSSY);
    assert_eq!(u64::from(completion(&mut nodes[0]).byte_len), MAX_MESSAGE);
    assert_eq!(nodes[0].device.memory().next, SINK + MAX_MESSAGE);
    let counters = nodes[0].device.counters();
    assert!(counters.implied_nak_seq_err > 0 && counters.local_ack_timeout_err == 0);
}

#[test]
fn read_at_mtu_4096() {
    read(Mtu::Mtu4096);
}

#[test]
fn read_in_parts_at_mtu_256() {
    read(Mtu::Mtu256);
}
