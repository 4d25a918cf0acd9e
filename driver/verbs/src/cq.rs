//! Completion queues. Each is allocated as an `ibv_cq_ex`, so that both interfaces work on it.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use std::sync::Arc;

use ferroce::engine::{AsyncQueue, Completion, CompletionQueue, Engine};
use ferroce_stack::verbs::Wc;

use crate::channel::CompChannel;
use crate::context::Context;
use crate::cq_ex;
use crate::errno::{self, EINVAL, Errno};
use crate::event;
use crate::layout::codes::{WC_WITH_IMM, WC_WITH_INV};
use crate::layout::{IbvCompChannel, IbvContext, IbvCq, IbvCqEx, IbvCqInitAttrEx, IbvWc, zeroed};
use crate::log::refuse;
use crate::object::{Acknowledged, HeldLock};

/// `IBV_WC_GRH` of `wc_flags`.
const GRH: u32 = 1;

/// `enum ibv_create_cq_wc_flags`: all but those of raw packets and tag matching.
const WC_FLAGS: u64 = ((1 << 12) - 1) & !(CVLAN | FLOW_TAG | TM_INFO);
const CVLAN: u64 = 1 << 8;
const FLOW_TAG: u64 = 1 << 9;
const TM_INFO: u64 = 1 << 10;

/// `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `_PD`.
const MASK_FLAGS: u32 = 1;
const MASK_PD: u32 = 2;
/// `enum ibv_create_cq_attr_flags`.
const SINGLE_THREADED: u32 = 1;
const IGNORE_OVERRUN: u32 = 2;

/// Completions taken at a time: a pair of cache lines each, on the stack.
const BATCH: usize = 8;

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    abi: UnsafeCell<IbvCqEx>,
    engine: Arc<Engine>,
    pub queue: Arc<CompletionQueue>,
    events: Arc<AsyncQueue>,
    /// Between `start_poll` and `end_poll`.
    polling: HeldLock,
    is_shared: bool,
    current: UnsafeCell<Completion>,
}

/// What a CQ is made of, by either call.
struct CqInit {
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    comp_vector: i64,
    is_shared: bool,
}

impl Cq {
    /// The CQ behind a program's pointer; `None` for null.
    ///
    /// # Safety
    /// The pointer must be null or of a live CQ, for as long as the reference lives.
    #[inline]
    pub unsafe fn of<'a>(cq: *mut IbvCq) -> Option<&'a Cq> {
        // SAFETY: CQs are made here alone, as the head of a `Cq`.
        unsafe { cq.cast::<Cq>().as_ref() }
    }

    /// What the program sees of it.
    #[inline]
    pub fn abi(&self) -> *mut IbvCqEx {
        self.abi.get()
    }

    /// The program is done with `count` events of its channel.
    pub fn acknowledge(&self, count: u32) {
        let abi = self.abi();
        // SAFETY: the fields are of this object.
        unsafe { Acknowledged::of(abi).add(count) };
    }

    /// Waits for a completion to look at, if there is one, and for the right to.
    pub fn start_poll(&self) -> bool {
        if self.is_shared {
            self.polling.acquire();
        }
        let mut first = [Completion::default()];
        let found = self.engine.poll_cq(&self.queue, &mut first) > 0;
        if found {
            self.look_at(first);
        } else {
            self.end_poll();
        }
        found
    }

    /// Looks at the next completion, if there is one. Only between `start_poll` and `end_poll`.
    /// Does not drive the engine: a completion made here would also make an event, for which a
    /// program that waits for one would then find nothing.
    pub fn next(&self) -> bool {
        let mut next = [Completion::default()];
        let found = self.queue.take(&mut next) > 0;
        if found {
            self.look_at(next);
        }
        found
    }

    fn look_at(&self, [completion]: [Completion; 1]) {
        let abi = self.abi();
        // SAFETY: the lock, or the program's word that it has one thread, makes these ours.
        unsafe {
            (*abi).status = completion.wc.status as c_int;
            (*abi).wr_id = completion.wc.wr_id;
            *self.current.get() = completion;
        }
    }

    /// Ends what `start_poll` began.
    pub fn end_poll(&self) {
        self.polling.release();
    }

    /// The completion looked at.
    #[inline]
    pub fn current(&self) -> Completion {
        // SAFETY: as in `look_at`.
        unsafe { *self.current.get() }
    }

