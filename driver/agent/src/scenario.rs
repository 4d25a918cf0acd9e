//! The objects of one scenario, and the calls that make, change and destroy them.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use ferroce_conform::target::{Call, Reply, SendRequest};
use ferroce_stack::verbs::QpType;
use ferroce_verbs_layout::{
    IbvCompChannel, IbvCq, IbvGid, IbvMr, IbvMw, IbvPd, IbvSrq, IbvSrqAttr, IbvSrqInitAttr,
    IbvSrqInitAttrEx, IbvXrcd, IbvXrcdInitAttr, zeroed,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::device::{Device, extended};
use crate::error::{CallError, STALE, UNSUPPORTED, check, made};
use crate::memory::Mapping;
use crate::qp::{Path, Qp, SGES};

/// The domain of objects whose domain is not named.
const FIRST_DOMAIN: &str = "pd";

/// Entries of the completion queue, if the device takes so many.
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

/// `IBV_SRQ_LIMIT`.
const SRQ_LIMIT: c_int = 1 << 1;

/// Of `ibv_srq_init_attr_ex`: its type, domain, XRC domain and CQ are given.
const XRC_SRQ_MASK: u32 = 0xf;
/// `IBV_SRQT_XRC`.
const XRC_SRQ: c_int = 1;

/// Of `ibv_xrcd_init_attr`: file and flags are given; there is no file.
const XRCD_MASK: u32 = 0b11;
const NO_FILE: c_int = -1;

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

    fn add(&mut self, name: &str, object: T) {
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

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    /// Its name.
    pub name: String,
    /// The library's.
    pub object: *mut IbvSrq,
}

/// Everything a scenario has made; destroyed with it.
#[derive(Debug)]
pub struct Scenario<'a> {
    /// The device.
    pub device: &'a Device,
    /// From where to where its QPs are connected.
    pub path: Path,
    channel: *mut IbvCompChannel,
    /// Where everything completes.
    pub cq: *mut IbvCq,
    xrcd: Option<*mut IbvXrcd>,
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
            xrcd: None,
            domains: Named::new(),
            memories: Named::new(),
            windows: Named::new(),
            srqs: Named::new(),
            qps: Named::new(),
            objects: 0,
            bytes: 0,
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

    fn arm(&self) -> Result<(), CallError> {
        // SAFETY: the queue is there, and its context open.
        let arm = unsafe { (*(*self.cq).context).ops.req_notify_cq }.ok_or(UNSUPPORTED)?;
        // SAFETY: as above.
        check(unsafe { arm(self.cq, 0) })
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
            Call::CreateSrq { srq, pd, max_wr, xrc } => self.create_srq(srq, pd, *max_wr, *xrc),
            Call::ArmSrq { srq, limit } => self.arm_srq(srq, *limit),
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
            Call::DestroyQp { qp } => self.qps.get(qp)?.destroy(self.device).map(|()| Reply::Done),
            Call::Multicast { qp, group, attach } => self.multicast(qp, *group, *attach),
            Call::PostSend { qp, wr } => self.post_send(qp, wr),
            Call::PostRecv { to, wr_id, sges } => self.post_recv(to, *wr_id, sges),
            Call::Cm(_) => Err(UNSUPPORTED),
            Call::Counter { name } => Ok(Reply::Counter { value: self.device.counter(name) }),
        }
    }

    /// Counts an object that is about to be made.
    fn count(&mut self) -> Result<(), CallError> {
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

    fn create_srq(
        &mut self,
        name: &str,
        pd: &str,
        max_wr: u32,
        xrc: bool,
    ) -> Result<Reply, CallError> {
        self.count()?;
        let pd = self.domain(pd)?;
        let max_sge = SGES.min(self.device.max_srq_sge());
        let attr = IbvSrqAttr { max_wr, max_sge, srq_limit: 0 };
        let (object, reply) = if xrc {
            self.create_xrc_srq(pd, attr)?
        } else {
            let mut init: IbvSrqInitAttr = zeroed();
            init.attr = attr;
            // SAFETY: the domain is there, the attributes are whole.
            let object = unsafe { (self.device.library.ibv_create_srq)(pd, &raw mut init) };
            (made(object)?, Reply::Done)
        };
        self.srqs.add(name, Srq { name: name.to_owned(), object });
        Ok(reply)
    }

    fn create_xrc_srq(
        &mut self,
        pd: *mut IbvPd,
        attr: IbvSrqAttr,
    ) -> Result<(*mut IbvSrq, Reply), CallError> {
        let context = self.device.context;
        let create = extended!(context, create_srq_ex).ok_or(UNSUPPORTED)?;
        let number_of = extended!(context, get_srq_num).ok_or(UNSUPPORTED)?;
        let mut init: IbvSrqInitAttrEx = zeroed();
        init.attr = attr;
        init.comp_mask = XRC_SRQ_MASK;
        init.srq_type = XRC_SRQ;
        (init.pd, init.xrcd, init.cq) = (pd, self.xrc_domain()?, self.cq);
        // SAFETY: the device is open, domains and queue are there.
        let object = made(unsafe { create(context, &raw mut init) })?;
        let mut srqn = 0;
        // SAFETY: the queue has just been made.
        let told = check(unsafe { number_of(object, &raw mut srqn) });
        told.inspect_err(|_| {
            // SAFETY: as above; nothing uses it.
            unsafe { (self.device.library.ibv_destroy_srq)(object) };
        })?;
        Ok((object, Reply::Srq { srqn }))
    }

    /// The XRC domain; it is made when it is needed.
    ///
    /// # Errors
    /// Refused if there is none to be had.
    pub fn xrc_domain(&mut self) -> Result<*mut IbvXrcd, CallError> {
        if let Some(xrcd) = self.xrcd {
            return Ok(xrcd);
        }
        let context = self.device.context;
        let open = extended!(context, open_xrcd).ok_or(UNSUPPORTED)?;
        let mut init = IbvXrcdInitAttr { comp_mask: XRCD_MASK, fd: NO_FILE, oflags: libc::O_CREAT };
        // SAFETY: the device is open, the attributes are whole.
        let xrcd = made(unsafe { open(context, &raw mut init) })?;
        self.xrcd = Some(xrcd);
        Ok(xrcd)
    }

    fn arm_srq(&mut self, name: &str, limit: u32) -> Result<Reply, CallError> {
        let srq = self.srqs.get(name)?.object;
        let mut attr = IbvSrqAttr { max_wr: 0, max_sge: 0, srq_limit: limit };
        // SAFETY: the queue is there, the attributes are whole.
        check(unsafe { (self.device.library.ibv_modify_srq)(srq, &raw mut attr, SRQ_LIMIT) })?;
        Ok(Reply::Done)
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
            for srq in &self.srqs.all {
                (library.ibv_destroy_srq)(srq.object);
            }
            for region in self.memories.all.iter().filter_map(|memory| memory.region) {
                (library.ibv_dereg_mr)(region);
            }
            if let (Some(xrcd), Some(close)) = (self.xrcd, close_xrcd) {
                close(xrcd);
            }
        }
        // What it has told must be taken back, or it waits for that.
        let _ = self.hear_completions();
        // SAFETY: as above.
        unsafe {
            (library.ibv_destroy_cq)(self.cq);
            (library.ibv_destroy_comp_channel)(self.channel);
            for pd in &self.domains.all {
                (library.ibv_dealloc_pd)(*pd);
            }
        }
    }
}
