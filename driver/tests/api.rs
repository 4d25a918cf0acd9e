//! The Rust API: two devices of one fabric in one process, every service and operation once; what
//! is refused; objects dropped in any order.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce::config::Settings;
use ferroce::memory::{Region, RegionError};
use ferroce::verbs::{
    Access, AttrMask, EventKind, QpAttr, QpCap, QpState, QpType, Qpn, VerbsError, Wc, WcOpcode,
    WcStatus,
};
use ferroce::{
    AsyncEvent, ConnectOptions, Context, Cq, Error, Gid, Mr, Payload, Pd, Qp, QpOptions,
    RemoteRegion, SendRequest, Subject,
};
use ferroce_stack::discard::Discard;
use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{
    Bth, Deth, Ethernet, Extensions, Headers, Ipv4, Mac, Net, Opcode, Udp, pad_count, seal,
};
use nix::poll::{PollFd, PollFlags, poll};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(30);
const PAGES: usize = 1 << 16;
const GRH_LEN: usize = 40;

fn everything() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND
}

/// A device with a domain, a CQ and registered memory.
struct Host {
    context: Context,
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

impl Host {
    fn open(folder: &TempDir, addr: &str) -> Host {
        let mut settings = Settings::default();
        settings.addr = vec![addr.parse().unwrap()];
        settings.fabric = folder.path().join("fabric");
        let context = Context::open(&settings).unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let mr = pd.register_zeroed(PAGES, everything()).unwrap();
        Host { context, pd, cq, mr }
    }

    fn qp(&self, qp_type: QpType) -> Qp {
        self.pd.create_qp(&QpOptions::new(qp_type, &self.cq)).unwrap()
    }

    fn wait(&self) -> Wc {
        self.cq.wait(LONG).unwrap().ok().unwrap()
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read_at(offset, &mut bytes).unwrap();
        bytes
    }
}

fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn hosts() -> (TempDir, Host, Host) {
    let folder = folder();
    let (a, b) = (Host::open(&folder, "192.0.2.1"), Host::open(&folder, "192.0.2.2"));
    (folder, a, b)
}

fn connect(a: &Qp, b: &Qp) {
    a.connect(&b.endpoint(), &ConnectOptions::default()).unwrap();
    b.connect(&a.endpoint(), &ConnectOptions::default()).unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 251) as u8).collect()
}

fn refused(outcome: Result<(), Error>) -> (VerbsError, String) {
    match outcome {
        Err(Error::Refused { error, cause, .. }) => (error, cause),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn rc_sends_writes_and_reads() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let data = pattern(20_000);
    a.mr.write_at(0, &data).unwrap();

    qb.post_recv(1, &[b.mr.slice(0..20_000).unwrap()]).unwrap();
    let pieces = [a.mr.slice(..7).unwrap(), a.mr.slice(7..20_000).unwrap()];
    qa.post_send(&SendRequest::send_with_imm(2, &pieces, 0xfe_ed).solicited()).unwrap();
    let received = b.cq.wait(LONG).unwrap();
    assert_eq!(received.imm(), Some(0xfe_ed));
    assert_eq!((received.wc.wr_id, received.wc.byte_len), (1, 20_000));
    assert_eq!(a.wait().wr_id, 2);
    assert!(b.bytes(0, 20_000) == data);

    let remote = b.mr.remote().slice(30_000..).unwrap();
    qa.post_send(&SendRequest::write(3, &[a.mr.slice(..20_000).unwrap()], remote)).unwrap();
    assert_eq!(a.wait().opcode, WcOpcode::RdmaWrite);
    assert!(b.bytes(30_000, 20_000) == data);

    qb.post_recv(4, &[]).unwrap();
    let inline = Payload::Inline(b"inline");
    qa.post_send(&SendRequest::write_with_imm(5, inline, remote, 9)).unwrap();
    assert_eq!(b.wait().opcode, WcOpcode::RecvRdmaWithImm);
    assert_eq!(a.wait().wr_id, 5);
    assert_eq!(b.bytes(30_000, 6), b"inline");

    let into = [a.mr.slice(40_000..60_000).unwrap()];
    qa.post_send(&SendRequest::read(6, &into, b.mr.remote())).unwrap();
    let wc = a.wait();
    assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RdmaRead, 20_000));
    assert!(a.bytes(40_000, 20_000) == data);
}

