//! Faults on public record around regions and windows (IBA 10.6). Each test is named for its fault.

use ferroce_stack::verbs::{
    Access, Mr, Mw, MwBind, MwType, Pd, QpState, QpType, Remote, SendOp, Sge, VerbsError, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_stack::{MrChange, MrInit};
use ferroce_tests::memory::BASE;
use ferroce_tests::{Rig, statuses};

use WcStatus::{LocQpOpErr, MwBindErr, RemAccessErr, RemInvReqErr, RetryExcErr, Success};

const BINDABLE: Access = Access::MW_BIND.with(Access::LOCAL_WRITE);
const TYPES: [MwType; 2] = [MwType::Type1, MwType::Type2];

/// `b` owns the memory; the window's owner posts on `b` and `a` uses the key.
struct Windows {
    rig: Rig,
}

impl Windows {
    fn new() -> Windows {
        Windows { rig: Rig::new(QpType::Rc) }
    }

    fn reg(&mut self, pd: Pd, init: &MrInit) -> Mr {
        self.rig.link.b.device.reg_mr(pd, init).expect("MR").mr
    }

    /// A region of 4096 bytes at [`BASE`] in `b`'s domain.
    fn region(&mut self, access: Access) -> Mr {
        let pd = self.rig.link.b.pd;
        self.reg(pd, &MrInit { addr: BASE, length: 4096, iova: BASE, access })
    }

    fn window(&mut self, mw_type: MwType) -> Mw {
        let pd = self.rig.link.b.pd;
        self.rig.link.b.device.alloc_mw(pd, mw_type).expect("MW").0
    }

    /// `b` binds; the status of that.
    fn bind(&mut self, mw: Mw, bind: MwBind) -> WcStatus {
        let rkey = self.key(mw).wrapping_add(1);
        let (node, qpn) = (&mut self.rig.link.b, self.rig.b);
        node.post(qpn, 77, SendOp::BindMw { mw, rkey, bind }, 0, 0);
        self.rig.link.settle();
        let sent = statuses(&self.rig.link.b.sent());
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0].1
    }

    fn key(&self, mw: Mw) -> u32 {
        self.rig.link.b.device.mw_rkey(mw).expect("MW")
    }

    /// `a` does one operation; its status.
    fn access(&mut self, op: SendOp, length: u32) -> WcStatus {
        self.rig.post(1, op, 1 << 20, length);
        self.rig.link.settle();
        let sent = self.rig.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0].1
    }

    fn read(&mut self, addr: u64, rkey: u32) -> WcStatus {
        self.access(SendOp::Read(Remote { addr, rkey }), 8)
    }
}

fn bind_of(mr: Mr, access: Access) -> MwBind {
    MwBind { mr, addr: BASE, length: 64, access }
}

/// P50: QP, window and region all in one protection domain, for both types.
#[test]
fn a_window_of_another_domain_is_not_bound() {
    for mw_type in TYPES {
        for (mw_elsewhere, mr_elsewhere) in [(true, false), (false, true), (true, true)] {
            let mut windows = Windows::new();
            let own = windows.rig.link.b.pd;
            let other = windows.rig.link.b.device.alloc_pd().unwrap();
            let of = |elsewhere: bool| if elsewhere { other } else { own };
            let init = MrInit { addr: BASE, length: 4096, iova: BASE, access: BINDABLE };
            let mr = windows.reg(of(mr_elsewhere), &init);
            let mw = windows.rig.link.b.device.alloc_mw(of(mw_elsewhere), mw_type).unwrap().0;
            let before = windows.key(mw);
            let case = format!("{mw_type:?}, window {mw_elsewhere}, region {mr_elsewhere}");
            assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), MwBindErr, "{case}");
            assert_eq!(windows.rig.states().1, QpState::Err, "{case}");
            for key in [before, windows.key(mw), before.wrapping_add(1)] {
                (windows.rig.a, windows.rig.b) = windows.rig.link.pair(QpType::Rc);
                assert_eq!(windows.read(BASE, key), RemAccessErr, "{case}");
            }
        }
    }
}

