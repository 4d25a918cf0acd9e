//! Every reason for which a responder refuses a request (IBA 9.7.5.2, 9.9.3), by packets of a
//! scripted peer, on RC and on an XRC target: which NAK, for which PSN, and who is told.

use ferroce_stack::MrInit;
use ferroce_stack::verbs::{Access, EventKind, QpAttr, QpState, QpType, Remote, WcStatus};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{Builder, EPSN, Expected, Scripted, expect_packets, packet, statuses};

const SERVICES: [QpType; 2] = [QpType::Rc, QpType::XrcRecv];
const INVALID: u8 = 0x61;
const ACCESS: u8 = 0x62;
const OPERATIONAL: u8 = 0x63;
const RNR: u8 = 0x20 | 12;

/// What a refusal looks like.
struct Refusal {
    psn: u32,
    syndrome: u8,
    /// Status of receive 11, if the message holds it.
    held: Option<WcStatus>,
    /// Else the event.
    event: Option<EventKind>,
}

fn refused(psn: u32, syndrome: u8) -> Refusal {
    let event = match syndrome {
        INVALID => EventKind::QpReqErr,
        ACCESS => EventKind::QpAccessErr,
        _ => EventKind::QpFatal,
    };
    Refusal { psn, syndrome, held: None, event: Some(event) }
}

fn refused_holding(psn: u32, syndrome: u8, held: WcStatus) -> Refusal {
    Refusal { psn, syndrome, held: Some(held), event: None }
}

/// A connection whose QP allows everything, with no receive posted.
fn connection(qp_type: QpType) -> Scripted {
    Scripted::new(qp_type)
}

fn acknowledge(scripted: &Scripted) -> Opcode {
    scripted.request(Opcode::RC_ACKNOWLEDGE, 0).headers.bth.opcode
}

/// The last of `packets` is refused; those before are taken.
#[track_caller]
fn check(name: &str, scripted: &mut Scripted, packets: &[Builder], refusal: &Refusal) {
    let before = scripted.node.device.memory().bytes(BASE, 64).to_vec();
    for packet in packets {
        scripted.deliver(packet);
    }
    let nak = packet(acknowledge(scripted)).psn(refusal.psn).syndrome(refusal.syndrome).msn(0);
    expect_packets(name, &scripted.frames(), &[nak.dest_qp(0x55)]);
    assert_eq!(scripted.state(), QpState::Err, "{name}");
    let received = scripted.node.received();
    let held: Vec<_> = statuses(&received)
        .into_iter()
        .filter(|&(_, status)| status != WcStatus::WrFlushErr)
        .collect();
    let expected = Vec::from_iter(refusal.held.map(|status| (11, status)));
    assert_eq!(held, expected, "{name}: receives");
    let mut events = scripted.events();
    events.retain(|&kind| kind != EventKind::QpLastWqeReached);
    assert_eq!(events, Vec::from_iter(refusal.event), "{name}: events");
    assert_eq!(scripted.node.device.memory().bytes(BASE, 64), before, "{name}: memory");
    // After a fatal NAK the QP is silent.
    let next = scripted.request(Opcode::RC_SEND_ONLY, refusal.psn).ack_req();
    assert!(scripted.send(&next).is_err(), "{name}: a QP in ERR takes nothing");
    assert!(scripted.frames().is_empty(), "{name}: a QP in ERR says nothing");
}

/// A request with the headers its opcode has, legal by itself.
fn legal(scripted: &Scripted, rc_opcode: Opcode, psn: u32) -> Builder {
    let remote = Remote { addr: BASE + 4096, ..scripted.node.remote(0) };
    let request = scripted.request(rc_opcode, psn);
    match rc_opcode {
        Opcode::RC_SEND_FIRST | Opcode::RC_SEND_MIDDLE | Opcode::RC_WRITE_MIDDLE => {
            request.fill(1, 1024)
        }
        Opcode::RC_SEND_LAST_IMM | Opcode::RC_WRITE_LAST_IMM => request.imm([1; 4]).fill(1, 8),
        Opcode::RC_SEND_ONLY_IMM => request.imm([1; 4]).fill(1, 8),
        Opcode::RC_SEND_LAST_INV | Opcode::RC_SEND_ONLY_INV => request.ieth(5).fill(1, 8),
        Opcode::RC_WRITE_FIRST => request.reth(remote, 3000).fill(1, 1024),
        Opcode::RC_WRITE_ONLY => request.reth(remote, 8).fill(1, 8),
        Opcode::RC_WRITE_ONLY_IMM => request.reth(remote, 8).imm([1; 4]).fill(1, 8),
        Opcode::RC_READ_REQUEST => request.reth(remote, 8),
        Opcode::RC_CMP_SWAP | Opcode::RC_FETCH_ADD => request.atomic(remote, 1, 0),
        Opcode::RC_FLUSH => request.feth(0, 1).reth(remote, 8),
        Opcode::RC_ATOMIC_WRITE => request.reth(remote, 8).fill(1, 8),
        _ => request.fill(1, 8),
    }
}

