//! The `ibv_wr_*` calls: between start and complete, each call of an operation begins a work
//! request and the setters after it fill it. All are posted when completed, or none.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ops::Range;

use ferroce_stack::verbs::{
    Access, FlushLevel, Remote, SendData, SendFlags, SendOp, SendWr, Sge, UdTarget,
};

use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvAh, IbvDataBuf, IbvMw, IbvMwBindInfo, IbvQpEx, IbvSge, IbvUd};
use crate::object::HeldLock;
use crate::post::{MAX_INLINE, MAX_SGE, bind_of, flags_of, sge_of, target_of};
use crate::qp::Qp;

/// `enum ibv_placement_type`, by its bits.
const PLACEMENTS: [(u8, Access); 2] = [(1, Access::FLUSH_GLOBAL), (2, Access::FLUSH_PERSISTENT)];
/// `enum ibv_selectivity_level`.
const RANGE: u8 = 0;
const REGION: u8 = 1;

/// Work requests being built; their memory is used again.
#[derive(Default)]
pub(crate) struct Builder {
    /// From start to complete or abort.
    held: HeldLock,
    built: UnsafeCell<Built>,
}

#[derive(Default)]
struct Built {
    wrs: Vec<Wr>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first thing that went wrong.
    error: Option<Errno>,
}

/// A work request; its data lies in the lists of all.
struct Wr {
    wr_id: u64,
    flags: SendFlags,
    op: SendOp,
    data: Data,
    ud: Option<UdTarget>,
    srqn: Option<u32>,
}

enum Data {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Built {
    fn clear(&mut self) {
        self.wrs.clear();
        self.sges.clear();
        self.bytes.clear();
        self.error = None;
    }

    fn fail(&mut self, error: Errno) {
        self.error.get_or_insert(error);
    }

    /// Fills the work request begun last.
    fn set(&mut self, fill: impl FnOnce(&mut Wr)) {
        match self.wrs.last_mut() {
            Some(wr) => fill(wr),
            None => self.fail(EINVAL),
        }
    }

    fn set_sges(&mut self, sges: impl Iterator<Item = Sge>) {
        let from = self.sges.len();
        self.sges.extend(sges);
        let to = self.sges.len();
        self.set(|wr| wr.data = Data::Sges(from..to));
    }

    fn wr<'a>(&'a self, wr: &Wr) -> SendWr<'a> {
        let data = match &wr.data {
            Data::Sges(range) => SendData::Sges(&self.sges[range.clone()]),
            Data::Inline(range) => SendData::Inline(&self.bytes[range.clone()]),
        };
        let Wr { wr_id, flags, op, ud, srqn, .. } = *wr;
        SendWr { wr_id, op, data, flags, ud, srqn }
    }

    /// Posts everything, or nothing.
    fn post(&self, qp: &Qp) -> Result<(), Errno> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let (init, state) = (qp.queue.init(), qp.queue.state());
        for wr in &self.wrs {
            init.check_send(state, &self.wr(wr))?;
        }
        let mut batch = qp.engine.send(&qp.queue);
        batch.reserve(self.wrs.len())?;
        for wr in &self.wrs {
            // Refused only if the QP has failed since, and then it would be flushed.
            batch.push(&self.wr(wr))?;
        }
        Ok(())
    }
}

/// What is being built on a QP; `None` outside of start and complete.
///
/// # Safety
/// The QP must be null or live, and the caller the thread that started.
#[inline]
unsafe fn building<'a>(qp: *mut IbvQpEx) -> Option<(&'a Qp, &'a mut Built)> {
    // SAFETY: the caller's promise.
    let qp = unsafe { Qp::of(qp.cast()) }.filter(|qp| qp.builder.held.is_held())?;
    // SAFETY: the lock is the caller's.
    Some((qp, unsafe { &mut *qp.builder.built.get() }))
}

/// Begins a work request with the number and flags the program has left in the structure.
///
/// # Safety
/// As [`building`].
#[inline]
unsafe fn begin(qp: *mut IbvQpEx, op: Result<SendOp, Errno>) {
    // SAFETY: the caller's promise.
    let Some((owner, built)) = (unsafe { building(qp) }) else { return };
    // SAFETY: the structure is alive, and its fields the program's own.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let init = owner.queue.init();
    match op.and_then(|op| Ok((op, flags_of(init.qp_type, flags)?))) {
        Ok(_) if built.wrs.len() >= init.cap.max_send_wr as usize => {
            built.fail(Errno(libc::ENOMEM));
        }
        Ok((op, flags)) => {
            let data = Data::Sges(0..0);
            built.wrs.push(Wr { wr_id, flags, op, data, ud: None, srqn: None });
        }
        Err(error) => built.fail(error),
    }
}

/// Fills the function pointers.
pub(crate) fn set_calls(qp: &mut IbvQpEx) {
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_bind_mw = Some(bind_mw);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_send_tso = send_tso as *mut c_void;
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_xrc_srqn = Some(set_xrc_srqn);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
    qp.wr_atomic_write = Some(atomic_write);
    qp.wr_flush = Some(flush);
}

