//! The objects of one scenario, and the calls that make, change and destroy them.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use ferroce_conform::cm::CmCall;
use ferroce_conform::target::{Call, FIRST_DOMAIN, Reply, SendRequest};
use ferroce_stack::verbs::QpType;
use ferroce_verbs_layout::{IbvCompChannel, IbvCq, IbvGid, IbvMr, IbvMw, IbvPd, IbvXrcd};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::cm::Cm;
use crate::device::{Device, extended};
use crate::error::{CallError, STALE, UNSUPPORTED, check, made};
use crate::memory::Mapping;
use crate::qp::{Path, Qp};
use crate::queues::{Cq, Srq};

/// Entries of the completion queue that has no name, if the device takes so many.
const COMPLETIONS: c_int = 4096;

/// Objects of a scenario, and bytes of a memory and of all of them.
const OBJECTS: usize = 4096;
const MEMORY: u64 = 64 << 20;
const MEMORIES: u64 = 256 << 20;

/// Bytes that one call reads.
const READ: u64 = 4 << 20;

/// `ibv_rereg_mr_flags`.
const CHANGE_PD: c_int = 1 << 1;
pub const CHANGE_ACCESS: c_int = 1 << 2;

/// Objects by name. A name that is given again is another object's; the first lives on.
#[derive(Debug)]
pub struct Named<T> {
    all: Vec<T>,
    last: BTreeMap<String, usize>,
}

impl<T> Named<T> {
    const fn new() -> Named<T> {
        Named { all: Vec::new(), last: BTreeMap::new() }
    }

    /// Adds an object, which has this name from here on.
    pub fn add(&mut self, name: &str, object: T) {
        self.last.insert(name.to_owned(), self.all.len());
        self.all.push(object);
    }

    /// The object of this name.
    ///
    /// # Errors
    /// Wrong if there is none.
    pub fn get(&mut self, name: &str) -> Result<&mut T, CallError> {
        let found = self.last.get(name).and_then(|index| self.all.get_mut(*index));
        found.ok_or_else(|| CallError::Wrong(format!("there is no {name}")))
    }

    /// All, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = &T> {
        self.all.iter().rev()
    }
}

/// Memory and the region over it.
#[derive(Debug)]
pub struct Memory {
    /// The bytes.
    pub mapping: Mapping,
    /// Until it is deregistered.
    region: Option<*mut IbvMr>,
    /// What accesses say for its first byte.
    pub address: u64,
    /// Its L_Key; the last it had.
    pub lkey: u32,
}

impl Memory {
    /// The region.
    ///
    /// # Errors
    /// Refused if it is deregistered.
    pub fn region(&self) -> Result<*mut IbvMr, CallError> {
        self.region.ok_or(STALE)
    }

    /// What is told of it, after its keys may have changed.
    fn reply(&mut self) -> Result<Reply, CallError> {
        let region = self.region()?;
        // SAFETY: the region is registered.
        let (lkey, rkey) = unsafe { ((*region).lkey, (*region).rkey) };
        self.lkey = lkey;
        Ok(Reply::Memory { address: self.address, lkey, rkey })
    }
}

/// A memory window.
#[derive(Debug)]
pub struct Window {
    /// The library's.
    pub object: *mut IbvMw,
}

/// Everything a scenario has made; destroyed with it.
#[derive(Debug)]
pub struct Scenario<'a> {
    /// The device.
    pub device: &'a Device,
    /// From where to where its QPs are connected.
    pub path: Path,
    channel: *mut IbvCompChannel,
    /// Where everything completes for which no other queue is named.
    pub cq: *mut IbvCq,
    /// By name.
    pub cqs: Named<Cq>,
    /// By name.
    pub xrcds: Named<*mut IbvXrcd>,
    domains: Named<*mut IbvPd>,
    /// By name.
    pub memories: Named<Memory>,
    /// By name.
    pub windows: Named<Window>,
    /// By name.
    pub srqs: Named<Srq>,
    /// By name; those that are destroyed as well, for what they have left to tell.
    pub qps: Named<Qp>,
    objects: usize,
    bytes: u64,
    /// Once connections are asked for.
    pub cm: Option<Cm<'a>>,
}