const BEGINNERS: [Opcode; 12] = [
    Opcode::RC_SEND_FIRST,
    Opcode::RC_SEND_ONLY,
    Opcode::RC_SEND_ONLY_IMM,
    Opcode::RC_SEND_ONLY_INV,
    Opcode::RC_WRITE_FIRST,
    Opcode::RC_WRITE_ONLY,
    Opcode::RC_WRITE_ONLY_IMM,
    Opcode::RC_READ_REQUEST,
    Opcode::RC_CMP_SWAP,
    Opcode::RC_FETCH_ADD,
    Opcode::RC_FLUSH,
    Opcode::RC_ATOMIC_WRITE,
];
const OF_SEND: [Opcode; 4] = [
    Opcode::RC_SEND_MIDDLE,
    Opcode::RC_SEND_LAST,
    Opcode::RC_SEND_LAST_IMM,
    Opcode::RC_SEND_LAST_INV,
];
const OF_WRITE: [Opcode; 3] =
    [Opcode::RC_WRITE_MIDDLE, Opcode::RC_WRITE_LAST, Opcode::RC_WRITE_LAST_IMM];

#[test]
fn what_continues_no_message_is_refused() {
    for qp_type in SERVICES {
        for opcode in OF_SEND.into_iter().chain(OF_WRITE) {
            let mut scripted = connection(qp_type);
            scripted.post_recv(11, 8192, 4096);
            let lone = legal(&scripted, opcode, EPSN);
            check(opcode.name(), &mut scripted, &[lone], &refused(EPSN, INVALID));
        }
    }
}

#[test]
fn what_interrupts_a_send_is_refused() {
    for qp_type in SERVICES {
        for opcode in BEGINNERS.into_iter().chain(OF_WRITE) {
            let mut scripted = connection(qp_type);
            scripted.post_recv(11, 8192, 4096);
            scripted.post_recv(12, 8192, 4096);
            let packets =
                [legal(&scripted, Opcode::RC_SEND_FIRST, EPSN), legal(&scripted, opcode, EPSN + 1)];
            let refusal = refused_holding(EPSN + 1, INVALID, WcStatus::RemInvReqErr);
            check(opcode.name(), &mut scripted, &packets, &refusal);
        }
    }
}

#[test]
fn what_interrupts_a_write_is_refused() {
    for qp_type in SERVICES {
        for opcode in BEGINNERS.into_iter().chain(OF_SEND) {
            let mut scripted = connection(qp_type);
            scripted.post_recv(11, 8192, 4096);
            let packets = [
                legal(&scripted, Opcode::RC_WRITE_FIRST, EPSN),
                legal(&scripted, opcode, EPSN + 1),
            ];
            check(opcode.name(), &mut scripted, &packets, &refused(EPSN + 1, INVALID));
        }
    }
}

#[test]
fn a_class_of_operation_that_is_not_enabled_is_refused() {
    let table = [
        (Opcode::RC_WRITE_FIRST, Access::REMOTE_WRITE),
        (Opcode::RC_WRITE_ONLY, Access::REMOTE_WRITE),
        (Opcode::RC_READ_REQUEST, Access::REMOTE_READ),
        (Opcode::RC_CMP_SWAP, Access::REMOTE_ATOMIC),
        (Opcode::RC_FETCH_ADD, Access::REMOTE_ATOMIC),
        (Opcode::RC_FLUSH, Access::FLUSH_GLOBAL),
        (Opcode::RC_ATOMIC_WRITE, Access::REMOTE_WRITE),
    ];
    for qp_type in SERVICES {
        for (opcode, needed) in table {
            let without = |attr: &mut QpAttr| {
                attr.qp_access_flags = Access::REMOTE.without(needed);
            };
            let mut scripted = Scripted::with(qp_type, without, |_, _| {});
            let request = legal(&scripted, opcode, EPSN);
            check(opcode.name(), &mut scripted, &[request], &refused(EPSN, INVALID));
        }
    }
}

