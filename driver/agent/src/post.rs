//! Work requests.

use core::ffi::{c_int, c_void};

use ferroce_conform::target::{Reply, SendOperation, SendRequest, Span};
use ferroce_verbs_layout::codes::SEND_INLINE;
use ferroce_verbs_layout::codes::wr::{
    BIND_MW, COMPARE_SWAP, FETCH_ADD, LOCAL_INV, READ, SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM,
};
use ferroce_verbs_layout::{
    IbvAtomic, IbvMwBind, IbvMwBindInfo, IbvQp, IbvQpEx, IbvRdma, IbvRecvWr, IbvSendWr,
    IbvSendWrTail, IbvSge, IbvUd, IbvWrBindMw, zeroed,
};

use crate::error::{CallError, UNSUPPORTED, check};
use crate::scenario::Scenario;

/// `enum ibv_mw_type`: a type whose binding is a verb of its own.
const TYPE_1: c_int = 1;

/// Elements of a work request at most; the verb refuses fewer already.
const SGES: usize = 64;

/// Posts a send work request.
pub fn send(scenario: &mut Scenario<'_>, name: &str, wr: &SendRequest) -> Result<Reply, CallError> {
    let mut sges = elements(scenario, &wr.sges, wr.flags & SEND_INLINE != 0)?;
    match &wr.op {
        SendOperation::Flush { .. } | SendOperation::AtomicWrite { .. } => {
            newer(scenario, name, wr).map(|()| Reply::Done)
        }
        SendOperation::BindMw { .. } => bind(scenario, name, wr),
        _ => {
            let (device, path) = (scenario.device, scenario.path);
            let qp = scenario.qps.get(name)?;
            let mut request = request(wr, &mut sges);
            if let Some((remote_qpn, remote_qkey)) = wr.datagram {
                let ah = qp.handle(device, path)?;
                request.wr.ud = IbvUd { ah, remote_qpn, remote_qkey };
            }
            post(qp.object()?, &mut request).map(|()| Reply::Done)
        }
    }
}

/// What a work request says, but for windows, datagrams and newer operations.
fn request(wr: &SendRequest, sges: &mut [IbvSge]) -> IbvSendWr {
    let mut request: IbvSendWr = zeroed();
    request.wr_id = wr.wr_id;
    (request.sg_list, request.num_sge) = (sges.as_mut_ptr(), sges.len() as c_int);
    request.send_flags = wr.flags;
    request.qp_type = wr.srqn.unwrap_or(0);
    let rdma = |remote_addr: u64, rkey: u32| IbvRdma { remote_addr, rkey };
    request.opcode = match wr.op {
        SendOperation::Send => SEND,
        SendOperation::SendImm(imm) => {
            request.imm_data = u32::from_ne_bytes(imm);
            SEND_IMM
        }
        SendOperation::SendInv(key) => {
            request.imm_data = key;
            SEND_INV
        }
        SendOperation::Write { address, key } => {
            request.wr.rdma = rdma(address, key);
            WRITE
        }
        SendOperation::WriteImm { address, key, imm } => {
            request.wr.rdma = rdma(address, key);
            request.imm_data = u32::from_ne_bytes(imm);
            WRITE_IMM
        }
        SendOperation::Read { address, key } => {
            request.wr.rdma = rdma(address, key);
            READ
        }
        SendOperation::CompareSwap { address, key, compare, swap } => {
            request.wr.atomic =
                IbvAtomic { remote_addr: address, compare_add: compare, swap, rkey: key };
            COMPARE_SWAP
        }
        SendOperation::FetchAdd { address, key, add } => {
            request.wr.atomic =
                IbvAtomic { remote_addr: address, compare_add: add, swap: 0, rkey: key };
            FETCH_ADD
        }
        SendOperation::LocalInv(key) => {
            request.imm_data = key;
            LOCAL_INV
        }
        SendOperation::BindMw { .. } => BIND_MW,
        // They go another way.
        SendOperation::AtomicWrite { .. } | SendOperation::Flush { .. } => SEND,
    };
    request
}

fn post(qp: *mut IbvQp, request: &mut IbvSendWr) -> Result<(), CallError> {
    // SAFETY: the QP is there, and its context open.
    let post = unsafe { (*(*qp).context).ops.post_send }.ok_or(UNSUPPORTED)?;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the request and its elements are whole, and may go when this returns.
    check(unsafe { post(qp, request, &raw mut bad) })
}