#[test]
fn rc_atomics_and_flush() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    b.mr.store_u64(64, 40).unwrap();
    let word = b.mr.remote().slice(64..72).unwrap();
    let before = [a.mr.slice(..8).unwrap()];

    qa.post_send(&SendRequest::fetch_add(1, &before, word, 2)).unwrap();
    assert_eq!(a.wait().opcode, WcOpcode::FetchAdd);
    assert_eq!((a.mr.load_u64(0).unwrap(), b.mr.load_u64(64).unwrap()), (40, 42));

    qa.post_send(&SendRequest::compare_swap(2, &before, word, 42, 7)).unwrap();
    assert_eq!(a.wait().opcode, WcOpcode::CompSwap);
    assert_eq!((a.mr.load_u64(0).unwrap(), b.mr.load_u64(64).unwrap()), (42, 7));

    qa.post_send(&SendRequest::atomic_write(3, word, u64::MAX)).unwrap();
    assert_eq!(a.wait().opcode, WcOpcode::AtomicWrite);
    assert_eq!(b.mr.load_u64(64).unwrap(), u64::MAX);

    qa.post_send(&SendRequest::flush(4, word, Access::FLUSH_GLOBAL).fence()).unwrap();
    assert_eq!(a.wait().opcode, WcOpcode::Flush);
}

#[test]
fn a_window_gives_a_right_and_takes_it() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let window = b.pd.alloc_window().unwrap();
    let slice = b.mr.slice(1000..2000).unwrap();
    qb.post_send(&SendRequest::bind(1, &window, &slice, Access::REMOTE_WRITE)).unwrap();
    assert_eq!(b.wait().opcode, WcOpcode::BindMw);
    let remote = window.remote(&slice).unwrap();
    qa.post_send(&SendRequest::write(2, Payload::Inline(b"windowed"), remote)).unwrap();
    assert_eq!(a.wait().wr_id, 2);
    assert_eq!(b.bytes(1000, 8), b"windowed");

    qb.post_recv(3, &[]).unwrap();
    qa.post_send(&SendRequest::send_with_invalidate(4, &[], remote)).unwrap();
    assert_eq!(b.wait().invalidated_rkey, Some(remote.rkey));
    assert_eq!(a.wait().wr_id, 4);
    qa.post_send(&SendRequest::write(5, Payload::Inline(b"no"), remote)).unwrap();
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::RemAccessErr);
}

#[test]
fn memory_with_a_window_bound_stays_where_it_is() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let mr = b.pd.register_zeroed(4096, everything()).unwrap();
    let window = b.pd.alloc_window().unwrap();
    let slice = mr.slice(..).unwrap();
    qb.post_send(&SendRequest::bind(1, &window, &slice, Access::REMOTE_WRITE)).unwrap();
    b.wait();
    let remote = window.remote(&slice).unwrap();
    let Err(Error::Refused { error, .. }) = mr.deregister() else { panic!("deregistered") };
    assert_eq!(error, VerbsError::Busy);
    qa.post_send(&SendRequest::write(2, Payload::Inline(b"still there"), remote)).unwrap();
    assert_eq!(a.wait().wr_id, 2);
}

#[test]
fn uc_sends_and_writes() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Uc), b.qp(QpType::Uc));
    connect(&qa, &qb);
    let data = pattern(9000);
    a.mr.write_at(0, &data).unwrap();
    qb.post_recv(1, &[b.mr.slice(0..9000).unwrap()]).unwrap();
    qa.post_send(&SendRequest::send(2, &[a.mr.slice(..9000).unwrap()])).unwrap();
    assert_eq!((a.wait().wr_id, b.wait().wr_id), (2, 1));
    assert!(b.bytes(0, 9000) == data);
    qb.post_recv(3, &[]).unwrap();
    let remote = b.mr.remote().slice(10_000..).unwrap();
    let local = [a.mr.slice(..9000).unwrap()];
    qa.post_send(&SendRequest::write_with_imm(4, &local, remote, 1)).unwrap();
    assert_eq!((a.wait().wr_id, b.wait().wr_id), (4, 3));
    assert!(b.bytes(10_000, 9000) == data);
    let read = SendRequest::read(5, &local, remote);
    assert!(refused(qa.post_send(&read)).1.contains("no such operation"));
}

