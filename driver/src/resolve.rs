//! Which device of this host a connection leaves from, and along which path: what a route and a
//! neighbour are to a kernel, from the devices alone.
//!
//! A v4-mapped IPv6 address is the IPv4 address everywhere.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::Path;

use crate::identity::DeviceInfo;

/// TTL or hop limit of what leaves from here, where nothing else is asked for.
pub const HOP_LIMIT: u8 = 64;

/// How a destination is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The device, by its index.
    pub device: usize,
    /// The address of this side.
    pub source: IpAddr,
    /// The address of the other side: as given, but a loopback address in place of an unspecified
    /// one.
    pub destination: IpAddr,
    /// Index of `path.sgid` in the device's table.
    pub sgid_index: u8,
    /// The path; its GIDs are equal where the destination is this host.
    pub path: Path,
}

/// Why a destination cannot be reached from here. Whether anybody has the address is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// There is no device.
    NoDevice,
    /// The source is no address of this host (EADDRNOTAVAIL).
    Source(IpAddr),
    /// No device has an address of the destination's family (ENETUNREACH).
    Family(IpAddr),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::NoDevice => f.write_str("there is no device"),
            ResolveError::Source(address) => write!(f, "no device has the address {address}"),
            ResolveError::Family(address) => {
                write!(f, "no device has an address of the family of {address}")
            }
        }
    }
}

impl std::error::Error for ResolveError {}

/// The device that has an address, for binding to it; none if none has, and if the address is
/// unspecified, which is all of them. Loopback addresses, and all in `machine`, are the first
/// device's: see [`resolve`].
pub fn local(devices: &[DeviceInfo], machine: &[IpAddr], address: IpAddr) -> Option<usize> {
    let address = address.to_canonical();
    if address.is_unspecified() {
        return None;
    }
    let by_gid = devices.iter().position(|device| index_of(device, address).is_some());
    let is_own = address.is_loopback() || machine.contains(&address);
    by_gid.or_else(|| (is_own && !devices.is_empty()).then_some(0))
}

/// Finds the way to `destination`, from `source` if it is given and not unspecified.
///
/// `machine` has the addresses of the machine's interfaces where the device stands for the whole
/// machine, because none was set ([`machine_addresses`](crate::identity::machine_addresses)).
///
/// # Errors
/// [`ResolveError`].
pub fn resolve(
    devices: &[DeviceInfo],
    machine: &[IpAddr],
    source: Option<IpAddr>,
    destination: IpAddr,
) -> Result<Resolved, ResolveError> {
    if devices.is_empty() {
        return Err(ResolveError::NoDevice);
    }
    let source = source.map(|address| address.to_canonical());
    let source = source.filter(|address| !address.is_unspecified());
    let destination = match destination.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    };
    let bound = match source {
        Some(address) => {
            let device = local(devices, machine, address);
            Some(device.ok_or(ResolveError::Source(address))?)
        }
        None => None,
    };
    let to_device = |device: usize, sgid_index: u8, dgid: Option<Gid>, from: IpAddr| {
        let sgid = devices[device].gids[usize::from(sgid_index)].gid;
        let dgid = dgid.unwrap_or(sgid);
        let path = Path { sgid, dgid, hop_limit: HOP_LIMIT, ..Path::default() };
        let source = source.unwrap_or(from);
        Ok(Resolved { device, source, destination, sgid_index, path })
    };
    match local(devices, machine, destination) {
        // A device that was chosen by the source meets one of another address on the way.
        Some(device) if bound.is_none_or(|bound| bound == device) => {
            let own = own_address(&devices[device]).ok_or(ResolveError::NoDevice)?;
            let index = index_of(&devices[device], destination).unwrap_or(own);
            to_device(device, index, None, destination)
        }
        Some(_) if destination.is_loopback() => {
            let device = bound.unwrap_or(0);
            let index = own_address(&devices[device]).ok_or(ResolveError::NoDevice)?;
            to_device(device, index, None, destination)
        }
        _ => {
            let device = bound
                .or_else(|| devices.iter().position(|device| has_family(device, destination)))
                .unwrap_or(0);
            let index = source_for(&devices[device], destination)
                .ok_or(ResolveError::Family(destination))?;
            let from = devices[device].gids[usize::from(index)].gid.to_ip();
            to_device(device, index, Some(Gid::from_ip(destination)), from)
        }
    }
}

