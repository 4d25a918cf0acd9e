//! The connection of a runner, and what is waited for beside it.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::device::{Address, Device, DeviceError};
use crate::library::{Library, LoadError};
use crate::session::Session;

/// A runner that takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes taken from a connection at a time.
const CHUNK: usize = 64 << 10;

/// How an agent is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Name of the device; else the first.
    pub device: Option<String>,
    /// Place of the address in the device's table of GIDs; else the one the runner asks for.
    pub gid_index: Option<u8>,
}

/// Why an agent does not run.
#[derive(Debug)]
pub enum ServeError {
    /// There is no library.
    Load(LoadError),
    /// There is no device.
    Device(DeviceError),
    /// It cannot listen.
    Listen(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Load(error) => error.fmt(f),
            ServeError::Device(error) => error.fmt(f),
            ServeError::Listen(error) => write!(f, "cannot listen: {error}"),
        }
    }
}

// What the system says is in its words already.
impl std::error::Error for ServeError {}

/// Serves runners, one after another. `ready` is told where, and as what: the device and its
/// address.
///
/// # Errors
/// [`ServeError`] if that cannot begin, or accept connections any more.
pub fn serve(
    options: &Options,
    ready: impl FnOnce(SocketAddr, &str),
) -> Result<Infallible, ServeError> {
    let library = Library::load().map_err(ServeError::Load)?;
    let device = Device::open(library, options.device.as_deref()).map_err(ServeError::Device)?;
    let address = device.address(options.gid_index, None).map_err(ServeError::Device)?;
    let listener = TcpListener::bind(options.listen).map_err(ServeError::Listen)?;
    ready(listener.local_addr().map_err(ServeError::Listen)?, &device.description());
    loop {
        let (stream, _) = listener.accept().map_err(ServeError::Listen)?;
        // How it ends is the runner's to know.
        let _ = converse(&device, options.gid_index, address, &stream);
    }
}

/// Serves one runner until it goes.
fn converse(
    device: &Device,
    index: Option<u8>,
    address: Address,
    mut stream: &TcpStream,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut session = Session::new(device, index, address);
    let mut chunk = vec![0; CHUNK];
    loop {
        if wait(device, stream, &session)? {
            match stream.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(len) if session.take(&chunk[..len]) => {}
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        session.look();
        while let Some(line) = session.said.pop_front() {
            stream.write_all(line.as_bytes())?;
        }
    }
}

/// Waits until the runner has said something, or there is something to tell it. Says whether the
/// first.
fn wait(device: &Device, stream: &TcpStream, session: &Session<'_>) -> io::Result<bool> {
    let mut waits = vec![PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    if let Some(scenario) = &session.scenario {
        waits.push(PollFd::new(device.async_descriptor(), PollFlags::POLLIN));
        waits.push(PollFd::new(scenario.channel_descriptor(), PollFlags::POLLIN));
        if let Some(cm) = &scenario.cm {
            waits.push(PollFd::new(cm.descriptor(), PollFlags::POLLIN));
        }
    }
    match poll(&mut waits, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(waits[0].any().unwrap_or(false)),
        Err(errno) => Err(errno.into()),
    }
}
