//! The port that all devices of a fabric have in common: what its gateway tells the members of the
//! link, and what they want of it.
//!
//! Whether the link is down stands in the gateway's flags, and so ends with it: a fabric without a
//! gateway needs no link. Addresses stand in its note, whose writing is counted. Both move the
//! registry, at which a member looks with one load now and then.

use std::io;
use std::path::Path;

use ferroce_stack::gid::Gid;

use super::error::FabricError;
use super::groups::Groups;
use super::member::{self, Member};
use super::note::GatewayNote;
use super::registry::{GATEWAY, LINK_DOWN, Presence, Registry, View, open_file};
use super::ring;
use super::shm::Shared;
use super::waker::Waker;

/// What a member learns of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortNews {
    /// The link is up, or there is none.
    pub is_active: bool,
    /// How often a gateway has left its note in this fabric: if it has moved there may be other
    /// addresses.
    pub notes: u64,
}

impl Member {
    /// Whether there may be something [`Member::hear`] does not know. One load.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.registry.changes() != self.heard
    }

    /// Takes note of who has come and gone, and lets go of the files of those who have.
    #[cold]
    pub fn look_around(&mut self) {
        self.view.refresh(&self.registry);
        self.heard = self.view.changes();
        self.forget_gone();
    }

    /// What there is to know of the port now; looks around for that.
    #[cold]
    pub fn hear(&mut self) -> PortNews {
        self.look_around();
        let gateway = self.view.gateway().map(|slot| self.view.entry(slot));
        PortNews {
            is_active: gateway.is_none_or(|entry| !entry.says(LINK_DOWN)),
            notes: self.registry.notes(),
        }
    }

    /// Says that this member has other addresses than those it joined with; of more than 8, those.
    pub fn set_gids(&mut self, gids: &[ferroce_stack::GidEntry]) {
        self.registry.set_gids(self.slot, gids);
    }
}

/// The port as who owns the link has it, beside the gateway's member.
#[derive(Debug)]
pub struct FabricPort {
    registry: Registry,
    view: View,
    groups: Groups,
    /// The gateway's.
    slot: u8,
    generation: u64,
}

impl FabricPort {
    /// That of the fabric in a directory, of which `gateway` is the gateway.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub fn open(dir: &Path, gateway: &Member) -> Result<FabricPort, FabricError> {
        member::check(dir)?;
        let not_there = || FabricError::NoParent { dir: dir.into() };
        let registry = Registry::open_existing(dir)?.ok_or_else(not_there)?;
        let view = View::new(&registry);
        let (slot, generation) = (gateway.slot(), gateway.generation());
        Ok(FabricPort { registry, view, groups: Groups::new(), slot, generation })
    }

    /// Every multicast group that a member is attached to, in order.
    pub fn groups(&mut self) -> impl Iterator<Item = Gid> {
        self.view.refresh(&self.registry);
        self.groups.known(&self.registry, &self.view)
    }

    /// Tells all members whether the link is up.
    pub fn set_active(&mut self, is_active: bool) {
        if self.is_gateway() {
            self.registry.set_flag(self.slot, LINK_DOWN, !is_active);
            self.rouse();
        }
    }

    /// Leaves word of what the gateway leads to now, and tells all members.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_note(&mut self, note: &GatewayNote) -> io::Result<()> {
        if self.is_gateway() {
            self.registry.write_note(note)?;
            self.rouse();
        }
        Ok(())
    }

    /// Whether the gateway is still there, and has not been taken for dead.
    fn is_gateway(&mut self) -> bool {
        self.view.refresh(&self.registry);
        let entry = self.view.entry(self.slot);
        entry.generation() == Some(self.generation) && entry.says(GATEWAY)
    }

    /// Has every member look around.
    fn rouse(&mut self) {
        self.view.refresh(&self.registry);
        for (slot, entry) in (0..=u8::MAX).zip(self.view.entries()) {
            let Some(generation) = entry.generation() else { continue };
            let ring = open_file(&self.registry.member_path(slot), Presence::Existing)
                .and_then(|file| Shared::map_sparsely(&file, ring::FILE_LEN));
            if let Ok(ring) = ring
                && ring::is_of(&ring, generation)
            {
                Waker::of(&ring, &self.registry.wake_path(slot)).wake(&ring);
            }
        }
    }
}
