//! Completion queues, shared receive queues and XRC domains of a script.

use ferroce_stack::SrqInit;
use ferroce_stack::verbs::{Cq, Srq, Xrcd};

use super::calls::{Outcome, found};
use super::{CQE, MemoryTarget, NamedCq, SGES, find};
use crate::target::{Call, FIRST_XRC_DOMAIN, Reply};

impl MemoryTarget {
    pub(super) fn carry_out_queue(&mut self, call: &Call) -> Outcome<Reply> {
        match call {
            Call::CreateCq { cq, cqe, unpolled } => {
                let handle = self.device.create_cq(*cqe as usize)?;
                let named = NamedCq { cq: handle, unpolled: *unpolled };
                self.objects.cqs.push((cq.clone(), named));
                Ok(Reply::Size { size: *cqe })
            }
            Call::PollCq { cq } => {
                let cq = self.cq(cq)?;
                self.poll(cq);
                Ok(Reply::Done)
            }
            Call::ResizeCq { cq, cqe } => {
                self.device.resize_cq(self.cq(cq)?, *cqe as usize)?;
                Ok(Reply::Size { size: *cqe })
            }
            Call::DestroyCq { cq } => {
                self.device.destroy_cq(self.cq(cq)?)?;
                Ok(Reply::Done)
            }
            Call::OpenXrcd { xrcd } => {
                let handle = self.device.open_xrcd()?;
                self.objects.xrcds.push((xrcd.clone(), handle));
                Ok(Reply::Done)
            }
            Call::CreateSrq { srq, pd, max_wr, xrcd, cq } => {
                self.create_srq(srq, pd, *max_wr, xrcd.as_deref(), cq.as_deref())
            }
            Call::ArmSrq { srq, limit } => {
                self.device.modify_srq(self.srq(srq)?, None, Some(*limit))?;
                Ok(Reply::Done)
            }
            Call::ResizeSrq { srq, max_wr } => {
                let srq = self.srq(srq)?;
                self.device.modify_srq(srq, Some(*max_wr), None)?;
                Ok(Reply::Size { size: self.device.query_srq(srq)?.max_wr })
            }
            Call::QuerySrq { srq } => {
                let attr = self.device.query_srq(self.srq(srq)?)?;
                Ok(Reply::SrqAttributes { size: attr.max_wr, limit: attr.srq_limit })
            }
            Call::DestroySrq { srq } => {
                self.device.destroy_srq(self.srq(srq)?)?;
                Ok(Reply::Done)
            }
            _ => Err(ferroce_stack::verbs::VerbsError::NotSupported),
        }
    }

    fn cq(&self, name: &str) -> Outcome<Cq> {
        found(find(&self.objects.cqs, name)).map(|named| named.cq)
    }

    fn srq(&self, name: &str) -> Outcome<Srq> {
        found(find(&self.objects.srqs, name).copied())
    }

    /// The CQ of this name; one that nobody else uses if there is no name.
    pub(super) fn cq_or_own(&mut self, name: Option<&str>) -> Outcome<Cq> {
        match name {
            Some(name) => self.cq(name),
            None => self.device.create_cq(CQE),
        }
    }

    /// The XRC domain of this name; the first is made when it is needed.
    pub(super) fn xrcd(&mut self, name: &str) -> Outcome<Xrcd> {
        match find(&self.objects.xrcds, name) {
            Some(xrcd) => Ok(*xrcd),
            None if name == FIRST_XRC_DOMAIN => {
                let xrcd = self.device.open_xrcd()?;
                self.objects.xrcds.push((String::from(name), xrcd));
                Ok(xrcd)
            }
            None => found(None),
        }
    }

    fn create_srq(
        &mut self,
        name: &str,
        pd: &str,
        max_wr: u32,
        xrcd: Option<&str>,
        cq: Option<&str>,
    ) -> Outcome<Reply> {
        let pd = self.pd(pd)?;
        let xrc = match xrcd {
            Some(xrcd) => Some((self.xrcd(xrcd)?, self.cq_or_own(cq)?)),
            None => None,
        };
        let srq = self.device.create_srq(&SrqInit { pd, max_wr, max_sge: SGES, xrc })?;
        self.objects.srqs.push((String::from(name), srq));
        let srqn = xrc.map(|_| srq.value());
        Ok(Reply::Srq { srqn, size: self.device.query_srq(srq)?.max_wr })
    }
}
