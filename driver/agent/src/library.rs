//! The machine's `libibverbs.so.1` and `librdmacm.so.1`, loaded when the agent starts.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::transmute;

use ferroce_verbs_layout::{
    IbvAh, IbvAhAttr, IbvAsyncEvent, IbvCompChannel, IbvContext, IbvCq, IbvDevice, IbvDeviceAttr,
    IbvGid, IbvGidEntry, IbvMr, IbvPd, IbvPortAttr, IbvQp, IbvQpAttr, IbvQpEx, IbvQpInitAttr,
    IbvSrq, IbvSrqAttr, IbvSrqInitAttr, RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel,
};

/// A library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    library: &'static str,
    why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load {}: {}", self.library, self.why)
    }
}

impl std::error::Error for LoadError {}

/// Functions that must be there, and some that only newer libraries have.
macro_rules! library {
    (
        $(#[$doc:meta])* $library:ident of $file:literal;
        required { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?,)* }
        optional { $($newer:ident: fn($($newer_argument:ty),*) $(-> $newer_result:ty)?,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "they are documented there")]
        pub struct $library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub $newer: Option<unsafe extern "C" fn($($newer_argument),*) $(-> $newer_result)?>,)*
        }

        impl $library {
            /// Loads it, for as long as the process lives.
            ///
            /// # Errors
            /// [`LoadError`] if there is none, or it lacks a function.
            pub fn load() -> Result<$library, LoadError> {
                let failed = |why| LoadError { library: $file, why };
                let handle = open(concat!($file, "\0")).map_err(failed)?;
                Ok($library {
                    $($name: {
                        let symbol = find(handle, concat!(stringify!($name), "\0"));
                        let symbol = symbol.map_err(failed)?;
                        // SAFETY: what has this name there is a function of this type.
                        unsafe {
                            transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                    $($newer: find(handle, concat!(stringify!($newer), "\0")).ok().map(|symbol| {
                        // SAFETY: as above.
                        unsafe {
                            transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($newer_argument),*) $(-> $newer_result)?,
                            >(symbol)
                        }
                    }),)*
                })
            }
        }
    };
}

