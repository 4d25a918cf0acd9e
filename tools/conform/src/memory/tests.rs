use std::time::Duration;

use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{
    Aeth, Bth, Ethernet, Extensions, Headers, Ipv4, Net, Opcode, Packet, Reth, Syndrome, Udp, seal,
};

use super::*;
use crate::target::{QpAttributes, QpMake, SendOperation, SendRequest, Span};

const ALL_ACCESS: u32 = 0xf;

fn attributes() -> QpAttributes {
    QpAttributes {
        path_mtu: 1024,
        dest_qp_num: 0x55,
        rq_psn: 0x100,
        sq_psn: 0x800,
        access: ALL_ACCESS,
        qkey: 0x1111_1111,
        timeout: 14,
        retry_cnt: 1,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        sl: 0,
        change: Vec::new(),
    }
}

fn make(service: &str) -> Call {
    Call::CreateQp(Box::new(QpMake {
        qp: String::from("a"),
        service: String::from(service),
        pd: String::from("pd"),
        srq: None,
        send_cq: None,
        recv_cq: None,
        xrcd: None,
        max_send_wr: 64,
        max_recv_wr: 64,
        max_inline: 64,
        signal_all: false,
        state: String::from("RTS"),
        attributes: attributes(),
    }))
}

/// A target with a memory `m` and a QP `a` in RTS; address and key of the memory, and the QPN.
fn target(network: Network) -> (MemoryTarget, u64, u32, u32) {
    let mut target = MemoryTarget::new(network);
    target.begin().unwrap();
    let register = Call::RegMr {
        memory: String::from("m"),
        pd: String::from("pd"),
        length: 4096,
        iova: None,
        access: ALL_ACCESS,
        holds: vec![7; 16],
    };
    let Reply::Memory { address, rkey, .. } = target.call(&register).unwrap() else { panic!() };
    let Reply::Qp { qpn } = target.call(&make("rc")).unwrap() else { panic!() };
    for state in ["INIT", "RTR", "RTS"] {
        assert_eq!(move_to(&mut target, state), Reply::Done, "{state}");
    }
    (target, address, rkey, qpn)
}

fn move_to(target: &mut MemoryTarget, state: &str) -> Reply {
    let (qp, state) = (String::from("a"), String::from(state));
    target.call(&Call::ModifyQp { qp, state, attributes: attributes() }).unwrap()
}

fn from_peer(qpn: u32, opcode: Opcode, psn: u32, ext: Extensions, payload: &[u8]) -> Vec<u8> {
    let headers = Headers {
        eth: Ethernet { dst: Mac([2, 0, 0, 0, 0, 1]), src: Mac([2, 0, 0, 0, 0, 2]), vlan: None },
        net: Net::V4(Ipv4 {
            src: Ipv4Addr::new(10, 0, 0, 2),
            dst: Ipv4Addr::new(10, 0, 0, 1),
            tos: 0,
            ident: 0,
            dont_fragment: true,
            ttl: 64,
        }),
        udp: Udp { source_port: 0xc001, checksum: 0 },
        bth: Bth { ack_req: true, ..Bth::new(opcode, qpn, Psn::new(psn)) },
        ext,
    };
    let mut frame = vec![0; 2048];
    let layout = headers.emit(payload.len(), &mut frame).unwrap();
    frame[layout.payload..layout.payload + payload.len()].copy_from_slice(payload);
    let len = seal(&mut frame, &layout, payload.len());
    frame.truncate(len);
    frame
}

fn opcode(observation: Option<Observation>) -> (Duration, Opcode, u32) {
    let Some(Observation::Frame { at, bytes }) = observation else { panic!("{observation:?}") };
    let bth = Packet::parse(&bytes).unwrap().headers.bth;
    (at, bth.opcode, bth.psn.value())
}

fn write(address: u64) -> Call {
    let wr = SendRequest {
        wr_id: 1,
        op: SendOperation::Write { address, key: 0x77 },
        sges: vec![Span { memory: String::from("m"), offset: 0, length: 16, lkey: None }],
        flags: 2,
        datagram: None,
        srqn: None,
    };
    Call::PostSend { qp: String::from("a"), wr: Box::new(wr) }
}

