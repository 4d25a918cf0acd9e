//! What ethtool is told of an interface, by ioctl(2): how fast its link is, how many queues it has.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Commands: the link's settings, and the numbers of queues.
const GET_SETTINGS: u32 = 0x01;
const GET_CHANNELS: u32 = 0x3c;

/// Rate of a link that nobody knows, in Mbit/s.
const UNKNOWN: u32 = u32::MAX;

/// A question that begins with its command and has room for the answer.
///
/// # Safety
/// The kernel writes no more than the structure for this command.
unsafe trait Question {}

/// The settings of a link (`struct ethtool_cmd`). Of those the kernel has had since, which need two
/// questions, we want none.
#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    /// The lower half of the rate in Mbit/s.
    speed: u16,
    media: [u8; 6],
    coalescing: [u32; 2],
    /// The upper half.
    speed_hi: u16,
    pairs: [u8; 2],
    peer_modes: u32,
    reserved: [u32; 2],
}

// SAFETY: `GET_SETTINGS` is answered with these 44 bytes.
unsafe impl Question for Settings {}

const _: () = assert!(mem::size_of::<Settings>() == 44);

/// The numbers of queues (`struct ethtool_channels`).
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

// SAFETY: `GET_CHANNELS` is answered with these 36 bytes.
unsafe impl Question for Channels {}

const _: () = assert!(mem::size_of::<Channels>() == 36);

/// The rate of an interface's link in bit/s; none if its driver does not know it, as without a
/// carrier. `socket` is any one.
pub fn line_rate(socket: BorrowedFd<'_>, name: &str) -> Option<u64> {
    let mut settings = Settings { command: GET_SETTINGS, ..Settings::default() };
    ask(socket, name, &mut settings).ok()?;
    rate_of(settings.speed, settings.speed_hi)
}

/// A rate in bit/s from the halves of one in Mbit/s.
fn rate_of(low: u16, high: u16) -> Option<u64> {
    match u32::from(high) << 16 | u32::from(low) {
        // Of old, half of a number was all of it.
        0 | UNKNOWN | 0xffff => None,
        mbit => Some(u64::from(mbit) * 1_000_000),
    }
}

/// How many queues of an interface receive. `socket` is any one.
///
/// # Errors
/// What ioctl(2) says; raw `EOPNOTSUPP` if the driver does not.
pub fn receive_queues(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    ask(socket, name, &mut channels)?;
    Ok(channels.rx.saturating_add(channels.combined))
}

fn ask(socket: BorrowedFd<'_>, name: &str, question: &mut impl Question) -> io::Result<()> {
    // SAFETY: zeros are a value of it.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the request and the question it points to are ours; that has room for the answer.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use nix::sched::{CloneFlags, unshare};

    use super::super::resolve;
    use super::*;

    #[test]
    fn a_rate_that_is_not_known_is_none() {
        for (low, high) in [(0, 0), (0xffff, 0), (0xffff, 0xffff)] {
            assert_eq!(rate_of(low, high), None);
        }
        assert_eq!(rate_of(10_000, 0), Some(10_000_000_000));
        assert_eq!(rate_of(0x1a80, 0x6), Some(400_000_000_000));
    }

    /// The rate of a link on an interface that these commands make.
    fn resolved(commands: &[&str], link: &str) -> Option<Option<u64>> {
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            match Command::new(words[0]).args(&words[1..]).output() {
                Ok(output) if output.status.success() => {}
                other => {
                    eprintln!("skipped: {command}: {other:?}");
                    return None;
                }
            }
        }
        Some(resolve(&link.parse().unwrap()).unwrap().line_rate)
    }

    #[test]
    fn a_link_has_the_rate_of_its_interface_in_this_namespace() {
        let run = || {
            if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
                return eprintln!("skipped: no new network namespace: {errno}");
            }
            let veth = [
                "ip link add near type veth peer name far",
                "ip link set far up",
                "ip link set near up",
                "ip addr add 192.0.2.1/24 dev near",
            ];
            if let Some(rate) = resolved(&veth, "packet:near") {
                assert_eq!(rate, Some(10_000_000_000));
                assert_eq!(resolved(&[], "udp:192.0.2.1"), Some(rate));
            }
            let tap = [
                "ip tuntap add tap0 mode tap",
                "ethtool -s tap0 speed 25000 duplex full autoneg off",
            ];
            if let Some(rate) = resolved(&tap, "packet:tap0") {
                assert_eq!(rate, Some(25_000_000_000));
                // Of a VLAN it is that of the interface below, has the kernel a part in it or not.
                assert_eq!(resolved(&[], "xdp:tap0,vlan=7"), Some(rate));
                let vlan = "ip link add link tap0 name tap0.7 type vlan id 7";
                if let Some(of_interface) = resolved(&[vlan], "packet:tap0.7") {
                    assert_eq!(of_interface, rate);
                    assert_eq!(resolved(&[], "packet:tap0,vlan=7"), Some(rate));
                }
            }
            assert_eq!(resolved(&["ip link set lo up"], "packet:lo"), Some(None));
        };
        thread::spawn(run).join().unwrap();
    }
}
