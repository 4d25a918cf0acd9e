//! A running `ferroce up`.

use std::process::Command;
use std::time::Duration;

use crate::programs::{Ended, Running};

/// Longer than any test.
const LIFE: Duration = Duration::from_secs(600);

/// A gateway at work.
#[derive(Debug)]
pub struct Gateway(Running);

impl Gateway {
    /// Starts one and waits until its link is up.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(ferroce: &mut Command, link: &str, arguments: &[&str]) -> Gateway {
        Gateway::try_start(ferroce, link, arguments).unwrap_or_else(|ended| panic!("{ended}"))
    }

    /// As [`Gateway::start`].
    ///
    /// # Errors
    /// If it does not come up: what it has said.
    pub fn try_start(
        ferroce: &mut Command,
        link: &str,
        arguments: &[&str],
    ) -> Result<Gateway, Ended> {
        let command = ferroce.args(["up", "--link", link]).args(arguments);
        let mut running = Running::start_within(command, LIFE);
        match running.wait_for(|running| running.out().contains("is up")) {
            true => Ok(Gateway(running)),
            false => Err(running.wait()),
        }
    }

    /// The line that says where it leads.
    pub fn summary(&self) -> String {
        self.0.out().lines().next().unwrap_or_default().to_owned()
    }

    /// Waits until `condition` is true; false if it has ended before.
    pub fn wait_for(&mut self, condition: impl FnMut(&Running) -> bool) -> bool {
        self.0.wait_for(condition)
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(self) {
        self.0.kill();
        let _ = self.0.wait();
    }

    /// Waits until it has ended by itself, as it should at once.
    pub fn wait(mut self) -> Ended {
        self.0.wait_shortly();
        self.0.wait()
    }

    /// Ends it; its output tells what it has counted.
    pub fn end(self) -> Ended {
        self.0.terminate();
        self.0.wait()
    }
}

/// Whether a gateway that has ended tells that frames were damaged or went astray.
pub fn has_lost(ended: &Ended) -> bool {
    // Not those for no member: the peers of a program that has ended may send on. Nor those that a
    // ring or a socket had no room for: on a busy machine receivers are slow.
    const LOST: [&str; 6] =
        ["ident_unknown", "not_roce", "too_long", "no_neighbour", "foreign_source", "joined_badly"];
    LOST.iter().any(|name| ended.out.contains(name))
}
