//! Work requests as programs give them, posted. A call posts its whole list before the engine is
//! driven; nothing here allocates or waits.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use ferroce::engine::RecvBatch;
use ferroce_stack::verbs::{
    self, Access, MwBind, QpType, Qpn, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, Sge,
    UdTarget,
};

use crate::ah::Ah;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::codes::SEND_INLINE;
use crate::layout::codes::wr::{
    BIND_MW, COMPARE_SWAP, FETCH_ADD, LOCAL_INV, READ, SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM,
};
use crate::layout::{IbvMw, IbvMwBindInfo, IbvQp, IbvRecvWr, IbvSendWr, IbvSge, IbvSrq, IbvUd};
use crate::mr::Mr;
use crate::mw::Mw;
use crate::qp::Qp;
use crate::srq::Srq;

/// Scatter/gather entries of one work request: the device's limit.
pub(crate) const MAX_SGE: usize = 32;
/// Inline bytes of one work request: the device's limit.
pub(crate) const MAX_INLINE: usize = 1024;

/// `IBV_SEND_FENCE`, `SIGNALED`, `SOLICITED`.
const FLAGS: u32 = 0b111;
/// `IBV_SEND_IP_CSUM`: of raw packets alone; others need no such help.
const IP_CSUM: u32 = 1 << 4;

/// What a work request refers to, on the stack.
pub(crate) struct Local {
    sges: [MaybeUninit<Sge>; MAX_SGE],
    bytes: [MaybeUninit<u8>; MAX_INLINE],
}

impl Local {
    #[inline]
    fn new() -> Local {
        Local {
            sges: [const { MaybeUninit::uninit() }; MAX_SGE],
            bytes: [const { MaybeUninit::uninit() }; MAX_INLINE],
        }
    }

    /// A program's scatter/gather list.
    ///
    /// # Safety
    /// `list` must be null or hold `count` entries.
    #[inline]
    unsafe fn sges(&mut self, list: *const IbvSge, count: c_int) -> Result<&[Sge], Errno> {
        // SAFETY: the caller's promise.
        let list = unsafe { list_of(list, count)? };
        let count = list.len();
        for (place, sge) in self.sges.iter_mut().zip(list) {
            place.write(sge_of(&sge));
        }
        // SAFETY: as many entries have been written.
        Ok(unsafe { core::slice::from_raw_parts(self.sges.as_ptr().cast(), count) })
    }

    /// The bytes a program's scatter/gather list names.
    ///
    /// # Safety
    /// As [`Local::sges`]; its addresses must be readable.
    unsafe fn inline(&mut self, list: *const IbvSge, count: c_int) -> Result<&[u8], Errno> {
        let mut filled = 0;
        // SAFETY: the caller's promise.
        for sge in unsafe { list_of(list, count)? } {
            let length = sge.length as usize;
            let place = self.bytes.get_mut(filled..filled + length);
            let place = place.ok_or(Errno(libc::ENOMEM))?;
            let from = sge.addr as usize as *const MaybeUninit<u8>;
            // SAFETY: the program says that the bytes are there; the place is ours.
            unsafe { core::ptr::copy(from, place.as_mut_ptr(), length) };
            filled += length;
        }
        // SAFETY: as many bytes have been written.
        Ok(unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), filled) })
    }
}

/// A program's list. It need not be aligned: libiscsi keeps its own in packed structures.
///
/// # Safety
/// `list` must be null or hold `count` entries, until the iterator is gone.
#[inline]
unsafe fn list_of(
    list: *const IbvSge,
    count: c_int,
) -> Result<impl ExactSizeIterator<Item = IbvSge>, Errno> {
    let count = match usize::try_from(count) {
        Ok(count) if count == 0 || count <= MAX_SGE && !list.is_null() => count,
        _ => return Err(EINVAL),
    };
    // SAFETY: the caller's promise.
    Ok((0..count).map(move |index| unsafe { list.add(index).read_unaligned() }))
}

/// One entry in the stack's words.
#[inline]
pub(crate) fn sge_of(sge: &IbvSge) -> Sge {
    Sge { addr: sge.addr, length: sge.length, lkey: sge.lkey }
}

/// Flags in the stack's words.
///
/// # Errors
/// EINVAL if checksums are left to the device: it sends a raw packet as it is.
#[inline]
pub(crate) fn flags_of(qp_type: QpType, flags: u32) -> Result<SendFlags, Errno> {
    if qp_type == QpType::RawPacket && flags & IP_CSUM != 0 {
        return Err(EINVAL);
    }
    Ok(SendFlags(flags & FLAGS))
}

/// # Safety
/// The QP must be null or live, the list valid, `bad_wr` null or valid.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut IbvQp,
    wr: *mut IbvSendWr,
    bad_wr: *mut *mut IbvSendWr,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(qp) = (unsafe { Qp::of(qp) }) else { return refuse(EINVAL, wr, bad_wr) };
    let mut batch = qp.engine.send(&qp.queue);
    let mut local = Local::new();
    let mut next = wr;
    // SAFETY: as above.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let outcome = unsafe { send_wr(qp, wr, &mut local) }
            .and_then(|wr| batch.push(&wr).map_err(Errno::from));
        if let Err(error) = outcome {
            log_send(qp, wr, error);
            return refuse(error, next, bad_wr);
        }
        next = wr.next;
    }
    0
}