unsafe extern "C" fn start(qp: *mut IbvQpEx) {
    // SAFETY: the caller gives a live QP or null.
    let Some(qp) = (unsafe { Qp::of(qp.cast()) }) else { return };
    qp.builder.held.acquire();
    // SAFETY: the lock is ours.
    unsafe { (*qp.builder.built.get()).clear() };
}

unsafe extern "C" fn complete(qp: *mut IbvQpEx) -> c_int {
    // SAFETY: the caller gives a live QP or null, and has started.
    let Some((qp, built)) = (unsafe { building(qp) }) else { return errno::code(Err(EINVAL)) };
    let outcome = built.post(qp);
    qp.builder.held.release();
    errno::code(outcome)
}

unsafe extern "C" fn abort(qp: *mut IbvQpEx) {
    // SAFETY: as in `complete`.
    if let Some((qp, _)) = unsafe { building(qp) } {
        qp.builder.held.release();
    }
}

/// Calls that begin a work request.
macro_rules! operations {
    ($($name:ident($($arg:ident: $ty:ty),*) = $op:expr;)*) => {
        $(unsafe extern "C" fn $name(qp: *mut IbvQpEx $(, $arg: $ty)*) {
            // SAFETY: the caller gives a live QP or null, and has started.
            unsafe { begin(qp, Ok($op)) };
        })*
    };
}

operations! {
    send() = SendOp::Send;
    send_imm(imm_data: u32) = SendOp::SendImm(imm_data.to_ne_bytes());
    send_inv(rkey: u32) = SendOp::SendInv(rkey);
    rdma_write(rkey: u32, addr: u64) = SendOp::Write(Remote { addr, rkey });
    rdma_write_imm(rkey: u32, addr: u64, imm_data: u32) =
        SendOp::WriteImm(Remote { addr, rkey }, imm_data.to_ne_bytes());
    rdma_read(rkey: u32, addr: u64) = SendOp::Read(Remote { addr, rkey });
    atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) =
        SendOp::CompareSwap { remote: Remote { addr, rkey }, compare, swap };
    atomic_fetch_add(rkey: u32, addr: u64, add: u64) =
        SendOp::FetchAdd { remote: Remote { addr, rkey }, add };
    local_inv(rkey: u32) = SendOp::LocalInv(rkey);
}

unsafe extern "C" fn atomic_write(qp: *mut IbvQpEx, rkey: u32, addr: u64, value: *const c_void) {
    let op = match value.is_null() {
        true => Err(EINVAL),
        // SAFETY: the caller gives eight bytes, of any alignment.
        false => Ok(unsafe { value.cast::<u64>().read_unaligned() }),
    };
    let op = op.map(|value| SendOp::AtomicWrite(Remote { addr, rkey }, value));
    // SAFETY: the caller gives a live QP or null, and has started.
    unsafe { begin(qp, op) };
}

unsafe extern "C" fn flush(
    qp: *mut IbvQpEx,
    rkey: u32,
    addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    // SAFETY: the caller gives a live QP or null, and has started.
    unsafe { begin(qp, flush_of(Remote { addr, rkey }, length, placement, level)) };
}

fn flush_of(remote: Remote, length: usize, placement: u8, level: u8) -> Result<SendOp, Errno> {
    let known = PLACEMENTS.iter().fold(0, |known, (bit, _)| known | bit);
    let level = match level {
        RANGE => FlushLevel::Range,
        REGION => FlushLevel::Region,
        _ => return Err(EINVAL),
    };
    let length = match level {
        FlushLevel::Range => u32::try_from(length).map_err(|_| EINVAL)?,
        FlushLevel::Region => 0,
    };
    if placement & !known != 0 {
        return Err(EINVAL);
    }
    let chosen = PLACEMENTS.iter().filter(|(bit, _)| placement & bit != 0);
    let placement = chosen.fold(Access::NONE, |all, (_, access)| all | *access);
    Ok(SendOp::Flush { remote, length, level, placement })
}

unsafe extern "C" fn bind_mw(
    qp: *mut IbvQpEx,
    mw: *mut IbvMw,
    rkey: u32,
    info: *const IbvMwBindInfo,
) {
    // SAFETY: the caller gives valid pointers or null.
    let op = unsafe { info.as_ref() }.ok_or(EINVAL);
    // SAFETY: as above.
    let op = op.and_then(|info| unsafe { bind_of(mw, rkey, info) });
    // SAFETY: the caller gives a live QP or null, and has started.
    unsafe { begin(qp, op) };
}

/// There is no segmentation offload.
unsafe extern "C" fn send_tso(qp: *mut IbvQpEx, _header: *mut c_void, _length: u16, _mss: u16) {
    // SAFETY: the caller gives a live QP or null, and has started.
    unsafe { begin(qp, Err(Errno(libc::EOPNOTSUPP))) };
}

