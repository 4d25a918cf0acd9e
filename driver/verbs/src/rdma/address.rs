//! Socket addresses of programs.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::errno::Errno;
use crate::layout::RdmaCmId;
use crate::log::refuse;

/// The address a program gives, if it gives one; a scope of a link-local address is kept.
///
/// # Safety
/// `from` must be null or an address as long as its family says.
pub(crate) unsafe fn read(from: *const sockaddr) -> Result<Option<SocketAddr>, Errno> {
    // SAFETY: the caller gives a valid pointer or null; it may lie anywhere.
    let family = match unsafe { from.as_ref() } {
        Some(address) => c_int::from(address.sa_family),
        None => return Ok(None),
    };
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family is as long.
            let from = unsafe { from.cast::<sockaddr_in>().read_unaligned() };
            let ip = from.sin_addr.s_addr.to_ne_bytes().into();
            Ok(Some(SocketAddrV4::new(ip, u16::from_be(from.sin_port)).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let from = unsafe { from.cast::<sockaddr_in6>().read_unaligned() };
            let port = u16::from_be(from.sin6_port);
            let flowinfo = u32::from_be(from.sin6_flowinfo);
            let ip = from.sin6_addr.s6_addr.into();
            Ok(Some(SocketAddrV6::new(ip, port, flowinfo, from.sin6_scope_id).into()))
        }
        _ => Err(refuse!(
            EINVAL,
            family,
            "addresses are of AF_INET ({}) or AF_INET6 ({})",
            libc::AF_INET,
            libc::AF_INET6
        )),
    }
}

/// The same as programs read it.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: zero bytes are a valid address, of no family.
    let mut storage: sockaddr_storage = unsafe { core::mem::zeroed() };
    match address {
        SocketAddr::V4(address) => {
            let to = (&raw mut storage).cast::<sockaddr_in>();
            // SAFETY: the storage has room, and is aligned, for an address of any family.
            let to = unsafe { &mut *to };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_port = address.port().to_be();
            to.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
        }
        SocketAddr::V6(address) => {
            let to = (&raw mut storage).cast::<sockaddr_in6>();
            // SAFETY: as above.
            let to = unsafe { &mut *to };
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = address.port().to_be();
            to.sin6_flowinfo = address.flowinfo().to_be();
            to.sin6_addr.s6_addr = address.ip().octets();
            to.sin6_scope_id = address.scope_id();
        }
    }
    storage
}

/// Of an address what a device is looked up by: IPv4 also where it is mapped into IPv6; none if it
/// is unspecified.
pub(crate) fn specified(ip: IpAddr) -> Option<IpAddr> {
    let ip = ip.to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}

fn port(storage: &sockaddr_storage) -> u16 {
    // SAFETY: the storage has the size of an address of any family.
    let address = unsafe { read((&raw const *storage).cast()) };
    address.ok().flatten().map_or(0, |address| address.port()).to_be()
}

/// The port here, in network order; 0 if there is none.
///
/// # Safety
/// `id` must be null or live.
pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { id.as_ref() }.map_or(0, |id| port(&id.route.addr.src_storage))
}

/// The peer's port, in network order; 0 if there is none.
///
/// # Safety
/// `id` must be null or live.
pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { id.as_ref() }.map_or(0, |id| port(&id.route.addr.dst_storage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_there_and_back() {
        for text in ["192.0.2.1:7471", "[fd00::1]:1", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = storage(address);
            // SAFETY: the storage has the size of an address.
            let back = unsafe { read((&raw const storage).cast()) };
            assert_eq!(back, Ok(Some(address)));
            assert_eq!(port(&storage), address.port().to_be());
        }
    }

    #[test]
    fn other_families_are_refused_and_null_is_none() {
        // SAFETY: zero bytes are an address of no family.
        let mut other: sockaddr_storage = unsafe { core::mem::zeroed() };
        other.ss_family = 27;
        // SAFETY: as above; null is allowed.
        let read = |from| unsafe { read(from) };
        assert!(read((&raw const other).cast()).is_err());
        assert_eq!(read(core::ptr::null()), Ok(None));
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let specified = |text: &str| specified(text.parse().unwrap());
        assert_eq!(specified("::ffff:192.0.2.1"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(specified("::"), None);
        assert_eq!(specified("0.0.0.0"), None);
    }
}
