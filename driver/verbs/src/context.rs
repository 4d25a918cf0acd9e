//! Opened devices.
//!
//! A context is the program's handle of a device: an engine, shared by all contexts of the device
//! in this process, and a file. The file stands for what programs know as the uverbs file: it is
//! what `cmd_fd` refers to, it outlives dup(2), and the objects made through it can be imported by
//! any context of the same file.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use ferroce::engine::{AsyncQueue, Engine, OpenError, Options};
use ferroce::fabric::FabricError;
use ferroce::gateway::GatewayError;
use ferroce::link::LinkError;
use ferroce_stack::verbs::Pd;

use crate::device::{Device, lock};
use crate::dm::DeviceMemory;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvContext, IbvDevice, IbvValuesEx, VerbsContext};
use crate::log::refuse;
use crate::mr::Registered;
use crate::ops;

/// Completion vectors; they are all the same to us.
const COMP_VECTORS: c_int = 1;
/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

/// The engine of a device while a context holds it.
pub(crate) type EngineSlot = Weak<Engine>;

/// An opened device. What programs hold is `abi.context`.
#[repr(C)]
pub(crate) struct Context {
    abi: VerbsContext,
    pub device: &'static Device,
    pub engine: Arc<Engine>,
    pub events: Arc<AsyncQueue>,
    pub file: Arc<File>,
}

/// What contexts that import from each other share: objects by their handles.
#[derive(Default)]
pub(crate) struct File {
    pub pds: Mutex<BTreeMap<u32, Pd>>,
    pub mrs: Mutex<BTreeMap<u32, Registered>>,
    pub dms: Mutex<BTreeMap<u32, Arc<DeviceMemory>>>,
}

/// Open contexts: device and inode of what `cmd_fd` refers to, and the rest of an import.
struct Opened {
    inode: (u64, u64),
    device: &'static Device,
    /// Of the process that opened it: handles mean nothing to another one.
    engine: Weak<Engine>,
    file: Weak<File>,
}

impl Opened {
    /// What an import of `inode` shares with this context.
    fn importable(&self, inode: (u64, u64)) -> Option<(&'static Device, Arc<File>)> {
        let same = self.inode == inode && self.engine.upgrade()?.is_here();
        same.then(|| self.file.upgrade()).flatten().map(|file| (self.device, file))
    }
}

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

impl Context {
    /// The context a program means.
    ///
    /// # Safety
    /// `context` must be null or one of ours that is open.
    pub unsafe fn of<'a>(context: *const IbvContext) -> Option<&'a Context> {
        if context.is_null() {
            return None;
        }
        // SAFETY: a context of ours is this field of a `Context`.
        Some(unsafe { &*context.byte_sub(offset_of!(VerbsContext, context)).cast::<Context>() })
    }

    /// What programs hold.
    pub fn as_abi(&self) -> *mut IbvContext {
        (&raw const self.abi.context).cast_mut()
    }

    /// Whether it was opened in this process, and not in the one it was forked from.
    pub fn is_here(&self) -> bool {
        self.engine.is_here()
    }

    /// Takes the descriptor only if it succeeds.
    fn open(
        device: &'static Device,
        file: Arc<File>,
        cmd_fd: c_int,
    ) -> Result<*mut IbvContext, Errno> {
        let inode = inode_of(cmd_fd)?;
        let events = Arc::new(AsyncQueue::new()?);
        let engine = engine_of(device)?;
        engine.add_context(events.clone())?;
        let mut abi = ops::verbs_context();
        abi.context.device = device.as_abi();
        abi.context.cmd_fd = cmd_fd;
        abi.context.async_fd = events.as_raw_fd();
        abi.context.num_comp_vectors = COMP_VECTORS;
        let (weak_engine, weak_file) = (Arc::downgrade(&engine), Arc::downgrade(&file));
        lock(&OPENED).push(Opened { inode, device, engine: weak_engine, file: weak_file });
        let context = Box::new(Context { abi, device, engine, events, file });
        Ok(Box::leak(context).as_abi())
    }
}

/// The engine of a device, opened for the first context and, in a forked child, anew.
fn engine_of(device: &'static Device) -> Result<Arc<Engine>, Errno> {
    let mut slot = lock(&device.engine);
    if let Some(engine) = slot.upgrade().filter(|engine| engine.is_here()) {
        return Ok(engine);
    }
    let options = Options::new(device.settings, &device.info);
    let engine = Engine::open(&options).map_err(|error| {
        tracing::error!(device = device.info.name, %error, "the device cannot be opened");
        open_errno(&error)
    })?;
    let engine = Arc::new(engine);
    *slot = Arc::downgrade(&engine);
    Ok(engine)
}

