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
    /// Makes the folder. If it is there already and `force`, takes away what an earlier run left
    /// there under the names of this one's files; captures of ports that are captured no more stay.
    ///
    /// # Errors
    /// With [`io::ErrorKind::AlreadyExists`] if it is there already, or if it cannot be made.
    pub fn create(path: &Path, force: bool) -> io::Result<Folder> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && force => {
                for name in NAMES {
                    match fs::remove_file(path.join(name)) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
            }
            other => other?,
        }
        Ok(Folder { path: path.to_owned() })
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
