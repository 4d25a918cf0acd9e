//! Two hosts, as two network namespaces of this machine, and the cable between them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::shared::process::{self, Running};
use crate::task::{End, Job, Task};

/// Of the cable, in bytes: what a packet of the largest path MTU needs, and more.
const MTU: &str = "9000";
const INTERFACE: &str = "roce0";
/// What holds a host: lists its own interfaces in /sys, where UCX looks for them, and stays until
/// its input ends.
const HOLD: &str = "mount -t sysfs sysfs /sys && exec cat";
/// What a host may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(1);

/// How programs of ours get to the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// By a gateway, a process beside each of them.
    Gateway,
    /// By a link of their own.
    Own,
}

/// The hosts; they vanish at the end.
#[derive(Debug)]
pub struct Cable {
    hosts: [Host; 2],
    folder: PathBuf,
    /// The CPU of each host.
    cpus: [usize; 2],
}

/// Which host: the one that listens, or answers, or the one that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The former.
    Server,
    /// The latter.
    Client,
}

#[derive(Debug)]
struct Host {
    /// The process whose network namespace it is; ends when its input does.
    holder: Running,
    end: End,
}

/// One end at work.
struct Worker {
    process: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Cable {
    /// Lays it; `cpus` are those of client and server.
    pub fn lay(cpus: (usize, usize)) -> Result<Cable> {
        let folder = PathBuf::from(format!("/dev/shm/ferroce-links-{}", std::process::id()));
        let hosts = [Host::new(1)?, Host::new(2)?];
        let cable = Cable { hosts, folder, cpus: [cpus.1, cpus.0] };
        let queues = ["numtxqueues", "1", "numrxqueues", "1"];
        let [first, second] = cable.hosts.each_ref().map(|host| text_of(host.end.mac));
        let other = cable.hosts[1].holder.id().to_string();
        let mut link = vec!["link", "add", INTERFACE, "address", &first];
        link.extend(queues);
        link.extend(["type", "veth", "peer", "name", INTERFACE, "address", &second]);
        link.extend(queues);
        link.extend(["netns", &other]);
        cable.ip(Place::Server, &link)?;
        for place in [Place::Server, Place::Client] {
            let address = format!("{}/24", cable.end(place).ip);
            cable.ip(place, &["address", "add", &address, "dev", INTERFACE])?;
            cable.ip(place, &["link", "set", INTERFACE, "mtu", MTU, "up"])?;
            cable.ip(place, &["link", "set", "lo", "up"])?;
        }
        Ok(cable)
    }

    fn ip(&self, place: Place, arguments: &[&str]) -> Result<()> {
        let output = self.on(place, "ip", None).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip {}: {said}", arguments.join(" "));
        Ok(())
    }

    fn end(&self, place: Place) -> &End {
        &self.hosts[place as usize].end
    }

    /// A program on a host, on one CPU or any.
    fn on(&self, place: Place, program: impl AsRef<Path>, cpu: Option<usize>) -> Command {
        let mut command = process::command("nsenter");
        command.args(["-t", &self.hosts[place as usize].holder.id().to_string(), "-n", "-m", "--"]);
        if let Some(cpu) = cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.arg(program.as_ref());
        command
    }

    /// A program on a host, on the host's CPU.
    pub fn command(&self, place: Place, program: &str) -> Command {
        self.on(place, program, Some(self.cpus[place as usize]))
    }

    /// The server's address and its interface.
    pub fn server(&self) -> (Ipv4Addr, &str) {
        (self.end(Place::Server).ip, INTERFACE)
    }

    /// Where the server's sockets are listed.
    pub fn sockets(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/net", self.hosts[0].holder.id()))
    }

    /// Measures between two processes without a transport.
    pub fn raw(&self, job: Job, millis: u64) -> Result<f64> {
        self.measure(job, millis, true, |_, _| {})
    }

    /// Measures between two programs of ours, over links of this kind.
    pub fn rdma(&self, job: Job, millis: u64, kind: &str, mode: Mode) -> Result<f64> {
        let outcome = self.rdma_in(job, millis, kind, mode);
        // The fabrics of both hosts; there may be none.
        let _ = fs::remove_dir_all(&self.folder);
        outcome
    }

    fn rdma_in(&self, job: Job, millis: u64, kind: &str, mode: Mode) -> Result<f64> {
        let settings = |command: &mut Command, place: Place, with_link: bool| {
            let End { interface, ip, .. } = self.end(place);
            command.env("FERROCE_FABRIC", self.folder.join(format!("{place:?}")));
            command.env("FERROCE_ADDR", ip.to_string());
            if with_link {
                let at = if kind == "udp" { ip.to_string() } else { interface.clone() };
                command.env("FERROCE_LINK", format!("{kind}:{at}"));
            }
        };
        fs::create_dir_all(&self.folder)?;
        let mut gateways = Vec::new();
        if mode == Mode::Gateway {
            for place in [Place::Server, Place::Client] {
                let mut command = self.on(place, env!("CARGO_BIN_EXE_ferroce"), None);
                settings(&mut command, place, true);
                gateways.push(gateway(command.arg("up"))?);
            }
        }
        // A gateway beside a program needs a CPU, whichever is free.
        let is_own = mode == Mode::Own;
        self.measure(job, millis, is_own, |command, place| settings(command, place, is_own))
    }

    fn measure(
        &self,
        job: Job,
        millis: u64,
        pinned: bool,
        set: impl Fn(&mut Command, Place),
    ) -> Result<f64> {
        let start = |place: Place| {
            let is_active = place == Place::Client;
            let other = if is_active { Place::Server } else { Place::Client };
            let (here, there) = (self.end(place).clone(), self.end(other).clone());
            let cpu = pinned.then_some(self.cpus[place as usize]);
            let task = Task { job, is_active, millis, here, there };
            let mut command = self.on(place, std::env::current_exe()?, cpu);
            command.arg("--be").arg(serde_json::to_string(&task)?);
            set(&mut command, place);
            Worker::start(place, &mut command)
        };
        let (mut passive, mut active) = (start(Place::Server)?, start(Place::Client)?);
        let (of_passive, of_active) = (passive.hear("ready")?, active.hear("ready")?);
        passive.say(&format!("go {of_active}"))?;
        passive.hear("set")?;
        active.say(&format!("go {of_passive}"))?;
        let figure = active.hear_figure()?;
        passive.say("stop")?;
        match figure.or(passive.hear_figure()?) {
            Some(figure) => Ok(figure),
            None => bail!("nobody has measured anything"),
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Host {
    /// The host of this number.
    fn new(number: u8) -> Result<Host> {
        let mut command = process::command("unshare");
        command.args(["-n", "-m", "sh", "-c", HOLD]);
        let mut holder = Running::spawn("a host".into(), &mut command)?;
        let comm = format!("/proc/{}/comm", holder.id());
        let start = Instant::now();
        while fs::read_to_string(&comm).ok().is_none_or(|name| name.trim() != "cat") {
            if !holder.is_alive()? {
                bail!("no network namespace: {:?}", holder.end(Instant::now() + PATIENCE));
            }
            ensure!(start.elapsed() < PATIENCE, "no network namespace");
            thread::sleep(TICK);
        }
        let end = End {
            interface: INTERFACE.into(),
            mac: [2, 0, 0, 0, 0x77, number],
            ip: Ipv4Addr::new(192, 0, 2, number),
        };
        Ok(Host { holder, end })
    }
}

/// Starts `ferroce up` and waits until its link is there.
fn gateway(command: &mut Command) -> Result<Running> {
    let mut gateway = Running::spawn("a gateway".into(), command)?;
    let (_, output) = gateway.pipes().context("its pipes")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.contains("is up") {
        return Ok(gateway);
    }
    gateway.end(Instant::now() + PATIENCE)?;
    bail!("the gateway says {line:?}")
}

impl Worker {
    fn start(place: Place, command: &mut Command) -> Result<Worker> {
        let mut process = Running::spawn(format!("the {place:?}"), command)?;
        let (input, output) = process.pipes().context("its pipes")?;
        Ok(Worker { process, input, output: BufReader::new(output) })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").context("it does not listen any more")
    }

    /// What it says behind this word.
    fn hear(&mut self, word: &str) -> Result<String> {
        let (first, rest) = self.hear_line()?;
        ensure!(first == word, "it says {first} instead of {word}");
        Ok(rest)
    }

    /// The figure that it has, if it has any.
    fn hear_figure(&mut self) -> Result<Option<f64>> {
        let (first, rest) = self.hear_line()?;
        match first.as_str() {
            "figure" => Ok(Some(rest.parse()?)),
            "done" => Ok(None),
            _ => bail!("it says {first} at the end"),
        }
    }

    fn hear_line(&mut self) -> Result<(String, String)> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let name = self.process.end(Instant::now() + PATIENCE)?;
            bail!("it says nothing any more: {name}");
        }
        let (first, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        Ok((first.to_owned(), rest.to_owned()))
    }
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