#[test]
fn ud_one_to_one_and_to_a_group() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Ud), b.qp(QpType::Ud));
    let to_b = a.pd.create_ah(b.context.gid()).unwrap();
    qb.post_recv(1, &[b.mr.slice(0..1000).unwrap()]).unwrap();
    let hello = SendRequest::send_with_imm(2, Payload::Inline(b"hello"), 3);
    qa.post_send(&hello.to(&to_b, qb.qpn(), 0x1111_1111)).unwrap();
    let wc = b.wait();
    assert_eq!((wc.byte_len as usize, wc.src_qp, wc.grh), (GRH_LEN + 5, qa.qpn(), true));
    assert_eq!(b.bytes(GRH_LEN, 5), b"hello");
    a.wait();

    let group = Gid::from_ip("239.1.2.3".parse().unwrap());
    qb.attach(group).unwrap();
    let to_all = a.pd.create_ah(group).unwrap();
    qb.post_recv(4, &[b.mr.slice(2000..3000).unwrap()]).unwrap();
    let all = SendRequest::send(5, Payload::Inline(b"all of you"));
    qa.post_send(&all.to(&to_all, Qpn::MULTICAST, 0x1111_1111)).unwrap();
    assert_eq!((a.wait().wr_id, b.wait().wr_id), (5, 4));
    assert_eq!(b.bytes(2000 + GRH_LEN, 10), b"all of you");
    // Attached or not, it goes.
    drop(qb);
    assert!(refused(qa.post_send(&all)).1.contains("destination"));
}

#[test]
fn datagrams_posted_before_their_qp_goes_are_sent() {
    const COUNT: u64 = 128;
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Ud), b.qp(QpType::Ud));
    let to_b = a.pd.create_ah(b.context.gid()).unwrap();
    for wr_id in 0..COUNT {
        qb.post_recv(wr_id, &[b.mr.slice(0..1000).unwrap()]).unwrap();
    }
    let mut batch = qa.send_batch();
    for wr_id in 0..COUNT {
        let farewell = SendRequest::send(wr_id, Payload::Inline(b"farewell")).unsignaled();
        batch.push(&farewell.to(&to_b, qb.qpn(), 0x1111_1111)).unwrap();
    }
    drop(batch);
    drop(qa);
    for wr_id in 0..COUNT {
        assert_eq!(b.wait().wr_id, wr_id);
    }
}

#[test]
fn messages_posted_before_their_connection_ends_are_sent() {
    // More than one batch takes.
    const COUNT: u64 = 128;
    let (_folder, a, b) = hosts();
    for is_destroyed in [false, true] {
        let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
        connect(&qa, &qb);
        for wr_id in 0..COUNT {
            qb.post_recv(wr_id, &[b.mr.slice(0..1000).unwrap()]).unwrap();
        }
        let mut batch = qa.send_batch();
        for wr_id in 0..COUNT {
            let farewell = SendRequest::send(wr_id, Payload::Inline(b"farewell")).unsignaled();
            batch.push(&farewell).unwrap();
        }
        drop(batch);
        if !is_destroyed {
            let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
            qa.modify(&attr, AttrMask::STATE).unwrap();
        }
        drop(qa);
        for wr_id in 0..COUNT {
            assert_eq!(b.wait().wr_id, wr_id);
        }
    }
}

