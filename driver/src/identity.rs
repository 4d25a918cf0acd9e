//! Which devices there are: name, addresses, GUID.
//!
//! All of it follows from the settings and the machine's interfaces, so every process of a host
//! with the same settings sees the same devices, with the same GUIDs, before and after a reboot.
//!
//! Each address is a device, with a GID table of two: the link-local address of its MAC, and the
//! address. An interface's MAC goes to the device of its first address; those of further addresses,
//! of loopback and of addresses that no interface has, are made from the address. So no two devices
//! share a MAC, a GUID or a link-local GID.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::Mtu;
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::config::Settings;
use crate::fabric::GatewayNote;
use crate::link::{self, LinkName, Resolved};

/// The MTU of a device with nothing set: shared memory has no smaller limit.
const DEFAULT_MTU: Mtu = Mtu::Mtu4096;

/// Vendor of every device: that of none, as soft RoCE has it. Programs treat known ones specially.
pub const VENDOR_ID: u32 = 0xff_ffff;

/// Part number of every device.
pub const VENDOR_PART_ID: u32 = 0;

/// Hardware version of every device.
pub const HW_VER: u32 = 0;

/// Firmware version of every device: our own.
pub const FW_VER: &str = env!("CARGO_PKG_VERSION");

/// Board of every device, and its type of adapter.
pub const BOARD_ID: &str = "ferroce";

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name: base and number.
    pub name: String,
    /// Its name in `/dev/infiniband`.
    pub dev_name: String,
    /// The interface that has its address.
    pub netdev: Option<String>,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its GID table, full from index 0, as it is when the device is listed.
    pub gids: Vec<GidEntry>,
    /// Its EUI-64, in host order: the first byte of the MAC is in the top one. Also its
    /// `sys_image_guid`.
    pub node_guid: u64,
    /// The largest path MTU.
    pub active_mtu: Mtu,
    /// The rate in bit/s of the link that it reaches a network by, if there is one that knows it.
    pub line_rate: Option<u64>,
    /// Which of the addresses of the fabric's gateway it has; none if it was given its own.
    pub follows: Option<usize>,
}

/// The interfaces could not be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityError {
    /// Why.
    pub errno: Errno,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the network interfaces cannot be listed: {}", self.errno.desc())
    }
}

impl std::error::Error for IdentityError {}

/// The devices, in the order of their addresses. Addresses and MTU that are not set are those of
/// the fabric's gateway, if it has one, and else of the link that is set.
///
/// # Errors
/// If the machine does not list its interfaces.
pub fn devices(settings: &Settings) -> Result<Vec<DeviceInfo>, IdentityError> {
    // A machine without /proc has no default route that we know of.
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let note = GatewayNote::read(&settings.fabric).or_else(|| note_of(settings.link.as_ref()?));
    Ok(devices_on(&interfaces()?, &default_routes(&routes), settings, note.as_ref()))
}

/// What the gateway would say of a link that is still to be opened; none of one that is not there,
/// as opening it will tell.
fn note_of(name: &LinkName) -> Option<GatewayNote> {
    let Resolved { mtu, line_rate, addresses } = link::resolve(name).ok()?;
    let mtu = Mtu::of_link(mtu)?.bytes() as u32;
    Some(GatewayNote {
        link: name.to_string(),
        addresses: addresses.into_iter().take(1).collect(),
        mtu,
        line_rate,
        v1: name.v1,
    })
}

/// Addresses of the interface of this name, IPv4 first, without link-local ones.
pub(crate) fn addresses_of(name: &str) -> Result<Vec<IpAddr>, IdentityError> {
    let interface = interfaces()?.into_iter().find(|interface| interface.name == name);
    let mut addresses = interface.unwrap_or_default().addresses;
    addresses.sort_by_key(IpAddr::is_ipv6);
    Ok(addresses)
}

/// The names of all interfaces.
pub(crate) fn interface_names() -> Result<Vec<String>, IdentityError> {
    Ok(interfaces()?.into_iter().map(|interface| interface.name).collect())
}

/// The link-local address of the device of an address that no interface has; none if one has it,
/// as then the link-local address is the interface's.
pub(crate) fn own_link_local(address: IpAddr) -> Result<Option<Ipv6Addr>, IdentityError> {
    Ok(interface_of(address)?.is_none().then(|| link_local(made_mac(address))))
}