#[test]
fn no_responder_resources_refuse_reads_and_atomics() {
    for qp_type in SERVICES {
        for opcode in [Opcode::RC_READ_REQUEST, Opcode::RC_CMP_SWAP, Opcode::RC_FETCH_ADD] {
            let none = |attr: &mut QpAttr| attr.max_dest_rd_atomic = 0;
            let mut scripted = Scripted::with(qp_type, none, |_, _| {});
            let request = legal(&scripted, opcode, EPSN);
            check(opcode.name(), &mut scripted, &[request], &refused(EPSN, INVALID));
        }
    }
}

/// An empty receive queue: RNR NAK, nothing else changes, and the packet is taken once it comes
/// again.
#[test]
fn no_receive_is_answered_by_an_rnr_nak() {
    let beginners = [
        Opcode::RC_SEND_FIRST,
        Opcode::RC_SEND_ONLY,
        Opcode::RC_SEND_ONLY_IMM,
        Opcode::RC_WRITE_ONLY_IMM,
    ];
    for qp_type in SERVICES {
        for opcode in beginners {
            let name = format!("{} on {qp_type:?}", opcode.name());
            let mut scripted = connection(qp_type);
            let request = legal(&scripted, opcode, EPSN).ack_req();
            let ack = packet(acknowledge(&scripted)).psn(EPSN);
            scripted.deliver(&request);
            let rnr = [ack.clone().syndrome(RNR).msn(0)];
            expect_packets(&name, &scripted.frames(), &rnr);
            assert_eq!(scripted.state(), QpState::Rts, "{name}");
            assert!(scripted.events().is_empty(), "{name}");
            let untouched = [0; 8];
            assert_eq!(scripted.node.device.memory().bytes(BASE + 4096, 8), untouched, "{name}");
            // What is ahead is dropped without a NAK: the requester knows where to resume.
            let ahead = legal(&scripted, Opcode::RC_WRITE_ONLY, EPSN + 1).ack_req();
            assert!(scripted.send(&ahead).is_err(), "{name}: ahead of an RNR NAK");
            assert!(scripted.frames().is_empty(), "{name}: ahead of an RNR NAK");
            scripted.post_recv(11, 8192, 4096);
            scripted.deliver(&request);
            expect_packets(&name, &scripted.frames(), &[ack.syndrome(0x1f)]);
        }
    }
}

/// The last packet of a WRITE with immediate needs the receive, the packets before do not.
#[test]
fn a_write_with_immediate_needs_its_receive_at_the_end() {
    for qp_type in SERVICES {
        let mut scripted = connection(qp_type);
        let remote = scripted.node.remote(0);
        let first = scripted.request(Opcode::RC_WRITE_FIRST, EPSN).reth(remote, 1032);
        scripted.deliver(&first.fill(1, 1024));
        let last = scripted.request(Opcode::RC_WRITE_LAST_IMM, EPSN + 1).imm([9; 4]);
        let last = last.fill(2, 8).ack_req();
        scripted.deliver(&last);
        let ack = packet(acknowledge(&scripted)).psn(EPSN + 1);
        expect_packets("RNR", &scripted.frames(), &[ack.clone().syndrome(RNR).msn(0)]);
        assert_eq!(scripted.node.device.memory().bytes(BASE, 1024), [1; 1024]);
        scripted.post_recv(11, 8192, 0);
        scripted.deliver(&last);
        expect_packets("resumed", &scripted.frames(), &[ack.syndrome(0x1f).msn(1)]);
        assert_eq!(scripted.node.device.memory().bytes(BASE + 1024, 8), [2; 8]);
        let received = scripted.node.received();
        assert_eq!(statuses(&received), [(11, WcStatus::Success)]);
        assert_eq!((received[0].byte_len, received[0].imm_data), (1032, Some([9; 4])));
    }
}

