//! Options of sockets (`rsetsockopt`, `rgetsockopt`, `rfcntl`).
//!
//! Those without a meaning here that programs set as a matter of course are kept and told as they
//! were set; others are refused, so that nobody relies on them.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::time::Duration;

use libc::socklen_t;

use super::config::Sizes;
use super::fd::check;
use super::link::Flow;
use super::service;
use super::stream::Stream;
use crate::device::lock;
use crate::errno::{EINVAL, Errno};
use crate::layout::{
    IbvPathData, IbvSaPathRec, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS,
    zeroed,
};

/// The level of what only rsockets have.
pub const SOL_RDMA: c_int = 0x10000;
/// Options of that level.
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// Seconds of silence after which a sign of life is sent, where the system does not say.
const KEEP_IDLE: c_int = 7200;
/// `TCP_ESTABLISHED` and `TCP_CLOSE`.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;

const ENOTSUP: Errno = Errno(libc::ENOTSUP);

/// What a program has set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of its addresses.
    pub family: c_int,
    /// Of the queues and buffers it will have, or has.
    pub sizes: Sizes,
    /// Calls do not wait.
    pub is_nonblocking: bool,
    /// `FD_CLOEXEC`.
    pub fd_flags: c_int,
    /// What went wrong, for `SO_ERROR`.
    pub error: Option<Errno>,
    /// How long calls wait that send and that receive; for ever if `None`.
    pub timeouts: [Option<Duration>; 2],
    linger: (c_int, c_int),
    /// Others, by level and name.
    numbers: BTreeMap<(c_int, c_int), c_int>,
}

impl Options {
    /// Of a new socket.
    pub fn new(family: c_int, sizes: Sizes) -> Options {
        Options {
            family,
            sizes,
            is_nonblocking: false,
            fd_flags: 0,
            error: None,
            timeouts: [None; 2],
            linger: (0, 0),
            numbers: BTreeMap::new(),
        }
    }

    /// Those of a connection that a listener accepts.
    pub fn inherited(&self) -> Options {
        Options { error: None, ..self.clone() }
    }

    /// What `fcntl(2)` would do.
    ///
    /// # Errors
    /// ENOTSUP for other commands.
    pub fn fcntl(&mut self, command: c_int, argument: c_int) -> Result<c_int, Errno> {
        match command {
            libc::F_GETFL => {
                let nonblocking = if self.is_nonblocking { libc::O_NONBLOCK } else { 0 };
                return Ok(libc::O_RDWR | nonblocking);
            }
            libc::F_SETFL => self.is_nonblocking = argument & libc::O_NONBLOCK != 0,
            libc::F_GETFD => return Ok(self.fd_flags),
            libc::F_SETFD => self.fd_flags = argument & libc::FD_CLOEXEC,
            _ => return Err(ENOTSUP),
        }
        Ok(0)
    }

    fn number(&self, level: c_int, name: c_int, default: c_int) -> c_int {
        self.numbers.get(&(level, name)).copied().unwrap_or(default)
    }

    fn keep_idle(&self) -> c_int {
        self.number(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEP_IDLE)
    }
}

/// An option as a program gives it.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    pointer: *const c_void,
    len: socklen_t,
}

impl Value {
    /// # Safety
    /// There must be `len` bytes, or null.
    pub unsafe fn new(pointer: *const c_void, len: socklen_t) -> Value {
        Value { pointer, len }
    }

    /// Sets it of a file of the system.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn apply(self, fd: RawFd, level: c_int, name: c_int) -> Result<(), Errno> {
        // SAFETY: there are so many bytes, by the word of who made it.
        check(unsafe { libc::setsockopt(fd, level, name, self.pointer, self.len) }).map(drop)
    }

    /// # Errors
    /// EINVAL if it is shorter, EFAULT if it is not there.
    fn read<T: Copy>(self) -> Result<T, Errno> {
        if self.pointer.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        if (self.len as usize) < size_of::<T>() {
            return Err(EINVAL);
        }
        // SAFETY: there are so many bytes, by the word of who made it; all callers read numbers.
        Ok(unsafe { self.pointer.cast::<T>().read_unaligned() })
    }
}

/// Where a program wants an option.
#[derive(Debug)]
pub struct Place<'a> {
    pointer: *mut c_void,
    len: &'a mut socklen_t,
}