/// Index of the GID of an address.
fn index_of(device: &DeviceInfo, address: IpAddr) -> Option<u8> {
    position(device, |gid| gid == Gid::from_ip(address))
}

/// Index of the address the device was made for, rather than that of its MAC.
fn own_address(device: &DeviceInfo) -> Option<u8> {
    position(device, |gid| !is_link_local(gid)).or_else(|| position(device, |_| true))
}

/// Index of the address a packet to `destination` may leave from: of its family, and of its scope
/// if there is one.
fn source_for(device: &DeviceInfo, destination: IpAddr) -> Option<u8> {
    let scope = is_link_local(Gid::from_ip(destination));
    let fits = |gid: Gid| gid.ipv4().is_some() == destination.is_ipv4();
    position(device, |gid| fits(gid) && is_link_local(gid) == scope)
        .or_else(|| position(device, fits))
}

fn has_family(device: &DeviceInfo, destination: IpAddr) -> bool {
    position(device, |gid| !is_link_local(gid) && gid.ipv4().is_some() == destination.is_ipv4())
        .is_some()
}

fn is_link_local(gid: Gid) -> bool {
    matches!(gid.to_ip(), IpAddr::V6(address) if address.is_unicast_link_local())
}

fn position(device: &DeviceInfo, is_it: impl Fn(Gid) -> bool) -> Option<u8> {
    let at = device.gids.iter().position(|entry| is_it(entry.gid))?;
    u8::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::identity;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn devices(addresses: &[&str]) -> Vec<DeviceInfo> {
        let mut settings = Settings::default();
        settings.addr = addresses.iter().map(|text| ip(text)).collect();
        identity::devices(&settings).unwrap()
    }

    /// `device source sgid_index sgid > destination dgid`, or the error.
    fn found(devices: &[DeviceInfo], machine: &[&str], source: &str, destination: &str) -> String {
        let machine: Vec<IpAddr> = machine.iter().map(|text| ip(text)).collect();
        let source = (!source.is_empty()).then(|| ip(source));
        match resolve(devices, &machine, source, ip(destination)) {
            Ok(Resolved { device, source, destination, sgid_index, path }) => {
                assert_eq!(devices[device].gids[usize::from(sgid_index)].gid, path.sgid);
                assert_eq!((path.hop_limit, path.flow_label, path.sl), (HOP_LIMIT, 0, 0));
                let (sgid, dgid) = (path.sgid.to_ip(), path.dgid.to_ip());
                format!("{device} {source} {sgid_index} {sgid} > {destination} {dgid}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn ways_from_two_devices() {
        let devices = devices(&["10.9.0.1", "10.9.0.2", "fd99::3"]);
        let table = [
            // Others, from the first device of the family, or from where one is bound.
            ("", "10.9.0.7", "0 10.9.0.1 1 10.9.0.1 > 10.9.0.7 10.9.0.7"),
            ("10.9.0.2", "10.9.0.7", "1 10.9.0.2 1 10.9.0.2 > 10.9.0.7 10.9.0.7"),
            ("", "fd99::7", "2 fd99::3 1 fd99::3 > fd99::7 fd99::7"),
            ("0.0.0.0", "10.9.0.7", "0 10.9.0.1 1 10.9.0.1 > 10.9.0.7 10.9.0.7"),
            ("", "::ffff:10.9.0.7", "0 10.9.0.1 1 10.9.0.1 > 10.9.0.7 10.9.0.7"),
            ("", "239.1.1.1", "0 10.9.0.1 1 10.9.0.1 > 239.1.1.1 239.1.1.1"),
            // Oneself, and the other device.
            ("", "10.9.0.2", "1 10.9.0.2 1 10.9.0.2 > 10.9.0.2 10.9.0.2"),
            ("10.9.0.1", "10.9.0.2", "0 10.9.0.1 1 10.9.0.1 > 10.9.0.2 10.9.0.2"),
            ("::ffff:10.9.0.1", "10.9.0.1", "0 10.9.0.1 1 10.9.0.1 > 10.9.0.1 10.9.0.1"),
            // Loopback.
            ("", "127.0.0.1", "0 127.0.0.1 1 10.9.0.1 > 127.0.0.1 10.9.0.1"),
            ("", "0.0.0.0", "0 127.0.0.1 1 10.9.0.1 > 127.0.0.1 10.9.0.1"),
            ("", "::", "0 ::1 1 10.9.0.1 > ::1 10.9.0.1"),
            ("10.9.0.2", "127.0.0.5", "1 10.9.0.2 1 10.9.0.2 > 127.0.0.5 10.9.0.2"),
            ("127.0.0.1", "127.0.0.1", "0 127.0.0.1 1 10.9.0.1 > 127.0.0.1 10.9.0.1"),
            // What cannot be.
            ("10.9.0.9", "10.9.0.7", "no device has the address 10.9.0.9"),
            ("fd99::3", "10.9.0.7", "no device has an address of the family of 10.9.0.7"),
        ];
        for (source, destination, expected) in table {
            assert_eq!(found(&devices, &[], source, destination), expected);
        }
        assert_eq!(found(&[], &[], "", "10.9.0.7"), "there is no device");
    }

    #[test]
    fn device_that_stands_for_the_machine_has_all_its_addresses() {
        let devices = devices(&["10.9.0.1"]);
        let machine = ["10.9.0.1", "172.17.0.1", "fd99::1"];
        let table = [
            ("", "172.17.0.1", "0 172.17.0.1 1 10.9.0.1 > 172.17.0.1 10.9.0.1"),
            ("", "fd99::1", "0 fd99::1 1 10.9.0.1 > fd99::1 10.9.0.1"),
            ("172.17.0.1", "10.9.0.7", "0 172.17.0.1 1 10.9.0.1 > 10.9.0.7 10.9.0.7"),
            ("172.17.0.1", "127.0.0.1", "0 172.17.0.1 1 10.9.0.1 > 127.0.0.1 10.9.0.1"),
        ];
        for (source, destination, expected) in table {
            assert_eq!(found(&devices, &machine, source, destination), expected);
        }
        // A device of IPv4 alone reaches IPv6 from its link-local address.
        let link_local = devices[0].gids[0].gid.to_ip();
        let expected = format!("0 {link_local} 0 {link_local} > fe80::7 fe80::7");
        assert_eq!(found(&devices, &machine, "", "fe80::7"), expected);
    }

    #[test]
    fn addresses_to_bind_to() {
        let devices = devices(&["10.9.0.1", "10.9.0.2", "fd99::3"]);
        let link_local = devices[2].gids[0].gid.to_ip().to_string();
        let machine = [ip("172.17.0.1")];
        let table = [
            ("10.9.0.2", Some(1)),
            ("::ffff:10.9.0.2", Some(1)),
            ("fd99::3", Some(2)),
            (link_local.as_str(), Some(2)),
            ("127.0.0.1", Some(0)),
            ("::1", Some(0)),
            ("172.17.0.1", Some(0)),
            ("10.9.0.7", None),
            ("0.0.0.0", None),
            ("::", None),
        ];
        for (address, expected) in table {
            assert_eq!(local(&devices, &machine, ip(address)), expected, "{address}");
        }
        assert_eq!(local(&[], &machine, ip("127.0.0.1")), None);
    }
}