/// What a program learns of why a device cannot be opened; the log says more.
fn open_errno(error: &OpenError) -> Errno {
    Errno(match error {
        OpenError::Fabric(error) => fabric_errno(error),
        OpenError::Link(_, error) => match error {
            GatewayError::Fabric(error) => fabric_errno(error),
            GatewayError::Link(error) => match error {
                LinkError::NoInterface(_) => libc::ENODEV,
                LinkError::NoAddress(_) => libc::EADDRNOTAVAIL,
                LinkError::Io { source, .. } => io_errno(source),
                _ => libc::EOPNOTSUPP,
            },
            GatewayError::NoAddress => libc::EADDRNOTAVAIL,
            GatewayError::Mtu(_) => libc::EOPNOTSUPP,
            GatewayError::Io(source) | GatewayError::Capture(_, source) => io_errno(source),
        },
        OpenError::Address(_) => libc::EINVAL,
        OpenError::Capture(_, source) | OpenError::Thread(source) => io_errno(source),
    })
}

fn io_errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn fabric_errno(error: &FabricError) -> c_int {
    match error {
        FabricError::OtherUser { .. } | FabricError::WritableByOthers { .. } => libc::EACCES,
        FabricError::NotADirectory { .. } => libc::ENOTDIR,
        FabricError::NoParent { .. } => libc::ENOENT,
        FabricError::ReadOnly { .. } => libc::EROFS,
        FabricError::NoSpace { .. } => libc::ENOSPC,
        FabricError::Full { .. } => libc::EUSERS,
        FabricError::Busy { .. } => libc::EBUSY,
        FabricError::Io { source, .. } => io_errno(source),
        // Of gateways only.
        FabricError::HasGateway { .. }
        | FabricError::OtherVersion { .. }
        | FabricError::NotAFabric { .. }
        | FabricError::TooManyGids { .. } => libc::EINVAL,
    }
}

/// A file that nobody writes to, only for its descriptor to be an open one.
fn command_file() -> io::Result<OwnedFd> {
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(c"ferroce".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Device and inode: what a descriptor and its duplicates have in common.
pub(crate) fn inode_of(fd: c_int) -> io::Result<(u64, u64)> {
    // SAFETY: zero bytes are a valid `stat`.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is ours.
    if unsafe { libc::fstat(fd, &mut stat) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((stat.st_dev, stat.st_ino))
}

/// A new context of a device.
pub(crate) fn open_device(device: &'static Device) -> Result<*mut IbvContext, Errno> {
    let cmd_fd = command_file()?;
    let context = Context::open(device, Arc::default(), cmd_fd.as_raw_fd())?;
    // The context has it now.
    let _ = cmd_fd.into_raw_fd();
    Ok(context)
}

/// An opened device, or null and errno.
pub(crate) extern "C" fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext {
    errno::pointer(Device::find(device).and_then(open_device))
}

/// Another context of the file a descriptor refers to; it owns the descriptor unless this fails.
/// Only files of this process can be imported.
pub(crate) extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut IbvContext {
    errno::pointer(inode_of(cmd_fd).map_err(Errno::from).and_then(|inode| {
        let found = lock(&OPENED).iter().find_map(|opened| opened.importable(inode));
        let (device, file) = found.ok_or_else(|| {
            refuse!(EOPNOTSUPP, cmd_fd, "not the cmd_fd of a context of this process")
        })?;
        Context::open(device, file, cmd_fd)
    }))
}

/// Closes a context. Its objects must not be used any more.
///
/// # Safety
/// `context` must be null or an open context, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut IbvContext) -> c_int {
    if context.is_null() {
        return errno::code(Err(EINVAL));
    }
    let start: *mut c_void = context.cast::<c_void>();
    // SAFETY: a context of ours is this field of a `Context` from a `Box`.
    let context = unsafe {
        Box::from_raw(start.byte_sub(offset_of!(VerbsContext, context)).cast::<Context>())
    };
    let cmd_fd = context.abi.context.cmd_fd;
    if let Ok(inode) = inode_of(cmd_fd) {
        let mut opened = lock(&OPENED);
        if let Some(at) = opened.iter().position(|opened| opened.inode == inode) {
            opened.swap_remove(at);
        }
    }
    // SAFETY: it is the context's. A program may have closed it already: no `OwnedFd` then.
    unsafe { libc::close(cmd_fd) };
    // In a forked child the engine is gone, and nothing is left to undo.
    let _ = context.engine.remove_context(&context.events);
    0
}

/// The clock that completions are stamped with.
///
/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut IbvContext,
    values: *mut IbvValuesEx,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(_), Some(values)) = (unsafe { (Context::of(context), values.as_mut()) }) else {
        return errno::code(Err(EINVAL));
    };
    let comp_mask = values.comp_mask;
    if comp_mask & RAW_CLOCK == 0 {
        return errno::code(Err(refuse!(
            EOPNOTSUPP,
            comp_mask,
            "the one value known is the raw clock, mask 1"
        )));
    }
    // SAFETY: the structure is the caller's.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut values.raw_clock) };
    values.comp_mask = RAW_CLOCK;
    0
}

const _: () = assert!(offset_of!(Context, abi) == 0);
