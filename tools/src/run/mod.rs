//! `ferroce run`: an unmodified program, with our library in the place of the system's.

pub mod library;
mod namespace;
mod sysfs;

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ferroce::config::{CONFIG_VARIABLE, Entry, Key, Settings, Source};
use ferroce::identity;
use ferroce::link::{LinkKind, LinkName};
use nix::unistd::Uid;

use crate::settings::{LinkFlag, SettingFlags};

pub use namespace::{TRY_COMMAND, try_user_namespace};

/// Shown below `ferroce run --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce run -- ibv_devinfo -v
  ferroce run -- ib_write_bw &  ferroce run -- ib_write_bw localhost
  ferroce run --pcap run.pcapng --fault 'drop 1% of rc-send' -- ./my-test
  ferroce run --fault 'drop 2nd ack incoming; mark ce every 10th write' -- ./my-test
  ferroce run --rsockets -- redis-server &      TCP programs, over RDMA
  ferroce run --addr 10.0.0.1 -- ./server       two hosts of a cluster,
  ferroce run --addr 10.0.0.2 -- ./client       in one fabric
  ferroce run --link packet:eth0 -- ib_write_bw 10.0.0.2    a real network

The program finds our library as libibverbs.so.1 and librdmacm.so.1, by
LD_LIBRARY_PATH; setuid and statically linked programs do not. Programs of one
fabric reach each other; those that name one address, or none, share a device.

Where the machine allows it, the program gets a mount namespace of its own (in a
user namespace, if it is not root's), in which /sys/class/infiniband and
/dev/infiniband show the devices. Some programs look there: UCX wants
/dev/infiniband. Where no namespace is allowed (--log info says so), make it
once, as root: mkdir /dev/infiniband
Programs in two user namespaces cannot read each other's memory, as some MPI
libraries do: run mpirun inside one, or give --no-namespace.

With --link, the program has the link itself: the first of its processes that
opens a device opens the link with it (needs the rights of the link), and is the
gateway of the fabric's other processes as well. They lose the network when that
process ends: for more than one program, start `ferroce up` before. If the fabric
has a gateway already, that is used. Links of interfaces need rights that nobody
but root has in a namespace: for others, they go with --no-namespace.

With --rsockets, the TCP sockets of any program are rsockets, by LD_PRELOAD.
They reach listeners of programs that run like this, and where there is none,
the system's. Forked children cannot use those of their parent.

Exit status: the program's own; 127 if it is not found, 126 if it cannot be
executed, 125 if it was not tried since a setting is wrong or the library is not
found.";

/// What the exit status is where the program is not reached.
pub const NOT_TRIED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run a program that uses libibverbs or librdmacm.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Leave /sys and /dev as they are
    #[arg(long)]
    no_namespace: bool,
    /// Make the program's TCP sockets rsockets
    #[arg(long)]
    rsockets: bool,
    #[command(flatten)]
    link: LinkFlag,
    #[command(flatten)]
    settings: SettingFlags,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Why the program does not run.
#[derive(Debug)]
pub struct Failure {
    /// What the command exits with.
    pub status: u8,
    /// Why.
    pub error: anyhow::Error,
}

/// Becomes the program.
///
/// # Errors
/// If it cannot be executed, a setting is wrong or the library is not found.
pub fn run(arguments: &Arguments) -> Result<Infallible, Failure> {
    let not_tried = |error| Failure { status: NOT_TRIED, error };
    let settings = arguments.settings.load_with(&arguments.link).map_err(not_tried)?;
    let mut command = prepare(arguments, &settings).map_err(not_tried)?;
    let error = command.exec();
    let program = command.get_program();
    let reason = format!("cannot run {}", program.display());
    Err(match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied if !exists(program) => {
            let error = anyhow::anyhow!("{reason}: it is not found");
            Failure { status: NOT_FOUND, error }
        }
        _ => Failure { status: NOT_EXECUTABLE, error: anyhow::Error::new(error).context(reason) },
    })
}

/// Whether there is such a program, executable or not. The system says that permission is denied
/// also where it has only met a folder in PATH that may not be searched.
fn exists(program: &OsStr) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let searched = !program.as_encoded_bytes().contains(&b'/');
    match searched {
        true => env::split_paths(&path).any(|folder| folder.join(program).is_file()),
        false => Path::new(program).exists(),
    }
}

fn prepare(arguments: &Arguments, settings: &Settings) -> Result<Command> {
    let devices = identity::devices(settings)?;
    let folder = library::folder()?;
    let preload = arguments.rsockets.then(library::find_preload).transpose()?;
    if !arguments.no_namespace
        && !needs_rights(settings)
        && let Err(error) = namespace::enter(&devices)
    {
        let reason = format!("{error:#}");
        tracing::info!(
            reason,
            "no /sys/class/infiniband and /dev/infiniband for the program; if it needs the \
             latter (UCX does), run `mkdir /dev/infiniband` once as root"
        );
    }
    let [program, rest @ ..] = &arguments.command[..] else { unreachable!("clap requires one") };
    let mut command = Command::new(program);
    command.args(rest);
    command.env("LD_LIBRARY_PATH", search_path(&folder, env::var_os("LD_LIBRARY_PATH")));
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", search_path(&preload, env::var_os("LD_PRELOAD")));
    }
    // All it says is in the variables.
    command.env_remove(CONFIG_VARIABLE);
    command.envs(variables(settings));
    Ok(command)
}

/// Whether the program needs rights for its link that it would not have in a user namespace.
fn needs_rights(settings: &Settings) -> bool {
    let of_system = |name: &LinkName| !matches!(name.kind, LinkKind::Udp(_));
    settings.link.as_ref().is_some_and(of_system) && !Uid::effective().is_root()
}

/// The variables that make the library of another process load `settings`.
pub fn variables(settings: &Settings) -> Vec<(&'static str, &str)> {
    let set = Key::ALL.into_iter().filter_map(|key| {
        let Entry { text, source } = settings.entry(key);
        // The default fabric depends on the user, whom a namespace may call nobody.
        let needed = match key {
            Key::Fabric => true,
            _ => *source != Source::Default,
        };
        needed.then_some((key.variable(), text.as_str()))
    });
    set.collect()
}

/// `folder`, and what the loader searched, or loaded, already.
fn search_path(folder: &Path, before: Option<OsString>) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    // An empty element would be the current folder.
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        path.push(OsStr::new(":"));
        path.push(before);
    }
    path
}
