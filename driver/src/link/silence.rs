//! Keeps the kernel's own UDP from answering RoCE packets that are ours: it sees them as well,
//! finds nobody at port 4791 and would say so by ICMP, to a peer that may believe it.
//!
//! Sockets at that port which take nothing are somebody, and cost the kernel least.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_stack::wire::ROCE_PORT;

use super::filter;
use super::socket::Socket;

/// Silence, for as long as this lives.
#[derive(Debug, Default)]
pub struct Silence {
    sockets: Vec<Socket>,
    /// Why the kernel goes on answering packets of one family; none if it does not.
    pub trouble: Option<io::Error>,
}

impl Silence {
    /// Silences an interface. Where somebody else has the port already, it is that one's to
    /// answer.
    pub fn of_interface(name: &str) -> Silence {
        let mut silence = Silence::default();
        for ip in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            match occupy(name, ip) {
                Ok(socket) => silence.sockets.push(socket),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EADDRINUSE | libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => {}
                    _ => silence.trouble = Some(error),
                },
            }
        }
        silence
    }

    /// How many address families are silenced by us.
    pub fn families(&self) -> usize {
        self.sockets.len()
    }
}

fn occupy(name: &str, ip: IpAddr) -> io::Result<Socket> {
    let socket = Socket::udp(ip)?;
    socket.attach(&filter::NOTHING)?;
    // Else the kernel cuts joined datagrams apart before it drops each of them, which costs more
    // than all the rest of their way. Kernels that do not know this do not join them either.
    let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, 1);
    socket.bind_device(name)?;
    if ip.is_ipv6() {
        socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    socket.bind(SocketAddr::new(ip, ROCE_PORT))?;
    Ok(socket)
}
