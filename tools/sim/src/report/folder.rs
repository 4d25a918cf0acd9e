//! The folder that everything goes into.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Files that are written under fixed names: those of an earlier run must not be taken for this
/// one's.
const NAMES: [&str; 13] = [
    "flows.csv",
    "ports.csv",
    "samples.csv",
    "summary.json",
    "sweep.csv",
    "sweep.json",
    "sweep.svg",
    "queue.svg",
    "goodput.svg",
    "rate.svg",
    "pfc.svg",
    "fct.svg",
    "slowdown.svg",
];

/// The folder of a run or sweep.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder, or takes an empty one that is there. If one is there with something in it
    /// and `force`, takes away what an earlier run left there under the names of this one's files;
    /// captures of ports that are captured no more stay.
    ///
    /// # Errors
    /// With [`io::ErrorKind::AlreadyExists`] if there is something in it already, or if it cannot
    /// be made.
    pub fn create(path: &Path, force: bool) -> io::Result<Folder> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && force => {
                for entry in fs::read_dir(path)? {
                    let entry = entry?;
                    if is_own(&entry.file_name().to_string_lossy()) {
                        fs::remove_file(entry.path())?;
                    }
                }
            }
            // A run that was stopped, or failed, leaves an empty one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_empty(path) => {}
            other => other?,
        }
        Ok(Folder { path: path.to_owned() })
    }

    /// One that is there already.
    pub fn open(path: &Path) -> Folder {
        Folder { path: path.to_owned() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(self.path.join(name))?);
        write(&mut out)?;
        out.flush()
    }
}

/// Whether a file is one that runs and sweeps write.
fn is_own(name: &str) -> bool {
    let is_plot = || name.starts_with("sweep-") && name.ends_with(".svg");
    NAMES.contains(&name) || is_plot()
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