impl Place<'_> {
    /// # Errors
    /// EFAULT for null.
    ///
    /// # Safety
    /// There must be as many bytes as `len` says.
    pub unsafe fn new<'a>(pointer: *mut c_void, len: *mut socklen_t) -> Result<Place<'a>, Errno> {
        // SAFETY: the caller's promise.
        match unsafe { len.as_mut() } {
            Some(len) if !pointer.is_null() => Ok(Place { pointer, len }),
            _ => Err(Errno(libc::EFAULT)),
        }
    }

    /// Has a file of the system write it.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn ask(self, fd: RawFd, level: c_int, name: c_int) -> Result<(), Errno> {
        // SAFETY: there is so much room.
        check(unsafe { libc::getsockopt(fd, level, name, self.pointer, self.len) }).map(drop)
    }

    /// Writes it, cut to the room there is.
    pub fn write<T>(self, value: &T) {
        let len = size_of::<T>().min(*self.len as usize);
        // SAFETY: there is so much room.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (&raw const *value).cast(),
                self.pointer.cast::<u8>(),
                len,
            );
        }
        *self.len = len as socklen_t;
    }

    fn write_all<T>(self, values: &[T]) {
        let count = values.len().min(*self.len as usize / size_of::<T>());
        let len = count * size_of::<T>();
        // SAFETY: there is so much room.
        unsafe {
            core::ptr::copy_nonoverlapping(values.as_ptr().cast(), self.pointer.cast::<u8>(), len);
        }
        *self.len = len as socklen_t;
    }
}

/// Options that are kept and do nothing.
fn is_kept(level: c_int, name: c_int) -> bool {
    matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE | libc::SO_PRIORITY | libc::SO_REUSEPORT)
            | (
                libc::IPPROTO_TCP,
                libc::TCP_NODELAY
                    | libc::TCP_KEEPCNT
                    | libc::TCP_KEEPINTVL
                    | libc::TCP_MAXSEG
                    | libc::TCP_USER_TIMEOUT
                    | libc::TCP_QUICKACK
                    | libc::TCP_CORK
                    | libc::TCP_DEFER_ACCEPT
            )
    )
}

impl Options {
    /// Options that both kinds of sockets have here alone. False if this is none of them.
    ///
    /// # Errors
    /// EINVAL if it is too late, or the value cannot be.
    pub fn set_sizes(
        &mut self,
        level: c_int,
        name: c_int,
        value: Value,
        has_begun: bool,
    ) -> Result<bool, Errno> {
        let doubled = |value: u32| value.saturating_mul(2);
        match (level, name) {
            (SOL_RDMA, _) if has_begun => return Err(EINVAL),
            (SOL_RDMA, RDMA_SQSIZE) => self.sizes.set_send_queue(value.read()?),
            (SOL_RDMA, RDMA_RQSIZE) => self.sizes.set_recv_queue(value.read()?),
            (SOL_RDMA, RDMA_INLINE) => {
                self.sizes.inline = value.read::<u32>()?.min(u32::from(u16::MAX));
            }
            (SOL_RDMA, RDMA_IOMAPSIZE) => self.sizes.set_mappings(value.read()?),
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) if has_begun => {}
            // As the system does, for what it calls overhead.
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                self.sizes.set_recv_buffer(doubled(value.read()?));
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                self.sizes.set_send_buffer(doubled(value.read()?));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The same to look at. `None` if this is none of them.
    pub fn size(&self, level: c_int, name: c_int) -> Option<c_int> {
        let sizes = &self.sizes;
        Some(match (level, name) {
            (SOL_RDMA, RDMA_SQSIZE) => c_int::from(sizes.send_queue),
            (SOL_RDMA, RDMA_RQSIZE) => c_int::from(sizes.recv_queue),
            (SOL_RDMA, RDMA_INLINE) => sizes.inline as c_int,
            (SOL_RDMA, RDMA_IOMAPSIZE) => c_int::from(sizes.mappings),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.recv_buffer as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer as c_int,
            _ => return None,
        })
    }

    /// `SO_RCVTIMEO` and `SO_SNDTIMEO`. False if this is none of them.
    ///
    /// # Errors
    /// EDOM if it cannot be.
    pub fn set_timeout(&mut self, level: c_int, name: c_int, value: Value) -> Result<bool, Errno> {
        let place = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => 0,
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => 1,
            _ => return Ok(false),
        };
        let timeval: libc::timeval = value.read()?;
        let (Ok(seconds), Ok(micros @ 0..1_000_000)) =
            (u64::try_from(timeval.tv_sec), u32::try_from(timeval.tv_usec))
        else {
            return Err(Errno(libc::EDOM));
        };
        let timeout = Duration::new(seconds, micros * 1000);
        self.timeouts[place] = (!timeout.is_zero()).then_some(timeout);
        Ok(true)
    }
}

