//! Completion queues, shared receive queues and XRC domains: how they are made, changed and destroyed.

use core::ffi::c_int;
use std::cell::Cell;

use ferroce_conform::target::{FIRST_XRC_DOMAIN, Reply};
use ferroce_verbs_layout::{
    IbvCq, IbvSrq, IbvSrqAttr, IbvSrqInitAttr, IbvSrqInitAttrEx, IbvXrcd, IbvXrcdInitAttr, zeroed,
};

use crate::device::extended;
use crate::error::{CallError, STALE, UNSUPPORTED, check, made};
use crate::qp::SGES;
use crate::scenario::Scenario;

/// `ibv_srq_attr_mask`.
const SRQ_MAX_WR: c_int = 1 << 0;
const SRQ_LIMIT: c_int = 1 << 1;

/// Of `ibv_srq_init_attr_ex`: its type, domain, XRC domain and CQ are given.
const XRC_SRQ_MASK: u32 = 0xf;
/// `IBV_SRQT_XRC`.
const XRC_SRQ: c_int = 1;

/// Of `ibv_xrcd_init_attr`: file and flags are given; there is no file.
const XRCD_MASK: u32 = 0b11;
const NO_FILE: c_int = -1;

/// A completion queue that has a name.
#[derive(Debug)]
pub struct Cq {
    /// Its name.
    pub name: String,
    /// Until it is destroyed.
    object: Option<*mut IbvCq>,
    /// What completes stays in it.
    unpolled: bool,
    /// It is to be polled once all the same.
    is_due: Cell<bool>,
}

impl Cq {
    /// The library's.
    ///
    /// # Errors
    /// Refused if it is destroyed.
    pub fn object(&self) -> Result<*mut IbvCq, CallError> {
        self.object.ok_or(STALE)
    }

    /// Whether the library's has this address.
    pub fn is(&self, address: usize) -> bool {
        self.object.is_some_and(|object| object.addr() == address)
    }

    /// The library's, if it is to be polled now.
    pub fn to_poll(&self) -> Option<*mut IbvCq> {
        let is_due = self.is_due.take();
        self.object.filter(|_| is_due || !self.unpolled)
    }

    /// The library's, if it tells of what completes.
    pub fn to_arm(&self) -> Option<*mut IbvCq> {
        self.object.filter(|_| !self.unpolled)
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    /// Its name.
    pub name: String,
    /// Until it is destroyed.
    object: Option<*mut IbvSrq>,
}

impl Srq {
    /// The library's.
    ///
    /// # Errors
    /// Refused if it is destroyed.
    pub fn object(&self) -> Result<*mut IbvSrq, CallError> {
        self.object.ok_or(STALE)
    }

    /// Whether the library's has this address.
    pub fn is(&self, address: usize) -> bool {
        self.object.is_some_and(|object| object.addr() == address)
    }
}

impl Scenario<'_> {
    pub(crate) fn create_cq(
        &mut self,
        name: &str,
        cqe: u32,
        unpolled: bool,
    ) -> Result<Reply, CallError> {
        self.count()?;
        let (library, none) = (&self.device.library, std::ptr::null_mut());
        let entries = c_int::try_from(cqe).unwrap_or(c_int::MAX);
        let (context, channel) = (self.device.context, self.channel());
        // SAFETY: the device is open, the channel its own.
        let object = made(unsafe { (library.ibv_create_cq)(context, entries, none, channel, 0) })?;
        let cq =
            Cq { name: name.to_owned(), object: Some(object), unpolled, is_due: Cell::new(false) };
        self.cqs.add(name, cq);
        self.arm()?;
        Ok(size_of_cq(object))
    }

    /// The completion queue of this name; the one that has none if there is no name.
    pub(crate) fn cq_or_own(&mut self, name: Option<&str>) -> Result<*mut IbvCq, CallError> {
        match name {
            Some(name) => self.cqs.get(name)?.object(),
            None => Ok(self.cq),
        }
    }

    /// Has a queue polled after this call.
    pub(crate) fn poll_cq(&mut self, name: &str) -> Result<Reply, CallError> {
        self.cqs.get(name)?.is_due.set(true);
        Ok(Reply::Done)
    }

    pub(crate) fn resize_cq(&mut self, name: &str, cqe: u32) -> Result<Reply, CallError> {
        let object = self.cqs.get(name)?.object()?;
        let entries = c_int::try_from(cqe).unwrap_or(c_int::MAX);
        // SAFETY: the queue is there.
        check(unsafe { (self.device.library.ibv_resize_cq)(object, entries) })?;
        Ok(size_of_cq(object))
    }

    pub(crate) fn destroy_cq(&mut self, name: &str) -> Result<Reply, CallError> {
        // What it has told must be taken back, or it waits for that.
        self.hear_completions()?;
        let library = self.device.library;
        let cq = self.cqs.get(name)?;
        // SAFETY: the queue is there; it is forgotten if that succeeds.
        check(unsafe { (library.ibv_destroy_cq)(cq.object()?) })?;
        cq.object = None;
        Ok(Reply::Done)
    }

