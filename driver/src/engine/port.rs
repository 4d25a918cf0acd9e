//! The device's port, as the fabric's gateway tells of it: link state and addresses. While there is
//! nothing new, that costs one load for each batch.

use std::path::{Path, PathBuf};

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::VerbsError;
use ferroce_stack::{GidEntry, PortAttr};

use super::Engine;
use super::batch::Inner;
use crate::fabric::{GatewayNote, PortNews};

/// What an engine needs to follow the gateway.
#[derive(Debug)]
pub(super) struct PortSide {
    fabric: PathBuf,
    /// Which of the gateway's addresses is the device's; none if its address is its own.
    follows: Option<usize>,
    /// The notes that the GID table follows from.
    notes: u64,
    /// The engine's own link is gone.
    is_cut: bool,
}

impl PortSide {
    pub fn new(fabric: &Path, follows: Option<usize>) -> PortSide {
        PortSide { fabric: fabric.to_owned(), follows, notes: 0, is_cut: false }
    }

    /// The port stays down: the engine's own link is gone.
    pub fn lose_link(&mut self) {
        self.is_cut = true;
    }
}

impl Inner {
    /// Takes note of what the gateway says of the port. Events tell of changes.
    #[cold]
    pub fn hear(&mut self) {
        let PortNews { is_active, notes } = self.member.hear();
        if let Some(network) = &self.network {
            network.see_fabric();
        }
        self.device.set_port_active(is_active && !self.port.is_cut);
        if std::mem::replace(&mut self.port.notes, notes) != notes {
            self.follow();
        }
    }

    /// Gives the device the address that the gateway's note has for it.
    fn follow(&mut self) {
        let Some(which) = self.port.follows else { return };
        let Some(note) = GatewayNote::read(&self.port.fabric) else { return };
        let Some(gid) = note.addresses.get(which).map(|ip| Gid::from_ip(*ip)) else { return };
        let gids = self.gids();
        let is_address = |entry: &GidEntry| entry.gid.0[..2] != [0xfe, 0x80];
        let Some(at) = gids.iter().position(is_address) else { return };
        let old = gids[at];
        let is_there = gids.iter().any(|entry| entry.gid == gid);
        if is_there || gid.is_multicast() || gid == Gid::default() {
            return;
        }
        // The entry is there, and its place is the first that is free then.
        let _ = self.device.remove_gid(at as u8);
        let _ = self.device.add_gid(GidEntry { gid, ..old });
        self.member.set_gids(&self.gids());
    }

    /// The GID table, which is full from index 0.
    fn gids(&self) -> Vec<GidEntry> {
        (0..=u8::MAX).map_while(|index| self.device.query_gid(index)).collect()
    }
}

impl Engine {
    /// The GID table of the device, which is full from index 0. It changes when the gateway's link
    /// gets another address.
    ///
    /// # Errors
    /// As [`Engine::lock`].
    pub fn gids(&self) -> Result<Vec<GidEntry>, VerbsError> {
        Ok(self.lock()?.inner.gids())
    }

    /// Attributes of the port.
    ///
    /// # Errors
    /// As [`Engine::lock`].
    pub fn port(&self) -> Result<PortAttr, VerbsError> {
        Ok(self.lock()?.query_port())
    }
}
