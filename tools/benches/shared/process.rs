//! Processes that measure, most of them in pairs: a server and a client.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a pair may take.
const PATIENCE: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(2);
/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// Whether a program is installed.
pub fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// A command without settings of ours that happen to be in the environment; its errors are short.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERROCE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_LIBRARY_PATH").env("RUST_BACKTRACE", "0");
    command
}

/// Runs a server that listens at a TCP port, and its client; what the client has printed. The
/// sockets of the server's host are listed in the folder `sockets`, a `/proc/…/net`.
pub fn pair(
    name: &str,
    server: &mut Command,
    client: &mut Command,
    (sockets, port): (&Path, u16),
) -> Result<String> {
    let mut server = Running::spawn(format!("the server of {name}"), server)?;
    let deadline = Instant::now() + PATIENCE;
    while !is_listening(sockets, port) {
        if !server.is_alive()? {
            bail!("the server has ended before a client came: {}", server.end(deadline)?);
        }
        ensure!(Instant::now() < deadline, "{} does not listen", server.name);
        thread::sleep(TICK);
    }
    let mut client = Running::spawn(format!("the client of {name}"), client)?;
    let printed = client.end(deadline)?;
    server.end(deadline)?;
    Ok(printed)
}

/// The last value of the column with this title, in a table of values with commas between.
pub fn value_of(printed: &str, title: &str) -> Option<f64> {
    let mut lines = printed.lines().skip_while(|line| !line.contains(title));
    let column = lines.next()?.split(',').position(|word| word == title)?;
    lines.last()?.split(',').nth(column)?.parse().ok()
}

/// A process that is ended with this value.
#[derive(Debug)]
pub struct Running {
    name: String,
    /// None once it has been waited for.
    child: Option<Child>,
}

impl Running {
    /// Starts it; what it prints is kept.
    pub fn spawn(name: String, command: &mut Command) -> Result<Running> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Running { name, child: Some(child) })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// What it reads and what it prints, once.
    pub fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        let child = self.child.as_mut()?;
        child.stdin.take().zip(child.stdout.take())
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        Ok(child.try_wait()?.is_none())
    }

    /// Waits for its success; what it has printed since its pipes were taken, if they were.
    pub fn end(&mut self, deadline: Instant) -> Result<String> {
        while self.is_alive()? {
            if Instant::now() > deadline {
                bail!("{} does not end", self.name);
            }
            thread::sleep(TICK);
        }
        let Some(child) = self.child.take() else { bail!("{} has ended before", self.name) };
        let Output { status, stdout, stderr } = child.wait_with_output()?;
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        ensure!(status.success(), "{} failed ({status}):\n{out}{err}", self.name);
        Ok(out.into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port nobody has, most likely.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn is_listening(sockets: &Path, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|file| {
        let text = fs::read_to_string(sockets.join(file)).unwrap_or_default();
        let mut sockets = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        sockets.any(|words| words.len() > 3 && words[1].ends_with(&suffix) && words[3] == LISTENING)
    })
}