#[test]
fn a_write_of_the_peer_is_answered_and_seen_in_memory() {
    let (mut target, va, rkey, qpn) = target(Network::Ipv4);
    let reth = Some(Reth { va: va + 8, rkey, dma_len: 4 });
    let ext = Extensions { reth, ..Extensions::default() };
    target.inject(&from_peer(qpn, Opcode::RC_WRITE_ONLY, 0x100, ext, &[1, 2, 3, 4])).unwrap();
    let answer = opcode(target.observe(Duration::from_millis(1)).unwrap());
    assert_eq!(answer, (Duration::ZERO, Opcode::RC_ACKNOWLEDGE, 0x100));
    let read = Call::ReadMemory { memory: String::from("m"), offset: 6, length: 7 };
    let bytes = vec![7, 7, 1, 2, 3, 4, 7];
    assert_eq!(target.call(&read).unwrap(), Reply::Bytes { bytes });
    assert_eq!(target.observe(Duration::from_secs(1)).unwrap(), None);
    assert_eq!(target.now(), Duration::from_secs(1));
}

#[test]
fn a_write_of_the_target_is_resent_when_its_timer_runs_out_and_completes() {
    let (mut target, .., qpn) = target(Network::Ipv4);
    assert_eq!(target.call(&write(0x9000)).unwrap(), Reply::Done);
    let far = Duration::from_secs(10);
    let first = opcode(target.observe(far).unwrap());
    assert_eq!(first, (Duration::ZERO, Opcode::RC_WRITE_ONLY, 0x800));
    let (at, ..) = opcode(target.observe(far).unwrap());
    assert_eq!(at, Duration::from_nanos(4096 << 14));
    let aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    let ext = Extensions { aeth, ..Extensions::default() };
    target.inject(&from_peer(qpn, Opcode::RC_ACKNOWLEDGE, 0x800, ext, &[])).unwrap();
    let Some(Observation::Completion(done)) = target.observe(far).unwrap() else { panic!() };
    assert_eq!((done.qp.as_str(), done.wr_id, done.status.as_str()), ("a", 1, "success"));
    assert_eq!(done.opcode, "write");
}

#[test]
fn the_same_calls_give_the_same_frames_after_begin() {
    let frames = |target: &mut MemoryTarget| {
        target.call(&write(1)).unwrap();
        let mut seen = Vec::new();
        while let Some(observation) = target.observe(Duration::from_secs(1)).unwrap() {
            seen.push(observation);
        }
        seen
    };
    for network in Network::ALL {
        let (mut first, ..) = target(network);
        let (mut second, ..) = target(network);
        let seen = frames(&mut first);
        assert_eq!(seen, frames(&mut second));
        assert!(seen.len() > 2, "{seen:?}");
    }
}

#[test]
fn what_the_device_refuses_is_a_reply() {
    let (mut target, ..) = target(Network::Ipv4);
    let refused = |errno: &str| Reply::Refused { errno: String::from(errno) };
    assert_eq!(move_to(&mut target, "INIT"), refused("EINVAL"));
    assert_eq!(target.call(&Call::QueryQp { qp: String::from("b") }).unwrap(), refused("EINVAL"));
    assert_eq!(target.call(&make("srd")).unwrap(), refused("EINVAL"));
    let name = String::from("bad_icrc");
    assert_eq!(target.call(&Call::Counter { name }).unwrap(), Reply::Counter { value: Some(0) });
    let name = String::from("speed");
    assert_eq!(target.call(&Call::Counter { name }).unwrap(), Reply::Counter { value: None });
    assert_eq!(move_to(&mut target, "ERR"), Reply::Done);
    let state = target.call(&Call::QueryQp { qp: String::from("a") }).unwrap();
    assert_eq!(state, Reply::State { state: String::from("ERR") });
}
