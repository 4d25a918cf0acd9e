//! `ferroce devices`: the devices a program would find, as `ibv_devinfo` and `rdma link` show them.

use std::io::{self, Write};

use anyhow::Result;
use ferroce::identity::{self, BOARD_ID, DeviceInfo, FW_VER, HW_VER, VENDOR_ID, VENDOR_PART_ID};
use ferroce_stack::GidType;
use ferroce_stack::verbs::Mtu;
use serde_json::json;

use crate::settings::SettingFlags;

/// Shown below `ferroce devices --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce devices
  ferroce devices --link
  ferroce devices --addr 10.0.0.1 --addr 10.0.0.2      two hosts of a cluster
  ferroce devices --json | jq -r '.gids[].gid'

Each address is one device, with a GID table of two: the link-local address, and
the address. With none set there is one device, with the IPv4 address of the
default route's interface, or 127.0.0.1.

Exit status: 0, or 2 if a setting is wrong.";

/// Show the devices, as ibv_devinfo does.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A line a device, as `rdma link` prints it
    #[arg(long, conflicts_with = "json")]
    link: bool,
    /// One object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

/// Shows them.
///
/// # Errors
/// If a setting is wrong, the interfaces cannot be listed or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let devices = identity::devices(&arguments.settings.load()?)?;
    let mut out = io::stdout().lock();
    for device in &devices {
        if arguments.json {
            writeln!(out, "{}", object(device))?;
        } else if arguments.link {
            writeln!(out, "{}", link_line(device))?;
        } else {
            write!(out, "{}", block(device))?;
        }
    }
    Ok(())
}

/// A GUID as tools write it.
pub fn guid_text(guid: u64) -> String {
    let group = |shift: u32| (guid >> shift) & 0xffff;
    format!("{:04x}:{:04x}:{:04x}:{:04x}", group(48), group(32), group(16), group(0))
}

/// The framing of a GID as tools write it.
pub fn gid_type_text(gid_type: GidType) -> &'static str {
    match gid_type {
        GidType::RoceV1 => "RoCE v1",
        GidType::RoceV2 => "RoCE v2",
    }
}

/// A rate of so many bit/s as tools write it.
fn rate_text(rate: u64) -> String {
    format!("{} Gb/sec", rate as f64 / 1e9)
}

fn link_line(device: &DeviceInfo) -> String {
    let netdev = device.netdev.as_ref().map_or(String::new(), |name| format!(" netdev {name}"));
    format!("link {}/1 state ACTIVE physical_state LINK_UP{netdev}", device.name)
}

fn block(device: &DeviceInfo) -> String {
    let guid = guid_text(device.node_guid);
    let mtu = |mtu: Mtu| format!("{} ({})", mtu.bytes(), mtu as u8);
    let of_device = [
        ("transport", "InfiniBand (0)".to_owned()),
        ("fw_ver", FW_VER.to_owned()),
        ("node_guid", guid.clone()),
        ("sys_image_guid", guid),
        ("vendor_id", format!("0x{VENDOR_ID:04x}")),
        ("vendor_part_id", VENDOR_PART_ID.to_string()),
        ("hw_ver", format!("0x{HW_VER:X}")),
        ("board_id", BOARD_ID.to_owned()),
        ("phys_port_cnt", "1".to_owned()),
    ];
    let of_port = [
        ("state", "PORT_ACTIVE (4)".to_owned()),
        ("max_mtu", mtu(Mtu::Mtu4096)),
        ("active_mtu", mtu(device.active_mtu)),
        ("line_rate", device.line_rate.map_or("-".to_owned(), rate_text)),
        ("sm_lid", "0".to_owned()),
        ("port_lid", "0".to_owned()),
        ("port_lmc", "0x00".to_owned()),
        ("link_layer", "Ethernet".to_owned()),
        ("netdev", device.netdev.clone().unwrap_or_else(|| "-".to_owned())),
    ];
    let mut text = format!("hca_id: {}\n", device.name);
    for (name, value) in of_device {
        text += &format!("        {:<24}{value}\n", format!("{name}:"));
    }
    text += "                port:   1\n";
    for (name, value) in of_port {
        text += &format!("                        {:<24}{value}\n", format!("{name}:"));
    }
    for (index, entry) in device.gids.iter().enumerate() {
        let framing = gid_type_text(entry.gid_type);
        let name = format!("GID[{index:3}]:");
        text += &format!("                        {name:<24}{}, {framing}\n", entry.gid);
    }
    text
}

fn object(device: &DeviceInfo) -> serde_json::Value {
    let gid = |(index, entry): (usize, &ferroce_stack::GidEntry)| {
        json!({
            "index": index,
            "gid": entry.gid.to_string(),
            "type": gid_type_text(entry.gid_type),
        })
    };
    json!({
        "name": device.name,
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LINK_UP",
        "link_layer": "Ethernet",
        "netdev": device.netdev,
        "mac": device.mac.to_string(),
        "node_guid": guid_text(device.node_guid),
        "active_mtu": device.active_mtu.bytes(),
        "line_rate": device.line_rate,
        "gids": device.gids.iter().enumerate().map(gid).collect::<Vec<_>>(),
    })
}
