//! Send queue: work requests in posting order, kept until they retire. It is the retransmit
//! buffer too: sending again moves a cursor back.

use std::collections::VecDeque;
use std::iter;

use crate::memory::Memory;
use crate::mr::{Local, Regions};
use crate::outgoing::Outgoing;
use crate::psn::Psn;
use crate::verbs::{
    Pd, SendData, SendFlags, SendOp, SendWr, Sge, UdTarget, VerbsError, WcOpcode, WcStatus,
};

/// A posted send work request.
#[derive(Debug)]
pub(crate) struct SendWqe {
    pub wr_id: u64,
    pub op: SendOp,
    /// Message bytes; for READ the bytes asked for, for FLUSH the range.
    pub len: u32,
    pub flags: SendFlags,
    pub ud: Option<UdTarget>,
    pub srqn: u32,
    /// Where its bytes are: positions in the queue's SGEs or inline bytes.
    data: DataAt,
    /// First PSN, once begun.
    pub first_psn: Psn,
    /// PSNs it owns, once begun.
    pub psn_count: u32,
    /// Response packets taken (READ, atomics).
    pub responded: u32,
    pub progress: Progress,
    /// A READ that was asked again: its response stream may begin anew.
    pub retried: bool,
}

/// How far a send work request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No packet was built.
    Waiting,
    /// It owns PSNs.
    Begun,
    /// Nothing is left to do but to complete in order.
    Done,
    /// It failed here and completes so in order.
    Failed(WcStatus),
}

#[derive(Clone, Copy, Debug)]
enum DataAt {
    Sges { at: u64, count: u32 },
    Inline { at: u64 },
}

impl SendWqe {
    /// PSNs from its first to `psn`, modulo 2^24.
    pub fn offset_of(&self, psn: Psn) -> u32 {
        psn.since(self.first_psn)
    }

    pub fn wc_opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
            SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RdmaWrite,
            SendOp::Read(_) => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::AtomicWrite(..) => WcOpcode::AtomicWrite,
            SendOp::Flush { .. } => WcOpcode::Flush,
            SendOp::BindMw { .. } => WcOpcode::BindMw,
            SendOp::LocalInv(_) => WcOpcode::LocalInv,
        }
    }
}

/// Work requests by absolute index: the count of requests posted before.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: VecDeque<SendWqe>,
    /// Absolute index of the oldest.
    pub head: u64,
    sges: VecDeque<Sge>,
    sges_head: u64,
    inline: VecDeque<u8>,
    inline_head: u64,
    capacity: usize,
}

