//! What `/sys/class/infiniband` would hold if a kernel driver had made the devices: the files that
//! programs read themselves instead of asking the library.

use std::fs;
use std::io;
use std::path::Path;

use ferroce::identity::{BOARD_ID, DeviceInfo, FW_VER};
use ferroce_stack::gid::Gid;

use crate::devices::{gid_type_text, guid_text};

/// Where the netdev of a device is, for the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Locality {
    /// Mask of the processors near it, as sysfs writes masks.
    local_cpus: String,
    /// NUMA node; -1: none.
    numa_node: String,
}

/// Writes the folder of each device into `class`.
///
/// # Errors
/// If a file cannot be written.
pub fn write(class: &Path, devices: &[DeviceInfo]) -> io::Result<()> {
    for device in devices {
        let locality = locality(device.netdev.as_deref());
        for (name, content) in files(device, &locality) {
            let path = class.join(&device.name).join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, content + "\n")?;
        }
        if let Some(netdev) = &device.netdev {
            fs::create_dir_all(class.join(&device.name).join("device/net").join(netdev))?;
        }
    }
    Ok(())
}

fn locality(netdev: Option<&str>) -> Locality {
    let of_netdev = |file: &str| netdev.map(|name| format!("/sys/class/net/{name}/device/{file}"));
    let read = |path: Option<String>| {
        let text = fs::read_to_string(path?).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let all = || read(Some("/sys/devices/system/node/node0/cpumap".to_owned()));
    Locality {
        // Processor 0 is always there.
        local_cpus: read(of_netdev("local_cpus")).or_else(all).unwrap_or_else(|| "1".to_owned()),
        numa_node: read(of_netdev("numa_node")).unwrap_or_else(|| "-1".to_owned()),
    }
}

/// Name, below the device's folder, and content of each file.
fn files(device: &DeviceInfo, locality: &Locality) -> Vec<(String, String)> {
    let guid = guid_text(device.node_guid);
    let fixed = [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", &device.name),
        ("fw_ver", FW_VER),
        ("board_id", BOARD_ID),
        ("hca_type", BOARD_ID),
        ("device/local_cpus", &locality.local_cpus),
        ("device/numa_node", &locality.numa_node),
        // PCI has 16 bits for each: those of no vendor.
        ("device/vendor", "0xffff"),
        ("device/device", "0x0000"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/phys_state", "5: LinkUp"),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/rate", "40 Gb/sec (4X FDR10)"),
        ("ports/1/lid", "0x0"),
        ("ports/1/lid_mask_count", "0"),
        ("ports/1/cap_mask", "0x04010000"),
        ("ports/1/sm_lid", "0x0"),
        ("ports/1/sm_sl", "0"),
        ("ports/1/pkeys/0", "0xffff"),
    ];
    let own = |(name, content): (&str, &str)| (name.to_owned(), content.to_owned());
    let mut files: Vec<(String, String)> = fixed.into_iter().map(own).collect();
    for (index, entry) in device.gids.iter().enumerate() {
        let framing = gid_type_text(entry.gid_type).to_owned();
        files.push((format!("ports/1/gids/{index}"), gid_groups(entry.gid)));
        files.push((format!("ports/1/gid_attrs/types/{index}"), framing));
        if let Some(netdev) = &device.netdev {
            files.push((format!("ports/1/gid_attrs/ndevs/{index}"), netdev.clone()));
        }
    }
    files
}

/// A GID as the kernel writes it: eight groups, no zero left out.
fn gid_groups(gid: Gid) -> String {
    let (pairs, _) = gid.0.as_chunks::<2>();
    let groups: Vec<String> = pairs.iter().map(|[a, b]| format!("{a:02x}{b:02x}")).collect();
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use ferroce::config::Settings;
    use ferroce::identity;

    use super::*;

    #[test]
    fn gids_are_written_in_full() {
        let gid = Gid::from_ip("192.0.2.1".parse().unwrap());
        assert_eq!(gid_groups(gid), "0000:0000:0000:0000:0000:ffff:c000:0201");
    }

    #[test]
    fn each_gid_has_its_type_and_interface() {
        let mut settings = Settings::default();
        settings.addr = vec!["127.0.0.1".parse().unwrap()];
        let mut device = identity::devices(&settings).unwrap().remove(0);
        device.netdev = Some("lo".to_owned());
        let locality = Locality { local_cpus: "3".to_owned(), numa_node: "-1".to_owned() };
        let content = |device: &DeviceInfo, name: &str| {
            let files = files(device, &locality);
            files.into_iter().find(|(other, _)| other == name).map(|(_, content)| content)
        };
        assert_eq!(content(&device, "ports/1/gid_attrs/types/1").unwrap(), "RoCE v2");
        assert_eq!(content(&device, "ports/1/gid_attrs/ndevs/0").unwrap(), "lo");
        assert_eq!(content(&device, "node_guid").unwrap(), "0000:7fff:fe00:0001");
        device.netdev = None;
        assert_eq!(content(&device, "ports/1/gid_attrs/ndevs/0"), None);
    }
}