/// The interface that has the address.
pub(crate) fn interface_of(address: IpAddr) -> Result<Option<String>, IdentityError> {
    let interface = interfaces()?.into_iter().find(|interface| interface.has(address));
    Ok(interface.map(|interface| interface.name))
}

/// The addresses of the machine's interfaces, where the device stands for the machine; none where
/// addresses were set, as each of those is a host of its own.
///
/// # Errors
/// As [`devices`].
pub fn machine_addresses(settings: &Settings) -> Result<Vec<IpAddr>, IdentityError> {
    if !settings.addr.is_empty() {
        return Ok(Vec::new());
    }
    Ok(interfaces()?.into_iter().flat_map(|interface| interface.addresses).collect())
}

/// A network interface.
#[derive(Clone, Debug, Default)]
struct Interface {
    name: String,
    up: bool,
    loopback: bool,
    /// None where there is none, or none of Ethernet's length.
    mac: Option<Mac>,
    /// In the kernel's order, without link-local ones.
    addresses: Vec<IpAddr>,
}

impl Interface {
    fn first_ipv4(&self) -> Option<IpAddr> {
        self.addresses.iter().copied().find(IpAddr::is_ipv4)
    }

    /// The address whose device has the interface's MAC.
    fn first_address(&self) -> Option<IpAddr> {
        self.first_ipv4().or(self.addresses.first().copied())
    }

    fn has(&self, address: IpAddr) -> bool {
        // All of 127.0.0.0/8 is loopback's, listed or not.
        let own_block = self.loopback && address.is_ipv4() && address.is_loopback();
        own_block || self.addresses.contains(&address)
    }
}

/// All interfaces, in the kernel's order of their indices.
fn interfaces() -> Result<Vec<Interface>, IdentityError> {
    let listed = getifaddrs().map_err(|errno| IdentityError { errno })?;
    let mut by_name: BTreeMap<String, (usize, Interface)> = BTreeMap::new();
    for entry in listed {
        let name = entry.interface_name;
        let (index, interface) =
            by_name.entry(name.clone()).or_insert((usize::MAX, Interface::default()));
        interface.name = name;
        interface.up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        interface.loopback |= entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let Some(address) = entry.address else { continue };
        if let Some(link) = address.as_link_addr() {
            *index = link.ifindex();
            let usable = |mac: &[u8; 6]| link.halen() == 6 && *mac != [0; 6] && mac[0] & 1 == 0;
            interface.mac = link.addr().filter(usable).map(Mac);
        } else if let Some(ipv4) = address.as_sockaddr_in() {
            interface.addresses.push(IpAddr::V4(ipv4.ip()));
        } else if let Some(ipv6) = address.as_sockaddr_in6()
            && !ipv6.ip().is_unicast_link_local()
        {
            interface.addresses.push(IpAddr::V6(ipv6.ip()));
        }
    }
    let mut interfaces: Vec<(usize, Interface)> = by_name.into_values().collect();
    interfaces.sort_by_key(|(index, _)| *index);
    Ok(interfaces.into_iter().map(|(_, interface)| interface).collect())
}

/// The interfaces of IPv4's default routes, best first, from the text of `/proc/net/route`.
fn default_routes(table: &str) -> Vec<&str> {
    let parse = |line| -> Option<(u32, &str)> {
        let fields: Vec<&str> = str::split_whitespace(line).collect();
        let [name, destination, _, flags, _, _, metric, mask, ..] = fields[..] else { return None };
        let up = u32::from_str_radix(flags, 16).ok()? & 1 != 0;
        let default = destination == "00000000" && mask == "00000000";
        (up && default).then_some((metric.parse().ok()?, name))
    };
    let mut routes: Vec<(u32, &str)> = table.lines().skip(1).filter_map(parse).collect();
    routes.sort_by_key(|(metric, _)| *metric);
    routes.into_iter().map(|(_, name)| name).collect()
}

