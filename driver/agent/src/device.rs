//! The device that the agent uses, and what it can do.

use core::ffi::{CStr, c_int};
use std::fmt;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use ferroce_stack::verbs::{Access, Mtu};
use ferroce_verbs_layout::{
    IbvContext, IbvDevice, IbvDeviceAttr, IbvDeviceAttrEx, IbvGidEntry, IbvPortAttr, VerbsContext,
    zeroed,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::utsname::uname;

use crate::error::{CallError, check, made};
use crate::library::{Library, RdmaLibrary};
use crate::trial::Trial;
use crate::words;

/// The one port that is used.
pub const PORT: u8 = 1;

/// `gid_type` of RoCE v2.
const ROCE_V2: u32 = 2;

/// `enum ibv_device_cap_flags`: SRQs that can be resized, windows of type 1, XRC, windows of types 2A and 2B.
const SRQ_RESIZE: u64 = 1 << 13;
const MEM_WINDOW: u64 = 1 << 17;
const XRC: u64 = 1 << 20;
const MEM_WINDOW_TYPE_2: u64 = 1 << 23 | 1 << 24;
/// What only the extended query tells.
const FLUSH_GLOBAL: u64 = 1 << 38;
const FLUSH_PERSISTENT: u64 = 1 << 39;
const ATOMIC_WRITE: u64 = 1 << 40;

/// There is no device to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError(String);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}

/// An operation in front of a context, if its library has it, as the header's inlines look for it.
macro_rules! extended {
    ($context:expr, $slot:ident) => {{
        use ::ferroce_verbs_layout::VerbsContext;
        let distance = size_of::<VerbsContext>() - ::std::mem::offset_of!(VerbsContext, $slot);
        $crate::device::surroundings($context, distance).and_then(|surroundings| {
            // SAFETY: the library has said that what is in front of its context begins at this slot
            // or before.
            unsafe { (&raw const (*surroundings).$slot).read() }
        })
    }};
}
pub(crate) use extended;

/// What is in front of a context, if it reaches so far, in bytes from its end.
pub fn surroundings(context: *mut IbvContext, distance: usize) -> Option<*const VerbsContext> {
    // SAFETY: the context is open.
    if unsafe { (*context).abi_compat } != usize::MAX {
        return None;
    }
    let surroundings = context
        .cast::<u8>()
        .wrapping_sub(offset_of!(VerbsContext, context))
        .cast_const()
        .cast::<VerbsContext>();
    // SAFETY: in front of a context of this kind is the size of what is there, at least.
    let size = unsafe { (&raw const (*surroundings).sz).read() };
    (size >= distance).then_some(surroundings)
}

/// One of a device's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its place in the table of GIDs.
    pub index: u8,
    /// It.
    pub gid: [u8; 16],
}

