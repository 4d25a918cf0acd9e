//! Keeps the port of a fabric and the interface under its link in step: what programs are attached
//! to is joined there, and programs are told when the interface goes down or gets another address.
//!
//! None of it is urgent, and all of it is system calls, so it has a thread of its own, which sleeps
//! until the kernel tells of an interface or the link's owner of the fabric.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ferroce_stack::gid::Gid;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::fabric::{FabricPort, GatewayNote};
use crate::link::{LinkPort, PortState};
use crate::sys::{self, LentFd};

/// What has come of a port.
#[derive(Debug)]
pub enum PortNotice {
    /// The interface is down, or has no carrier.
    Down,
    /// It is up again.
    Up,
    /// It has another address, and so have the fabric's devices.
    Address(IpAddr),
    /// So many multicast groups could not be joined; one of them, and why.
    GroupsRefused(usize, IpAddr, io::Error),
    /// Programs could not be told of a new address.
    Untold(io::Error),
}

impl std::fmt::Display for PortNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PortNotice::Down => f.write_str("the link is down"),
            PortNotice::Up => f.write_str("the link is up again"),
            PortNotice::Address(ip) => write!(f, "the link's address is {ip} now"),
            PortNotice::GroupsRefused(count, ip, error) => {
                write!(f, "{count} multicast groups cannot be joined, such as {ip}: {error}")
            }
            PortNotice::Untold(error) => write!(f, "no program learns the new address: {error}"),
        }
    }
}

/// Both ends of the port.
pub struct Port {
    /// The fabric's.
    pub fabric: FabricPort,
    /// The link's.
    pub link: LinkPort,
    /// What programs have been told.
    pub note: GatewayNote,
    /// The devices have the address that the interface has, whichever that is.
    pub follows: bool,
}

/// The thread at work; it ends when dropped.
#[derive(Debug)]
pub struct Keeper {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
    /// The process that it works in: a forked child does not have the thread.
    generation: u32,
}

/// How the thread is called.
#[derive(Debug)]
struct Calls {
    /// Readable when there may be something new in the fabric.
    fabric: LentFd,
    /// Readable when it is to end.
    stop: LentFd,
}

/// Calls the thread; any thread may have one.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Calls>);

impl Caller {
    /// Has it look at the fabric.
    pub fn call(&self) {
        // Of 2^64 - 1 far fewer are used before it looks.
        let _ = sys::write_u64(self.0.fabric.as_fd(), 1);
    }
}

impl Keeper {
    /// Brings both ends in step and starts the thread, which calls `tell` with what comes of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(port: Port, tell: impl Fn(PortNotice) + Send + 'static) -> io::Result<Keeper> {
        let calls = Arc::new(Calls { fabric: sys::eventfd()?, stop: sys::eventfd()? });
        let mut work = Work { port, is_up: true, has_complained: false, tell };
        work.see_groups();
        work.see_link();
        let heard = calls.clone();
        // Signals are for the program's own threads.
        let _blocked = sys::block_signals();
        let builder = thread::Builder::new().name("ferroce-port".to_owned());
        let thread = builder.spawn(move || work.run(&heard))?;
        let generation = sys::fork_generation();
        Ok(Keeper { calls, thread: Some(thread), generation })
    }

    /// A way to call the thread.
    pub fn caller(&self) -> Caller {
        Caller(self.calls.clone())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.generation != sys::fork_generation() {
            std::mem::forget(self.thread.take());
            return;
        }
        // Of 2^64 - 1 one is used.
        let _ = sys::write_u64(self.calls.stop.as_fd(), 1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Work<T> {
    port: Port,
    /// What programs have been told.
    is_up: bool,
    /// That groups are refused has been said.
    has_complained: bool,
    tell: T,
}

impl<T: Fn(PortNotice)> Work<T> {
    fn run(&mut self, calls: &Calls) {
        while let Ok([stop, fabric, link]) =
            wait([calls.stop.as_fd(), calls.fabric.as_fd(), self.port.link.descriptor()])
            && !stop
        {
            if fabric {
                // One look will do for all calls.
                while sys::read_u64_now(calls.fabric.as_fd()).is_ok() {}
                self.see_groups();
            }
            if link && self.port.link.take_note() {
                self.see_link();
            }
        }
    }

    /// Joins what members are attached to.
    fn see_groups(&mut self) {
        let groups: BTreeSet<IpAddr> = self.port.fabric.groups().map(Gid::to_ip).collect();
        if let Some((refused, error)) = self.port.link.set_groups(&groups)
            && !self.has_complained
            && let Some(&first) = refused.first()
        {
            self.has_complained = true;
            (self.tell)(PortNotice::GroupsRefused(refused.len(), first, error));
        }
    }

    /// Tells members of the interface.
    fn see_link(&mut self) {
        // One that is gone ends the link: that is for who receives there.
        let Ok(PortState { is_up, addresses }) = self.port.link.look() else { return };
        if is_up != self.is_up {
            self.is_up = is_up;
            self.port.fabric.set_active(is_up);
            (self.tell)(if is_up { PortNotice::Up } else { PortNotice::Down });
        }
        let Some(address) = other_address(&self.port.note.addresses, &addresses) else { return };
        if self.port.follows {
            self.port.note.addresses = vec![address];
            match self.port.fabric.set_note(&self.port.note) {
                Ok(()) => (self.tell)(PortNotice::Address(address)),
                Err(error) => (self.tell)(PortNotice::Untold(error)),
            }
        }
    }
}

/// The address that devices get in place of the one they have, if that is gone. One that goes is
/// kept until another one of its IP version comes.
fn other_address(told: &[IpAddr], there: &[IpAddr]) -> Option<IpAddr> {
    let old = told.first().filter(|ip| !there.contains(ip))?;
    there.iter().copied().find(|ip| ip.is_ipv4() == old.is_ipv4())
}

/// Waits until some of the descriptors are readable, and says which.
fn wait<const N: usize>(descriptors: [BorrowedFd<'_>; N]) -> io::Result<[bool; N]> {
    let mut waits = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
    match poll(&mut waits, PollTimeout::NONE) {
        Err(Errno::EINTR) => Ok([false; N]),
        outcome => {
            outcome?;
            Ok(waits.map(|wait| wait.any().unwrap_or(false)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_until_another_comes() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let other = |told: &[&str], there: &[&str]| {
            other_address(&ips(told), &ips(there)).map(|ip| ip.to_string())
        };
        assert_eq!(other(&["192.0.2.1"], &["192.0.2.1"]), None);
        assert_eq!(other(&["192.0.2.1"], &["192.0.2.0", "192.0.2.1", "fd00::1"]), None);
        assert_eq!(other(&["192.0.2.1"], &[]), None);
        assert_eq!(other(&["192.0.2.1"], &["192.0.2.2", "fd00::1"]), Some("192.0.2.2".into()));
        assert_eq!(other(&["192.0.2.1"], &["fd00::1"]), None);
        assert_eq!(other(&["fd00::2"], &["192.0.2.1", "fd00::1"]), Some("fd00::1".into()));
        assert_eq!(other(&[], &["fd00::1"]), None);
    }
}
