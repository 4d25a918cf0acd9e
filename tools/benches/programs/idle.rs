//! What a process costs that has a device open, a connected QP and an armed CQ, and waits.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferroce::{Completion, SendRequest};

use crate::shared::process::Running;
use crate::writes::Side;

/// How long it is watched.
const WATCH: Duration = Duration::from_secs(2);
/// What it may take to fall asleep.
const SETTLE: Duration = Duration::from_millis(200);
/// Longer than anybody watches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Is that process: says so once it waits, and never gets what it waits for.
pub fn be(fabric: &Path) -> Result<()> {
    let (a, b) = (Side::open(fabric, 64)?, Side::open(fabric, 64)?);
    a.connect(&b)?;
    a.qp.post_send(&SendRequest::write(0, &[a.mr.slice(..)?], b.mr.remote()))?;
    a.cq.wait(PATIENCE)?.ok()?;
    b.qp.post_recv(0, &[b.mr.slice(..)?])?;
    ensure!(b.cq.poll(&mut [Completion::default()]) == 0, "nothing was sent");
    println!("idle");
    std::io::stdout().flush()?;
    b.cq.wait(PATIENCE)?.ok()?;
    Ok(())
}

/// Its CPU time as a share of one core.
pub fn share(fabric: &Path) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let name = "the idle process".to_owned();
    let mut child = Running::spawn(name, command.arg("--idle").arg(fabric))?;
    let (_input, output) = child.pipes().context("its pipes")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line == "idle\n", "the idle process did not get there: {line:?}");
    thread::sleep(SETTLE);
    let (start, before) = (Instant::now(), cpu_time_ns(child.id())?);
    thread::sleep(WATCH);
    let spent = cpu_time_ns(child.id())? - before;
    Ok(spent as f64 / start.elapsed().as_nanos() as f64)
}

/// CPU time of all threads.
fn cpu_time_ns(process: u32) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let path = task?.path().join("schedstat");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        sum += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sum)
}