/// An open device.
pub struct Device {
    /// The library.
    pub library: Library,
    /// That of connections, if there is one that works.
    pub connections: Option<RdmaLibrary>,
    /// What its verbs want.
    pub context: *mut IbvContext,
    /// Its name.
    pub name: String,
    attributes: Box<IbvDeviceAttr>,
    flags: u64,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device of this name, or the first.
    ///
    /// # Errors
    /// [`DeviceError`] if there is none.
    pub fn open(library: Library, name: Option<&str>) -> Result<Device, DeviceError> {
        let (context, name) = open(&library, name)?;
        let connections = RdmaLibrary::load().ok().filter(RdmaLibrary::works);
        let attributes = Box::new(zeroed());
        let mut device = Device { library, connections, context, name, attributes, flags: 0 };
        // SAFETY: the device is open, the attributes are its to fill.
        let code = unsafe { (library.ibv_query_device)(context, &raw mut *device.attributes) };
        check(code).map_err(|error| device.failed("be asked for its attributes", &error))?;
        device.flags = device.flags();
        let descriptor = device.async_descriptor();
        fcntl(descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(|errno| DeviceError(format!("{}: its events: {errno}", device.name)))?;
        Ok(device)
    }

    fn failed(&self, what: &str, error: &CallError) -> DeviceError {
        let why = match error {
            CallError::Refused(code) => words::errno(*code),
            CallError::Unable(why) => (*why).to_owned(),
            CallError::Wrong(why) => why.clone(),
        };
        DeviceError(format!("{} cannot {what}: {why}", self.name))
    }

    /// Readable when there is an asynchronous event.
    pub fn async_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the context, which is as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.context).async_fd) }
    }

    /// Capability flags, by the extended query where there is one.
    fn flags(&self) -> u64 {
        let plain = u64::from(self.attributes.device_cap_flags);
        let Some(query) = extended!(self.context, query_device_ex) else { return plain };
        let mut attributes: IbvDeviceAttrEx = zeroed();
        let size = size_of::<IbvDeviceAttrEx>();
        // SAFETY: the device is open, the attributes are of the size said.
        let code = unsafe { query(self.context, std::ptr::null(), &raw mut attributes, size) };
        if code == 0 { attributes.device_cap_flags_ex | plain } else { plain }
    }

    /// The port.
    ///
    /// # Errors
    /// What the verb says.
    fn port(&self) -> Result<IbvPortAttr, CallError> {
        let mut port: IbvPortAttr = zeroed();
        // SAFETY: the device is open; no library writes more than the structure has.
        check(unsafe { (self.library.ibv_query_port)(self.context, PORT, &raw mut port) })?;
        Ok(port)
    }

    /// An address of RoCE v2: of this index and this GID where they are said; else one of IPv4, if
    /// there is one.
    ///
    /// # Errors
    /// [`DeviceError`] if there is none.
    pub fn address(
        &self,
        index: Option<u8>,
        wanted: Option<[u8; 16]>,
    ) -> Result<Address, DeviceError> {
        let port = self.port().map_err(|error| self.failed("tell its port", &error))?;
        let count = u8::try_from(port.gid_tbl_len.max(0)).unwrap_or(u8::MAX);
        let all = (0..count).filter_map(|index| Some((index, self.gid_at(index)?)));
        let suitable: Vec<Address> = all
            .map(|(index, gid)| Address { index, gid })
            .filter(|address| index.is_none_or(|index| index == address.index))
            .filter(|address| wanted.is_none_or(|wanted| wanted == address.gid))
            .collect();
        let rank = |address: &&Address| match address.gid {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => 0,
            [0xfe, 0x80, ..] => 2,
            _ => 1,
        };
        suitable.iter().min_by_key(rank).copied().ok_or_else(|| {
            let of = wanted.map_or(String::new(), |gid| {
                format!(" that is {}", Ipv6Addr::from(gid).to_canonical())
            });
            DeviceError(format!("{} has no address of RoCE v2{of}", self.name))
        })
    }

    /// The address at an index, if there is one of RoCE v2.
    fn gid_at(&self, index: u8) -> Option<[u8; 16]> {
        let mut entry: IbvGidEntry = zeroed();
        let (port, index) = (u32::from(PORT), u32::from(index));
        let size = size_of::<IbvGidEntry>();
        // SAFETY: the device is open, the entry is of the size said.
        let code = unsafe {
            (self.library._ibv_query_gid_ex)(self.context, port, index, &raw mut entry, 0, size)
        };
        (code == 0 && entry.gid_type == ROCE_V2).then_some(entry.gid.raw)
    }

    /// The IP address at an index.
    ///
    /// # Errors
    /// Refused if there is none.
    pub fn ip_of(&self, index: u8) -> Result<IpAddr, CallError> {
        let gid = self.gid_at(index).ok_or(CallError::Refused(libc::EADDRNOTAVAIL))?;
        Ok(Ipv6Addr::from(gid).to_canonical())
    }

    /// The largest path MTU of its port, in bytes.
    pub fn mtu(&self) -> u32 {
        let code = self.port().map_or(0, |port| port.active_mtu);
        let mtu = Mtu::ALL.into_iter().find(|mtu| *mtu as c_int == code);
        mtu.map_or(0, |mtu| mtu.bytes() as u32)
    }

    /// Whether FLUSH or ATOMIC WRITE can be posted.
    pub fn has_newer_operations(&self) -> bool {
        self.flags & (FLUSH_GLOBAL | FLUSH_PERSISTENT | ATOMIC_WRITE) != 0
    }

    /// At most so many elements in a work request.
    pub fn max_sge(&self) -> u32 {
        self.attributes.max_sge.max(1).unsigned_abs()
    }

    /// At most so many elements in a work request of an SRQ.
    pub fn max_srq_sge(&self) -> u32 {
        self.attributes.max_srq_sge.max(1).unsigned_abs()
    }

    /// At most so many entries in a completion queue.
    pub fn max_cqe(&self) -> c_int {
        self.attributes.max_cqe
    }

    /// What it can do, in the words of scenarios.
    pub fn features(&self) -> Vec<String> {
        let has = |flags: u64| self.flags & flags != 0;
        let mtu = self.mtu();
        let trial = Trial::new(self).ok();
        let grants = |access| trial.as_ref().is_some_and(|trial| trial.grants(access));
        let table = [
            ("rc", true),
            ("uc", true),
            ("ud", true),
            ("xrc", has(XRC)),
            ("atomic", self.attributes.atomic_cap > 0),
            ("atomic-write", has(ATOMIC_WRITE)),
            ("flush", has(FLUSH_GLOBAL) && grants(Access::FLUSH_GLOBAL)),
            ("flush-persistent", has(FLUSH_PERSISTENT) && grants(Access::FLUSH_PERSISTENT)),
            ("windows", has(MEM_WINDOW | MEM_WINDOW_TYPE_2) && self.attributes.max_mw > 0),
            ("reregister", trial.as_ref().is_some_and(Trial::can_be_changed)),
            ("srq", self.attributes.max_srq > 0),
            ("resize-srq", has(SRQ_RESIZE)),
            ("resize-cq", trial.as_ref().is_some_and(Trial::resizes_cqs)),
            ("multicast", self.attributes.max_mcast_grp > 0),
            ("cm", self.connections.is_some()),
            ("counters", self.counters().is_dir()),
            ("mtu-2048", mtu >= 2048),
            ("mtu-4096", mtu >= 4096),
        ];
        table.iter().filter(|(_, has)| *has).map(|(word, _)| (*word).to_owned()).collect()
    }

    /// Where the system shows what the device counts.
    fn counters(&self) -> PathBuf {
        let name = &self.name;
        PathBuf::from(format!("/sys/class/infiniband/{name}/ports/{PORT}/hw_counters"))
    }

    /// A counter; none if it has none of this name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        std::fs::read_to_string(self.counters().join(name)).ok()?.trim().parse().ok()
    }

    /// What it is, and on which system.
    pub fn description(&self) -> String {
        let system = uname().map_or_else(
            |_| "unknown system".to_owned(),
            |system| {
                let [name, release] = [system.sysname(), system.release()];
                format!("{} {}", name.to_string_lossy(), release.to_string_lossy())
            },
        );
        format!("{}, {system}", self.name)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: it is open, and what was made of it is gone: that borrows it.
        unsafe { (self.library.ibv_close_device)(self.context) };
    }
}

