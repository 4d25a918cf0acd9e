//! What a fabric's gateway leads to: a small file that is there as long as the gateway is, so that
//! processes that join have the addresses and the MTU of its link without being told.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ferroce_stack::verbs::Mtu;
use serde::{Deserialize, Serialize};

use super::registry::{Presence, Registry, View, open_file};

/// A longer note, in bytes, is none.
const NOTE_MAX: u64 = 64 << 10;

/// What a gateway leads to. Whoever reads one should not trust it: any member may have written it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayNote {
    /// Its link, as the user names it.
    pub link: String,
    /// Addresses by which the network knows this fabric's devices, one each.
    pub addresses: Vec<IpAddr>,
    /// Largest path MTU that fits the link, in bytes of payload.
    pub mtu: u32,
    /// Rate of the link's interface in bit/s, if it knows it.
    #[serde(default)]
    pub line_rate: Option<u64>,
    /// Its frames are RoCE v1's.
    #[serde(default)]
    pub v1: bool,
}

impl GatewayNote {
    /// The note in a fabric's directory; none if it has no gateway, or one that has died.
    pub fn read(dir: &Path) -> Option<GatewayNote> {
        let registry = Registry::open_existing(dir).ok()??;
        let gateway = View::new(&registry).gateway()?;
        if registry.is_dead(gateway) {
            return None;
        }
        let file = open_file(&note_path(dir), Presence::Existing).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = Vec::new();
        file.take(NOTE_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The path MTU; none if it is not one.
    pub fn path_mtu(&self) -> Option<Mtu> {
        Mtu::from_bytes(self.mtu as usize)
    }

    /// Writes it in place of the last.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("new");
        let mut file: File = open_file(&unfinished, Presence::New)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(unfinished, path)
    }
}

/// Where a fabric's gateway leaves its note.
pub(super) fn note_path(dir: &Path) -> PathBuf {
    dir.join("gateway")
}
