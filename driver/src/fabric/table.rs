//! What members tell of themselves in files of their own, each a table that its member writes and
//! all others read. A table begins with the generation of its member; the rest is its owner's to
//! lay out, and nothing of it is believed.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::error::FabricError;
use super::registry::{self, Presence};
use super::shm::Shared;

/// Where every table has the generation of its member.
const GENERATION_AT: usize = 0;

/// Maps the table of a member, of `len` bytes; none if it has none of this generation.
pub fn open(path: &Path, generation: u64, len: usize) -> Option<Shared> {
    let file = registry::open_file(path, Presence::Existing).ok()?;
    let shared = Shared::map(&file, len).ok()?;
    let found = shared.word(GENERATION_AT).load(Ordering::Acquire);
    (found == generation).then_some(shared)
}

/// Makes the table of a member, of `len` bytes, of which all but the generation are 0.
pub fn create(path: &Path, generation: u64, len: usize) -> Result<Shared, FabricError> {
    let file = registry::open_file(path, Presence::New)
        .map_err(|error| FabricError::from_creation(path, error, len as u64))?;
    registry::allocate(&file, path, len)?;
    let shared = Shared::map(&file, len).map_err(|error| FabricError::io("map", path, error))?;
    shared.word(GENERATION_AT).store(generation, Ordering::Release);
    Ok(shared)
}