/// Says in the log what a refused send was like; a full queue is nothing unusual.
#[cold]
fn log_send(qp: &Qp, wr: &IbvSendWr, Errno(error): Errno) {
    let (qpn, state, init) = (qp.queue.qpn().0, qp.queue.state(), qp.queue.init());
    let IbvSendWr { wr_id, opcode, num_sge, send_flags, .. } = *wr;
    if error == libc::ENOMEM {
        tracing::debug!(qpn, wr_id, max_send_wr = init.cap.max_send_wr, "post_send: queue full");
        return;
    }
    let (qp_type, max_send_sge) = (init.qp_type, init.cap.max_send_sge);
    tracing::warn!(
        qpn,
        wr_id,
        ?state,
        ?qp_type,
        opcode,
        num_sge,
        max_send_sge,
        send_flags,
        error,
        "post_send refused"
    );
}

/// The same of a receive.
#[cold]
fn log_recv(wr: &IbvRecvWr, Errno(error): Errno) {
    let IbvRecvWr { wr_id, num_sge, .. } = *wr;
    if error == libc::ENOMEM {
        tracing::debug!(wr_id, "post_recv: queue full");
        return;
    }
    tracing::warn!(
        wr_id,
        num_sge,
        error,
        "post_recv refused: in RESET, with an SRQ, or with too many entries"
    );
}

/// Tells which work request was the first not to be posted.
#[cold]
fn refuse<T>(error: Errno, wr: *mut T, bad_wr: *mut *mut T) -> c_int {
    // SAFETY: the caller of the library gives a valid pointer or null.
    if let Some(bad_wr) = unsafe { bad_wr.as_mut() } {
        *bad_wr = wr;
    }
    errno::code(Err(error))
}

/// A work request in the stack's words.
///
/// # Safety
/// What it points to must be valid.
#[inline]
unsafe fn send_wr<'a>(qp: &Qp, wr: &IbvSendWr, local: &'a mut Local) -> Result<SendWr<'a>, Errno> {
    // SAFETY: the caller's promise.
    let op = unsafe { operation(wr)? };
    let data = match op {
        SendOp::BindMw { .. } | SendOp::LocalInv(_) => SendData::Sges(&[]),
        // SAFETY: as above.
        _ if wr.send_flags & SEND_INLINE != 0 => unsafe {
            SendData::Inline(local.inline(wr.sg_list, wr.num_sge)?)
        },
        // SAFETY: as above.
        _ => unsafe { SendData::Sges(local.sges(wr.sg_list, wr.num_sge)?) },
    };
    let init = qp.queue.init();
    let ud = match init.is_datagram() {
        // SAFETY: any bytes make this variant; the handle is the program's.
        true => Some(unsafe { target_of(wr.wr.ud)? }),
        false => None,
    };
    let srqn = (init.qp_type == QpType::XrcSend).then_some(wr.qp_type);
    let flags = flags_of(init.qp_type, wr.send_flags)?;
    Ok(SendWr { wr_id: wr.wr_id, op, data, flags, ud, srqn })
}

/// # Safety
/// As [`send_wr`].
#[inline]
unsafe fn operation(wr: &IbvSendWr) -> Result<SendOp, Errno> {
    // SAFETY: any bytes make these variants.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = Remote { addr: rdma.remote_addr, rkey: rdma.rkey };
    let word = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
    let imm = wr.imm_data.to_ne_bytes();
    Ok(match wr.opcode {
        WRITE => SendOp::Write(remote),
        WRITE_IMM => SendOp::WriteImm(remote, imm),
        SEND => SendOp::Send,
        SEND_IMM => SendOp::SendImm(imm),
        READ => SendOp::Read(remote),
        COMPARE_SWAP => {
            let (compare, swap) = (atomic.compare_add, atomic.swap);
            SendOp::CompareSwap { remote: word, compare, swap }
        }
        FETCH_ADD => SendOp::FetchAdd { remote: word, add: atomic.compare_add },
        LOCAL_INV => SendOp::LocalInv(wr.imm_data),
        BIND_MW => {
            // SAFETY: any bytes make this variant.
            let bind = unsafe { wr.bind_mw.bind_mw };
            // SAFETY: the window and region are the program's.
            unsafe { bind_of(bind.mw, bind.rkey, &bind.bind_info)? }
        }
        SEND_INV => SendOp::SendInv(wr.imm_data),
        _ => return Err(EINVAL),
    })
}

/// Where a datagram goes.
///
/// # Safety
/// The address handle must be null or live.
#[inline]
pub(crate) unsafe fn target_of(ud: IbvUd) -> Result<UdTarget, Errno> {
    // SAFETY: the caller's promise.
    let ah = unsafe { Ah::of(ud.ah) }.ok_or(EINVAL)?.ah;
    Ok(UdTarget { ah, qpn: Qpn(ud.remote_qpn), qkey: ud.remote_qkey })
}