impl SendQueue {
    pub fn new(capacity: usize) -> SendQueue {
        SendQueue {
            wqes: VecDeque::new(),
            head: 0,
            sges: VecDeque::new(),
            sges_head: 0,
            inline: VecDeque::new(),
            inline_head: 0,
            capacity,
        }
    }

    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    #[inline]
    pub fn get(&self, index: u64) -> Option<&SendWqe> {
        self.wqes.get(index.wrapping_sub(self.head) as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, index: u64) -> Option<&mut SendWqe> {
        self.wqes.get_mut(index.wrapping_sub(self.head) as usize)
    }

    pub fn front(&self) -> Option<&SendWqe> {
        self.wqes.front()
    }

    /// What owns PSNs that are not yet done with, oldest first. The long tail of what waits behind
    /// it is not looked at: a peer can have this called for each packet.
    pub fn iter_begun(&self) -> impl Iterator<Item = (u64, &SendWqe)> {
        let all = (self.head..).zip(&self.wqes);
        all.take_while(|(_, wqe)| wqe.progress != Progress::Waiting)
            .filter(|(_, wqe)| wqe.progress == Progress::Begun)
    }

    /// Appends a work request that has passed [`crate::verbs::QpInit::check_send`], with the bytes
    /// of its message.
    pub fn post(&mut self, wr: &SendWr, len: u32) -> Result<(), VerbsError> {
        if self.wqes.len() == self.capacity {
            return Err(VerbsError::NoMemory);
        }
        let data = match wr.data {
            SendData::Sges(sges) => {
                let at = self.sges_head + self.sges.len() as u64;
                DataAt::Sges { at, count: sges.len() as u32 }
            }
            SendData::Inline(_) => {
                DataAt::Inline { at: self.inline_head + self.inline.len() as u64 }
            }
        };
        match wr.data {
            SendData::Sges(sges) => self.sges.extend(sges),
            SendData::Inline(bytes) => self.inline.extend(bytes),
        }
        self.wqes.push_back(SendWqe {
            wr_id: wr.wr_id,
            op: wr.op,
            len,
            flags: wr.flags,
            ud: wr.ud,
            srqn: wr.srqn.unwrap_or(0),
            data,
            first_psn: Psn::default(),
            psn_count: 0,
            responded: 0,
            progress: Progress::Waiting,
            retried: false,
        });
        Ok(())
    }

    /// Takes the oldest out.
    pub fn pop(&mut self) -> Option<SendWqe> {
        let wqe = self.wqes.pop_front()?;
        self.head += 1;
        match wqe.data {
            DataAt::Sges { count, .. } => {
                self.sges.drain(..count as usize);
                self.sges_head += u64::from(count);
            }
            DataAt::Inline { .. } => {
                self.inline.drain(..wqe.len as usize);
                self.inline_head += u64::from(wqe.len);
            }
        }
        Some(wqe)
    }

    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Gathers as many bytes as `out` has from `offset` on of the message of work request `index`.
    #[inline]
    pub fn gather(
        &self,
        index: u64,
        offset: u32,
        out: &mut Outgoing,
        pd: Pd,
        regions: &Regions,
        memory: &dyn Memory,
    ) -> Result<(), WcStatus> {
        let wqe = self.get(index).ok_or(WcStatus::GeneralErr)?;
        match wqe.data {
            DataAt::Inline { at } => {
                let start = (at - self.inline_head) as usize + offset as usize;
                let len = out.len();
                out.fill(0..len, self.inline.range(start..start + len));
                Ok(())
            }
            DataAt::Sges { at, count } => {
                let start = (at - self.sges_head) as usize;
                let sges = self.sges.range(start..start + count as usize);
                walk(sges, u64::from(offset), out.len(), |sge, skip, range| {
                    let va = sge.addr.wrapping_add(skip);
                    match regions.local(pd, sge.lkey, va, range.len(), false).ok()? {
                        Local::Memory(span) => out.read(range, memory, span).ok(),
                        Local::Null => {
                            out.fill(range, iter::repeat(&0));
                            Some(())
                        }
                    }
                })
            }
        }
    }

    /// Scatters `data` to `offset` of the message of work request `index`.
    pub fn scatter(
        &self,
        index: u64,
        offset: u32,
        data: &[u8],
        pd: Pd,
        regions: &Regions,
        memory: &mut dyn Memory,
    ) -> Result<(), WcStatus> {
        let wqe = self.get(index).ok_or(WcStatus::GeneralErr)?;
        let DataAt::Sges { at, count } = wqe.data else {
            return Err(WcStatus::LocQpOpErr);
        };
        let start = (at - self.sges_head) as usize;
        let sges = self.sges.range(start..start + count as usize);
        scatter(sges, u64::from(offset), data, pd, regions, memory)
    }
}

/// Scatters `data` to `offset` of the memory `sges` name.
#[inline]
pub(crate) fn scatter<'a>(
    sges: impl Iterator<Item = &'a Sge>,
    offset: u64,
    data: &[u8],
    pd: Pd,
    regions: &Regions,
    memory: &mut dyn Memory,
) -> Result<(), WcStatus> {
    walk(sges, offset, data.len(), |sge, skip, range| {
        let va = sge.addr.wrapping_add(skip);
        match regions.local(pd, sge.lkey, va, range.len(), true).ok()? {
            Local::Memory(span) => memory.write(span, &data[range]).ok(),
            Local::Null => Some(()),
        }
    })
}

/// Visits the pieces of `sges` that hold `len` bytes from `offset` on: the SGE, the bytes to skip
/// in it, and the range of the message part.
#[inline]
fn walk<'a>(
    sges: impl Iterator<Item = &'a Sge>,
    mut offset: u64,
    len: usize,
    mut visit: impl FnMut(&Sge, u64, core::ops::Range<usize>) -> Option<()>,
) -> Result<(), WcStatus> {
    let mut done = 0;
    for sge in sges {
        if done == len {
            break;
        }
        let length = u64::from(sge.length);
        if offset >= length {
            offset -= length;
            continue;
        }
        let take = ((length - offset) as usize).min(len - done);
        visit(sge, offset, done..done + take).ok_or(WcStatus::LocProtErr)?;
        done += take;
        offset = 0;
    }
    if done == len { Ok(()) } else { Err(WcStatus::LocLenErr) }
}