fn devices_on(
    interfaces: &[Interface],
    routes: &[&str],
    settings: &Settings,
    gateway: Option<&GatewayNote>,
) -> Vec<DeviceInfo> {
    let own = [own_address(interfaces, routes)];
    let known = gateway.map_or(&[][..], |gateway| &gateway.addresses);
    let (addresses, follows) = match (settings.addr.is_empty(), known.is_empty()) {
        (false, _) => (&settings.addr[..], false),
        (_, false) => (known, true),
        _ => (&own[..], false),
    };
    let link_mtu = gateway.and_then(GatewayNote::path_mtu).unwrap_or(DEFAULT_MTU);
    let active_mtu = settings.mtu.map_or(link_mtu, |set| set.min(link_mtu));
    let gid_type = match gateway {
        Some(GatewayNote { v1: true, .. }) => GidType::RoceV1,
        _ => GidType::RoceV2,
    };
    let device = |(number, address): (usize, &IpAddr)| {
        let interface = interfaces.iter().find(|interface| interface.has(*address));
        let mac = mac_of(*address, interface);
        DeviceInfo {
            name: format!("{}{number}", settings.device),
            dev_name: format!("uverbs{number}"),
            netdev: interface.map(|interface| interface.name.clone()),
            mac,
            gids: gid_table(*address, mac, gid_type),
            node_guid: u64::from_be_bytes(eui64(mac)),
            active_mtu,
            line_rate: gateway.and_then(|gateway| gateway.line_rate),
            follows: follows.then_some(number),
        }
    };
    addresses.iter().enumerate().map(device).collect()
}

/// The address of the device where none is set.
fn own_address(interfaces: &[Interface], routes: &[&str]) -> IpAddr {
    let usable = |interface: &&Interface| interface.up && !interface.loopback;
    let routed = routes.iter().filter_map(|name| interfaces.iter().find(|i| i.name == **name));
    let mut candidates = routed.chain(interfaces).filter(usable);
    candidates.find_map(Interface::first_ipv4).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn mac_of(address: IpAddr, interface: Option<&Interface>) -> Mac {
    let first = interface.filter(|interface| interface.first_address() == Some(address));
    first.and_then(|interface| interface.mac).unwrap_or_else(|| made_mac(address))
}

/// A locally administered MAC, the same for the same address.
fn made_mac(address: IpAddr) -> Mac {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            Mac([0x02, 0x00, a, b, c, d])
        }
        IpAddr::V6(ip) => {
            // FNV-1a: five bytes that differ where addresses do.
            let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            let hash = ip.octets().into_iter().fold(0xcbf2_9ce4_8422_2325, step);
            let [.., a, b, c, d, e] = hash.to_be_bytes();
            Mac([0x06, a, b, c, d, e])
        }
    }
}

/// The modified EUI-64 of a MAC (RFC 4291, appendix A).
pub(crate) fn eui64(Mac([a, b, c, d, e, f]): Mac) -> [u8; 8] {
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The link-local address of a MAC (RFC 4862 5.3).
pub(crate) fn link_local(mac: Mac) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..].copy_from_slice(&eui64(mac));
    octets.into()
}

