//! What the process that measures says to its ends, and they to it: lines, over pipes.
//!
//! Each end is `ready`, with what the other has to know, and is told to `go`, with what the other
//! has said. Who answers begins first and says `set`. Who has begun the measurement ends it:
//! `figure` or `done`; thereupon the other is told to stop.

use std::io::{BufRead, Stdin, Write, stdin, stdout};
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

/// An end's side of it.
#[derive(Debug)]
pub struct Conversation(Stdin);

/// Tells whether it is time to stop.
#[derive(Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Conversation {
    /// Over this process's standard input and output.
    pub fn new() -> Conversation {
        Conversation(stdin())
    }

    /// Tells the other end something, and hears what it has to say, once it is ready too.
    pub fn meet(&mut self, own: &str) -> Result<String> {
        self.tell(&format!("ready {own}"))?;
        let mut line = String::new();
        self.0.lock().read_line(&mut line)?;
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("go", theirs) => Ok(theirs.to_owned()),
            _ => bail!("told {line:?} instead of to go"),
        }
    }

    /// Says that the other end may begin.
    pub fn begin(self) -> Result<Stop> {
        self.tell("set")?;
        let stop = Arc::new(AtomicBool::new(false));
        let near = stop.clone();
        thread::spawn(move || {
            // Also when whoever measures is no more.
            match self.0.lock().read_line(&mut String::new()) {
                Ok(1..) => near.store(true, Ordering::Release),
                _ => exit(1),
            }
        });
        Ok(Stop(stop))
    }

    /// Says a line.
    pub fn tell(&self, line: &str) -> Result<()> {
        tell(line)
    }
}

impl Stop {
    /// Whether it is.
    pub fn is_near(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Says a line.
    pub fn tell(&self, line: &str) -> Result<()> {
        tell(line)
    }
}

fn tell(line: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("nobody listens")
}
