//! Programs that come in pairs: a server and a client on this machine.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::shared::process::{self, free_port};

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
    /// Runs both to their end; what the client has printed. `cpu` is the only one they get.
    pub fn run(&self, lab: &Lab, cpu: Option<usize>) -> Result<String> {
        let port = free_port()?;
        let mut server = self.command(lab, cpu);
        server.args(&self.both).args([self.server_port, &port.to_string()]);
        let mut client = self.command(lab, cpu);
        client.args(&self.both).args(&self.client).args([self.client_port, &port.to_string()]);
        let sockets = (Path::new("/proc/net"), port);
        process::pair(self.name, &mut server, client.arg("127.0.0.1"), sockets)
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
        let mut command = process::command(&words[0]);
        command.envs(self.variables.iter().copied()).args(&words[1..]);
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