/// A datagram from `from` to `qpn` at `to`, as a frame.
fn datagram(from: &Host, to: &Host, qpn: Qpn, payload: &[u8]) -> Vec<u8> {
    let address = |host: &Host| host.context.gid().ipv4().unwrap();
    let deth = Deth { qkey: 0x1111_1111, reserved: 0, src_qp: 0x77 };
    let headers = Headers {
        eth: Ethernet { dst: Mac([2; 6]), src: Mac([2; 6]), vlan: None },
        net: Net::V4(Ipv4 {
            src: address(from),
            dst: address(to),
            tos: 0,
            ident: 1,
            dont_fragment: true,
            ttl: 64,
        }),
        udp: Udp { source_port: 0xc000, checksum: 0 },
        bth: Bth {
            pad_count: pad_count(payload.len()),
            pkey: 0xffff,
            ..Bth::new(Opcode::UD_SEND_ONLY, qpn.0, Psn::new(9))
        },
        ext: Extensions { deth: Some(deth), ..Extensions::default() },
    };
    let mut frame = vec![0; 2048];
    let layout = headers.emit(payload.len(), &mut frame).unwrap();
    frame[layout.payload..][..payload.len()].copy_from_slice(payload);
    let len = seal(&mut frame, &layout, payload.len());
    frame.truncate(len);
    frame
}

#[test]
fn any_frame_goes_out_of_a_raw_packet_qp() {
    let (_folder, a, b) = hosts();
    let (raw, qb) = (a.qp(QpType::RawPacket), b.qp(QpType::Ud));
    qb.post_recv(1, &[b.mr.slice(0..1000).unwrap()]).unwrap();
    let forged = datagram(&a, &b, qb.qpn(), b"forged");
    let mut damaged = forged.clone();
    damaged[forged.len() - 1] ^= 1;
    let own = datagram(&a, &a, Qpn(0x1234), b"nobody");
    for (wr_id, frame) in (0..).zip([&[0xaa; 14][..], &[0xff; 60], &damaged, &own, &forged]) {
        raw.post_send(&SendRequest::send(wr_id, Payload::Inline(frame))).unwrap();
        assert_eq!((a.wait().wr_id), wr_id);
    }
    let wc = b.wait();
    assert_eq!((wc.wr_id, wc.src_qp), (1, Qpn(0x77)));
    assert_eq!(b.bytes(GRH_LEN, 6), b"forged");
    assert_eq!(b.context.counters().unwrap().discarded(Discard::BadIcrc), 1);
    assert_eq!(a.context.counters().unwrap().discarded(Discard::UnknownQp), 1);
    let refusal = raw.connect(&qb.endpoint(), &ConnectOptions::default());
    assert_eq!(refused(refusal).0, VerbsError::Invalid);
}

#[test]
fn qps_share_a_receive_queue_and_hear_when_it_runs_low() {
    let (_folder, a, b) = hosts();
    let srq = b.pd.create_srq(16, 1).unwrap();
    let options = QpOptions { srq: Some(&srq), ..QpOptions::new(QpType::Rc, &b.cq) };
    let theirs = [b.pd.create_qp(&options).unwrap(), b.pd.create_qp(&options).unwrap()];
    let ours = [a.qp(QpType::Rc), a.qp(QpType::Rc)];
    for (a, b) in ours.iter().zip(&theirs) {
        connect(a, b);
    }
    let mut batch = srq.recv_batch();
    for wr_id in 0..4 {
        let offset = wr_id * 100;
        batch.push(wr_id as u64, &[b.mr.slice(offset..offset + 100).unwrap()]).unwrap();
    }
    drop(batch);
    srq.arm_limit(3).unwrap();
    for qp in &ours {
        qp.post_send(&SendRequest::send(1, Payload::Inline(b"shared"))).unwrap();
        a.wait();
    }
    let mut from = [b.wait().qp_num, b.wait().qp_num];
    from.sort();
    assert_eq!(from, [theirs[0].qpn(), theirs[1].qpn()]);
    assert_eq!((b.bytes(0, 6), b.bytes(100, 6)), (b"shared".to_vec(), b"shared".to_vec()));
    let event = b.context.wait_event(LONG).unwrap();
    // The first message of each connection may tell that it is established.
    let expected = AsyncEvent { kind: EventKind::SrqLimitReached, subject: Subject::Srq(srq.id()) };
    let events = std::iter::once(event).chain(std::iter::from_fn(|| b.context.try_event()));
    assert!(events.into_iter().any(|event| event == expected));
    assert!(refused(theirs[0].post_recv(9, &[])).1.contains("receive queue of its own"));
}