/// P51: which right is needed on which object.
#[test]
fn rights_at_bind_are_those_of_the_right_object() {
    let local = Access::LOCAL_WRITE;
    let bind = Access::MW_BIND;
    let zero = Access::ZERO_BASED;
    let table = [
        // Region, window, type 1, type 2.
        (bind, Access::REMOTE_READ, true, true),
        (bind | local, Access::REMOTE_READ, true, true),
        (bind | local, Access::REMOTE_WRITE, true, true),
        (bind | local, Access::REMOTE_ATOMIC, true, true),
        (bind | local, Access::REMOTE_WRITE | Access::REMOTE_READ, true, true),
        (bind, Access::REMOTE_WRITE, false, false),
        (bind, Access::REMOTE_ATOMIC, false, false),
        (local, Access::REMOTE_READ, false, false),
        (local | Access::REMOTE, Access::REMOTE_READ, false, false),
        (Access::NONE, Access::NONE, false, false),
        (bind | local, Access::REMOTE_READ | zero, false, true),
        (bind | local | zero, Access::REMOTE_READ, false, false),
    ];
    for (of_region, of_window, type1, type2) in table {
        for (mw_type, allowed) in [(MwType::Type1, type1), (MwType::Type2, type2)] {
            let mut windows = Windows::new();
            let mr = windows.region(of_region);
            let mw = windows.window(mw_type);
            let addr = if of_region.has(zero) { 0 } else { BASE };
            let outcome = windows.bind(mw, MwBind { addr, ..bind_of(mr, of_window) });
            let expected = if allowed { Success } else { MwBindErr };
            assert_eq!(outcome, expected, "{of_window:?} on {of_region:?}, {mw_type:?}");
        }
    }
}

/// A window gives its own rights, not the region's.
#[test]
fn a_window_gives_its_own_rights() {
    for mw_type in TYPES {
        let mut windows = Windows::new();
        let mr = windows.region(BINDABLE);
        let mw = windows.window(mw_type);
        assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
        let rkey = windows.key(mw);
        assert_eq!(windows.read(BASE + 56, rkey), Success);
        let outcome = windows.access(SendOp::Write(Remote { addr: BASE, rkey }), 8);
        assert_eq!(outcome, RemAccessErr, "{mw_type:?}");
    }
}

/// P52: a region with windows stays until they are unbound.
#[test]
fn a_region_with_bound_windows_is_not_deregistered() {
    for mw_type in TYPES {
        let mut windows = Windows::new();
        let mr = windows.region(BINDABLE);
        let mw = windows.window(mw_type);
        assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
        let rkey = windows.key(mw);
        let device = &mut windows.rig.link.b.device;
        assert_eq!(device.dereg_mr(mr), Err(VerbsError::Busy));
        assert_eq!(device.rereg_mr(mr, &MrChange::default()), Err(VerbsError::Busy));
        assert_eq!(windows.read(BASE, rkey), Success, "the window still works");
        match mw_type {
            MwType::Type1 => {
                let unbind = MwBind { length: 0, ..bind_of(mr, Access::NONE) };
                assert_eq!(windows.bind(mw, unbind), Success);
            }
            MwType::Type2 => {
                let qpn = windows.rig.b;
                windows.rig.link.b.post(qpn, 5, SendOp::LocalInv(rkey), 0, 0);
                windows.rig.link.settle();
                assert_eq!(statuses(&windows.rig.link.b.sent()), [(5, Success)]);
            }
        }
        assert_eq!(windows.rig.link.b.device.dereg_mr(mr), Ok(()), "{mw_type:?}");
        assert_eq!(windows.read(BASE, rkey), RemAccessErr, "{mw_type:?}");
    }
    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type1);
    assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
    let rkey = windows.key(mw);
    windows.rig.link.b.device.dealloc_mw(mw).unwrap();
    assert_eq!(windows.rig.link.b.device.dereg_mr(mr), Ok(()), "freeing the window unbinds it");
    assert_eq!(windows.read(BASE, rkey), RemAccessErr);
}

