//! A mount namespace of the program's own, in which `/sys/class/infiniband` and `/dev/infiniband`
//! are there.
//!
//! Neither folder can be made in place without others seeing it, or at all. So the folder above it
//! is covered with an empty one in memory, into which everything that was there is mounted again,
//! and the new folder made.

use std::fs::{self, DirEntry, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferroce::identity::DeviceInfo;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};

use super::sysfs;

/// The hidden command that calls [`try_user_namespace`].
pub const TRY_COMMAND: &str = "try-namespace";

const NONE: Option<&str> = None;

/// Moves this process into such a namespace.
///
/// # Errors
/// If the machine does not allow it. What could be mounted stays, and the process can go on.
pub fn enter(devices: &[DeviceInfo]) -> Result<()> {
    private_mounts()?;
    let class = provide(Path::new("/sys/class"), "infiniband")?;
    sysfs::write(&class, devices).with_context(|| format!("cannot fill {}", class.display()))?;
    let nodes = provide(Path::new("/dev"), "infiniband")?;
    for device in devices {
        // Programs look whether it is a character device they may open; none opens it.
        bind(Path::new("/dev/null"), &nodes.join(&device.dev_name))?;
    }
    Ok(())
}

/// Tries what an unprivileged user needs, in a process that ends then: where a security module
/// leaves a new user namespace without rights, one that is in it has lost its user and cannot go
/// back.
///
/// # Errors
/// If it does not work.
pub fn try_user_namespace() -> Result<()> {
    user_namespace()?;
    own_mounts()?;
    mount_empty(Path::new("/sys/class"))
}

/// A mount namespace of our own: by our rights, or by those that a user namespace gives.
fn private_mounts() -> Result<()> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            let tried = Command::new("/proc/self/exe").arg(TRY_COMMAND).output();
            let tried = tried.context("a user namespace could not be tried")?;
            if !tried.status.success() {
                let said = String::from_utf8_lossy(&tried.stderr);
                bail!("{}", said.trim().trim_start_matches("ferroce: "));
            }
            user_namespace()?;
        }
        Err(errno) => return Err(errno).context("no mount namespace"),
    }
    own_mounts()
}

/// A user and a mount namespace in which this process is who it was.
fn user_namespace() -> Result<()> {
    // Inside, before it is mapped, every user is nobody.
    let (uid, gid) = (Uid::effective(), Gid::effective());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).context("no user namespace")?;
    // Only who may not set groups may map one.
    let files = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ];
    for (file, content) in files {
        let path = Path::new("/proc/self").join(file);
        fs::write(&path, content)
            .with_context(|| format!("no user namespace: {}", path.display()))?;
    }
    Ok(())
}

/// What is mounted from here on is not mounted for others.
fn own_mounts() -> Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(NONE, "/", NONE, flags, NONE).context("the mounts cannot be made our own")
}

/// An empty folder `name` in `parent`, in memory.
fn provide(parent: &Path, name: &str) -> Result<PathBuf> {
    let folder = parent.join(name);
    if folder.is_dir() {
        mount_empty(&folder)?;
    } else {
        cover(parent)?;
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    Ok(folder)
}

fn mount_empty(folder: &Path) -> Result<()> {
    let (kind, flags) = (Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC);
    mount(kind, folder, kind, flags, Some("mode=755"))
        .with_context(|| format!("cannot mount on {}", folder.display()))
}

/// Puts a folder in memory in the place of `folder`, with everything that is in it.
fn cover(folder: &Path) -> Result<()> {
    let shown = || format!("cannot read {}", folder.display());
    let entries: Vec<DirEntry> =
        fs::read_dir(folder).and_then(Iterator::collect).with_context(shown)?;
    // By its descriptor it can be reached below the cover.
    let below = File::open(folder).with_context(shown)?;
    let below = Path::new("/proc/self/fd").join(below.as_raw_fd().to_string());
    mount_empty(folder)?;
    let outcome = entries.iter().try_for_each(|entry| pass_through(entry, &below, folder));
    if outcome.is_err() {
        umount2(folder, MntFlags::MNT_DETACH)
            .with_context(|| format!("cannot uncover {}", folder.display()))?;
    }
    outcome
}

fn pass_through(entry: &DirEntry, below: &Path, cover: &Path) -> Result<()> {
    let name = entry.file_name();
    let (source, target) = (below.join(&name), cover.join(&name));
    let shown = || format!("cannot pass {} through", target.display());
    let kind = entry.file_type().with_context(shown)?;
    if kind.is_symlink() {
        let leads_to = fs::read_link(&source).with_context(shown)?;
        return symlink(leads_to, &target).with_context(shown);
    }
    if kind.is_dir() {
        fs::create_dir(&target).with_context(shown)?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        return mount(Some(&source), &target, NONE, flags, NONE).with_context(shown);
    }
    match bind(&source, &target) {
        // Devices come and go.
        Err(_) if fs::symlink_metadata(&source).is_err() => {
            fs::remove_file(&target).with_context(shown)
        }
        outcome => outcome,
    }
}

/// Makes the file `target` show what the file `source` is.
fn bind(source: &Path, target: &Path) -> Result<()> {
    let shown = || format!("cannot mount on {}", target.display());
    File::create(target).with_context(shown)?;
    mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE).with_context(shown)
}
