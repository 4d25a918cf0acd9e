//! A virtual machine whose kernel has RoCE of its own (rxe), on a wire with this machine.
//!
//! The script that builds and runs it is not part of this repository: `FERROCE_LAB` names it. Its
//! commands `build`, `up`, `down`, `run` (in the guest) and `host` (on this machine, in the wire's
//! network namespace) are what is used here.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::programs::{Fabric, Installed, Running, is_listed, is_root};

/// A virtual machine without help from the processor takes its time.
const LIMIT: Duration = Duration::from_secs(300);

/// One at a time: a guest takes a processor for itself.
static TURN: Mutex<()> = Mutex::new(());

/// Numbers the labs of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 6.1.
    Stock,
    /// 6.12, whose rxe knows ATOMIC WRITE and FLUSH.
    Newer,
}

impl Kernel {
    /// As the script calls it.
    const fn name(self) -> &'static str {
        match self {
            Kernel::Stock => "stock",
            Kernel::Newer => "newer",
        }
    }
}

/// A guest and this machine on a wire of their own; all of it vanishes at the end.
#[derive(Debug)]
pub struct Lab {
    script: OsString,
    state: PathBuf,
    network: String,
    fabric: Fabric,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// This machine's IPv4 address on the wire, by which programs also find each other.
    pub const HOST: &str = "10.77.0.1";
    /// The guest's.
    pub const GUEST: &str = "10.77.0.11";
    /// The guest's IPv6 address.
    pub const GUEST_IPV6: &str = "fd77::11";
    /// This machine's IPv6 address on the wire.
    pub const HOST_IPV6: &str = "fd77::1";
    /// This machine's interface on the wire.
    pub const INTERFACE: &str = "h0";

    /// Starts a guest with this kernel on a wire of this MTU; says why not where there is none.
    ///
    /// # Panics
    /// If there should be one, and does not start.
    pub fn new(kernel: Kernel, mtu: u32) -> Option<Lab> {
        let Some(script) = env::var_os("FERROCE_LAB").filter(|script| !script.is_empty()) else {
            eprintln!("skipped: FERROCE_LAB names no script for virtual machines");
            return None;
        };
        if !is_root() {
            eprintln!("skipped: the virtual machine's wire needs root");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let state = env::temp_dir().join(format!("ferroce-lab-{name}"));
        let network = format!("frl{name}");
        let lab = Lab { script, state, network, fabric: Fabric::new(), _turn: turn };
        let mtu_text = mtu.to_string();
        let kernel = ["--kernel", kernel.name()];
        let up = ["up", "--netns", &lab.network, "--mtu", &mtu_text];
        for arguments in [&[&["build"][..], &kernel].concat(), &[&up[..], &kernel].concat()] {
            let ended = Running::start_within(lab.script().args(arguments), LIMIT).wait();
            ended.check().unwrap_or_else(|error| panic!("{error}"));
        }
        let mut set = lab.host(Path::new("ip"));
        let set = set.args(["link", "set", Lab::INTERFACE, "mtu", &mtu_text]);
        Running::start(set).wait().check().unwrap_or_else(|error| panic!("{error}"));
        // The bridge of the wire answers as well who has this address, and is not heard again of
        // what is then sent to it.
        let mut answer = lab.host(Path::new("sysctl"));
        let answer = answer.args(["-q", "-w", "net.ipv4.conf.all.arp_ignore=1"]);
        Running::start(answer).wait().check().unwrap_or_else(|error| panic!("{error}"));
        Some(lab)
    }

    fn script(&self) -> Command {
        let mut command = self.fabric.command(Path::new(&self.script));
        // The images are kept where the script keeps them.
        for name in ["HOME", "XDG_CACHE_HOME"] {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("ROCE_LAB_RUN", &self.state).current_dir("/");
        command.env("FERROCE_FABRIC", self.fabric());
        command
    }

    /// A program of this machine on the wire, with the fabric's settings.
    pub fn host(&self, program: &Path) -> Command {
        let mut command = self.script();
        command.args(["host", "--netns", &self.network, "--"]).arg(program);
        command
    }

    /// The folder of its fabric. Processes need not be on the wire to be members.
    pub fn fabric(&self) -> PathBuf {
        self.fabric.home().join("fabric")
    }

    /// `ferroce` on the wire.
    pub fn ferroce(&self) -> Command {
        self.host(&Installed::get().ferroce)
    }

    /// A program in the guest.
    pub fn guest(&self, program: &str) -> Command {
        let mut command = self.script();
        command.args(["run", "--", program]);
        command
    }

    /// Copies a file into the guest, and returns where it is there.
    ///
    /// # Panics
    /// If that fails.
    pub fn put(&self, file: &Path) -> String {
        const FOLDER: &str = "/tmp/";
        let ended = Running::start(self.script().arg("put").args([file, Path::new(FOLDER)])).wait();
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        format!("{FOLDER}{name}")
    }

    /// A folder for files.
    pub fn home(&self) -> PathBuf {
        self.fabric.home()
    }

    /// Whether somebody in the guest takes connections at `port`, by TCP or rdma_cm.
    pub fn guest_listens(&self, port: u16) -> bool {
        let said = |program: &str, arguments: &[&str]| {
            Running::start(self.guest(program).args(arguments)).wait().out
        };
        let port = format!(":{port} ");
        let is_listener = |line: &str| line.contains("LISTEN") && line.contains(&port);
        said("ss", &["-ltn"]).contains(&port)
            || said("rdma", &["resource", "show", "cm_id"]).lines().any(is_listener)
    }

    /// Whether somebody in the fabric takes connections at `port`, by rdma_cm.
    pub fn fabric_listens(&self, port: u16) -> bool {
        is_listed(&Running::start(self.ferroce().arg("ports")).wait().out, port)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Running::start(self.script().arg("down")).wait();
        let _ = std::fs::remove_dir_all(&self.state);
    }
}