/// P53: the range of a bind lies inside its region.
#[test]
fn a_bind_outside_its_region_fails() {
    let table = [
        (BASE, 4096, true),
        (BASE + 4095, 1, true),
        (BASE - 1, 64, false),
        (BASE, 4097, false),
        (BASE + 4096, 1, false),
        (BASE + 4095, 2, false),
        (BASE, 1 << 63, false),
        (BASE + 64, u64::MAX - 63, false),
        (u64::MAX, 2, false),
        (0, 4096, false),
    ];
    for mw_type in TYPES {
        for (addr, length, inside) in table {
            let mut windows = Windows::new();
            let mr = windows.region(BINDABLE);
            let mw = windows.window(mw_type);
            let bind = MwBind { mr, addr, length, access: Access::REMOTE_READ };
            let expected = if inside { Success } else { MwBindErr };
            assert_eq!(windows.bind(mw, bind), expected, "{length:#x} bytes at {addr:#x}");
        }
    }
}

/// P54: addresses of zero-based regions and windows are offsets.
#[test]
fn zero_based_addresses_are_offsets() {
    let table = [(0, true), (63, true), (64, false), (BASE, false), (u64::MAX, false)];
    for (addr, inside) in table {
        for through_window in [false, true] {
            let mut windows = Windows::new();
            let pd = windows.rig.link.b.pd;
            let rkey = if through_window {
                let mr = windows.region(BINDABLE);
                let mw = windows.window(MwType::Type2);
                let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
                let bind = MwBind { addr: BASE + 512, ..bind_of(mr, access) };
                assert_eq!(windows.bind(mw, bind), Success);
                windows.key(mw)
            } else {
                let access = Access::REMOTE_WRITE | Access::LOCAL_WRITE | Access::ZERO_BASED;
                let init = MrInit { addr: BASE + 512, length: 64, iova: BASE, access };
                windows.rig.link.b.device.reg_mr(pd, &init).unwrap().rkey
            };
            windows.rig.link.a.device.memory_mut().put(BASE + (1 << 20), &[6]);
            let outcome = windows.access(SendOp::Write(Remote { addr, rkey }), 1);
            let expected = if inside { Success } else { RemAccessErr };
            assert_eq!(outcome, expected, "at {addr:#x}, window {through_window}");
            if inside {
                let memory = windows.rig.link.b.device.memory();
                assert_eq!(memory.bytes(BASE + 512 + addr, 1), [6]);
            }
        }
    }
}

/// P55: what an invalidation by the peer takes.
#[test]
fn remote_invalidation_takes_a_type_2_window_by_its_whole_key() {
    enum Target {
        Right,
        WrongVariant,
        Type1,
        Region,
        OtherQp,
    }
    use Target::{OtherQp, Region, Right, Type1, WrongVariant};
    for (name, target) in [
        ("right", Right),
        ("wrong low byte", WrongVariant),
        ("type 1", Type1),
        ("region", Region),
        ("bound through another QP", OtherQp),
    ] {
        let mut windows = Windows::new();
        let mr = windows.region(BINDABLE | Access::REMOTE_READ);
        let mw_type = if matches!(target, Type1) { MwType::Type1 } else { MwType::Type2 };
        let mw = windows.window(mw_type);
        let (a, b) = (windows.rig.a, windows.rig.b);
        if matches!(target, OtherQp) {
            (windows.rig.a, windows.rig.b) = windows.rig.link.pair(QpType::Rc);
        }
        assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
        (windows.rig.a, windows.rig.b) = (a, b);
        let key = match target {
            WrongVariant => windows.key(mw) ^ 0x40,
            Region => mr.value(),
            _ => windows.key(mw),
        };
        windows.rig.post_recv(11, 8192, 64);
        windows.rig.post(1, SendOp::SendInv(key), 0, 8);
        windows.rig.link.run_for(ferroce_tests::SEC);
        let received = statuses(&windows.rig.received());
        if matches!(target, Right) {
            assert_eq!(windows.rig.sent(), [(1, Success)], "{name}");
            assert_eq!(received, [(11, Success)], "{name}");
            assert_eq!(windows.read(BASE, key), RemAccessErr, "{name}: dead afterwards");
        } else {
            assert_eq!(received, [(11, RemInvReqErr)], "{name}");
            assert_eq!(windows.rig.states().1, QpState::Err, "{name}");
            assert_eq!(windows.rig.sent(), [(1, RetryExcErr)], "{name}");
        }
    }
}