impl<'a> Scenario<'a> {
    /// One without objects, whose QPs will be connected so.
    ///
    /// # Errors
    /// If there is no completion queue to be had.
    pub fn new(device: &'a Device, path: Path) -> Result<Scenario<'a>, CallError> {
        let library = &device.library;
        // SAFETY: the device is open.
        let channel = made(unsafe { (library.ibv_create_comp_channel)(device.context) })?;
        let entries = COMPLETIONS.min(device.max_cqe());
        let none = std::ptr::null_mut();
        // SAFETY: the device is open, the channel its own.
        let cq =
            made(unsafe { (library.ibv_create_cq)(device.context, entries, none, channel, 0) });
        let cq = cq.inspect_err(|_| {
            // SAFETY: nothing uses the channel.
            unsafe { (library.ibv_destroy_comp_channel)(channel) };
        })?;
        let scenario = Scenario {
            device,
            path,
            channel,
            cq,
            cqs: Named::new(),
            xrcds: Named::new(),
            domains: Named::new(),
            memories: Named::new(),
            windows: Named::new(),
            srqs: Named::new(),
            qps: Named::new(),
            objects: 0,
            bytes: 0,
            cm: None,
        };
        fcntl(scenario.channel_descriptor(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(|errno| CallError::Refused(errno as c_int))?;
        scenario.arm()?;
        Ok(scenario)
    }

    /// Readable when something has completed.
    pub fn channel_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// Takes back what the channel has told, and has it tell of the next completion.
    ///
    /// # Errors
    /// If the completion queue cannot be armed.
    pub fn hear_completions(&self) -> Result<(), CallError> {
        let library = &self.device.library;
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is open; it does not block.
        while unsafe { (library.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut context) }
            == 0
        {
            // SAFETY: the one event of this queue that has just been taken.
            unsafe { (library.ibv_ack_cq_events)(cq, 1) };
        }
        self.arm()
    }

    /// Where the completion queues tell of what completes.
    pub fn channel(&self) -> *mut IbvCompChannel {
        self.channel
    }

    /// Has the channel tell of the next completion.
    ///
    /// # Errors
    /// If a completion queue cannot be armed.
    pub fn arm(&self) -> Result<(), CallError> {
        // SAFETY: the queue is there, and its context open.
        let arm = unsafe { (*(*self.cq).context).ops.req_notify_cq }.ok_or(UNSUPPORTED)?;
        for cq in self.cqs.latest().filter_map(Cq::to_arm).chain([self.cq]) {
            // SAFETY: as above.
            check(unsafe { arm(cq, 0) })?;
        }
        Ok(())
    }

    /// Carries a call out.
    ///
    /// # Errors
    /// What the verb says, or why the call makes no sense.
    pub fn call(&mut self, call: &Call) -> Result<Reply, CallError> {
        match call {
            Call::AllocPd { pd } => self.alloc_pd(pd).map(|_| Reply::Done),
            Call::RegMr { .. } => self.reg_mr(call),
            Call::DeregMr { memory } => self.dereg_mr(memory),
            Call::ReregMr { memory, access, pd } => self.rereg_mr(memory, *access, pd.as_deref()),
            Call::ReadMemory { memory, offset, length } => {
                self.read_memory(memory, *offset, *length)
            }
            Call::WriteMemory { memory, offset, bytes } => {
                self.memories.get(memory)?.mapping.write(*offset, bytes).map(|()| Reply::Done)
            }
            Call::AllocMw { window, pd, mw_type } => self.alloc_mw(window, pd, *mw_type),
            Call::CreateCq { cq, cqe, unpolled } => self.create_cq(cq, *cqe, *unpolled),
            Call::PollCq { cq } => self.poll_cq(cq),
            Call::ResizeCq { cq, cqe } => self.resize_cq(cq, *cqe),
            Call::DestroyCq { cq } => self.destroy_cq(cq),
            Call::OpenXrcd { xrcd } => self.open_xrcd(xrcd).map(|_| Reply::Done),
            Call::CreateSrq { srq, pd, max_wr, xrcd, cq } => {
                self.create_srq(srq, pd, *max_wr, xrcd.as_deref(), cq.as_deref())
            }
            Call::ArmSrq { srq, limit } => self.arm_srq(srq, *limit),
            Call::ResizeSrq { srq, max_wr } => self.resize_srq(srq, *max_wr),
            Call::QuerySrq { srq } => self.query_srq(srq),
            Call::DestroySrq { srq } => self.destroy_srq(srq),
            Call::CreateQp(make) => {
                self.count()?;
                let qp = Qp::create(self, make)?;
                let qpn = qp.qpn;
                self.qps.add(&make.qp, qp);
                Ok(Reply::Qp { qpn })
            }
            Call::ModifyQp { qp, state, attributes } => {
                let (device, path) = (self.device, self.path);
                let done = self.qps.get(qp)?.modify(device, path, state, attributes);
                done.map(|()| Reply::Done)
            }
            Call::QueryQp { qp } => self.qps.get(qp)?.state(self.device).map(|state| {
                Reply::State { state: ferroce_conform::words::state(state).to_owned() }
            }),
            Call::QueryAttributes { qp } => {
                let attributes = Box::new(self.qps.get(qp)?.query(self.device)?);
                Ok(Reply::Attributes { attributes })
            }
            Call::DestroyQp { qp } => self.qps.get(qp)?.destroy(self.device).map(|()| Reply::Done),
            Call::Multicast { qp, group, attach } => self.multicast(qp, *group, *attach),
            Call::PostSend { qp, wr } => self.post_send(qp, wr),
            Call::PostRecv { to, wr_id, sges } => self.post_recv(to, *wr_id, sges),
            Call::Cm(call) => self.call_cm(call),
            Call::Counter { name } => Ok(Reply::Counter { value: self.device.counter(name) }),
        }
    }

    /// Counts an object that is about to be made.
    ///
    /// # Errors
    /// Wrong if there are too many.
    pub fn count(&mut self) -> Result<(), CallError> {
        if self.objects >= OBJECTS {
            return Err(CallError::Wrong(format!("more than {OBJECTS} objects")));
        }
        self.objects += 1;
        Ok(())
    }

    fn alloc_pd(&mut self, name: &str) -> Result<*mut IbvPd, CallError> {
        self.count()?;
        // SAFETY: the device is open.
        let pd = made(unsafe { (self.device.library.ibv_alloc_pd)(self.device.context) })?;
        self.domains.add(name, pd);
        Ok(pd)
    }

    /// The domain of this name; the first is made when it is needed.
    ///
    /// # Errors
    /// Wrong if there is none.
    pub fn domain(&mut self, name: &str) -> Result<*mut IbvPd, CallError> {
        match self.domains.get(name) {
            Ok(pd) => Ok(*pd),
            Err(_) if name == FIRST_DOMAIN => self.alloc_pd(name),
            Err(error) => Err(error),
        }
    }

    fn reg_mr(&mut self, call: &Call) -> Result<Reply, CallError> {
        let Call::RegMr { memory, pd, length, iova, access, holds } = call else {
            return Err(CallError::Wrong("it registers nothing".to_owned()));
        };
        self.count()?;
        let bytes = self.bytes.saturating_add(*length);
        if *length > MEMORY || bytes > MEMORIES || holds.len() as u64 > *length {
            return Err(CallError::Wrong(format!("a memory of {length} bytes is not to be had")));
        }
        let (pd, library) = (self.domain(pd)?, &self.device.library);
        self.bytes = bytes;
        let mapping = Mapping::new(*length as usize, iova.unwrap_or(0))?;
        mapping.write(0, holds)?;
        let (at, len, access) = (mapping.address(), mapping.len(), *access as c_int);
        let region = match iova {
            // SAFETY: the domain is there, and the memory until the region is gone.
            None => unsafe { (library.ibv_reg_mr)(pd, at, len, access) },
            Some(iova) => {
                let register = library.ibv_reg_mr_iova.ok_or(UNSUPPORTED)?;
                // SAFETY: as above.
                unsafe { register(pd, at, len, *iova, access) }
            }
        };
        let region = made(region)?;
        let address = iova.unwrap_or(at.addr() as u64);
        let mut made = Memory { mapping, region: Some(region), address, lkey: 0 };
        let reply = made.reply();
        self.memories.add(memory, made);
        reply
    }

    fn dereg_mr(&mut self, name: &str) -> Result<Reply, CallError> {
        let memory = self.memories.get(name)?;
        let region = memory.region()?;
        // SAFETY: the region is registered; it is forgotten if that succeeds.
        check(unsafe { (self.device.library.ibv_dereg_mr)(region) })?;
        memory.region = None;
        Ok(Reply::Done)
    }

    fn rereg_mr(
        &mut self,
        name: &str,
        access: Option<u32>,
        pd: Option<&str>,
    ) -> Result<Reply, CallError> {
        let domain = pd.map(|pd| self.domain(pd)).transpose()?;
        let memory = self.memories.get(name)?;
        let region = memory.region()?;
        let flags = access.map_or(0, |_| CHANGE_ACCESS) | domain.map_or(0, |_| CHANGE_PD);
        let (domain, none) = (domain.unwrap_or(std::ptr::null_mut()), std::ptr::null_mut());
        let access = access.unwrap_or(0) as c_int;
        // SAFETY: the region is registered, the domain there if the flags say that it is given.
        check(unsafe {
            (self.device.library.ibv_rereg_mr)(region, flags, domain, none, 0, access)
        })?;
        memory.reply()
    }

    fn read_memory(&mut self, name: &str, offset: u64, length: u64) -> Result<Reply, CallError> {
        if length > READ {
            return Err(CallError::Wrong(format!("more than {READ} bytes at once")));
        }
        let bytes = self.memories.get(name)?.mapping.read(offset, length as usize)?;
        Ok(Reply::Bytes { bytes })
    }

    fn alloc_mw(&mut self, name: &str, pd: &str, mw_type: u8) -> Result<Reply, CallError> {
        self.count()?;
        let pd = self.domain(pd)?;
        // SAFETY: the device is open.
        let alloc = unsafe { (*self.device.context).ops.alloc_mw }.ok_or(UNSUPPORTED)?;
        // SAFETY: the domain is there.
        let object = made(unsafe { alloc(pd, c_int::from(mw_type)) })?;
        // SAFETY: the window has just been made.
        let rkey = unsafe { (*object).rkey };
        self.windows.add(name, Window { object });
        Ok(Reply::Key { rkey })
    }

    fn multicast(&mut self, name: &str, group: [u8; 16], attach: bool) -> Result<Reply, CallError> {
        let qp = self.qps.get(name)?.object()?;
        let gid = IbvGid { raw: group };
        let library = &self.device.library;
        let verb = if attach { library.ibv_attach_mcast } else { library.ibv_detach_mcast };
        // SAFETY: the QP and the GID are there.
        check(unsafe { verb(qp, &raw const gid, 0) })?;
        Ok(Reply::Done)
    }

    fn call_cm(&mut self, call: &CmCall) -> Result<Reply, CallError> {
        if let CmCall::Start = call {
            let library = self.device.connections.as_ref().ok_or(UNSUPPORTED)?;
            self.cm = Some(Cm::new(library, self.device.ip_of(self.path.index)?, self.path.peer)?);
            return Ok(Reply::Done);
        }
        self.count()?;
        self.cm.as_mut().ok_or(UNSUPPORTED)?.call(call)
    }

    fn post_send(&mut self, name: &str, wr: &SendRequest) -> Result<Reply, CallError> {
        crate::post::send(self, name, wr)
    }

    /// The service of the QP of this number, and its name.
    pub fn qp_of(&self, qpn: u32) -> Option<(&str, QpType)> {
        let qp = self.qps.latest().find(|qp| qp.qpn == qpn)?;
        Some((&qp.name, qp.service))
    }
}

impl Drop for Scenario<'_> {
    fn drop(&mut self) {
        let library = &self.device.library;
        let close_xrcd = extended!(self.device.context, close_xrcd);
        self.cm = None;
        for qp in &mut self.qps.all {
            // One that cannot be destroyed is left; what depends on it as well then.
            let _ = qp.destroy(self.device);
        }
        // SAFETY: the device is open. Each object is destroyed once, and after those that use it.
        unsafe {
            for window in &self.windows.all {
                if let Some(free) = (*self.device.context).ops.dealloc_mw {
                    free(window.object);
                }
            }
            for srq in self.srqs.all.iter().filter_map(|srq| srq.object().ok()) {
                (library.ibv_destroy_srq)(srq);
            }
            for region in self.memories.all.iter().filter_map(|memory| memory.region) {
                (library.ibv_dereg_mr)(region);
            }
            if let Some(close) = close_xrcd {
                for xrcd in &self.xrcds.all {
                    close(*xrcd);
                }
            }
        }
        // What it has told must be taken back, or it waits for that.
        let _ = self.hear_completions();
        // SAFETY: as above.
        unsafe {
            for cq in self.cqs.all.iter().filter_map(|cq| cq.object().ok()).chain([self.cq]) {
                (library.ibv_destroy_cq)(cq);
            }
            (library.ibv_destroy_comp_channel)(self.channel);
            for pd in &self.domains.all {
                (library.ibv_dealloc_pd)(*pd);
            }
        }
    }
}