/// Binds a window: those of type 1 by their verb, those of type 2 by a work request.
fn bind(scenario: &mut Scenario<'_>, name: &str, wr: &SendRequest) -> Result<Reply, CallError> {
    let SendOperation::BindMw { window, memory, offset, length, access } = &wr.op else {
        return Err(CallError::Wrong("it binds nothing".to_owned()));
    };
    let qp = scenario.qps.get(name)?.object()?;
    let window = scenario.windows.get(window)?.object;
    let memory = scenario.memories.get(memory)?;
    // SAFETY: the window is there.
    let (mw_type, rkey) = unsafe { ((*window).type_, (*window).rkey) };
    let unbinds = mw_type == TYPE_1 && *length == 0;
    let bind_info = IbvMwBindInfo {
        mr: if unbinds { std::ptr::null_mut() } else { memory.region()? },
        addr: memory.address.wrapping_add(*offset),
        length: *length,
        mw_access_flags: *access,
    };
    if mw_type == TYPE_1 {
        // SAFETY: the QP is there, and its context open.
        let bind = unsafe { (*(*qp).context).ops.bind_mw }.ok_or(UNSUPPORTED)?;
        let mut request: IbvMwBind = zeroed();
        (request.wr_id, request.send_flags) = (wr.wr_id, wr.flags);
        request.bind_info = bind_info;
        // SAFETY: QP and window are there, the request is whole.
        check(unsafe { bind(qp, window, &raw mut request) })?;
    } else {
        let rkey = next_key(rkey);
        let mut request = request(wr, &mut []);
        request.bind_mw = IbvSendWrTail { bind_mw: IbvWrBindMw { mw: window, rkey, bind_info } };
        post(qp, &mut request)?;
        // SAFETY: the window is there; its key is the program's to keep.
        unsafe { (*window).rkey = rkey };
    }
    // SAFETY: as above.
    Ok(Reply::Key { rkey: unsafe { (*window).rkey } })
}

/// A key with the next of its lowest bytes, as `ibv_inc_rkey` makes it.
fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

/// Posts FLUSH or ATOMIC WRITE, which only the extended calls have.
fn newer(scenario: &mut Scenario<'_>, name: &str, wr: &SendRequest) -> Result<(), CallError> {
    let qp = scenario.qps.get(name)?.extended()?;
    // SAFETY: the QP is there and was made for all of these calls.
    let calls: IbvQpEx = unsafe { qp.read() };
    let (Some(start), Some(complete)) = (calls.wr_start, calls.wr_complete) else {
        return Err(UNSUPPORTED);
    };
    // What is not there is found before the first of the calls.
    if calls.wr_flush.is_none() || calls.wr_atomic_write.is_none() {
        return Err(UNSUPPORTED);
    }
    // SAFETY: as above; the calls are in the order they must have, and ended by the last.
    check(unsafe {
        start(qp);
        ((*qp).wr_id, (*qp).wr_flags) = (wr.wr_id, wr.flags);
        match (&wr.op, calls.wr_flush, calls.wr_atomic_write) {
            (SendOperation::Flush { address, key, length, placement, region }, Some(flush), _) => {
                flush(qp, *key, *address, *length as usize, *placement, u8::from(*region));
            }
            (SendOperation::AtomicWrite { address, key, value }, _, Some(write)) => {
                write(qp, *key, *address, (&raw const *value).cast::<c_void>());
            }
            _ => {}
        }
        complete(qp)
    })
}

impl Scenario<'_> {
    /// Posts a receive work request to a QP or an SRQ.
    ///
    /// # Errors
    /// What the verb says.
    pub fn post_recv(&mut self, to: &str, wr_id: u64, spans: &[Span]) -> Result<Reply, CallError> {
        let mut sges = elements(self, spans, false)?;
        let mut request: IbvRecvWr = zeroed();
        request.wr_id = wr_id;
        (request.sg_list, request.num_sge) = (sges.as_mut_ptr(), sges.len() as c_int);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the device is open; what is posted to is there, and the request is whole.
        let code = unsafe {
            let ops = (*self.device.context).ops;
            if let Ok(srq) = self.srqs.get(to) {
                let srq = srq.object()?;
                let post = ops.post_srq_recv.ok_or(UNSUPPORTED)?;
                post(srq, &raw mut request, &raw mut bad)
            } else {
                let post = ops.post_recv.ok_or(UNSUPPORTED)?;
                post(self.qps.get(to)?.object()?, &raw mut request, &raw mut bad)
            }
        };
        check(code).map(|()| Reply::Done)
    }
}

/// The elements of a work request. Of what is sent inline the library itself reads the bytes, where
/// they are.
fn elements(
    scenario: &mut Scenario<'_>,
    spans: &[Span],
    is_inline: bool,
) -> Result<Vec<IbvSge>, CallError> {
    if spans.len() > SGES {
        return Err(CallError::Wrong(format!("more than {SGES} elements")));
    }
    let element = |span: &Span| {
        let memory = scenario.memories.get(&span.memory)?;
        let addr = match is_inline {
            true => memory.mapping.part(span.offset, span.length as usize)?.addr() as u64,
            false => memory.address.wrapping_add(span.offset),
        };
        let lkey = span.lkey.unwrap_or(memory.lkey);
        Ok(IbvSge { addr, length: span.length, lkey })
    };
    spans.iter().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_in_its_lowest_byte() {
        assert_eq!(next_key(0x1234_56fe), 0x1234_56ff);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
    }
}