/// Opens the device of this name, or the first.
fn open(library: &Library, wanted: Option<&str>) -> Result<(*mut IbvContext, String), DeviceError> {
    let mut count: c_int = 0;
    // SAFETY: the count is the verb's to write.
    let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
    let list = made(list).map_err(|_| DeviceError("there is no list of devices".to_owned()))?;
    let devices: Vec<(*mut IbvDevice, String)> = (0..count.max(0) as usize)
        // SAFETY: the list has so many devices, which are there until it is freed.
        .map(|index| unsafe { *list.add(index) })
        .map(|device| {
            // SAFETY: as above; the name is a string.
            let name = unsafe { CStr::from_ptr((&raw const (*device).name).cast()) };
            (device, name.to_string_lossy().into_owned())
        })
        .collect();
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    let found = devices.iter().find(|(_, name)| is_wanted(name));
    let opened = found.map(|(device, name)| {
        // SAFETY: the device is of the list, which is freed below.
        let context = unsafe { (library.ibv_open_device)(*device) };
        made(context).map(|context| (context, name.clone())).map_err(|error| match error {
            CallError::Refused(code) => {
                DeviceError(format!("{name} cannot be opened: {}", words::errno(code)))
            }
            CallError::Unable(why) => DeviceError(why.to_owned()),
            CallError::Wrong(why) => DeviceError(why),
        })
    });
    // SAFETY: it is the list from above; an open device needs it no more.
    unsafe { (library.ibv_free_device_list)(list) };
    opened.unwrap_or_else(|| {
        let names: Vec<&str> = devices.iter().map(|(_, name)| name.as_str()).collect();
        Err(DeviceError(match wanted {
            Some(wanted) => format!("there is no device {wanted}, but {names:?}"),
            None => "there is no device".to_owned(),
        }))
    })
}