fn gid_table(address: IpAddr, mac: Mac, gid_type: GidType) -> Vec<GidEntry> {
    let entry = |gid| GidEntry { gid, gid_type, mac, vlan: None };
    vec![entry(Gid::from(link_local(mac))), entry(Gid::from_ip(address))]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn interface(name: &str, mac: Option<u8>, addresses: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            up: true,
            loopback: name == "lo",
            mac: mac.map(|last| Mac([0x52, 0x54, 0, 0, 0, last])),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    fn machine() -> [Interface; 3] {
        [
            interface("lo", None, &["127.0.0.1", "::1"]),
            interface("eth0", Some(1), &["fd00::2", "192.0.2.2", "192.0.2.3"]),
            interface("eth1", Some(2), &["198.51.100.2"]),
        ]
    }

    fn devices_of(addr: &[&str], interfaces: &[Interface], routes: &[&str]) -> Vec<DeviceInfo> {
        let mut settings = Settings::default();
        settings.addr = addr.iter().map(|text| text.parse().unwrap()).collect();
        devices_on(interfaces, routes, &settings, None)
    }

    #[test]
    fn default_device_is_on_the_interface_of_the_default_route() {
        let of = |interfaces: &[Interface], routes: &[&str]| {
            let [device] = &devices_of(&[], interfaces, routes)[..] else { panic!("one device") };
            (device.netdev.clone().unwrap(), device.gids[1].gid.to_string())
        };
        let machine = machine();
        assert_eq!(of(&machine, &["eth1"]), ("eth1".into(), "::ffff:198.51.100.2".into()));
        assert_eq!(of(&machine, &["tun9"]), ("eth0".into(), "::ffff:192.0.2.2".into()));
        assert_eq!(of(&machine[..1], &[]), ("lo".into(), "::ffff:127.0.0.1".into()));
    }

    #[test]
    fn what_is_not_set_follows_from_the_gateway() {
        let addresses = vec!["192.0.2.3".parse().unwrap(), "fd00::2".parse().unwrap()];
        let link = "packet:eth0".to_owned();
        let mut note = GatewayNote { link, addresses, mtu: 1024, line_rate: None, v1: false };
        let of = |settings: &Settings, note: &GatewayNote| {
            let devices = devices_on(&machine(), &["eth1"], settings, Some(note));
            let gids = devices.iter().map(|device| device.gids[1].gid.to_string());
            (gids.collect::<Vec<_>>(), devices[0].active_mtu)
        };
        let mut settings = Settings::default();
        let both = vec!["::ffff:192.0.2.3".to_owned(), "fd00::2".to_owned()];
        assert_eq!(of(&settings, &note), (both, Mtu::Mtu1024));
        settings.addr = vec!["192.0.2.2".parse().unwrap()];
        settings.mtu = Some(Mtu::Mtu512);
        let set = (vec!["::ffff:192.0.2.2".to_owned()], Mtu::Mtu512);
        assert_eq!(of(&settings, &note), set);
        // What does not fit the link is lowered.
        settings.mtu = Some(Mtu::Mtu2048);
        assert_eq!(of(&settings, &note).1, Mtu::Mtu1024);
        note.mtu = 1500;
        settings.mtu = None;
        assert_eq!(of(&settings, &note).1, Mtu::Mtu4096);
    }

    #[test]
    fn gids_are_of_the_version_of_the_link() {
        let (link, addresses) = ("packet:eth0,v1".to_owned(), vec![Ipv4Addr::LOCALHOST.into()]);
        for (v1, expected) in [(true, GidType::RoceV1), (false, GidType::RoceV2)] {
            let (link, addresses) = (link.clone(), addresses.clone());
            let note = GatewayNote { link, addresses, mtu: 1024, line_rate: None, v1 };
            let [device] = &devices_on(&machine(), &[], &Settings::default(), Some(&note))[..]
            else {
                panic!()
            };
            assert!(device.gids.iter().all(|entry| entry.gid_type == expected));
        }
    }

    #[test]
    fn guid_and_gids_follow_from_the_mac() {
        let [device] = &devices_of(&["192.0.2.2"], &machine(), &[])[..] else { panic!() };
        assert_eq!((device.name.as_str(), device.netdev.as_deref()), ("ferroce0", Some("eth0")));
        assert_eq!(device.node_guid, 0x5054_00ff_fe00_0001);
        assert_eq!(device.gids[0].gid.to_string(), "fe80::5054:ff:fe00:1");
        assert_eq!(device.active_mtu, Mtu::Mtu4096);
    }

    #[test]
    fn no_two_addresses_share_a_guid() {
        let addr = [
            "192.0.2.2",
            "192.0.2.3",
            "fd00::2",
            "198.51.100.2",
            "127.0.0.1",
            "127.0.0.9",
            "10.9.9.9",
            "fd00::77",
        ];
        let devices = devices_of(&addr, &machine(), &[]);
        let guids: BTreeSet<u64> = devices.iter().map(|device| device.node_guid).collect();
        let local: BTreeSet<Gid> = devices.iter().map(|device| device.gids[0].gid).collect();
        assert_eq!((guids.len(), local.len()), (addr.len(), addr.len()));
        let netdevs: Vec<&str> =
            devices.iter().map(|device| device.netdev.as_deref().unwrap_or("-")).collect();
        assert_eq!(netdevs, ["eth0", "eth0", "eth0", "eth1", "lo", "lo", "-", "-"]);
        assert_eq!(devices[6].mac.to_string(), "02:00:0a:09:09:09");
        assert_eq!(devices[7].name, "ferroce7");
    }

    #[test]
    fn routes_are_ordered_by_metric() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     eth1\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     down0\t00000000\t010200C0\t0002\t0\t0\t1\t00000000\t0\t0\t0\n\
                     damaged";
        assert_eq!(default_routes(table), ["eth1", "wlan0"]);
        assert_eq!(default_routes(""), [""; 0]);
    }

    #[test]
    fn this_machine_gives_the_same_devices_each_time() {
        let settings = Settings::default();
        let first = devices(&settings).unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(devices(&settings).unwrap(), first);
    }
}