impl Stream {
    /// # Errors
    /// ENOTSUP for what there is not; EINVAL; those of `rdma_set_option`.
    pub fn set_option(&self, level: c_int, name: c_int, value: Value) -> Result<(), Errno> {
        let has_begun = self.link().is_some();
        {
            let mut options = lock(&self.options);
            if options.set_sizes(level, name, value, has_begun)?
                || options.set_timeout(level, name, value)?
            {
                return Ok(());
            }
        }
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger: libc::linger = value.read()?;
                lock(&self.options).linger = (linger.l_onoff, linger.l_linger);
                return Ok(());
            }
            // The one algorithm there is.
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return Ok(()),
            (libc::IPPROTO_IP, libc::IP_TOS) if value.len == 1 => c_int::from(value.read::<u8>()?),
            _ => value.read::<c_int>()?,
        };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                self.id.set_option(RDMA_OPTION_ID_REUSEADDR, number)?;
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.id.set_option(RDMA_OPTION_ID_TOS, number as u8)?;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                self.id.set_option(RDMA_OPTION_ID_AFONLY, number)?;
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) if number <= 0 => return Err(EINVAL),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {}
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {}
            _ if is_kept(level, name) => {}
            _ => return Err(ENOTSUP),
        }
        lock(&self.options).numbers.insert((level, name), number);
        self.start_keep_alive();
        Ok(())
    }

    /// Has signs of life sent, or no more, as the options say.
    pub fn start_keep_alive(&self) {
        let options = lock(&self.options);
        let is_on = options.number(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0) != 0;
        let every = Duration::from_secs(options.keep_idle().unsigned_abs().into());
        service::set_keep_alive(self.fd(), is_on.then_some(every));
    }

    /// # Errors
    /// ENOTSUP for what there is not.
    pub fn option(&self, level: c_int, name: c_int, place: Place<'_>) -> Result<(), Errno> {
        let mut options = lock(&self.options);
        if let Some(size) = options.size(level, name) {
            place.write(&size);
            return Ok(());
        }
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => options.error.take().map_or(0, |error| error.0),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => options.family,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(self.is_listening()),
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => 0,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (l_onoff, l_linger) = options.linger;
                place.write(&libc::linger { l_onoff, l_linger });
                return Ok(());
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                place.write(&timeval_of(options.timeouts[0]));
                return Ok(());
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                place.write(&timeval_of(options.timeouts[1]));
                return Ok(());
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.keep_idle(),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => self.path_mtu(),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                drop(options);
                self.write_info(place);
                return Ok(());
            }
            (SOL_RDMA, RDMA_ROUTE) => {
                let paths: Vec<_> = self.id.paths().iter().map(path_data).collect();
                place.write_all(&paths);
                return Ok(());
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_KEEPALIVE)
            | (libc::IPPROTO_IP, libc::IP_TOS)
            | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.number(level, name, 0),
            _ if is_kept(level, name) => options.number(level, name, 0),
            _ => return Err(ENOTSUP),
        };
        place.write(&number);
        Ok(())
    }

    /// Bytes of a packet's payload on the way to the peer.
    fn path_mtu(&self) -> c_int {
        self.id.paths().first().map_or(2048, |path| 128 << path.mtu.min(5))
    }

    /// `TCP_INFO`: whether there is a connection, and how much may be under way.
    fn write_info(&self, place: Place<'_>) {
        let is_live = self.link().is_some_and(|link| Flow::is_live(&link.flow()));
        let sizes = self.sizes();
        // SAFETY: a structure of numbers.
        let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
        info.tcpi_state = if is_live { ESTABLISHED } else { CLOSED };
        info.tcpi_snd_cwnd = u32::from(sizes.send_queue);
        info.tcpi_snd_mss = self.path_mtu() as u32;
        place.write(&info);
    }
}

fn timeval_of(timeout: Option<Duration>) -> libc::timeval {
    let timeout = timeout.unwrap_or_default();
    let tv_sec = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timeval { tv_sec, tv_usec: timeout.subsec_micros().into() }
}

/// A path as it lies in a packet.
fn path_data(path: &IbvSaPathRec) -> IbvPathData {
    /// "Exactly", in the selector of a field.
    const EXACTLY: u8 = 2 << 6;
    let mut data: IbvPathData = zeroed();
    let flow_and_hops = u32::from_be(path.flow_label) << 8 | u32::from(path.hop_limit);
    data.flags = u32::from(path.preference);
    data.path.dgid = path.dgid;
    data.path.sgid = path.sgid;
    data.path.dlid = path.dlid;
    data.path.slid = path.slid;
    data.path.flowlabel_hoplimit = flow_and_hops.to_be();
    data.path.tclass = path.traffic_class;
    data.path.reversible_numpath = u8::from(path.reversible != 0) << 7 | 1;
    data.path.pkey = path.pkey;
    data.path.qosclass_sl = u16::from(path.sl).to_be();
    data.path.mtu = path.mtu | EXACTLY;
    data.path.rate = path.rate | EXACTLY;
    data.path.packetlifetime = path.packet_life_time | EXACTLY;
    data
}