/// P17: payload against position and path MTU, and the sum against DMALen.
#[test]
fn payload_lengths_are_checked() {
    type Case = (&'static str, &'static [(Opcode, usize)], u32);
    const FIRST: Opcode = Opcode::RC_WRITE_FIRST;
    const MIDDLE: Opcode = Opcode::RC_WRITE_MIDDLE;
    const LAST: Opcode = Opcode::RC_WRITE_LAST;
    const ONLY: Opcode = Opcode::RC_WRITE_ONLY;
    // Packets with their payload, the last of them wrong; DMALen of WRITEs.
    let table: &[Case] = &[
        ("SEND First short", &[(Opcode::RC_SEND_FIRST, 1020)], 0),
        ("SEND First long", &[(Opcode::RC_SEND_FIRST, 1028)], 0),
        ("SEND Middle short", &[(Opcode::RC_SEND_FIRST, 1024), (Opcode::RC_SEND_MIDDLE, 1020)], 0),
        ("SEND Middle long", &[(Opcode::RC_SEND_FIRST, 1024), (Opcode::RC_SEND_MIDDLE, 1025)], 0),
        ("SEND Last empty", &[(Opcode::RC_SEND_FIRST, 1024), (Opcode::RC_SEND_LAST, 0)], 0),
        ("SEND Last long", &[(Opcode::RC_SEND_FIRST, 1024), (Opcode::RC_SEND_LAST, 1025)], 0),
        ("SEND Only long", &[(Opcode::RC_SEND_ONLY, 1025)], 0),
        ("WRITE First short", &[(FIRST, 1020)], 3000),
        ("WRITE First long", &[(FIRST, 1028)], 3000),
        ("WRITE First is all", &[(FIRST, 1024)], 1024),
        ("WRITE First beyond DMALen", &[(FIRST, 1024)], 100),
        ("WRITE First beyond 2^31", &[(FIRST, 1024)], (1 << 31) + 1),
        ("WRITE Middle short", &[(FIRST, 1024), (MIDDLE, 1020)], 3000),
        ("WRITE Middle is the end", &[(FIRST, 1024), (MIDDLE, 1024)], 2048),
        ("WRITE Middle beyond the end", &[(FIRST, 1024), (MIDDLE, 1024)], 2000),
        ("WRITE Last empty", &[(FIRST, 1024), (LAST, 0)], 1032),
        ("WRITE Last one short", &[(FIRST, 1024), (LAST, 7)], 1032),
        ("WRITE Last one long", &[(FIRST, 1024), (LAST, 9)], 1032),
        ("WRITE Last one packet short", &[(FIRST, 1024), (LAST, 8)], 2056),
        ("WRITE Last long", &[(FIRST, 1024), (LAST, 1025)], 2049),
        ("WRITE Only long", &[(ONLY, 1025)], 1025),
        ("WRITE Only short of DMALen", &[(ONLY, 8)], 9),
        ("WRITE Only beyond DMALen", &[(ONLY, 8)], 7),
        ("WRITE Only of nothing for something", &[(ONLY, 0)], 8),
    ];
    for qp_type in SERVICES {
        for (name, packets, dma_len) in table {
            let mut scripted = connection(qp_type);
            scripted.post_recv(11, 1 << 20, 1 << 16);
            let remote = Remote { addr: BASE + 4096, ..scripted.node.remote(0) };
            let packets: Vec<Builder> = packets
                .iter()
                .zip(EPSN..)
                .map(|(&(opcode, len), psn)| {
                    let request = scripted.request(opcode, psn).fill(1, len);
                    let has_reth = matches!(opcode, FIRST | ONLY);
                    if has_reth { request.reth(remote, *dma_len) } else { request }
                })
                .collect();
            let psn = EPSN + packets.len() as u32 - 1;
            let refusal = match *dma_len {
                0 => refused_holding(psn, INVALID, WcStatus::RemInvReqErr),
                _ => refused(psn, INVALID),
            };
            check(name, &mut scripted, &packets, &refusal);
        }
    }
}

