//! The machine: which CPUs there are, and what others do with them meanwhile.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The first two CPUs this process may use.
pub fn two_cpus() -> Result<(usize, usize)> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("which CPUs may be used")?;
    let mut cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let pair = (cpus.next(), cpus.next());
    ensure!(pair.1.is_some(), "this needs two CPUs");
    Ok((pair.0.unwrap_or(0), pair.1.unwrap_or(0)))
}

/// Binds this thread to a CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot use CPU {cpu}"))
}

/// Measures what others do while something of ours runs. Meanwhile ended processes of ours count
/// as ours once they have been waited for.
#[derive(Debug)]
pub struct Disturbance {
    at: Instant,
    busy_s: f64,
    own_s: f64,
    cpu_count: f64,
}

impl Disturbance {
    /// From now on.
    pub fn start() -> Result<Disturbance> {
        let (busy_s, cpu_count) = busy()?;
        Ok(Disturbance { at: Instant::now(), busy_s, own_s: own()?, cpu_count })
    }

    /// The part of all CPU time that was not ours to have.
    pub fn foreign_share(&self) -> Result<f64> {
        let all_s = self.at.elapsed().as_secs_f64() * self.cpu_count;
        let foreign_s = busy()?.0 - self.busy_s - (own()? - self.own_s);
        Ok((foreign_s / all_s).clamp(0.0, 1.0))
    }
}

/// Seconds of CPU time that all processes have had, and the hypervisor's others; and how many CPUs
/// there are. Interrupts are left out: those of the loopback interface are our own.
fn busy() -> Result<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal, ..] = ticks[..] else {
        anyhow::bail!("/proc/stat does not begin as it should");
    };
    let per_second = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100) as f64;
    let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let cpu_count = text.lines().filter(is_cpu).count();
    Ok(((user + nice + system + steal) as f64 / per_second, cpu_count as f64))
}

/// Seconds of CPU time that this process and its ended children have had.
fn own() -> Result<f64> {
    let usages = [getrusage(UsageWho::RUSAGE_SELF)?, getrusage(UsageWho::RUSAGE_CHILDREN)?];
    let micros = usages
        .map(|usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds());
    Ok(micros.iter().sum::<i64>() as f64 / 1e6)
}
