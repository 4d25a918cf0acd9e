//! A process whose output is kept and that ends in time.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Far more than any program here takes; who does not end in that time hangs.
const LIMIT: Duration = Duration::from_secs(90);
/// For a process whose peer has failed.
const SHORT_LIMIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A process, in a process group of its own, with what it has said so far.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    out: Stream,
    err: Stream,
    deadline: Instant,
}

#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What was started.
    pub command: String,
    /// How it ended; `None` if it was killed since it took too long.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Running {
        Running::start_within(command, LIMIT)
    }

    /// Starts it, to be killed at the end of `limit`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_within(command: &mut Command, limit: Duration) -> Running {
        Running::spawn(command.stdin(Stdio::null()), limit)
    }

    /// As [`Running::start_within`], with an end of its standard input.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_with_input(command: &mut Command, limit: Duration) -> (Running, ChildStdin) {
        let mut running = Running::spawn(command.stdin(Stdio::piped()), limit);
        let input = running.child.stdin.take().expect("piped");
        (running, input)
    }

    fn spawn(command: &mut Command, limit: Duration) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = Stream::new(child.stdout.take().expect("piped"));
        let err = Stream::new(child.stderr.take().expect("piped"));
        let text = shown(command);
        Running { command: text, child, out, err, deadline: Instant::now() + limit }
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn out(&self) -> String {
        self.out.text()
    }

    /// Its standard error so far.
    pub fn err(&self) -> String {
        self.err.text()
    }

    /// Whether it is still there.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it, and the processes it has started, as `kill -9` does.
    pub fn kill(&self) {
        let pid = i32::try_from(self.child.id()).expect("process numbers are small");
        // It may have ended by itself just now.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }

    /// Asks it to end, by SIGTERM.
    pub fn terminate(&self) {
        let pid = i32::try_from(self.child.id()).expect("process numbers are small");
        // It may have ended by itself just now.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }

    /// Waits until `condition` is true; false if the process ended before, or its time is over.
    pub fn wait_for(&mut self, mut condition: impl FnMut(&Running) -> bool) -> bool {
        loop {
            if condition(self) {
                return true;
            }
            if !self.is_alive() || Instant::now() > self.deadline {
                return false;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Whether it accepts TCP connections at `port`, in the network that it is in.
    pub fn listens(&self, port: u16) -> bool {
        // The third column is the local address and port in hex, the fourth the state; 0A: LISTEN.
        let suffix = format!(":{port:04X}");
        let listening = |line: &str| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.len() > 3 && columns[1].ends_with(&suffix) && columns[3] == "0A"
        };
        ["tcp", "tcp6"].iter().any(|name| {
            let path = format!("/proc/{}/net/{name}", self.id());
            fs::read_to_string(path).is_ok_and(|text| text.lines().any(listening))
        })
    }

    /// Brings the end of its time near: who it talks with is gone.
    pub fn wait_shortly(&mut self) {
        self.deadline = self.deadline.min(Instant::now() + SHORT_LIMIT);
    }

    /// Waits until it has ended, and kills it if that takes too long.
    ///
    /// # Panics
    /// If the process cannot be waited for.
    pub fn wait(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break Some(status);
            }
            if Instant::now() > self.deadline {
                self.kill();
                self.child.wait().expect("a child can be waited for");
                break None;
            }
            thread::sleep(LOOK_AGAIN);
        };
        // Processes that it left behind would keep the pipes open.
        self.kill();
        Ended { command: self.command, status, out: self.out.end(), err: self.err.end() }
    }
}

impl Stream {
    fn new(mut pipe: impl Read + Send + 'static) -> Stream {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut piece) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&piece[..len]);
            }
        });
        Stream { bytes, reader }
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn end(self) -> String {
        let text = Arc::clone(&self.bytes);
        let _ = self.reader.join();
        let bytes = text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Ended {
    /// Whether it has exited with 0, with nothing on standard error that tells of a fault, and
    /// without the loader's warning of a library that lacks versions.
    ///
    /// # Errors
    /// If not: what it has said.
    pub fn check(&self) -> Result<(), String> {
        let complaint = match self.status {
            None => Some("took too long".to_owned()),
            Some(status) if !status.success() => Some(status.to_string()),
            Some(_) => self.complaint().map(str::to_owned),
        };
        match complaint {
            None => Ok(()),
            Some(complaint) => Err(format!("{complaint}\n{self}")),
        }
    }

    fn complaint(&self) -> Option<&str> {
        let told = |line: &&str| {
            let line = line.to_lowercase();
            line.contains("no version information") || line.contains("error")
        };
        self.err.lines().find(told)
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status = match self.status {
            Some(status) => status.to_string(),
            None => "killed at the end of its time".to_owned(),
        };
        writeln!(f, "$ {}\n{}", self.command, self.out.trim_end())?;
        writeln!(f, "stderr: {}\n{status}", self.err.trim_end())
    }
}

/// Runs it to its end.
///
/// # Panics
/// If it cannot be started.
pub fn limited(command: &mut Command) -> Ended {
    Running::start(command).wait()
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