/// Requests without payload that carry some, and ATOMIC WRITEs that are not of 8 bytes.
#[test]
fn lengths_of_reads_and_atomics_are_checked() {
    for qp_type in SERVICES {
        let build = connection(qp_type);
        let remote = Remote { addr: BASE + 4096, ..build.node.remote(0) };
        let write = |len| build.request(Opcode::RC_ATOMIC_WRITE, EPSN).fill(1, len);
        let table = [
            ("READ with payload", legal(&build, Opcode::RC_READ_REQUEST, EPSN).fill(1, 4)),
            ("READ beyond 2^31", {
                build.request(Opcode::RC_READ_REQUEST, EPSN).reth(remote, (1 << 31) + 1)
            }),
            ("CmpSwap with payload", legal(&build, Opcode::RC_CMP_SWAP, EPSN).fill(1, 4)),
            ("FetchAdd with payload", legal(&build, Opcode::RC_FETCH_ADD, EPSN).fill(1, 8)),
            ("FLUSH with payload", legal(&build, Opcode::RC_FLUSH, EPSN).fill(1, 4)),
            ("ATOMIC WRITE of 4 bytes", write(4).reth(remote, 8)),
            ("ATOMIC WRITE of 12 bytes", write(12).reth(remote, 8)),
            ("ATOMIC WRITE with DMALen 4", write(8).reth(remote, 4)),
        ];
        for (name, request) in table {
            let mut scripted = connection(qp_type);
            check(name, &mut scripted, &[request], &refused(EPSN, INVALID));
        }
    }
}

#[test]
fn a_send_longer_than_the_receive_is_refused_where_it_no_longer_fits() {
    let table: [(u32, &[(Opcode, usize)]); 4] = [
        (7, &[(Opcode::RC_SEND_ONLY, 8)]),
        (1000, &[(Opcode::RC_SEND_FIRST, 1024)]),
        (2000, &[(Opcode::RC_SEND_FIRST, 1024), (Opcode::RC_SEND_MIDDLE, 1024)]),
        (1030, &[(Opcode::RC_SEND_FIRST, 1024), (Opcode::RC_SEND_LAST, 7)]),
    ];
    for qp_type in SERVICES {
        for (room, packets) in table {
            let mut scripted = connection(qp_type);
            scripted.post_recv(11, 8192, room);
            let packets: Vec<Builder> = packets
                .iter()
                .zip(EPSN..)
                .map(|(&(opcode, len), psn)| scripted.request(opcode, psn).fill(1, len))
                .collect();
            let psn = EPSN + packets.len() as u32 - 1;
            let refusal = refused_holding(psn, INVALID, WcStatus::LocLenErr);
            check(&format!("{room} bytes"), &mut scripted, &packets, &refusal);
        }
    }
}

#[test]
fn a_misaligned_atomic_is_refused() {
    for qp_type in SERVICES {
        for offset in 1..8 {
            let build = connection(qp_type);
            let remote = build.node.remote(offset);
            let table = [
                build.request(Opcode::RC_CMP_SWAP, EPSN).atomic(remote, 1, 0),
                build.request(Opcode::RC_FETCH_ADD, EPSN).atomic(remote, 1, 0),
                build.request(Opcode::RC_ATOMIC_WRITE, EPSN).reth(remote, 8).fill(1, 8),
            ];
            for request in table {
                let name = format!("{} at +{offset}", request.headers.bth.opcode.name());
                check(&name, &mut connection(qp_type), &[request], &refused(EPSN, INVALID));
            }
        }
    }
}

/// The address on the wire counts, however the memory behind it lies.
#[test]
fn an_atomic_misaligned_on_the_wire_is_refused_on_aligned_memory() {
    let mut scripted = connection(QpType::Rc);
    let access = Access::REMOTE_ATOMIC | Access::LOCAL_WRITE;
    let init = MrInit { addr: BASE, length: 64, iova: BASE + 4, access };
    let rkey = scripted.node.device.reg_mr(scripted.node.pd, &init).unwrap().rkey;
    let remote = Remote { addr: BASE + 4, rkey };
    let request = scripted.request(Opcode::RC_FETCH_ADD, EPSN).atomic(remote, 1, 0);
    check("iova off by 4", &mut scripted, &[request], &refused(EPSN, INVALID));
}

#[test]
fn a_bad_receive_entry_is_an_operational_error() {
    for qp_type in SERVICES {
        let mut scripted = connection(qp_type);
        let outside = scripted.node.device.memory().size();
        scripted.post_recv(11, outside - 4, 8);
        let send = scripted.request(Opcode::RC_SEND_ONLY, EPSN).fill(1, 8);
        let refusal = refused_holding(EPSN, OPERATIONAL, WcStatus::LocProtErr);
        check("SGE beyond the region", &mut scripted, &[send], &refusal);
    }
}