library! {
    /// Verbs: functions under the names they have there.
    Library of "libibverbs.so.1";
    required {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut IbvDevice,
        ibv_free_device_list: fn(*mut *mut IbvDevice),
        ibv_open_device: fn(*mut IbvDevice) -> *mut IbvContext,
        ibv_close_device: fn(*mut IbvContext) -> c_int,
        ibv_query_device: fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int,
        ibv_query_port: fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int,
        _ibv_query_gid_ex:
            fn(*mut IbvContext, u32, u32, *mut IbvGidEntry, u32, usize) -> c_int,
        ibv_alloc_pd: fn(*mut IbvContext) -> *mut IbvPd,
        ibv_dealloc_pd: fn(*mut IbvPd) -> c_int,
        ibv_reg_mr: fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr,
        ibv_dereg_mr: fn(*mut IbvMr) -> c_int,
        ibv_rereg_mr:
            fn(*mut IbvMr, c_int, *mut IbvPd, *mut c_void, usize, c_int) -> c_int,
        ibv_create_comp_channel: fn(*mut IbvContext) -> *mut IbvCompChannel,
        ibv_destroy_comp_channel: fn(*mut IbvCompChannel) -> c_int,
        ibv_create_cq:
            fn(*mut IbvContext, c_int, *mut c_void, *mut IbvCompChannel, c_int) -> *mut IbvCq,
        ibv_resize_cq: fn(*mut IbvCq, c_int) -> c_int,
        ibv_destroy_cq: fn(*mut IbvCq) -> c_int,
        ibv_get_cq_event:
            fn(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int,
        ibv_ack_cq_events: fn(*mut IbvCq, u32),
        ibv_get_async_event: fn(*mut IbvContext, *mut IbvAsyncEvent) -> c_int,
        ibv_ack_async_event: fn(*mut IbvAsyncEvent),
        ibv_create_srq: fn(*mut IbvPd, *mut IbvSrqInitAttr) -> *mut IbvSrq,
        ibv_modify_srq: fn(*mut IbvSrq, *mut IbvSrqAttr, c_int) -> c_int,
        ibv_query_srq: fn(*mut IbvSrq, *mut IbvSrqAttr) -> c_int,
        ibv_destroy_srq: fn(*mut IbvSrq) -> c_int,
        ibv_create_qp: fn(*mut IbvPd, *mut IbvQpInitAttr) -> *mut IbvQp,
        ibv_modify_qp: fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int,
        ibv_query_qp: fn(*mut IbvQp, *mut IbvQpAttr, c_int, *mut IbvQpInitAttr) -> c_int,
        ibv_destroy_qp: fn(*mut IbvQp) -> c_int,
        ibv_create_ah: fn(*mut IbvPd, *mut IbvAhAttr) -> *mut IbvAh,
        ibv_destroy_ah: fn(*mut IbvAh) -> c_int,
        ibv_attach_mcast: fn(*mut IbvQp, *const IbvGid, u16) -> c_int,
        ibv_detach_mcast: fn(*mut IbvQp, *const IbvGid, u16) -> c_int,
    }
    optional {
        ibv_reg_mr_iova: fn(*mut IbvPd, *mut c_void, usize, u64, c_int) -> *mut IbvMr,
        ibv_qp_to_qp_ex: fn(*mut IbvQp) -> *mut IbvQpEx,
    }
}

library! {
    /// Connections, with the verbs that are loaded: functions under the names they have there.
    RdmaLibrary of "librdmacm.so.1";
    required {
        rdma_create_event_channel: fn() -> *mut RdmaEventChannel,
        rdma_destroy_event_channel: fn(*mut RdmaEventChannel),
        rdma_get_cm_event: fn(*mut RdmaEventChannel, *mut *mut RdmaCmEvent) -> c_int,
        rdma_ack_cm_event: fn(*mut RdmaCmEvent) -> c_int,
        rdma_create_id:
            fn(*mut RdmaEventChannel, *mut *mut RdmaCmId, *mut c_void, c_int) -> c_int,
        rdma_destroy_id: fn(*mut RdmaCmId) -> c_int,
        rdma_set_option: fn(*mut RdmaCmId, c_int, c_int, *mut c_void, usize) -> c_int,
        rdma_bind_addr: fn(*mut RdmaCmId, *mut libc::sockaddr) -> c_int,
        rdma_listen: fn(*mut RdmaCmId, c_int) -> c_int,
        rdma_resolve_addr:
            fn(*mut RdmaCmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int,
        rdma_resolve_route: fn(*mut RdmaCmId, c_int) -> c_int,
        rdma_connect: fn(*mut RdmaCmId, *mut RdmaConnParam) -> c_int,
        rdma_accept: fn(*mut RdmaCmId, *mut RdmaConnParam) -> c_int,
        rdma_reject: fn(*mut RdmaCmId, *const c_void, u8) -> c_int,
        rdma_notify: fn(*mut RdmaCmId, c_int) -> c_int,
        rdma_disconnect: fn(*mut RdmaCmId) -> c_int,
    }
    optional {
        rdma_establish: fn(*mut RdmaCmId) -> c_int,
        rdma_init_qp_attr: fn(*mut RdmaCmId, *mut IbvQpAttr, *mut c_int) -> c_int,
    }
}

impl RdmaLibrary {
    /// Whether there is something behind it: without its kernel's part it opens nothing.
    pub fn works(&self) -> bool {
        // SAFETY: it needs nothing.
        let channel = unsafe { (self.rdma_create_event_channel)() };
        if channel.is_null() {
            return false;
        }
        // SAFETY: it has just been made, and has no ids.
        unsafe { (self.rdma_destroy_event_channel)(channel) };
        true
    }
}

/// Loads a library by its name, which ends with a zero.
fn open(name: &str) -> Result<*mut c_void, String> {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: the name is a string. What the library does when it is loaded is its own affair.
    let handle = unsafe { libc::dlopen(name.as_ptr().cast::<c_char>(), flags) };
    if handle.is_null() { Err(last_error()) } else { Ok(handle) }
}

/// A function of the library by its name, which ends with a zero.
fn find(handle: *mut c_void, name: &str) -> Result<*mut c_void, String> {
    // SAFETY: the handle is a library's, the name ends with a zero.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr().cast::<c_char>()) };
    if symbol.is_null() { Err(last_error()) } else { Ok(symbol) }
}

/// Why loading failed last.
fn last_error() -> String {
    // SAFETY: it needs nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it does not say why".to_owned();
    }
    // SAFETY: it is a string until the next call of the loader by this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