/// P55: what a local invalidation takes; one that fails is a QP operation error.
#[test]
fn local_invalidation_takes_a_type_2_window_by_its_whole_key() {
    for damage in [0, 1, 0x100] {
        let mut windows = Windows::new();
        let mr = windows.region(BINDABLE);
        let mw = windows.window(MwType::Type2);
        assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
        let (key, qpn) = (windows.key(mw), windows.rig.b);
        windows.rig.link.b.post(qpn, 5, SendOp::LocalInv(key ^ damage), 0, 0);
        windows.rig.link.settle();
        let expected = if damage == 0 { Success } else { LocQpOpErr };
        assert_eq!(statuses(&windows.rig.link.b.sent()), [(5, expected)], "damage {damage:#x}");
    }
    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type1);
    assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
    let (key, qpn) = (windows.key(mw), windows.rig.b);
    windows.rig.link.b.post(qpn, 5, SendOp::LocalInv(key), 0, 0);
    windows.rig.link.settle();
    assert_eq!(statuses(&windows.rig.link.b.sent()), [(5, LocQpOpErr)], "a type 1 window");
}

/// A type 2 window works through its own QP alone, a type 1 window through any of its domain.
#[test]
fn a_type_2_window_works_through_one_qp() {
    for mw_type in TYPES {
        let mut windows = Windows::new();
        let mr = windows.region(BINDABLE);
        let mw = windows.window(mw_type);
        assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
        let key = windows.key(mw);
        assert_eq!(windows.read(BASE, key), Success);
        (windows.rig.a, windows.rig.b) = windows.rig.link.pair(QpType::Rc);
        let expected = if mw_type == MwType::Type1 { Success } else { RemAccessErr };
        assert_eq!(windows.read(BASE, key), expected, "{mw_type:?} through another QP");
    }
}

/// Rebinding: type 1 at will, its old key dead; type 2 only after an invalidation. The consumer
/// chooses the low byte of a type 2 key.
#[test]
fn windows_are_bound_again_by_their_rules() {
    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type1);
    assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
    let old = windows.key(mw);
    let moved = MwBind { addr: BASE + 1024, ..bind_of(mr, Access::REMOTE_READ) };
    assert_eq!(windows.bind(mw, moved), Success);
    let new = windows.key(mw);
    assert_ne!(old, new);
    assert_eq!(windows.read(BASE + 1024, new), Success);
    assert_eq!(windows.read(BASE, old), RemAccessErr);

    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type2);
    let free = windows.key(mw);
    assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
    assert_eq!(windows.key(mw), free & !0xff | (free + 1) & 0xff, "index kept, low byte chosen");
    assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), MwBindErr, "while bound");

    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type2);
    let nothing = MwBind { length: 0, ..bind_of(mr, Access::REMOTE_READ) };
    assert_eq!(windows.bind(mw, nothing), MwBindErr, "no bind of length 0 for type 2");
}

/// A bind is visible to the work behind it: the key can be told in the next SEND.
#[test]
fn a_bind_is_done_before_the_work_behind_it() {
    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type2);
    let bind = bind_of(mr, Access::REMOTE_READ);
    let rkey = windows.key(mw).wrapping_add(9);
    let qpn = windows.rig.b;
    windows.rig.link.b.post(qpn, 1, SendOp::BindMw { mw, rkey, bind }, 0, 0);
    windows.rig.link.b.post(qpn, 2, SendOp::Send, 0, 8);
    let first = windows.rig.link.b.next_frame().expect("the SEND");
    assert_eq!(first.opcode(), Opcode::RC_SEND_ONLY);
    assert_eq!(windows.key(mw) as u8, rkey as u8);
    assert_eq!(windows.read(BASE, windows.key(mw)), Success);
}

