//! Addresses and ports of ids, and who listens.

use core::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce::engine::{BoundPort, PortClaim, PortError};
use ferroce_stack::gid::Gid;
use ferroce_stack::mad::{CmError, ServiceId};

use super::address::{self, specified};
use super::devices::{Attached, device_at};
use super::id::{CmId, Phase, State};
use super::resolve::show_gids;
use crate::device;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::RdmaCmId;
use crate::log::refuse;

/// How often a port that one device gave is tried on the others.
const ATTEMPTS: usize = 16;
/// Requests that wait to be got where the program names no number, or a larger one.
const MAX_BACKLOG: u32 = 1024;

impl From<PortError> for Errno {
    fn from(error: PortError) -> Errno {
        match error {
            PortError::InUse => Errno(libc::EADDRINUSE),
            PortError::NotAvailable => Errno(libc::EADDRNOTAVAIL),
            PortError::Engine(error) => error.into(),
        }
    }
}

impl From<CmError> for Errno {
    fn from(error: CmError) -> Errno {
        match error {
            CmError::NoRoom => Errno(libc::ENOMEM),
            CmError::InUse => Errno(libc::EADDRINUSE),
            CmError::UnknownId | CmError::State | CmError::PrivateData | CmError::Argument => {
                EINVAL
            }
        }
    }
}

/// Gives an id an address and a port.
///
/// # Safety
/// The id must be null or live, the address null or as long as its family says.
pub(crate) unsafe extern "C" fn rdma_bind_addr(
    id: *mut RdmaCmId,
    addr: *mut libc::sockaddr,
) -> c_int {
    // SAFETY: the caller's promise.
    let arguments = unsafe { CmId::of(id).and_then(|id| Ok((id, address::read(addr)?))) };
    errno::minus_one(arguments.and_then(|(id, address)| {
        let address = address.ok_or_else(|| refuse!(EINVAL, "bind_addr: the address is null"))?;
        bind(&id, &mut id.state(), address)?;
        Ok(0)
    }))
}

/// Binds an id that has no address yet.
pub(super) fn bind(id: &CmId, state: &mut State, address: SocketAddr) -> Result<(), Errno> {
    if state.phase != Phase::Idle {
        let phase = state.phase;
        return Err(refuse!(EINVAL, ?phase, %address, "bind_addr: the id has an address already"));
    }
    let ip = specified(address.ip());
    let devices = match ip {
        Some(ip) => {
            let device = device_at(ip)?.ok_or_else(
                || refuse!(EADDRNOTAVAIL, %address, "bind_addr: not an address of a device"),
            )?;
            vec![Attached::new(device::all()?[device])?]
        }
        None => Attached::all()?,
    };
    claim(state, id, &devices, address)?;
    if let Some(ip) = ip {
        attach(id, state, devices[0])?;
        let sgid = Gid::from_ip(ip);
        state.sgid_index = devices[0].index_of(sgid);
        let gids = devices[0].device.gids();
        state.path.sgid = gids.get(usize::from(state.sgid_index)).map_or(sgid, |entry| entry.gid);
        show_gids(id, &state.path);
    }
    state.phase = Phase::Bound;
    Ok(())
}

/// Gives an id its device.
pub(super) fn attach(id: &CmId, state: &mut State, attached: Attached) -> Result<(), Errno> {
    let pd = attached.default_pd()?;
    state.attached = Some(attached);
    // SAFETY: the fields are written by the program's threads alone.
    let abi = unsafe { &mut *id.abi() };
    abi.verbs = attached.context;
    abi.port_num = 1;
    if abi.pd.is_null() {
        abi.pd = pd;
    }
    Ok(())
}

/// Takes a port for an id, the same on all `devices`, and shows it.
pub(super) fn claim(
    state: &mut State,
    id: &CmId,
    devices: &[Attached],
    address: SocketAddr,
) -> Result<(), Errno> {
    let claim = PortClaim {
        space: id.space,
        address: claimed(address.ip(), state),
        port: address.port(),
        reuse: state.choices.reuse_address,
    };
    let ports = claim_on_all(devices, &claim).map_err(|error| {
        refuse!(EADDRINUSE, %address, ?error, "the port cannot be had");
        Errno::from(error)
    })?;
    let mut source = address;
    if let Some((_, port)) = ports.first() {
        source.set_port(port.port());
    }
    state.ports = ports;
    set_source(id, state, source);
    Ok(())
}

