//! What an engine is opened with, and why that may fail.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ferroce_stack::GidEntry;
use ferroce_stack::verbs::Mtu;

use crate::config::Settings;
use crate::fabric::FabricError;
use crate::frame::fault::Rule;
use crate::identity::DeviceInfo;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The name of the device, as reports give it.
    pub name: &'a str,
    /// The directory of the fabric.
    pub fabric: &'a Path,
    /// Addresses of the device.
    pub gids: &'a [GidEntry],
    /// The largest path MTU.
    pub active_mtu: Mtu,
    /// Faults of the frames it sends.
    pub faults: &'a [Rule],
    /// Decides what chances the faults take.
    pub seed: u64,
    /// A capture of the frames it sends, and of those that no other process records there.
    pub pcap: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// One of the devices that `settings` make ([`identity::devices`](crate::identity::devices)).
    pub fn new(settings: &'a Settings, device: &'a DeviceInfo) -> Options<'a> {
        Options {
            name: &device.name,
            fabric: &settings.fabric,
            gids: &device.gids,
            active_mtu: device.active_mtu,
            faults: &settings.fault,
            seed: settings.seed,
            pcap: settings.pcap.as_deref(),
        }
    }
}

/// Why an engine could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The fabric cannot be joined.
    Fabric(FabricError),
    /// The device refuses an address.
    Address(GidEntry),
    /// The capture cannot be written.
    Capture(PathBuf, io::Error),
    /// The system has no thread left.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Fabric(error) => error.fmt(f),
            OpenError::Address(entry) => write!(f, "{} cannot be an address", entry.gid),
            OpenError::Capture(path, error) => {
                write!(f, "cannot record to {}: {error}", path.display())
            }
            OpenError::Thread(error) => write!(f, "no thread for the engine: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}
