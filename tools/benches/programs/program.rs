//! Programs that come in pairs: a server and a client on this machine.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a pair may take.
const PATIENCE: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(2);
/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// What all measurements share.
#[derive(Clone, Copy, Debug)]
pub struct Lab<'a> {
    /// Folder of the fabric.
    pub fabric: &'a Path,
    /// The two CPUs.
    pub cpus: (usize, usize),
    /// How many times less work than in a full run.
    pub work: usize,
}

/// A program that measures between a server and a client of it.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Whether it gets our library.
    pub is_ours: bool,
    /// What it finds in its environment.
    pub variables: &'static [(&'static str, &'static str)],
    /// What both are told.
    pub both: Vec<String>,
    /// What is before the port of the server.
    pub server_port: &'static str,
    /// What is before the port of the server where the client is told of it.
    pub client_port: &'static str,
    /// What only the client is told.
    pub client: Vec<String>,
}

impl Program {
    /// Whether it is installed.
    pub fn is_installed(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(self.name).is_file())
    }

    /// Runs both to their end; what the client has printed. `cpu` is the only one they get.
    pub fn run(&self, lab: &Lab, cpu: Option<usize>) -> Result<String> {
        let port = free_port()?;
        let mut server = self.command(lab, cpu);
        server.args(&self.both).args([self.server_port, &port.to_string()]);
        let mut server = Running::spawn(format!("the server of {}", self.name), &mut server)?;
        let deadline = Instant::now() + PATIENCE;
        while !is_listening(port)? {
            if !server.is_alive()? {
                bail!("the server has ended before a client came: {}", server.end(deadline)?);
            }
            ensure!(Instant::now() < deadline, "{} does not listen", server.name);
            thread::sleep(TICK);
        }
        let mut client = self.command(lab, cpu);
        client.args(&self.both).args(&self.client).args([self.client_port, &port.to_string()]);
        let client =
            Running::spawn(format!("the client of {}", self.name), client.arg("127.0.0.1"))?;
        let printed = client.end(deadline)?;
        server.end(deadline)?;
        Ok(printed)
    }

    fn command(&self, lab: &Lab, cpu: Option<usize>) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(cpu) = cpu {
            words.extend(["taskset".into(), "-c".into(), cpu.to_string()]);
        }
        if self.is_ours {
            let fabric = lab.fabric.display().to_string();
            words.extend([env!("CARGO_BIN_EXE_ferroce").into(), "run".into()]);
            words.extend(["--fabric".into(), fabric, "--".into()]);
        }
        words.push(self.name.into());
        let mut command = Command::new(&words[0]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FERROCE_") {
                command.env_remove(name);
            }
        }
        command.env_remove("LD_LIBRARY_PATH").envs(self.variables.iter().copied());
        command.args(&words[1..]);
        command
    }
}

/// Runs programs of ours with one CPU for server and client: they have to finish.
pub fn one_core(lab: &Lab, programs: &[Program]) -> Result<()> {
    for program in programs {
        let start = Instant::now();
        program.run(lab, Some(lab.cpus.0))?;
        let elapsed = start.elapsed().as_secs_f64();
        println!("{} {}, both on one core: {elapsed:.1} s", program.name, program.both.join(" "));
    }
    Ok(())
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
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Running { name, child: Some(child) })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// What it prints.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.as_mut()?.stdout.take()
    }

    fn is_alive(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        Ok(child.try_wait()?.is_none())
    }

    /// Waits for its success; what it has printed.
    fn end(mut self, deadline: Instant) -> Result<String> {
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
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn is_listening(port: u16) -> Result<bool> {
    let suffix = format!(":{port:04X}");
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = fs::read_to_string(file) else { continue };
        let mut sockets = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        if sockets
            .any(|words| words.len() > 3 && words[1].ends_with(&suffix) && words[3] == LISTENING)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