/// P56: a region of no bytes takes accesses of no bytes alone.
#[test]
fn a_region_of_length_zero_is_not_everything() {
    for addr in [0, BASE, u64::MAX] {
        for length in [0, 1] {
            let mut windows = Windows::new();
            let pd = windows.rig.link.b.pd;
            let access = Access::REMOTE | Access::LOCAL_WRITE;
            let init = MrInit { addr: BASE, length: 0, iova: BASE, access };
            let Ok(keys) = windows.rig.link.b.device.reg_mr(pd, &init) else { return };
            let remote = Remote { addr, rkey: keys.rkey };
            let expected = if length == 0 { Success } else { RemAccessErr };
            assert_eq!(windows.access(SendOp::Write(remote), length), expected, "at {addr:#x}");
            let mut windows = Windows::new();
            windows.rig.link.b.device.reg_mr(pd, &init).unwrap();
            let outcome = windows.access(SendOp::Read(remote), length);
            assert_eq!(outcome, expected, "READ at {addr:#x}");
        }
    }
}

/// P57: the iova is translated everywhere: remote access, local entries, windows, atomics, and a
/// READ asked for again in its middle.
#[test]
fn an_iova_is_translated_everywhere() {
    for iova in [0, 0x1238, (1 << 63) - 4096, BASE + 4096] {
        let mut windows = Windows::new();
        let access = Access::REMOTE | BINDABLE;
        let init = MrInit { addr: BASE, length: 16384, iova, access };
        let pd = windows.rig.link.a.pd;
        let local = windows.rig.link.a.device.reg_mr(pd, &init).unwrap();
        let pd = windows.rig.link.b.pd;
        let keys = windows.rig.link.b.device.reg_mr(pd, &init).unwrap();
        let remote = |offset| Remote { addr: iova + offset, rkey: keys.rkey };
        let data: Vec<u8> = (0..5000u32).map(|at| (at % 251) as u8).collect();
        windows.rig.link.a.device.memory_mut().put(BASE + 100, &data);
        let sge = |offset, length| [Sge { addr: iova + offset, length, lkey: local.lkey }];
        windows.rig.post_sges(1, SendOp::Write(remote(4000)), &sge(100, 5000));
        windows.rig.link.settle();
        let memory = windows.rig.link.b.device.memory();
        assert_eq!(memory.bytes(BASE + 4000, 5000), data, "WRITE at iova {iova:#x}");

        let mut lost = false;
        windows.rig.post_sges(2, SendOp::Read(remote(4000)), &sge(8192, 5000));
        windows.rig.link.settle_with(|passing| {
            let middle = passing.seen.opcode() == Opcode::RC_READ_RESPONSE_MIDDLE;
            !middle || std::mem::replace(&mut lost, true)
        });
        let memory = windows.rig.link.a.device.memory();
        assert_eq!(memory.bytes(BASE + 8192, 5000), data, "READ at iova {iova:#x}");

        windows.rig.link.b.device.memory_mut().put(BASE + 4096, &7u64.to_ne_bytes());
        let at = (8 - iova % 8) % 8 + 4096;
        let word = windows.rig.link.b.device.memory().word(BASE + at);
        let op = SendOp::FetchAdd { remote: remote(at), add: 3 };
        windows.rig.post_sges(3, op, &sge(64, 8));
        windows.rig.link.settle();
        assert_eq!(windows.rig.link.b.device.memory().word(BASE + at), word + 3);
        assert_eq!(windows.rig.link.a.device.memory().word(BASE + 64), word);

        let mw = windows.window(MwType::Type2);
        let access = Access::REMOTE_READ;
        let bind = MwBind { mr: keys.mr, addr: iova + 4000, length: 64, access };
        assert_eq!(windows.bind(mw, bind), Success);
        let rkey = windows.key(mw);
        let inside = Remote { addr: iova + 4000, rkey };
        windows.rig.post_sges(4, SendOp::Read(inside), &sge(0, 64));
        windows.rig.link.settle();
        let memory = windows.rig.link.a.device.memory();
        assert_eq!(memory.bytes(BASE, 64), &data[..64], "window at iova {iova:#x}");
        let all = [(1, Success), (2, Success), (3, Success), (4, Success)];
        assert_eq!(windows.rig.sent(), all, "iova {iova:#x}");
    }
}