#[test]
fn xrc_reaches_the_queue_it_names() {
    let (_folder, a, b) = hosts();
    let xrcd = b.context.open_xrcd().unwrap();
    let srqs = [1, 2].map(|_| b.pd.create_xrc_srq(4, 1, &xrcd, &b.cq).unwrap());
    let options = QpOptions { xrcd: Some(&xrcd), ..QpOptions::new(QpType::XrcRecv, &b.cq) };
    let (ini, tgt) = (a.qp(QpType::XrcSend), b.pd.create_qp(&options).unwrap());
    drop(xrcd);
    connect(&ini, &tgt);
    for (index, srq) in srqs.iter().enumerate() {
        let into = index * 100..index * 100 + 100;
        srq.post_recv(index as u64, &[b.mr.slice(into).unwrap()]).unwrap();
    }
    let send = SendRequest::send(7, Payload::Inline(b"second"));
    assert!(refused(ini.post_send(&send)).1.contains("needs a shared receive queue"));
    ini.post_send(&send.to_srq(srqs[1].number())).unwrap();
    assert_eq!((a.wait().wr_id, b.wait().wr_id), (7, 1));
    assert_eq!(b.bytes(100, 6), b"second");
    let write = SendRequest::write(8, Payload::Inline(b"first"), b.mr.remote());
    ini.post_send(&write.to_srq(srqs[0].number())).unwrap();
    assert_eq!(a.wait().wr_id, 8);
    assert_eq!(b.bytes(0, 5), b"first");
}

#[test]
fn a_wrong_key_fails_the_request_and_the_peer_hears_of_it() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let remote = RemoteRegion { rkey: b.mr.remote().rkey ^ 1, ..b.mr.remote() };
    qa.post_send(&SendRequest::write(1, Payload::Inline(b"no"), remote)).unwrap();
    qa.post_send(&SendRequest::write(2, Payload::Inline(b"no"), b.mr.remote())).unwrap();
    let failed = a.cq.wait(LONG).unwrap();
    assert_eq!((failed.wc.wr_id, failed.wc.status), (1, WcStatus::RemAccessErr));
    let error = failed.ok().unwrap_err();
    assert!(error.to_string().contains("not registered so"), "{error}");
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::WrFlushErr);
    assert_eq!(qa.query().unwrap().qp_state, QpState::Err);
    let expected = AsyncEvent { kind: EventKind::QpAccessErr, subject: Subject::Qp(qb.id()) };
    while b.context.wait_event(LONG).unwrap() != expected {}
    assert_eq!(b.bytes(0, 2), [0, 0]);
}

#[test]
fn dropped_memory_is_refused_and_never_touched() {
    let (_folder, a, b) = hosts();
    let region = Region::zeroed(4096).unwrap();
    let mr = b.pd.register(region, everything()).unwrap();
    let remote = mr.remote();
    let region = mr.deregister().unwrap();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    qa.post_send(&SendRequest::write(1, Payload::Inline(b"late"), remote)).unwrap();
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::RemAccessErr);
    let mut bytes = [0; 4];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);

    // And on this side: the slices are gone before the peer answers.
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let mr = a.pd.register_zeroed(4096, everything()).unwrap();
    qa.connect(&qb.endpoint(), &ConnectOptions::default()).unwrap();
    let read = [mr.slice(..).unwrap()];
    qa.post_send(&SendRequest::read(2, &read, b.mr.remote())).unwrap();
    drop(mr);
    qb.connect(&qa.endpoint(), &ConnectOptions::default()).unwrap();
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::LocProtErr);
}

#[test]
fn rights_of_the_region_count() {
    let (_folder, a, b) = hosts();
    let read_only = b.pd.register_zeroed(64, Access::REMOTE_READ).unwrap();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let into = [a.mr.slice(..64).unwrap()];
    qa.post_send(&SendRequest::read(1, &into, read_only.remote())).unwrap();
    assert_eq!(a.wait().wr_id, 1);
    qa.post_send(&SendRequest::write(2, &into, read_only.remote())).unwrap();
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::RemAccessErr);

    let private = a.pd.register_zeroed(64, Access::NONE).unwrap();
    assert_eq!(private.remote().rkey, 0);
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let into = [private.slice(..).unwrap()];
    qa.post_send(&SendRequest::read(3, &into, b.mr.remote())).unwrap();
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::LocProtErr);
    let refused = a.pd.register_zeroed(64, Access::REMOTE_WRITE).unwrap_err();
    assert!(refused.to_string().contains("LOCAL_WRITE"), "{refused}");
}

