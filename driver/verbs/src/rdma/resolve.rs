//! The way to a peer: its address, and the route there.

use core::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce::resolve::{ResolveError, Resolved};
use ferroce_stack::mad::Path;

use super::address::{self, specified};
use super::bind::{attach, claim, set_destination, set_source};
use super::channel::complete;
use super::devices::{Attached, way_to};
use super::id::{CmId, Phase, State, What, set_path};
use crate::device;
use crate::errno::{self, Errno};
use crate::layout::{
    IbvGid, IbvSaPathRec, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RdmaCmId, zeroed,
};
use crate::log::refuse;
use crate::port::DEFAULT_PKEY;

/// Selector of a path record: the value is exact.
const EXACTLY: u8 = 2;
/// Code of the time a packet lives on a path; 67 ms.
const PACKET_LIFE: u8 = 14;

/// Finds a peer, and the device and address it is reached from; tells the channel.
///
/// # Safety
/// The id must be null or live, the addresses null or as long as their families say.
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut RdmaCmId,
    src_addr: *mut libc::sockaddr,
    dst_addr: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let arguments = unsafe {
        CmId::of(id).and_then(|id| Ok((id, address::read(src_addr)?, address::read(dst_addr)?)))
    };
    errno::minus_one(arguments.and_then(|(id, source, destination)| {
        let destination =
            destination.ok_or_else(|| refuse!(EINVAL, "resolve_addr: the destination is null"))?;
        resolve_address(&id, source, destination)?;
        complete(&id)?;
        Ok(0)
    }))
}

pub(super) fn resolve_address(
    id: &Arc<CmId>,
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Result<(), Errno> {
    let mut state = id.state();
    let source = match state.phase {
        Phase::Idle => source,
        Phase::Bound => state.source,
        phase => return Err(refuse!(EINVAL, ?phase, "resolve_addr: the id has come further")),
    };
    if let Some(source) = source
        && source.is_ipv4() != destination.is_ipv4()
    {
        return Err(refuse!(EINVAL, %source, %destination, "resolve_addr: two IP versions"));
    }
    let from = source.and_then(|source| specified(source.ip()));
    let (event, status) = match way_to(from, destination.ip())? {
        Ok(resolved) => {
            let attached = Attached::new(device::all()?[resolved.device])?;
            let (own, dgid) = (attached.device.gids(), resolved.path.dgid);
            let is_own = own.iter().any(|entry| entry.gid == dgid);
            if is_own || dgid.is_multicast() || attached.engine.reaches(dgid) {
                settle(id, &mut state, attached, &resolved, source, destination)?;
                (RDMA_CM_EVENT_ADDR_RESOLVED, 0)
            } else {
                refuse!(EHOSTUNREACH, %dgid, "resolve_addr: nobody of the fabric has the address");
                (RDMA_CM_EVENT_ADDR_ERROR, -libc::EHOSTUNREACH)
            }
        }
        Err(error @ ResolveError::Source(_)) => {
            return Err(refuse!(EADDRNOTAVAIL, %error, "resolve_addr"));
        }
        Err(error) => {
            refuse!(ENETUNREACH, %error, "resolve_addr");
            (RDMA_CM_EVENT_ADDR_ERROR, -libc::ENETUNREACH)
        }
    };
    drop(state);
    id.post(What::Told { event, status });
    Ok(())
}

/// Gives the id what was found.
fn settle(
    id: &CmId,
    state: &mut State,
    attached: Attached,
    resolved: &Resolved,
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Result<(), Errno> {
    let port = source.map_or(0, |source| source.port());
    // Programs compare families: a mapped address stays one.
    let family = |ip: std::net::IpAddr| match (ip, destination.is_ipv6()) {
        (std::net::IpAddr::V4(ip), true) => ip.to_ipv6_mapped().into(),
        (ip, _) => ip,
    };
    if state.ports.is_empty() {
        claim(state, id, &[attached], SocketAddr::new(family(resolved.source), port))?;
    } else {
        set_source(id, state, SocketAddr::new(family(resolved.source), port));
    }
    attach(id, state, attached)?;
    let mut shown = destination;
    shown.set_ip(family(resolved.destination));
    set_destination(id, state, shown);
    state.path = resolved.path;
    state.sgid_index = resolved.sgid_index;
    show_gids(id, &state.path);
    state.phase = Phase::AddressResolved;
    Ok(())
}

/// Shows the program the GIDs at both ends.
pub(super) fn show_gids(id: &CmId, path: &Path) {
    // SAFETY: the route is written by the program's threads alone.
    let shown = unsafe { &mut (*id.abi()).route.addr.addr };
    shown.sgid = IbvGid { raw: path.sgid.0 };
    shown.dgid = IbvGid { raw: path.dgid.0 };
    shown.pkey = DEFAULT_PKEY.to_be();
}

/// The path record of a path.
pub(super) fn record(path: &Path, mtu: u8) -> IbvSaPathRec {
    let mut record: IbvSaPathRec = zeroed();
    record.dgid = IbvGid { raw: path.dgid.0 };
    record.sgid = IbvGid { raw: path.sgid.0 };
    record.flow_label = path.flow_label.to_be();
    record.hop_limit = path.hop_limit;
    record.traffic_class = path.traffic_class;
    record.reversible = 1;
    record.numb_path = 1;
    record.pkey = DEFAULT_PKEY.to_be();
    record.sl = path.sl;
    (record.mtu_selector, record.mtu) = (EXACTLY, mtu);
    // 0: the rate of the port.
    (record.rate_selector, record.rate) = (EXACTLY, 0);
    record.packet_life_time_selector = EXACTLY;
    record.packet_life_time = PACKET_LIFE;
    record
}

/// Settles how the peer is reached; tells the channel.
///
/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_resolve_route(id: *mut RdmaCmId, _timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        resolve_route(&id, |_| ())?;
        complete(&id)?;
        Ok(0)
    }))
}

/// The same with a last word on the path.
pub(super) fn resolve_route(id: &Arc<CmId>, adjust: impl FnOnce(&mut Path)) -> Result<(), Errno> {
    let mut state = id.state();
    if state.phase != Phase::AddressResolved {
        let phase = state.phase;
        return Err(refuse!(EINVAL, ?phase, "resolve_route: the address is not just resolved"));
    }
    let attached = state.attached()?;
    let port = |address: Option<SocketAddr>| address.map_or(0, |address| u32::from(address.port()));
    let (source, destination) = (port(state.source), port(state.destination));
    // Both ends of a connection send from the UDP port that follows from this.
    state.path.flow_label = match state.destination {
        Some(SocketAddr::V6(address)) if address.flowinfo() != 0 => address.flowinfo() & 0xf_ffff,
        _ => (source * 31 + destination) & 0xf_ffff,
    };
    state.path.traffic_class = state.choices.tos.unwrap_or(0);
    adjust(&mut state.path);
    set_path(id, record(&state.path, attached.device.info.active_mtu as u8));
    state.phase = Phase::RouteResolved;
    drop(state);
    id.post(What::Told { event: RDMA_CM_EVENT_ROUTE_RESOLVED, status: 0 });
    Ok(())
}
