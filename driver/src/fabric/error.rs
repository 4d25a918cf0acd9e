//! Why a fabric cannot be joined.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::registry::{GIDS, MEMBERS};

/// Why a fabric cannot be joined.
#[derive(Debug)]
pub enum FabricError {
    /// The directory, or the one it is in, belongs to somebody else.
    OtherUser {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// Whose rights this process has.
        user: u32,
    },
    /// Others than its owner may write to the directory.
    WritableByOthers {
        /// The directory.
        dir: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Something that is not a directory has its name.
    NotADirectory {
        /// What should be a directory.
        dir: PathBuf,
    },
    /// The directory cannot be made, because what it should be in is missing.
    NoParent {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be made or written to.
    ReadOnly {
        /// The directory.
        dir: PathBuf,
    },
    /// The file system is full.
    NoSpace {
        /// The file that did not fit.
        path: PathBuf,
        /// Its size in bytes.
        needed: u64,
    },
    /// All slots are taken by live members.
    Full {
        /// The directory.
        dir: PathBuf,
    },
    /// The fabric is that of another version of this library.
    OtherVersion {
        /// Its registry.
        path: PathBuf,
        /// The version of its layout.
        found: u64,
        /// The version this library has.
        expected: u64,
    },
    /// The file in the place of the registry is none.
    NotAFabric {
        /// The file.
        path: PathBuf,
    },
    /// Somebody has held the lock on the registry for seconds.
    Busy {
        /// The registry.
        path: PathBuf,
    },
    /// Another member is the gateway.
    HasGateway {
        /// The directory.
        dir: PathBuf,
        /// Its process, as it said when it joined.
        pid: u32,
    },
    /// The member has more addresses than an entry has room for.
    TooManyGids {
        /// How many.
        count: usize,
    },
    /// The system refuses something else.
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl FabricError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> FabricError {
        FabricError::Io { action, path: path.into(), source }
    }

    /// Why a file or directory could not be made; `needed` is its size in bytes.
    pub(super) fn from_creation(path: &Path, error: io::Error, needed: u64) -> FabricError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                FabricError::NoSpace { path: path.into(), needed }
            }
            _ => FabricError::io("create", path, error),
        }
    }
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricError::OtherUser { dir, owner, user } => write!(
                f,
                "fabric directory {} belongs to user {owner}, and this process runs as user \
                 {user}: name another fabric, or run both as one user",
                dir.display()
            ),
            FabricError::WritableByOthers { dir, mode } => write!(
                f,
                "others may write to fabric directory {} (mode {mode:04o}): chmod it to 0700",
                dir.display()
            ),
            FabricError::NotADirectory { dir } => {
                write!(f, "fabric {} is not a directory", dir.display())
            }
            FabricError::NoParent { dir } => write!(
                f,
                "fabric directory {} cannot be created: what it should be in does not exist",
                dir.display()
            ),
            FabricError::ReadOnly { dir } => write!(
                f,
                "fabric directory {} cannot be written to: name a fabric in a writable place",
                dir.display()
            ),
            FabricError::NoSpace { path, needed } => write!(
                f,
                "no space for {}, which needs {needed} bytes: the file system is full",
                path.display()
            ),
            FabricError::Full { dir } => {
                write!(f, "all {MEMBERS} slots of fabric {} are taken", dir.display())
            }
            FabricError::OtherVersion { path, found, expected } => write!(
                f,
                "{} has layout version {found}, this library has {expected}: end the programs of \
                 the other version and remove the directory, or name another fabric",
                path.display()
            ),
            FabricError::NotAFabric { path } => {
                write!(f, "{} is not the registry of a fabric", path.display())
            }
            FabricError::Busy { path } => {
                write!(f, "{} has been locked by another process for seconds", path.display())
            }
            FabricError::HasGateway { dir, pid } => {
                let dir = dir.display();
                write!(f, "process {pid} is the gateway of fabric {dir}, which can have but one")
            }
            FabricError::TooManyGids { count } => {
                write!(f, "{count} addresses, and a member of a fabric can have {GIDS}")
            }
            FabricError::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for FabricError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FabricError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