#[test]
fn what_cannot_be_posted_is_refused_in_words() {
    let (_folder, a, b) = hosts();
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 2, max_inline_data: 16, ..QpCap::default() };
    let options = QpOptions { cap, ..QpOptions::new(QpType::Rc, &a.cq) };
    let (qa, qb) = (a.pd.create_qp(&options).unwrap(), b.qp(QpType::Rc));
    let small = SendRequest::send(1, Payload::Inline(b"small"));
    assert!(refused(qa.post_send(&small)).1.contains("connect it first"));
    connect(&qa, &qb);
    let long = SendRequest::send(1, Payload::Inline(&[0; 17]));
    assert!(refused(qa.post_send(&long)).1.contains("17 inline bytes"));
    for count in [5, 33] {
        let slices = vec![a.mr.slice(..1).unwrap(); count];
        let many = SendRequest::send(1, &slices[..]);
        assert!(refused(qa.post_send(&many)).1.contains(&format!("{count} slices")));
        assert!(refused(qa.post_recv(1, &slices)).1.contains(&format!("{count} slices")));
    }
    let odd = [a.mr.slice(..7).unwrap()];
    let odd = SendRequest::fetch_add(1, &odd, b.mr.remote(), 1);
    assert!(refused(qa.post_send(&odd)).1.contains("atomics 8"));

    qa.post_recv(1, &[]).unwrap();
    qa.post_recv(2, &[]).unwrap();
    assert!(matches!(qa.post_recv(3, &[]), Err(Error::QueueFull { max_wr: 2, .. })));
    let mut batch = qa.send_batch();
    for _ in 0..4 {
        batch.push(&SendRequest::write(1, Payload::Inline(b"x"), b.mr.remote())).unwrap();
    }
    assert!(matches!(batch.push(&small), Err(Error::QueueFull { max_wr: 4, .. })));
    drop(batch);
    (0..4).for_each(|_| _ = a.wait());
    qb.post_recv(1, &[b.mr.slice(..16).unwrap()]).unwrap();
    qa.post_send(&small).unwrap();
}

#[test]
fn what_cannot_be_made_is_refused_in_words() {
    let (_folder, a, b) = hosts();
    let says =
        |outcome: Error, words: &str| assert!(outcome.to_string().contains(words), "{outcome}");
    says(a.context.create_cq(0).unwrap_err(), "cqe is 0, not 1 to");
    says(a.pd.create_srq(1 << 20, 1).unwrap_err(), "max_wr is 1048576, at most");
    says(a.pd.create_ah("::".parse::<std::net::Ipv6Addr>().unwrap().into()).unwrap_err(), "gid ::");
    let cap = QpCap { max_send_wr: 1 << 20, ..QpCap::default() };
    let options = QpOptions { cap, ..QpOptions::new(QpType::Rc, &a.cq) };
    says(a.pd.create_qp(&options).unwrap_err(), "max_send_wr: 1048576");
    says(a.pd.create_qp(&QpOptions::new(QpType::Gsi, &a.cq)).unwrap_err(), "Gsi with");
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let options = ConnectOptions { retry_cnt: 8, ..ConnectOptions::default() };
    says(qa.connect(&qb.endpoint(), &options).unwrap_err(), "retry_cnt is 8, at most 7");
    let out = RegionError::OutOfRange { offset: PAGES - 1, len: 2, region_len: PAGES };
    assert!(matches!(a.mr.slice(PAGES - 1..=PAGES), Err(Error::Memory(error)) if error == out));
    says(a.cq.wait(SHORT).unwrap_err(), "nothing happened for 30ms");
}

