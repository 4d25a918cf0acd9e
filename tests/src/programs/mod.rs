//! Unmodified programs over our library: where the command and the library stand
//! ([`Installed`]), the fabric of one test ([`Fabric`]), processes that end in time
//! ([`Running`], [`Ended`]), and a server with its client ([`Pair`]).
//!
//! Where the tests run as root, the programs do not: they get a user without any rights.

mod compile;
mod fabric;
mod installed;
mod pair;
mod process;
mod table;

pub use compile::compile;
pub use fabric::{Fabric, free_port, host_address, is_listed};
pub use installed::{Installed, example, have, temporary_folder};
pub use pair::Pair;
pub use process::{Ended, Running, limited};
pub use table::{Table, each_row};

use nix::unistd::{Gid, Uid};

/// The user whom Debian calls `nobody`, and its group.
const NOBODY: u32 = 65534;

/// Whether the tests run as root, and may do what only root may.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// User and group of the programs: nobody where the tests are root's, or whoever runs the tests.
pub fn user() -> (u32, u32) {
    match is_root() {
        true => (NOBODY, NOBODY),
        false => (Uid::effective().as_raw(), Gid::effective().as_raw()),
    }
}
