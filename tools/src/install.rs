//! `ferroce install`: command, library, its links and the manual pages in one place.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::library::{self, LIBRARY, LINKS, PRELOAD};

/// Shown below `ferroce install --help`.
const EXAMPLES: &str = "\
Examples:
  cargo run --release -- install --prefix ~/.local
  sudo target/release/ferroce install --prefix /usr/local

Puts bin/ferroce, lib/ferroce/libferroce_verbs.so, links to it by the names that
programs ask for, lib/ferroce/librspreload.so, and manual pages in
share/man/man1 below DIR, in the place of those that are there. The loader does
not look into lib/ferroce by itself: the system's own libibverbs stays what other
programs use.

Exit status: 0, or 2 if the library is not found or a file cannot be written.";

/// Put the command, the library and the manual pages in place.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Where to
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
}

/// Puts them there, with the manual pages of `command`.
///
/// # Errors
/// If the library is not found or a file cannot be written.
pub fn run(arguments: &Arguments, command: clap::Command) -> Result<()> {
    let executable = env::current_exe().context("this executable is not found")?;
    let (library, preload) = (library::find()?, library::find_preload()?);
    let [bin, lib, man] = ["bin", "lib/ferroce", "share/man/man1"].map(|name| {
        let folder = arguments.prefix.join(name);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))
            .map(|()| folder)
    });
    let (bin, lib, man) = (bin?, lib?, man?);
    place(&bin.join("ferroce"), |path| copy(&executable, path))?;
    place(&lib.join(LIBRARY), |path| copy(&library, path))?;
    place(&lib.join(PRELOAD), |path| copy(&preload, path))?;
    for link in LINKS {
        place(&lib.join(link), |path| symlink(LIBRARY, path))?;
    }
    clap_mangen::generate_to(command, &man)
        .with_context(|| format!("cannot write to {}", man.display()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}\n{}\n{}", bin.join("ferroce").display(), lib.display(), man.display())?;
    Ok(())
}

/// Makes a file in the place of the one that is there, which may be running just now.
fn place(target: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let mut fresh = target.as_os_str().to_owned();
    fresh.push(format!(".new-{}", std::process::id()));
    let fresh = Path::new(&fresh);
    // One that was killed may have left it.
    let _ = fs::remove_file(fresh);
    make(fresh)
        .and_then(|()| fs::rename(fresh, target))
        .with_context(|| format!("cannot write {}", target.display()))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}
