//! The shared library, and a folder in which the loader finds it under the names programs ask for.

use std::env;
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

/// The library's own name.
pub const LIBRARY: &str = "libferroce_verbs.so";

/// What is preloaded to make a program's sockets rsockets.
pub const PRELOAD: &str = "librspreload.so";

/// What programs call it.
pub const LINKS: [&str; 4] = ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"];

/// The library that belongs to this executable.
///
/// # Errors
/// If it is not where a build or an installation puts it.
pub fn find() -> Result<PathBuf> {
    find_named(LIBRARY)
}

/// What is preloaded, which belongs to this executable as well.
///
/// # Errors
/// As [`find`].
pub fn find_preload() -> Result<PathBuf> {
    find_named(PRELOAD)
}

fn find_named(name: &str) -> Result<PathBuf> {
    let executable = env::current_exe().context("this executable is not found")?;
    let folder = executable.parent().unwrap_or(Path::new("/"));
    // Cargo builds it, as a dependency of this executable, into `deps`. The copy beside the
    // executable comes from a build of all packages, and may be older.
    let places = ["deps", ".", "../lib/ferroce"].map(|place| folder.join(place).join(name));
    if let Some(library) = places.iter().find(|place| place.is_file()) {
        return library.canonicalize().with_context(|| library.display().to_string());
    }
    let places = places.map(|place| place.display().to_string()).join(", ");
    bail!(
        "{name} is not found; looked for {places}. Build with `cargo build --release`, or \
         place both with `ferroce install --prefix DIR`"
    )
}

/// The folder to be put into `LD_LIBRARY_PATH`. Where the library stands without its links, as
/// after a build, it is a folder of the user's own, which every later run finds again.
///
/// # Errors
/// If the library is not found, or the folder cannot be made or belongs to somebody else.
pub fn folder() -> Result<PathBuf> {
    let library = find()?;
    let beside = library.parent().unwrap_or(Path::new("/"));
    let leads_here = |link: &&str| beside.join(link).canonicalize().ok().as_ref() == Some(&library);
    if LINKS.iter().all(leads_here) {
        return Ok(beside.to_owned());
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let folder = private(&user_folder())?;
    let folder = private(&folder.join(format!("library-{:016x}", hasher.finish())))?;
    for link in LINKS {
        let link = folder.join(link);
        place_link(&library, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(folder)
}

fn user_folder() -> PathBuf {
    let uid = Uid::effective();
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = |path: &PathBuf| path.metadata().is_ok_and(|data| data.uid() == uid.as_raw());
    match runtime.filter(|path| path.is_absolute()).filter(own) {
        Some(runtime) => runtime.join("ferroce"),
        None => env::temp_dir().join(format!("ferroce-{uid}")),
    }
}

/// Makes a folder that nobody else may write to, or makes sure that it is one. Others could
/// otherwise have us load a library of theirs.
fn private(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {shown}"));
        }
        _ => {}
    }
    let data = fs::symlink_metadata(folder).with_context(|| shown.to_string())?;
    if !data.is_dir() || data.uid() != Uid::effective().as_raw() || data.mode() & 0o022 != 0 {
        bail!(
            "{shown} is not a folder that only this user may write to; remove it, or set TMPDIR \
             to one of this user's"
        );
    }
    Ok(folder.to_owned())
}

/// Makes `link` lead to `library`, unless an earlier run or one at the same time has done so.
fn place_link(library: &Path, link: &Path) -> io::Result<()> {
    match symlink(library, link) {
        Err(_) if fs::read_link(link).is_ok_and(|target| target == library) => Ok(()),
        outcome => outcome,
    }
}