    pub(crate) fn create_srq(
        &mut self,
        name: &str,
        pd: &str,
        max_wr: u32,
        xrcd: Option<&str>,
        cq: Option<&str>,
    ) -> Result<Reply, CallError> {
        self.count()?;
        let pd = self.domain(pd)?;
        let max_sge = SGES.min(self.device.max_srq_sge());
        let attr = IbvSrqAttr { max_wr, max_sge, srq_limit: 0 };
        let (object, srqn, size) = match xrcd {
            Some(xrcd) => {
                let mut init: IbvSrqInitAttrEx = zeroed();
                (init.attr, init.comp_mask, init.srq_type) = (attr, XRC_SRQ_MASK, XRC_SRQ);
                (init.pd, init.xrcd, init.cq) = (pd, self.xrc_domain(xrcd)?, self.cq_or_own(cq)?);
                let (object, srqn) = self.create_xrc_srq(&mut init)?;
                (object, Some(srqn), init.attr.max_wr)
            }
            None => {
                let mut init: IbvSrqInitAttr = zeroed();
                init.attr = attr;
                // SAFETY: the domain is there, the attributes are whole.
                let object = unsafe { (self.device.library.ibv_create_srq)(pd, &raw mut init) };
                (made(object)?, None, init.attr.max_wr)
            }
        };
        self.srqs.add(name, Srq { name: name.to_owned(), object: Some(object) });
        Ok(Reply::Srq { srqn, size })
    }

    fn create_xrc_srq(
        &mut self,
        init: &mut IbvSrqInitAttrEx,
    ) -> Result<(*mut IbvSrq, u32), CallError> {
        let context = self.device.context;
        let create = extended!(context, create_srq_ex).ok_or(UNSUPPORTED)?;
        let number_of = extended!(context, get_srq_num).ok_or(UNSUPPORTED)?;
        // SAFETY: the device is open, domains and queue are there.
        let object = made(unsafe { create(context, &raw mut *init) })?;
        let mut srqn = 0;
        // SAFETY: the queue has just been made.
        let told = check(unsafe { number_of(object, &raw mut srqn) });
        told.inspect_err(|_| {
            // SAFETY: as above; nothing uses it.
            unsafe { (self.device.library.ibv_destroy_srq)(object) };
        })?;
        Ok((object, srqn))
    }

    pub(crate) fn open_xrcd(&mut self, name: &str) -> Result<*mut IbvXrcd, CallError> {
        self.count()?;
        let context = self.device.context;
        let open = extended!(context, open_xrcd).ok_or(UNSUPPORTED)?;
        let mut init = IbvXrcdInitAttr { comp_mask: XRCD_MASK, fd: NO_FILE, oflags: libc::O_CREAT };
        // SAFETY: the device is open, the attributes are whole.
        let xrcd = made(unsafe { open(context, &raw mut init) })?;
        self.xrcds.add(name, xrcd);
        Ok(xrcd)
    }

    /// The XRC domain of this name; the first is made when it is needed.
    ///
    /// # Errors
    /// Refused if there is none to be had, wrong if there is none of this name.
    pub(crate) fn xrc_domain(&mut self, name: &str) -> Result<*mut IbvXrcd, CallError> {
        match self.xrcds.get(name) {
            Ok(xrcd) => Ok(*xrcd),
            Err(_) if name == FIRST_XRC_DOMAIN => self.open_xrcd(name),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn arm_srq(&mut self, name: &str, srq_limit: u32) -> Result<Reply, CallError> {
        self.modify_srq(name, IbvSrqAttr { max_wr: 0, max_sge: 0, srq_limit }, SRQ_LIMIT)?;
        Ok(Reply::Done)
    }

    pub(crate) fn resize_srq(&mut self, name: &str, max_wr: u32) -> Result<Reply, CallError> {
        self.modify_srq(name, IbvSrqAttr { max_wr, max_sge: 0, srq_limit: 0 }, SRQ_MAX_WR)?;
        Ok(Reply::Size { size: self.srq_attr(name)?.max_wr })
    }

    pub(crate) fn query_srq(&mut self, name: &str) -> Result<Reply, CallError> {
        let IbvSrqAttr { max_wr, srq_limit, .. } = self.srq_attr(name)?;
        Ok(Reply::SrqAttributes { size: max_wr, limit: srq_limit })
    }

    fn modify_srq(
        &mut self,
        name: &str,
        mut attr: IbvSrqAttr,
        mask: c_int,
    ) -> Result<(), CallError> {
        let srq = self.srqs.get(name)?.object()?;
        // SAFETY: the queue is there, the attributes are whole.
        check(unsafe { (self.device.library.ibv_modify_srq)(srq, &raw mut attr, mask) })
    }

    fn srq_attr(&mut self, name: &str) -> Result<IbvSrqAttr, CallError> {
        let srq = self.srqs.get(name)?.object()?;
        let mut attr: IbvSrqAttr = zeroed();
        // SAFETY: the queue is there, the attributes are the verb's to fill.
        check(unsafe { (self.device.library.ibv_query_srq)(srq, &raw mut attr) })?;
        Ok(attr)
    }

    pub(crate) fn destroy_srq(&mut self, name: &str) -> Result<Reply, CallError> {
        let library = self.device.library;
        let srq = self.srqs.get(name)?;
        // SAFETY: the queue is there; it is forgotten if that succeeds.
        check(unsafe { (library.ibv_destroy_srq)(srq.object()?) })?;
        srq.object = None;
        Ok(Reply::Done)
    }
}

fn size_of_cq(cq: *mut IbvCq) -> Reply {
    // SAFETY: the queue is there.
    Reply::Size { size: unsafe { (*cq).cqe }.max(0).unsigned_abs() }
}