    /// Waits until the program is done with all events it got for this CQ, unread ones taken
    /// back. The engine makes no more.
    fn wait_for_events(&self) {
        let (abi, queue) = (self.abi(), &self.queue);
        let cookie = abi as usize as u64;
        let unread = queue.channel().map_or(0, |channel| channel.remove(|&told| told == cookie));
        let notified = queue.notified().wrapping_sub(unread as u32);
        // SAFETY: the fields are of this object.
        unsafe { Acknowledged::of(abi).wait(notified) };
        event::settle(&self.events, cookie);
    }
}

/// Makes a CQ.
///
/// # Safety
/// The context must be null or open, the channel null or live.
unsafe fn create(context: *mut IbvContext, init: &CqInit) -> Result<*mut Cq, Errno> {
    // SAFETY: the caller's promise.
    let owner = unsafe { Context::of(context) }.ok_or(EINVAL)?;
    // SAFETY: the context is open.
    let vectors = i64::from(unsafe { (*context).num_comp_vectors });
    if !(0..vectors).contains(&init.comp_vector) {
        let vector = init.comp_vector;
        return Err(refuse!(EINVAL, "create_cq: comp_vector {vector}, there are {vectors}"));
    }
    // SAFETY: the caller gives a live channel or null.
    let channel = unsafe { CompChannel::of(init.channel) };
    let place = Box::into_raw(Box::new(MaybeUninit::<Cq>::uninit())).cast::<Cq>();
    let (engine, events) = (owner.engine.clone(), owner.events.clone());
    let told = channel.map(|channel| channel.queue.clone());
    let made = engine.create_cq(init.cqe, told, events.clone(), place as usize as u64);
    let queue = made.map_err(|error| {
        // SAFETY: allocated above, and never filled.
        drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<Cq>>()) });
        let cqe = init.cqe;
        refuse!(EINVAL, %error, cqe, "create_cq");
        Errno::from(error)
    })?;
    if let Some(channel) = channel {
        channel.enter();
    }
    let mut abi: IbvCqEx = zeroed();
    abi.context = context;
    abi.channel = init.channel;
    abi.cq_context = init.cq_context;
    abi.handle = queue.handle().value();
    abi.cqe = queue.cqe() as c_int;
    abi.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    abi.cond = libc::PTHREAD_COND_INITIALIZER;
    cq_ex::set_readers(&mut abi);
    let cq = Cq {
        abi: UnsafeCell::new(abi),
        engine,
        queue,
        events,
        polling: HeldLock::default(),
        is_shared: init.is_shared,
        current: UnsafeCell::new(Completion::default()),
    };
    // SAFETY: the place was allocated for it.
    unsafe { place.write(cq) };
    Ok(place)
}

/// # Safety
/// The context must be null or open, the channel null or live.
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut IbvContext,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    comp_vector: c_int,
) -> *mut IbvCq {
    let cqe = u32::try_from(cqe).unwrap_or(0);
    let comp_vector = i64::from(comp_vector);
    let init = CqInit { cqe, cq_context, channel, comp_vector, is_shared: true };
    // SAFETY: the caller's promise.
    errno::pointer(unsafe { create(context, &init) }.map(|cq| cq.cast()))
}

/// # Safety
/// As [`ibv_create_cq`]; the attributes must be null or valid.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut IbvContext,
    attr: *mut IbvCqInitAttrEx,
) -> *mut IbvCqEx {
    // SAFETY: the caller's promise.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    errno::pointer(attr.and_then(|attr| {
        let flags = if attr.comp_mask & MASK_FLAGS != 0 { attr.flags } else { 0 };
        let unknown = attr.comp_mask & !(MASK_FLAGS | MASK_PD);
        let wc_flags = attr.wc_flags & !WC_FLAGS;
        if wc_flags != 0 || unknown != 0 || flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 {
            return Err(refuse!(EOPNOTSUPP, wc_flags, unknown, flags, "create_cq_ex"));
        }
        let init = CqInit {
            cqe: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            comp_vector: i64::from(attr.comp_vector),
            is_shared: flags & SINGLE_THREADED == 0,
        };
        // SAFETY: the caller's promise.
        unsafe { create(context, &init) }.map(|cq| cq.cast())
    }))
}

/// # Safety
/// The CQ must be null or live.
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut IbvCq, cqe: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { Cq::of(cq) }.ok_or(EINVAL);
    errno::code(found.and_then(|cq| {
        let size = u32::try_from(cqe).unwrap_or(0);
        cq.engine.resize_cq(&cq.queue, size).map_err(|error| {
            refuse!(EINVAL, %error, cqe, "resize_cq: more completions are held, or out of range");
            Errno::from(error)
        })?;
        // SAFETY: the program's structure is alive; it says who may resize at a time.
        unsafe { (*cq.abi()).cqe = cqe };
        Ok(())
    }))
}

