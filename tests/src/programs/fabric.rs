//! The fabric of one test, and commands for the programs that join it.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use ferroce::config::Settings;
use ferroce::identity;

use super::installed::remove_old;
use super::{Installed, is_root, limited, user};

/// How many fabrics of this process may be in use at once: programs spin, and machines are small.
const AT_ONCE: usize = 2;

static IN_USE: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// A fabric that no other test uses, in shared memory, with a home folder for its programs. It is
/// removed at the end.
#[derive(Debug)]
pub struct Fabric {
    folder: PathBuf,
}

impl Fabric {
    /// Waits until few others are in use.
    ///
    /// # Panics
    /// If this machine has RDMA devices of its own: programs could use those instead. If the
    /// fabric's folder cannot be made.
    pub fn new() -> Fabric {
        assert_no_hardware();
        let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        *LEFT
            .wait_while(in_use, |count| *count >= AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner) += 1;
        Fabric { folder: private_folder() }
    }

    /// The folder that the members share. It is there once there has been one.
    pub fn path(&self) -> PathBuf {
        self.folder.join("fabric")
    }

    /// A folder in which the programs may write.
    pub fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// `ferroce run`, with `flags`, of a program without rights.
    pub fn run_with(&self, flags: &[&str], program: &str) -> Command {
        let mut command = self.as_user(&Installed::get().ferroce);
        command.arg("run").args(flags).arg("--").arg(program);
        command
    }

    /// `ferroce run` of a program without rights.
    pub fn run(&self, program: &str) -> Command {
        self.run_with(&[], program)
    }

    /// A program without rights that finds the library by `LD_LIBRARY_PATH` alone.
    pub fn plain(&self, program: &str) -> Command {
        let mut command = self.as_user(Path::new(program));
        command.env("LD_LIBRARY_PATH", &Installed::get().library);
        command
    }

    /// What `ferroce ports` says.
    ///
    /// # Panics
    /// If it cannot look.
    pub fn ports(&self) -> String {
        let said = limited(self.as_user(&Installed::get().ferroce).arg("ports"));
        said.check().unwrap_or_else(|error| panic!("{error}"));
        said.out
    }

    /// Whether one of its processes takes connections at `port` by rdma_cm.
    pub fn listens(&self, port: u16) -> bool {
        is_listed(&self.ports(), port)
    }

    /// A program without rights that has the fabric's settings, but not the library.
    pub fn as_user(&self, program: &Path) -> Command {
        let mut command = self.command(program);
        if is_root() {
            let (uid, gid) = user();
            command.uid(uid).gid(gid);
        }
        command
    }

    /// A program of whoever runs the tests that has the fabric's settings, but not the library.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if ["FERROCE_", "XDG_", "UCX_", "OMPI_", "FI_"].iter().any(|own| text.starts_with(own))
            {
                command.env_remove(name);
            }
        }
        command.env("FERROCE_FABRIC", self.path());
        command.env("HOME", self.home()).env("TMPDIR", self.home()).current_dir(self.home());
        command.env_remove("LD_LIBRARY_PATH").env("LC_ALL", "C");
        command
    }
}

impl Default for Fabric {
    fn default() -> Fabric {
        Fabric::new()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        *IN_USE.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LEFT.notify_one();
    }
}

fn assert_no_hardware() {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().count();
    assert_eq!(devices, 0, "/sys/class/infiniband: this machine has RDMA devices of its own");
    let nodes = fs::read_dir("/dev/infiniband").into_iter().flatten().count();
    assert_eq!(nodes, 0, "/dev/infiniband: this machine has RDMA devices of its own");
}

fn private_folder() -> PathBuf {
    const PREFIX: &str = "ferroce-fabric-of-";
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let parent = match Path::new("/dev/shm").is_dir() {
        true => PathBuf::from("/dev/shm"),
        false => env::temp_dir(),
    };
    remove_old(&parent, PREFIX);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("{PREFIX}{}-{count}", process::id()));
    let home = folder.join("home");
    fs::create_dir_all(&home).unwrap_or_else(|error| panic!("{}: {error}", home.display()));
    for folder in [&folder, &home] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("ours");
        let (uid, gid) = user();
        chown(folder, Some(uid), Some(gid)).expect("root may, and a user its own");
    }
    folder
}

/// Whether what `ferroce ports` says has somebody who takes connections at `port`.
pub fn is_listed(ports: &str, port: u16) -> bool {
    let suffix = format!(":{port}");
    ports.lines().any(|line| {
        line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&suffix))
    })
}

/// The address of the device that programs have without any settings: this machine's.
///
/// # Panics
/// If the interfaces cannot be listed.
pub fn host_address() -> IpAddr {
    let devices = identity::devices(&Settings::default()).expect("interfaces can be listed");
    let addresses = devices.iter().flat_map(|device| &device.gids).rev();
    let ipv4 = addresses.filter_map(|entry| entry.gid.ipv4()).next();
    ipv4.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4)
}

/// A TCP port that nobody listens on, and that no other test of this process gets.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    // Below the ports that the kernel gives away by itself.
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries of one machine start at different places.
    let start = u16::try_from(process::id() * 61 % u32::from(COUNT)).expect("less than COUNT");
    let ports = (0..COUNT).map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        FIRST + ((u32::from(start) + u32::from(step)) % u32::from(COUNT)) as u16
    });
    let free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    ports.into_iter().find(free).expect("a port is free")
}