/// The flags that registration refuses: remote writing without local writing.
#[test]
fn remote_writing_needs_local_writing() {
    let mut windows = Windows::new();
    let pd = windows.rig.link.b.pd;
    for (access, legal) in [
        (Access::REMOTE_WRITE, false),
        (Access::REMOTE_ATOMIC, false),
        (Access::REMOTE_READ, true),
        (Access::REMOTE_WRITE | Access::LOCAL_WRITE, true),
        (Access::NONE, true),
        (Access::RELAXED_ORDERING, true),
        (Access(1 << 25), true),
        (Access(1 << 12), false),
    ] {
        let init = MrInit { addr: BASE, length: 64, iova: BASE, access };
        let outcome = windows.rig.link.b.device.reg_mr(pd, &init);
        assert_eq!(outcome.is_ok(), legal, "{access:?}");
    }
}

/// A region given a new range is not reached by its old key.
#[test]
fn an_old_key_is_dead_after_a_change() {
    let mut windows = Windows::new();
    let pd = windows.rig.link.b.pd;
    let access = Access::REMOTE | Access::LOCAL_WRITE;
    let init = MrInit { addr: BASE, length: 64, iova: BASE, access };
    let old = windows.rig.link.b.device.reg_mr(pd, &init).unwrap();
    let range = Some((BASE + 4096, 64, BASE + 4096));
    let change = MrChange { range, ..MrChange::default() };
    let new = windows.rig.link.b.device.rereg_mr(old.mr, &change).unwrap();
    assert_eq!(windows.read(BASE + 4096, new.rkey), Success);
    assert_eq!(windows.read(BASE, old.rkey), RemAccessErr);
}

/// Binds and invalidations work on UC too, and its WRITEs go through the window.
#[test]
fn windows_work_on_uc() {
    let mut rig = Rig::new(QpType::Uc);
    let (pd, mr) = (rig.link.b.pd, rig.link.b.mr.mr);
    let (mw, rkey) = rig.link.b.device.alloc_mw(pd, MwType::Type2).unwrap();
    let bind = bind_of(mr, Access::REMOTE_WRITE);
    rig.link.b.post(rig.b, 1, SendOp::BindMw { mw, rkey, bind }, 0, 0);
    rig.link.settle();
    assert_eq!(statuses(&rig.link.b.sent()), [(1, Success)]);
    let rkey = rig.link.b.device.mw_rkey(mw).unwrap();
    rig.link.a.device.memory_mut().put(BASE + 4096, &[8; 8]);
    rig.post(2, SendOp::Write(Remote { addr: BASE + 56, rkey }), 4096, 8);
    rig.post(3, SendOp::Write(Remote { addr: BASE + 57, rkey }), 4096, 8);
    rig.link.settle();
    assert_eq!(rig.link.b.device.memory().bytes(BASE + 56, 9), [8, 8, 8, 8, 8, 8, 8, 8, 0]);
    rig.link.b.post(rig.b, 4, SendOp::LocalInv(rkey), 0, 0);
    rig.link.settle();
    rig.post(5, SendOp::Write(Remote { addr: BASE, rkey }), 4096, 8);
    rig.link.settle();
    assert_eq!(statuses(&rig.link.b.sent()), [(4, Success)]);
    assert_eq!(rig.link.b.device.memory().bytes(BASE, 8), [0; 8]);
    rig.link.b.post(rig.b, 6, SendOp::LocalInv(rkey), 0, 0);
    rig.link.settle();
    assert_eq!(statuses(&rig.link.b.sent()), [(6, LocQpOpErr)], "it is not bound any more");
    assert_eq!(rig.link.b.state(rig.b), QpState::Sqe, "a local error on UC");
}

/// A QP that goes away takes its type 2 windows' bindings with it.
#[test]
fn a_destroyed_qp_unbinds_its_windows() {
    let mut windows = Windows::new();
    let mr = windows.region(BINDABLE);
    let mw = windows.window(MwType::Type2);
    assert_eq!(windows.bind(mw, bind_of(mr, Access::REMOTE_READ)), Success);
    let qpn = windows.rig.b;
    windows.rig.link.b.device.destroy_qp(qpn).unwrap();
    assert_eq!(windows.rig.link.b.device.dereg_mr(mr), Ok(()));
}