/// # Safety
/// The CQ must be null or live, and is gone if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { Cq::of(cq) }.ok_or(EINVAL);
    errno::code(found.and_then(|found| {
        found.engine.destroy_cq(&found.queue).map_err(|error| {
            refuse!(EBUSY, %error, "destroy_cq: queue pairs or SRQs complete there");
            Errno::from(error)
        })?;
        found.wait_for_events();
        // SAFETY: a channel outlives its CQs: it cannot be destroyed before.
        if let Some(channel) = unsafe { CompChannel::of((*found.abi()).channel) } {
            channel.leave();
        }
        // SAFETY: made by `create`, and the program gives it up.
        drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
        Ok(())
    }))
}

/// # Safety
/// The CQ must be null or live, and there must be room for `count` completions.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut IbvCq, count: c_int, out: *mut IbvWc) -> c_int {
    // SAFETY: the caller's promise.
    let Some(cq) = (unsafe { Cq::of(cq) }) else { return -libc::EINVAL };
    let count = usize::try_from(count).unwrap_or(0);
    if out.is_null() {
        return if count == 0 { 0 } else { -libc::EINVAL };
    }
    let mut batch = [Completion::default(); BATCH];
    let mut taken = 0;
    while taken < count {
        let room = BATCH.min(count - taken);
        let found = cq.engine.poll_cq(&cq.queue, &mut batch[..room]);
        for completion in &batch[..found] {
            // SAFETY: fewer than `count` have been written.
            unsafe { out.add(taken).write(work_completion(&completion.wc)) };
            taken += 1;
        }
        if found < room {
            break;
        }
    }
    taken as c_int
}

/// # Safety
/// The CQ must be null or live.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut IbvCq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let Some(cq) = (unsafe { Cq::of(cq) }) else { return errno::code(Err(EINVAL)) };
    cq.engine.req_notify_cq(&cq.queue, solicited_only != 0);
    0
}

/// `imm_data` of a completion: as on the wire, or the key that was invalidated.
#[inline]
pub(crate) fn imm_data(wc: &Wc) -> u32 {
    match (wc.imm_data, wc.invalidated_rkey) {
        (Some(bytes), _) => u32::from_ne_bytes(bytes),
        (None, Some(rkey)) => rkey,
        (None, None) => 0,
    }
}

/// `wc_flags` of a completion.
#[inline]
pub(crate) fn wc_flags(wc: &Wc) -> u32 {
    let flag = |set, flag| if set { flag } else { 0 };
    flag(wc.grh, GRH)
        | flag(wc.imm_data.is_some(), WC_WITH_IMM)
        | flag(wc.invalidated_rkey.is_some(), WC_WITH_INV)
}

#[inline]
fn work_completion(wc: &Wc) -> IbvWc {
    IbvWc {
        wr_id: wc.wr_id,
        status: wc.status as c_int,
        opcode: wc.opcode as c_int,
        vendor_err: 0,
        byte_len: wc.byte_len,
        imm_data: imm_data(wc),
        qp_num: wc.qp_num.0,
        src_qp: wc.src_qp.0,
        wc_flags: wc_flags(wc),
        pkey_index: wc.pkey_index,
        slid: 0,
        sl: wc.sl,
        dlid_path_bits: 0,
    }
}

#[cfg(test)]
mod tests {
    use ferroce_stack::verbs::{Qpn, WcOpcode, WcStatus};

    use super::*;

    #[test]
    fn immediate_data_keeps_the_order_of_the_wire() {
        let wc = Wc { imm_data: Some([1, 2, 3, 4]), grh: true, ..Wc::default() };
        let wc = work_completion(&wc);
        assert_eq!(u32::from_be(wc.imm_data), 0x0102_0304);
        assert_eq!(wc.wc_flags, GRH | WC_WITH_IMM);
    }

    #[test]
    fn an_invalidated_key_is_a_number_of_this_host() {
        let wc = work_completion(&Wc { invalidated_rkey: Some(0x1234), ..Wc::default() });
        assert_eq!((wc.imm_data, wc.wc_flags), (0x1234, WC_WITH_INV));
    }

    #[test]
    fn codes_are_those_of_the_header() {
        let wc = Wc {
            status: WcStatus::RetryExcErr,
            opcode: WcOpcode::RecvRdmaWithImm,
            qp_num: Qpn(7),
            ..Wc::default()
        };
        let wc = work_completion(&wc);
        assert_eq!((wc.status, wc.opcode, wc.qp_num), (12, 129, 7));
    }
}