/// Two connected QPs with work under way in both directions, everything to be dropped one by one.
fn busy() -> (TempDir, Vec<Box<dyn std::any::Any>>) {
    let (folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let srq = b.pd.create_srq(8, 1).unwrap();
    srq.post_recv(1, &[b.mr.slice(..).unwrap()]).unwrap();
    let options = QpOptions { srq: Some(&srq), ..QpOptions::new(QpType::Rc, &b.cq) };
    let shared = b.pd.create_qp(&options).unwrap();
    let to_b = a.pd.create_ah(b.context.gid()).unwrap();
    let window = a.pd.alloc_window().unwrap();
    for (qp, own, peer) in [(&qa, &a, &b), (&qb, &b, &a)] {
        qp.post_recv(1, &[own.mr.slice(..).unwrap()]).unwrap();
        let (half, remote) = ([own.mr.slice(..PAGES / 2).unwrap()], peer.mr.remote());
        for wr_id in 0..20 {
            qp.post_send(&SendRequest::read(wr_id, &half, remote)).unwrap();
            qp.post_send(&SendRequest::write(wr_id, &half, remote)).unwrap();
        }
    }
    let Host { context, pd, cq, mr } = a;
    let mut objects: Vec<Box<dyn std::any::Any>> =
        vec![Box::new(context), Box::new(pd), Box::new(cq), Box::new(mr), Box::new(qa)];
    objects.extend([Box::new(to_b) as Box<dyn std::any::Any>, Box::new(window)]);
    let Host { context, pd, cq, mr } = b;
    objects.extend([Box::new(context) as Box<dyn std::any::Any>, Box::new(pd), Box::new(cq)]);
    objects.extend([Box::new(mr) as Box<dyn std::any::Any>, Box::new(qb), Box::new(srq)]);
    objects.push(Box::new(shared));
    (folder, objects)
}

#[test]
fn any_order_of_drops_is_safe() {
    for step in [1, 3, 5, 9, 11, 13] {
        let (folder, mut objects) = busy();
        let mut at = 0;
        while !objects.is_empty() {
            at = (at + step) % objects.len();
            drop(objects.swap_remove(at));
        }
        // Nothing of theirs is left: a new member has the fabric to itself.
        drop(Host::open(&folder, "192.0.2.1"));
    }
}

#[test]
fn events_never_name_what_is_gone() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let remote = RemoteRegion { rkey: 0, ..b.mr.remote() };
    qa.post_send(&SendRequest::write(1, Payload::Inline(b"no"), remote)).unwrap();
    assert_eq!(a.cq.wait(LONG).unwrap().wc.status, WcStatus::RemAccessErr);
    let gone = Subject::Qp(qb.id());
    drop(qb);
    while let Some(event) = b.context.try_event() {
        assert_ne!(event.subject, gone);
    }
}

#[test]
fn a_cq_wakes_its_sleeper() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    qb.post_recv(1, &[b.mr.slice(..64).unwrap()]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(b.wait().wr_id, 1));
        thread::sleep(SHORT);
        qa.post_send(&SendRequest::send(2, Payload::Inline(b"wake up"))).unwrap();
        a.wait();
    });
}

#[test]
fn an_event_loop_waits_for_the_descriptor_of_a_cq() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let is_readable = |timeout_ms: u16| {
        let mut fds = [PollFd::new(b.cq.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout_ms).unwrap() == 1
    };
    b.cq.arm(true);
    qb.post_recv(3, &[b.mr.slice(..64).unwrap()]).unwrap();
    qb.post_recv(4, &[b.mr.slice(..64).unwrap()]).unwrap();
    qa.post_send(&SendRequest::send(5, Payload::Inline(b"quietly"))).unwrap();
    a.wait();
    assert!(!is_readable(30));
    qa.post_send(&SendRequest::send(6, Payload::Inline(b"loudly")).solicited()).unwrap();
    assert!(is_readable(20_000));
    assert_eq!(b.cq.clear(), 1);
    assert_eq!((b.wait().wr_id, b.wait().wr_id), (3, 4));
}