/// What an id bound to an address hears requests for: IPv6's unspecified address is for IPv4 too,
/// unless the program does not want that.
fn claimed(ip: IpAddr, state: &State) -> Option<IpAddr> {
    match ip {
        IpAddr::V6(ip) if ip.is_unspecified() && !state.choices.only_family => None,
        ip => Some(ip),
    }
}

/// The address here, as the program sees it too.
pub(super) fn set_source(id: &CmId, state: &mut State, source: SocketAddr) {
    state.source = Some(source);
    // SAFETY: the route is written by the program's threads alone.
    unsafe { (*id.abi()).route.addr.src_storage = address::storage(source) };
}

/// The peer's address, as the program sees it too.
pub(super) fn set_destination(id: &CmId, state: &mut State, destination: SocketAddr) {
    state.destination = Some(destination);
    // SAFETY: as above.
    unsafe { (*id.abi()).route.addr.dst_storage = address::storage(destination) };
}

fn claim_on_all(
    devices: &[Attached],
    claim: &PortClaim,
) -> Result<Vec<(Attached, BoundPort)>, PortError> {
    for _ in 1..ATTEMPTS {
        match try_claim(devices, claim) {
            // What one device gave, another has already.
            Err(PortError::InUse) if claim.port == 0 => {}
            outcome => return outcome,
        }
    }
    try_claim(devices, claim)
}

fn try_claim(
    devices: &[Attached],
    claim: &PortClaim,
) -> Result<Vec<(Attached, BoundPort)>, PortError> {
    let mut ports: Vec<(Attached, BoundPort)> = Vec::with_capacity(devices.len());
    for device in devices {
        let port = ports.first().map_or(claim.port, |(_, port)| port.port());
        match device.engine.bind_port(&PortClaim { port, ..*claim }) {
            Ok(port) => ports.push((*device, port)),
            Err(error) => {
                release_ports(ports);
                return Err(error);
            }
        }
    }
    Ok(ports)
}

/// Gives ports back.
pub(super) fn release_ports(ports: Vec<(Attached, BoundPort)>) {
    for (device, port) in ports {
        device.engine.release_port(port);
    }
}

/// Has an id hear of requests.
///
/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut RdmaCmId, backlog: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    let backlog = match u32::try_from(backlog) {
        Ok(backlog @ 1..=MAX_BACKLOG) => backlog,
        _ => MAX_BACKLOG,
    };
    errno::minus_one(found.and_then(|id| listen(&id, backlog)).map(|()| 0))
}

fn listen(id: &CmId, backlog: u32) -> Result<(), Errno> {
    let mut state = id.state();
    let state = &mut *state;
    if state.phase == Phase::Idle {
        bind(id, state, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
    }
    let source = match (state.phase, state.source) {
        (Phase::Bound, Some(source)) => source,
        (phase, _) => return Err(refuse!(EINVAL, ?phase, "listen: the id is not just bound")),
    };
    let service = ServiceId::new(id.space, source.port());
    let address = claimed(source.ip(), state);
    for (attached, port) in &state.ports {
        // The port comes second: a request that finds it must find a listener.
        let listener = attached.engine.cm()?.listen(service, address, backlog, id.cookie);
        let outcome = listener.map_err(Errno::from).and_then(|listener| {
            state.listeners.push((*attached, listener));
            Ok(attached.engine.listen_port(port)?)
        });
        if let Err(error) = outcome {
            for ((attached, listener), (_, port)) in state.listeners.drain(..).zip(&state.ports) {
                attached.engine.unlisten_port(port);
                attached.engine.cm()?.unlisten(listener);
            }
            refuse!(EADDRINUSE, %source, ?error, "listen");
            return Err(error);
        }
    }
    state.phase = Phase::Listening;
    Ok(())
}