unsafe extern "C" fn set_ud_addr(qp: *mut IbvQpEx, ah: *mut IbvAh, qpn: u32, qkey: u32) {
    // SAFETY: the caller gives a live QP or null, and has started.
    let Some((_, built)) = (unsafe { building(qp) }) else { return };
    // SAFETY: the address handle is null or live.
    match unsafe { target_of(IbvUd { ah, remote_qpn: qpn, remote_qkey: qkey }) } {
        Ok(target) => built.set(|wr| wr.ud = Some(target)),
        Err(error) => built.fail(error),
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut IbvQpEx, srqn: u32) {
    // SAFETY: the caller gives a live QP or null, and has started.
    if let Some((_, built)) = unsafe { building(qp) } {
        built.set(|wr| wr.srqn = Some(srqn));
    }
}

unsafe extern "C" fn set_sge(qp: *mut IbvQpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller gives a live QP or null, and has started.
    if let Some((_, built)) = unsafe { building(qp) } {
        built.set_sges([Sge { addr, length, lkey }].into_iter());
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut IbvQpEx, count: usize, list: *const IbvSge) {
    // SAFETY: the caller gives a live QP or null, and has started.
    let Some((_, built)) = (unsafe { building(qp) }) else { return };
    match count {
        0 => built.set_sges([].into_iter()),
        1..=MAX_SGE if !list.is_null() => {
            // SAFETY: the caller gives a list of that length.
            let list = unsafe { core::slice::from_raw_parts(list, count) };
            built.set_sges(list.iter().map(sge_of));
        }
        _ => built.fail(EINVAL),
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut IbvQpEx, addr: *mut c_void, length: usize) {
    // SAFETY: the caller gives a live QP or null, has started, and the bytes are there.
    unsafe { set_inline(qp, &[IbvDataBuf { addr, length }]) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut IbvQpEx, count: usize, list: *const IbvDataBuf) {
    let list = match count {
        1..=MAX_INLINE if !list.is_null() => {
            // SAFETY: the caller gives a list of that length.
            unsafe { core::slice::from_raw_parts(list, count) }
        }
        0 => &[],
        _ => {
            // SAFETY: the caller gives a live QP or null, and has started.
            if let Some((_, built)) = unsafe { building(qp) } {
                built.fail(EINVAL);
            }
            return;
        }
    };
    // SAFETY: the caller gives a live QP or null, has started, and the bytes are there.
    unsafe { set_inline(qp, list) };
}

/// Takes the bytes.
///
/// # Safety
/// As [`building`]; what the list names must be readable.
unsafe fn set_inline(qp: *mut IbvQpEx, list: &[IbvDataBuf]) {
    // SAFETY: the caller's promise.
    let Some((qp, built)) = (unsafe { building(qp) }) else { return };
    let most = qp.queue.init().cap.max_inline_data as usize;
    let from = built.bytes.len();
    for buffer in list {
        let length = buffer.length;
        if length > most - (built.bytes.len() - from) {
            built.fail(Errno(libc::ENOMEM));
            break;
        }
        if length == 0 {
            continue;
        }
        if buffer.addr.is_null() {
            built.fail(EINVAL);
            break;
        }
        built.bytes.reserve(length);
        // SAFETY: the program says that the bytes are there, and there is room for them.
        unsafe {
            let end = built.bytes.as_mut_ptr().add(built.bytes.len());
            core::ptr::copy(buffer.addr.cast::<u8>(), end, length);
            built.bytes.set_len(built.bytes.len() + length);
        }
    }
    let to = built.bytes.len();
    built.set(|wr| wr.data = Data::Inline(from..to));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_names_what_it_makes_visible() {
        let remote = Remote { addr: 8, rkey: 9 };
        let op = flush_of(remote, 64, 3, RANGE).unwrap();
        let placement = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        assert_eq!(op, SendOp::Flush { remote, length: 64, level: FlushLevel::Range, placement });
        let op = flush_of(remote, usize::MAX, 1, REGION).unwrap();
        assert!(matches!(op, SendOp::Flush { length: 0, level: FlushLevel::Region, .. }));
        for (length, placement, level) in [(1 << 40, 1, RANGE), (8, 4, RANGE), (8, 1, 2)] {
            assert_eq!(flush_of(remote, length, placement, level), Err(EINVAL));
        }
    }

    #[test]
    fn what_is_set_before_an_operation_fails_the_batch() {
        let mut built = Built::default();
        built.set_sges([Sge::default()].into_iter());
        assert_eq!(built.error, Some(EINVAL));
        built.clear();
        assert_eq!(built.error, None);
        assert!(built.sges.is_empty());
    }

    #[test]
    fn the_first_error_is_told() {
        let mut built = Built::default();
        built.fail(Errno(libc::ENOMEM));
        built.fail(EINVAL);
        assert_eq!(built.error, Some(Errno(libc::ENOMEM)));
    }
}