#[test]
fn memory_that_faults_is_an_operational_error() {
    for qp_type in SERVICES {
        for opcode in
            [Opcode::RC_WRITE_ONLY, Opcode::RC_FETCH_ADD, Opcode::RC_ATOMIC_WRITE, Opcode::RC_FLUSH]
        {
            let mut scripted = connection(qp_type);
            scripted.node.device.memory_mut().faulty = BASE + 4096..BASE + 4104;
            let request = legal(&scripted, opcode, EPSN);
            check(opcode.name(), &mut scripted, &[request], &refused(EPSN, OPERATIONAL));
        }
    }
}

/// Class J: no NAK is owed when an invalidation fails; the receive and the QP fail.
#[test]
fn a_failed_invalidation_fails_the_receive_without_a_nak() {
    for opcode in [Opcode::RC_SEND_ONLY_INV, Opcode::RC_SEND_LAST_INV] {
        let mut scripted = Scripted::rc();
        scripted.post_recv(11, 0, 4096);
        let mut psn = EPSN;
        if opcode == Opcode::RC_SEND_LAST_INV {
            scripted.deliver(&legal(&scripted, Opcode::RC_SEND_FIRST, psn));
            psn += 1;
        }
        scripted.deliver(&legal(&scripted, opcode, psn));
        assert_eq!(statuses(&scripted.node.received()), [(11, WcStatus::RemInvReqErr)]);
        assert_eq!(scripted.state(), QpState::Err);
        assert!(scripted.frames().is_empty());
    }
}

/// A reserved opcode of the service: ignored, or refused as invalid; never anything else.
#[test]
fn a_reserved_opcode_is_refused_or_ignored() {
    for low in [0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f] {
        let mut scripted = Scripted::rc();
        let outcome = scripted.send(&scripted.packet(Opcode(low), EPSN).fill(1, 44).ack_req());
        let frames = scripted.frames();
        match outcome {
            Ok(()) => {
                let nak = [Expected::nak(EPSN, INVALID)];
                expect_packets(format!("opcode {low:#x}"), &frames, &nak);
                assert_eq!(scripted.state(), QpState::Err, "opcode {low:#x}");
            }
            Err(_) => {
                assert!(frames.is_empty(), "opcode {low:#x}");
                assert_eq!(scripted.state(), QpState::Rts, "opcode {low:#x}");
            }
        }
    }
}

/// IBA 10.6.6: each way a key, a range or a right can be wrong, for each operation.
#[test]
fn keys_ranges_and_rights_are_checked() {
    const START: u64 = BASE + 4096;
    let right_of = |opcode| match opcode {
        Opcode::RC_READ_REQUEST => Access::REMOTE_READ,
        Opcode::RC_CMP_SWAP | Opcode::RC_FETCH_ADD => Access::REMOTE_ATOMIC,
        Opcode::RC_FLUSH => Access::FLUSH_GLOBAL,
        _ => Access::REMOTE_WRITE,
    };
    // Address relative to the region of 64 bytes, length where the operation has one, key damage.
    let faults: [(&str, u64, u32); 7] = [
        ("variant", 0, 1),
        ("index", 0, 1 << 16),
        ("no key", 0, u32::MAX),
        ("before", 0u64.wrapping_sub(8), 0),
        ("across the end", 60, 0),
        ("after", 64, 0),
        ("wrap", 0u64.wrapping_sub(START).wrapping_sub(8), 0),
    ];
    for qp_type in SERVICES {
        for opcode in [
            Opcode::RC_WRITE_ONLY,
            Opcode::RC_READ_REQUEST,
            Opcode::RC_CMP_SWAP,
            Opcode::RC_FETCH_ADD,
            Opcode::RC_FLUSH,
            Opcode::RC_ATOMIC_WRITE,
        ] {
            let aligned = !matches!(
                opcode,
                Opcode::RC_WRITE_ONLY | Opcode::RC_READ_REQUEST | Opcode::RC_FLUSH
            );
            for (fault, offset, damage) in faults {
                if aligned && fault == "across the end" {
                    continue;
                }
                let mut scripted = connection(qp_type);
                let rights = right_of(opcode) | Access::LOCAL_WRITE;
                let rkey = scripted.node.reg_mr(4096, 64, rights).rkey ^ damage;
                let remote = Remote { addr: START.wrapping_add(offset), rkey };
                let request = with_remote(&scripted, opcode, remote);
                let name = format!("{} {fault}", opcode.name());
                check(&name, &mut scripted, &[request], &refused(EPSN, ACCESS));
            }
            let name = format!("{} without its right", opcode.name());
            let mut scripted = connection(qp_type);
            let rights = Access::REMOTE.without(right_of(opcode)) | Access::LOCAL_WRITE;
            let rkey = scripted.node.reg_mr(4096, 64, rights).rkey;
            let request = with_remote(&scripted, opcode, Remote { addr: START, rkey });
            check(&name, &mut scripted, &[request], &refused(EPSN, ACCESS));

            let name = format!("{} in another domain", opcode.name());
            let mut scripted = connection(qp_type);
            let pd = scripted.node.device.alloc_pd().unwrap();
            let access = Access::REMOTE | Access::LOCAL_WRITE;
            let init = MrInit { addr: START, length: 64, iova: START, access };
            let rkey = scripted.node.device.reg_mr(pd, &init).unwrap().rkey;
            let request = with_remote(&scripted, opcode, Remote { addr: START, rkey });
            check(&name, &mut scripted, &[request], &refused(EPSN, ACCESS));
        }
    }
}

