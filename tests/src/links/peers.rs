//! A requester and a responder that compare every byte, one of them in the guest.

use std::io::Write;
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};

use super::Lab;
use crate::programs::{Installed, Running, free_port};

const SCRIPT: &str = include_str!("peer.py");

/// Not whatever else is called so: the distribution's has pyverbs.
const PYTHON: &str = "/usr/bin/python3";

/// What it says before each situation.
const READY: &str = "ready\n";

/// For one situation; far more than it takes.
const LIMIT: Duration = Duration::from_secs(400);

/// For all together.
const LIFE: Duration = Duration::from_secs(1500);

/// Both, for one situation after another.
#[derive(Debug)]
pub struct Peers {
    here: Running,
    input: ChildStdin,
    there: Running,
    /// Situations that have begun.
    count: usize,
    /// What this side has said of those that have ended.
    said: usize,
}

impl Peers {
    /// Starts both; a gateway must be up, or this side finds no address.
    ///
    /// # Panics
    /// If they do not start.
    pub fn start(lab: &Lab) -> Peers {
        Peers::start_with(lab, &[])
    }

    /// As [`Peers::start`], with these flags of `ferroce run` for this side.
    ///
    /// # Panics
    /// As [`Peers::start`].
    pub fn start_with(lab: &Lab, flags: &[&str]) -> Peers {
        let script = lab.home().join("peer.py");
        std::fs::write(&script, SCRIPT).expect("a folder of ours");
        let port = free_port().to_string();
        let mut there = lab.guest(PYTHON);
        there.arg(lab.put(&script)).args(["--device", "rxe0", "--port", &port]);
        let mut there = Running::start_within(&mut there, LIFE);
        there.wait_for(|_| lab.guest_listens(port.parse().expect("a number")));
        let mut here: Command = lab.ferroce();
        here.arg("run").args(flags).args(["--", PYTHON]).arg(script);
        here.args(["--device", "ferroce0", "--port", &port, "--peer", Lab::GUEST, "--stat"]);
        let (mut here, input) =
            Running::start_with_input(here.arg(&Installed::get().ferroce), LIFE);
        here.wait_for(|here| here.out().contains(READY));
        let mut peers = Peers { here, input, there, count: 1, said: 0 };
        peers.said = peers.here.out().len();
        peers
    }

    /// Runs a situation: its name and options, as the script has them. Returns what this side has
    /// said.
    ///
    /// # Errors
    /// If it does not end as it should: what both have said. Nothing runs after it.
    pub fn run(&mut self, situation: &str) -> Result<String, String> {
        // Whoever has ended is found below.
        let _ = writeln!(self.input, "{situation}");
        self.count += 1;
        let count = self.count;
        let is_ready = |here: &Running| here.out().matches(READY).count() == count;
        let begin = Instant::now();
        self.here.wait_for(|here| is_ready(here) || begin.elapsed() > LIMIT);
        if !is_ready(&self.here) {
            self.here.kill();
            self.there.kill();
            let said = [&self.here, &self.there].map(|side| side.out() + &side.err());
            return Err(format!("here: {}\nin the guest: {}", said[0], said[1]));
        }
        let out = self.here.out();
        let said = out[self.said..].trim_end_matches(READY).to_owned();
        self.said = out.len();
        Ok(said)
    }

    /// Ends both.
    ///
    /// # Errors
    /// If one does not end well.
    pub fn end(self) -> Result<(), String> {
        // It stands for no more situations.
        drop(self.input);
        self.here.wait().check()?;
        self.there.wait().check()
    }
}
