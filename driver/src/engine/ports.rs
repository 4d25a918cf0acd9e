//! Ports of connection management, bound among the processes of a device.

use std::fmt;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::{PortSpace, ServiceId};
use ferroce_stack::verbs::VerbsError;

use super::Engine;
use crate::fabric::{ANY_ADDRESS, ANY_IPV6, Binding, Bound, ClaimError, Member};

/// How often it is tried again while others bind or join, a millisecond apart.
const TRIES: u32 = 5000;

/// A port to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortClaim {
    /// Its space.
    pub space: PortSpace,
    /// Where: `None` at all addresses, an unspecified one at all of its family.
    pub address: Option<IpAddr>,
    /// The port; 0 is any that is free, from 32768 to 60999.
    pub port: u16,
    /// Others who say so too may bind the same, until one listens.
    pub reuse: bool,
}

/// A port this process has bound, until [`Engine::release_port`].
#[derive(Debug)]
pub struct BoundPort(Bound);

impl BoundPort {
    /// The port.
    pub fn port(&self) -> u16 {
        self.0.service() as u16
    }
}

/// Why a port cannot be bound or listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortError {
    /// Somebody has it (EADDRINUSE).
    InUse,
    /// All ephemeral ports are taken, the process has too many, there is no space for its table, or
    /// somebody has held the fabric's lock for seconds (EADDRNOTAVAIL).
    NotAvailable,
    /// The engine cannot be used.
    Engine(VerbsError),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::InUse => f.write_str("the port is in use"),
            PortError::NotAvailable => f.write_str("no port is available"),
            PortError::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PortError {}

impl Engine {
    /// Binds a port among the processes of this device. One that a process leaves behind when it
    /// ends is free.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn bind_port(&self, claim: &PortClaim) -> Result<BoundPort, PortError> {
        let address = match claim.address.map(|address| address.to_canonical()) {
            None => ANY_ADDRESS,
            Some(IpAddr::V6(address)) if address.is_unspecified() => ANY_IPV6,
            Some(address) => Gid::from_ip(address),
        };
        let binding = Binding {
            service: ServiceId::new(claim.space, claim.port).0,
            address,
            reuse: claim.reuse,
            listening: false,
        };
        self.with_member(|member| member.bind(&binding)).map(BoundPort)
    }

    /// From now on requests for the port come to this process.
    ///
    /// # Errors
    /// [`PortError::InUse`] if another listens there; otherwise as [`Engine::bind_port`].
    pub fn listen_port(&self, port: &BoundPort) -> Result<(), PortError> {
        self.with_member(|member| member.listen(&port.0))
    }

    /// Undoes [`Engine::listen_port`]; the port stays bound.
    pub fn unlisten_port(&self, port: &BoundPort) {
        // In a forked child it is the parent's.
        if let Ok(mut guard) = self.lock() {
            guard.inner.member.unlisten(&port.0);
        }
    }

    /// Gives a port back.
    pub fn release_port(&self, port: BoundPort) {
        // In a forked child it is the parent's.
        if let Ok(mut guard) = self.lock() {
            guard.inner.member.release(port.0);
        }
    }

    /// Asks again while the fabric is busy, without the engine meanwhile.
    fn with_member<T>(
        &self,
        mut ask: impl FnMut(&mut Member) -> Result<T, ClaimError>,
    ) -> Result<T, PortError> {
        for _ in 0..TRIES {
            let outcome = ask(&mut self.lock().map_err(PortError::Engine)?.inner.member);
            match outcome {
                Ok(value) => return Ok(value),
                Err(ClaimError::Busy) => thread::sleep(Duration::from_millis(1)),
                Err(ClaimError::InUse) => return Err(PortError::InUse),
                Err(ClaimError::NotAvailable) => return Err(PortError::NotAvailable),
            }
        }
        Err(PortError::NotAvailable)
    }
}