#[test]
fn threads_share_objects() {
    const EACH: u64 = 500;
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    let counter = b.mr.remote().slice(..8).unwrap();
    thread::scope(|scope| {
        for lane in 0..3 {
            let (qa, a) = (&qa, &a);
            scope.spawn(move || {
                let before = [a.mr.slice(lane * 8..lane * 8 + 8).unwrap()];
                for wr_id in 0..EACH {
                    qa.post_send(&SendRequest::fetch_add(wr_id, &before, counter, 1)).unwrap();
                    // Any of the three: there are as many completions as waiters.
                    a.cq.wait(LONG).unwrap().ok().unwrap();
                }
            });
        }
    });
    assert_eq!(b.mr.load_u64(0).unwrap(), 3 * EACH);
}

#[test]
fn all_who_wait_get_one_each() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    for round in 0..50 {
        for wr_id in 0..3 {
            qb.post_recv(wr_id, &[b.mr.slice(..64).unwrap()]).unwrap();
        }
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| b.wait());
            }
            // Sometimes all sleep, sometimes none.
            thread::sleep(Duration::from_micros(round * 20));
            let mut batch = qa.send_batch();
            for wr_id in 0..3 {
                let send = SendRequest::send(wr_id, Payload::Inline(b"one each"));
                batch.push(&send.unsignaled()).unwrap();
            }
            batch.push(&SendRequest::write(9, Payload::Inline(b""), b.mr.remote())).unwrap();
            drop(batch);
            a.wait();
        });
    }
}

#[test]
fn a_peer_that_dies_is_given_up() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    // Given up soon, but not while a busy machine has no time for it.
    let options = ConnectOptions { timeout: 13, retry_cnt: 5, ..ConnectOptions::default() };
    qa.connect(&qb.endpoint(), &options).unwrap();
    qb.connect(&qa.endpoint(), &options).unwrap();
    let remote = b.mr.remote();
    qa.post_send(&SendRequest::write(1, Payload::Inline(b"alive"), remote)).unwrap();
    a.wait();
    drop((qb, b));
    qa.post_send(&SendRequest::write(2, Payload::Inline(b"dead"), remote)).unwrap();
    let failed = a.cq.wait(LONG).unwrap();
    assert_eq!((failed.wc.wr_id, failed.wc.status), (2, WcStatus::RetryExcErr));
}

#[test]
fn the_error_state_flushes_receives_and_tells_of_the_last() {
    let (_folder, a, _b) = hosts();
    let srq = a.pd.create_srq(4, 1).unwrap();
    let options = QpOptions { srq: Some(&srq), ..QpOptions::new(QpType::Rc, &a.cq) };
    let (own, shared) = (a.qp(QpType::Rc), a.pd.create_qp(&options).unwrap());
    connect(&own, &shared);
    own.post_recv(1, &[]).unwrap();
    let error = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    for qp in [&own, &shared] {
        qp.modify(&error, AttrMask::STATE).unwrap();
    }
    let flushed = a.cq.wait(LONG).unwrap().wc;
    assert_eq!((flushed.wr_id, flushed.status), (1, WcStatus::WrFlushErr));
    let last = AsyncEvent { kind: EventKind::QpLastWqeReached, subject: Subject::Qp(shared.id()) };
    while a.context.wait_event(LONG).unwrap() != last {}
}

#[test]
fn a_passive_peer_is_read_while_its_program_sleeps() {
    let (_folder, a, b) = hosts();
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect(&qa, &qb);
    b.mr.write_at(0, &pattern(PAGES)).unwrap();
    let b = Arc::new(b);
    let sleeper = thread::spawn({
        let b = b.clone();
        move || {
            thread::park();
            b.context.name().to_owned()
        }
    });
    for chunk in 0..4 {
        let range = chunk * 1000..(chunk + 1) * 1000;
        let into = [a.mr.slice(range.clone()).unwrap()];
        let from = b.mr.remote().slice(range).unwrap();
        qa.post_send(&SendRequest::read(chunk as u64, &into, from)).unwrap();
        a.wait();
    }
    assert!(a.bytes(0, 4000) == pattern(4000));
    sleeper.thread().unpark();
    assert_eq!(sleeper.join().unwrap(), "ferroce0");
    assert!(a.context.counters().unwrap().rcvd_pkts > 0);
    assert!(a.context.query_port().unwrap().active);
}