fn with_remote(scripted: &Scripted, opcode: Opcode, remote: Remote) -> Builder {
    let request = scripted.request(opcode, EPSN);
    match opcode {
        Opcode::RC_CMP_SWAP | Opcode::RC_FETCH_ADD => request.atomic(remote, 1, 0),
        Opcode::RC_FLUSH => request.feth(0, 1).reth(remote, 8),
        Opcode::RC_READ_REQUEST => request.reth(remote, 8),
        _ => request.reth(remote, 8).fill(1, 8),
    }
}

/// The whole range is checked before the first byte is placed.
#[test]
fn a_write_that_would_run_over_the_end_places_nothing() {
    for qp_type in SERVICES {
        let mut scripted = connection(qp_type);
        let keys = scripted.node.reg_mr(0, 2048, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        let remote = Remote { addr: BASE, rkey: keys.rkey };
        let first = scripted.request(Opcode::RC_WRITE_FIRST, EPSN).reth(remote, 2049);
        let first = first.fill(1, 1024);
        check("2049 bytes in 2048", &mut scripted, &[first], &refused(EPSN, ACCESS));
    }
}

/// The region vanishes in the middle of a message.
#[test]
fn a_key_is_checked_again_at_every_packet() {
    for qp_type in SERVICES {
        let mut scripted = connection(qp_type);
        let keys = scripted.node.reg_mr(4096, 4096, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        let remote = Remote { addr: BASE + 4096, rkey: keys.rkey };
        let first = scripted.request(Opcode::RC_WRITE_FIRST, EPSN).reth(remote, 3000);
        scripted.deliver(&first.fill(1, 1024));
        scripted.node.dereg_mr(keys.mr);
        let middle = scripted.request(Opcode::RC_WRITE_MIDDLE, EPSN + 1).fill(1, 1024);
        check("Middle", &mut scripted, &[middle], &refused(EPSN + 1, ACCESS));
    }
}

/// C9-88: a request for no bytes touches neither key nor address.
#[test]
fn requests_for_no_bytes_need_no_key() {
    for qp_type in SERVICES {
        let mut scripted = connection(qp_type);
        let nowhere = Remote { addr: u64::MAX, rkey: 0xffff_ffff };
        let write = scripted.request(Opcode::RC_WRITE_ONLY, EPSN).reth(nowhere, 0).ack_req();
        scripted.deliver(&write);
        let read = scripted.request(Opcode::RC_READ_REQUEST, EPSN + 1).reth(nowhere, 0);
        scripted.deliver(&read);
        let ack = packet(acknowledge(&scripted)).psn(EPSN).syndrome(0x1f).msn(1);
        let only = scripted.request(Opcode::RC_READ_RESPONSE_ONLY, 0).headers.bth.opcode;
        let response = packet(only).psn(EPSN + 1).syndrome(0x1f).msn(2).payload_len(0);
        expect_packets("no bytes", &scripted.frames(), &[ack, response]);
    }
}
