//! Why AF_XDP is not to be had.

use std::fmt;
use std::io;

/// What the system refuses, and what would help.
#[derive(Debug)]
pub struct XdpError {
    action: &'static str,
    source: io::Error,
    help: String,
}

/// Links that need less.
const ELSE: &str = "packet:IFACE and udp:ADDR need less";

const RIGHTS: &str = "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and the latter two not \
                      in a user namespace";

impl XdpError {
    /// A step that fails for want of rights, or for no reason known.
    pub fn at(action: &'static str) -> impl Fn(io::Error) -> XdpError {
        move |source| {
            let help = match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => RIGHTS,
                Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP",
                _ => "",
            };
            XdpError::new(action, source, help)
        }
    }

    fn new(action: &'static str, source: io::Error, help: &str) -> XdpError {
        XdpError { action, source, help: help.to_owned() }
    }

    /// Memory of `len` bytes was not taken.
    pub fn of_umem(source: io::Error, len: usize) -> XdpError {
        let action = "give the kernel memory for frames";
        match source.raw_os_error() {
            Some(libc::ENOBUFS) => {
                let help = format!(
                    "the limit of locked memory, ulimit -l, is too low for {} MiB: raise it, or \
                     have CAP_IPC_LOCK",
                    len >> 20
                );
                XdpError::new(action, source, &help)
            }
            _ => XdpError::at(action)(source),
        }
    }

    /// A queue was not to be had.
    pub fn of_bind(source: io::Error, queue: u32) -> XdpError {
        let action = "bind to the interface";
        match source.raw_os_error() {
            Some(libc::EBUSY) => {
                let help = format!("somebody else, another gateway perhaps, has queue {queue}");
                XdpError::new(action, source, &help)
            }
            Some(libc::ENETDOWN) => XdpError::new(action, source, "the interface is down"),
            _ => XdpError::at(action)(source),
        }
    }

    /// The interface has more queues than there may be sockets.
    pub fn too_many_queues(name: &str, queues: u32, max: u32) -> XdpError {
        let help = format!(
            "{name} receives by {queues} queues, and {max} can be served: ethtool -L {name} \
             combined {max}"
        );
        XdpError::new("serve every queue", io::ErrorKind::Unsupported.into(), &help)
    }

    /// The kernel does not take our program, and has written why.
    pub fn of_program(source: io::Error, log: &[u8]) -> XdpError {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]);
        match log.trim() {
            "" => XdpError::at("load the program")(source),
            log => {
                XdpError::new("load the program", source, &format!("the kernel's log:\n{log}\n"))
            }
        }
    }

    /// The program could not be attached to the interface.
    pub fn of_attach(source: io::Error) -> XdpError {
        let action = "attach the program to the interface";
        match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                XdpError::new(action, source, "it has another XDP program already")
            }
            Some(libc::EOPNOTSUPP) => XdpError::new(action, source, "it takes no XDP program"),
            _ => XdpError::at(action)(source),
        }
    }
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let XdpError { action, source, help } = self;
        let with = if help.is_empty() { "" } else { "; " };
        write!(f, "cannot {action}: {source} ({help}{with}{ELSE})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn an_error_says_what_would_help() {
        let table = [
            (XdpError::at("open a socket")(raw(libc::EPERM)), "CAP_BPF, and the latter two not in"),
            (XdpError::of_umem(raw(libc::ENOBUFS), 10 << 20), "ulimit -l, is too low for 10 MiB"),
            (XdpError::of_bind(raw(libc::EBUSY), 3), "another gateway perhaps, has queue 3"),
            (XdpError::too_many_queues("eth0", 64, 16), "ethtool -L eth0 combined 16"),
            (XdpError::of_program(raw(libc::EACCES), b"R5 !read_ok\0\0"), "log:\nR5 !read_ok\n;"),
            (XdpError::of_program(raw(libc::EPERM), b"\0"), "AF_XDP needs CAP_NET_RAW"),
            (XdpError::of_attach(raw(libc::EBUSY)), "another XDP program"),
        ];
        for (error, expected) in table {
            let text = error.to_string();
            assert!(text.contains(expected) && text.ends_with("udp:ADDR need less)"), "{text}");
        }
    }
}
