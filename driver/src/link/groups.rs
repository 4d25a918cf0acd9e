//! Multicast groups joined on an interface, for links that hear all of its frames anyhow: the
//! kernel speaks IGMP (RFC 3376) and MLD (RFC 3810), so that switches and routers send them here.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use super::socket::Socket;

/// Sockets of one family that hold memberships: Linux has 20 of IPv4 each
/// (`igmp_max_memberships`).
const SOCKETS: usize = 64;

/// The memberships of one interface; they end with it.
#[derive(Debug)]
pub struct Memberships {
    index: u32,
    /// Of IPv4, and of IPv6.
    sockets: [Vec<Socket>; 2],
    /// By which of the sockets.
    joined: BTreeMap<IpAddr, usize>,
}

impl Memberships {
    /// None yet.
    pub fn new(index: u32) -> Memberships {
        Memberships { index, sockets: [Vec::new(), Vec::new()], joined: BTreeMap::new() }
    }

    /// Joins a group.
    ///
    /// # Errors
    /// What socket(2) and setsockopt(2) say; `ENOBUFS` if no more can be joined.
    pub fn join(&mut self, group: IpAddr) -> io::Result<()> {
        let sockets = &mut self.sockets[usize::from(group.is_ipv6())];
        for at in 0..SOCKETS {
            if at == sockets.len() {
                sockets.push(Socket::udp(group)?);
            }
            match sockets[at].join(group, self.index) {
                Err(error) if is_full(&error) => {}
                outcome => {
                    outcome?;
                    self.joined.insert(group, at);
                    return Ok(());
                }
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOBUFS))
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: IpAddr) {
        if let Some(at) = self.joined.remove(&group) {
            // An interface that is gone has no groups.
            let _ = self.sockets[usize::from(group.is_ipv6())][at].leave(group, self.index);
        }
    }
}

/// Whether a socket takes no more memberships.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_groups_are_joined_than_one_socket_takes() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        let mut memberships = Memberships::new(index);
        let groups: Vec<IpAddr> = (1..60).map(|last| [239, 77, 0, last].into()).collect();
        for &group in &groups {
            match memberships.join(group) {
                Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => {
                    return eprintln!("skipped: groups cannot be joined here: {error}");
                }
                outcome => outcome.unwrap(),
            }
        }
        let listed = || std::fs::read_to_string("/proc/net/igmp").unwrap_or_default();
        // Network order, as a number of this machine's.
        let row = |last: u8| format!("{:08X}", u32::from_ne_bytes([239, 77, 0, last]));
        assert!(listed().contains(&row(1)) && listed().contains(&row(59)));
        memberships.leave(groups[0]);
        assert!(!listed().contains(&row(1)) && listed().contains(&row(59)));
        drop(memberships);
        assert!(!listed().contains(&row(59)));
    }
}