/// A bind in the stack's words.
///
/// # Safety
/// Window and region must be null or live.
pub(crate) unsafe fn bind_of(
    mw: *mut IbvMw,
    rkey: u32,
    info: &IbvMwBindInfo,
) -> Result<SendOp, Errno> {
    // SAFETY: the caller's promise.
    let mw = unsafe { Mw::of(mw) }.ok_or(EINVAL)?.mw;
    // SAFETY: as above.
    let mr = match unsafe { Mr::of(info.mr) } {
        Some(region) => region.mr,
        None if info.addr == 0 && info.length == 0 => verbs::Mr::NONE,
        None => return Err(EINVAL),
    };
    let access = Access(info.mw_access_flags);
    let bind = MwBind { mr, addr: info.addr, length: info.length, access };
    Ok(SendOp::BindMw { mw, rkey, bind })
}

/// # Safety
/// The QP must be null or live, the list valid, `bad_wr` null or valid.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut IbvQp,
    wr: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(qp) = (unsafe { Qp::of(qp) }) else { return refuse(EINVAL, wr, bad_wr) };
    // SAFETY: as above.
    unsafe { post_receives(qp.engine.recv(&qp.queue), wr, bad_wr) }
}

/// # Safety
/// The SRQ must be null or live, the list valid, `bad_wr` null or valid.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut IbvSrq,
    wr: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(srq) = (unsafe { Srq::of(srq) }) else { return refuse(EINVAL, wr, bad_wr) };
    // SAFETY: as above.
    unsafe { post_receives(srq.engine.recv_shared(&srq.queue), wr, bad_wr) }
}

/// # Safety
/// The list must be valid, `bad_wr` null or valid.
#[inline]
unsafe fn post_receives(
    mut batch: RecvBatch,
    wr: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    let mut local = Local::new();
    let mut next = wr;
    // SAFETY: the caller's promise.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let outcome = unsafe { local.sges(wr.sg_list, wr.num_sge) }
            .and_then(|sges| batch.push(&RecvWr { wr_id: wr.wr_id, sges }).map_err(Errno::from));
        if let Err(error) = outcome {
            log_recv(wr, error);
            return refuse(error, next, bad_wr);
        }
        next = wr.next;
    }
    0
}

#[cfg(test)]
mod tests {
    use ferroce_stack::Config;

    use crate::layout::zeroed;

    use super::*;

    #[test]
    fn what_lies_on_the_stack_is_as_large_as_the_device_takes() {
        let config = Config::default();
        assert_eq!((MAX_SGE, MAX_INLINE), (config.max_sge as usize, config.max_inline as usize));
    }

    #[test]
    fn scatter_gather_lists_are_bounded() {
        let entries = [IbvSge { addr: 1, length: 2, lkey: 3 }; MAX_SGE + 1];
        let mut local = Local::new();
        let mut sges = |list, count| {
            // SAFETY: the list is null or as long as said.
            unsafe { local.sges(list, count) }.map(<[Sge]>::to_vec)
        };
        let list = entries.as_ptr();
        assert_eq!(sges(list, 2), Ok(vec![Sge { addr: 1, length: 2, lkey: 3 }; 2]));
        assert_eq!(sges(core::ptr::null(), 0), Ok(vec![]));
        for (list, count) in [(core::ptr::null(), 1), (list, -1), (list, MAX_SGE as c_int + 1)] {
            assert_eq!(sges(list, count), Err(EINVAL));
        }
    }

    #[test]
    fn inline_bytes_are_gathered_and_bounded() {
        let bytes = [7u8; MAX_INLINE];
        let entry = |length| IbvSge { addr: bytes.as_ptr() as usize as u64, length, lkey: 0 };
        let mut local = Local::new();
        let mut inline = |list: &[IbvSge]| {
            // SAFETY: the list and what it names are alive.
            unsafe { local.inline(list.as_ptr(), list.len() as c_int) }.map(<[u8]>::len)
        };
        assert_eq!(inline(&[entry(3), entry(0), entry(5)]), Ok(8));
        assert_eq!(inline(&[entry(1024), entry(1)]), Err(Errno(libc::ENOMEM)));
        assert_eq!(inline(&[entry(u32::MAX)]), Err(Errno(libc::ENOMEM)));
    }

    #[test]
    fn checksums_of_raw_packets_are_the_programs_own() {
        let flags = SEND_INLINE | IP_CSUM | 0b10;
        assert_eq!(flags_of(QpType::RawPacket, flags), Err(EINVAL));
        assert_eq!(flags_of(QpType::RawPacket, 0b10), Ok(SendFlags::SIGNALED));
        assert_eq!(flags_of(QpType::Ud, flags), Ok(SendFlags::SIGNALED));
    }

    #[test]
    fn an_unknown_opcode_is_refused() {
        let mut wr: IbvSendWr = zeroed();
        for opcode in [-1, 10, 11, 16] {
            wr.opcode = opcode;
            // SAFETY: it points to nothing.
            assert!(unsafe { operation(&wr) }.is_err());
        }
    }
}
