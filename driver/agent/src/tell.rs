//! What completes and happens, in the words of scenarios.

use ferroce_conform::target::{Completion, Event};
use ferroce_conform::words;
use ferroce_stack::verbs::QpType;
use ferroce_verbs_layout::codes::{WC_WITH_IMM, WC_WITH_INV};
use ferroce_verbs_layout::{IbvAsyncEvent, IbvWc, zeroed};

use crate::error::{CallError, UNSUPPORTED};
use crate::queues::Cq;
use crate::scenario::Scenario;
use crate::words::{Subject, subject};

/// Completions taken at a time.
const BATCH: usize = 32;

/// Of `ibv_wc_opcode`: a receive.
const RECEIVE: i32 = 1 << 7;

impl Scenario<'_> {
    /// Everything that has completed, in queues that are polled.
    ///
    /// # Errors
    /// If a completion queue is broken.
    pub fn completions(&self) -> Result<Vec<Completion>, CallError> {
        // SAFETY: the queue is there, and its context open.
        let poll = unsafe { (*(*self.cq).context).ops.poll_cq }.ok_or(UNSUPPORTED)?;
        let mut all = Vec::new();
        for cq in self.cqs.latest().filter_map(Cq::to_poll).chain([self.cq]) {
            loop {
                let mut batch: [IbvWc; BATCH] = [zeroed(); BATCH];
                // SAFETY: the queue is there, the batch has so much room.
                let count = unsafe { poll(cq, BATCH as i32, batch.as_mut_ptr()) };
                let Ok(count) = usize::try_from(count) else {
                    return Err(CallError::Wrong(format!("the completion queue says {count}")));
                };
                all.extend(batch.iter().take(count).map(|wc| self.completion(wc)));
                if count < BATCH {
                    break;
                }
            }
        }
        Ok(all)
    }

    fn completion(&self, wc: &IbvWc) -> Completion {
        let (qp, service) = match self.qp_of(wc.qp_num) {
            Some((name, service)) => (name.to_owned(), Some(service)),
            None => (format!("qp-{:#x}", wc.qp_num), None),
        };
        let is_success = wc.status == 0;
        let has = |flag: u32| is_success && wc.wc_flags & flag != 0;
        let tells_source = matches!(service, Some(QpType::Ud | QpType::XrcRecv));
        let is_receive = is_success && wc.opcode & RECEIVE != 0;
        Completion {
            qp,
            wr_id: wc.wr_id,
            status: words::status(wc.status),
            opcode: words::opcode(wc.opcode),
            length: if is_success { wc.byte_len } else { 0 },
            imm: has(WC_WITH_IMM).then_some(wc.imm_data.to_ne_bytes()),
            invalidated: has(WC_WITH_INV).then_some(wc.imm_data),
            source_qp: (tells_source && is_receive).then_some(wc.src_qp),
        }
    }

    /// Takes the next asynchronous event, if there is one; what is no part of a scenario is passed
    /// over.
    pub fn event(&self) -> Option<Event> {
        let library = &self.device.library;
        loop {
            let mut event: IbvAsyncEvent = zeroed();
            // SAFETY: the device is open, the event is the verb's to fill; it does not block.
            let code =
                unsafe { (library.ibv_get_async_event)(self.device.context, &raw mut event) };
            if code != 0 {
                return None;
            }
            let told = words::event(event.event_type)
                .and_then(|word| self.about(word, subject(event.event_type), event.element));
            // SAFETY: the event has just been taken.
            unsafe { (library.ibv_ack_async_event)(&raw mut event) };
            if told.is_some() {
                return told;
            }
        }
    }

    /// An event about one of the objects; none if it is of a scenario before.
    fn about(&self, word: &str, subject: Subject, element: usize) -> Option<Event> {
        let of = match subject {
            Subject::Qp => Some(self.qps.latest().find(|qp| qp.is(element))?.name.clone()),
            Subject::Srq => {
                let srq = self.srqs.latest().find(|srq| srq.is(element))?;
                Some(srq.name.clone())
            }
            Subject::Cq if self.cq.addr() == element => None,
            Subject::Cq => Some(self.cqs.latest().find(|cq| cq.is(element))?.name.clone()),
            Subject::Device => None,
        };
        Some(Event { event: word.to_owned(), of })
    }
}
