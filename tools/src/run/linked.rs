//! A program with a link of its own: this process stays and is the gateway, a child runs the
//! program.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use anyhow::{Context, Result};
use ferroce::config::{CONFIG_VARIABLE, Key, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Arguments, variables};
use crate::up::Running;

/// Runs the program beside a gateway and gives its exit status; none if the fabric has a gateway
/// already, which will do.
///
/// # Errors
/// If the link cannot be opened or the child not be started.
pub fn run(arguments: &Arguments, settings: &Settings) -> Result<Option<u8>> {
    let Some(running) = Running::unless_there_is_one(settings)? else {
        tracing::info!("the fabric has a gateway already");
        return Ok(None);
    };
    let mut command = without_link(arguments, settings)?;
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]).context("cannot handle signals")?;
    let child = command.spawn().context("cannot start the program")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    thread::spawn(move || {
        for signal in &mut signals {
            // Those of a terminal go to the child as well.
            if [SIGHUP, SIGTERM].contains(&signal)
                && let Ok(signal) = Signal::try_from(signal)
            {
                // It may have ended just now.
                let _ = kill(pid, signal);
            }
        }
    });
    let status = wait(child)?;
    tracing::info!("{}", running.counted());
    Ok(Some(status))
}

/// The same command without the link. The namespaces of `run` are for a process with one thread,
/// which the child is.
fn without_link(arguments: &Arguments, settings: &Settings) -> Result<Command> {
    let myself = env::current_exe().context("cannot find this command itself")?;
    let mut command = Command::new(myself);
    command.arg("run");
    let Arguments { no_namespace, rsockets, .. } = *arguments;
    for (flag, is_given) in [("--no-namespace", no_namespace), ("--rsockets", rsockets)] {
        if is_given {
            command.arg(flag);
        }
    }
    command.arg("--").args(&arguments.command);
    command.env_remove(CONFIG_VARIABLE).env_remove(Key::Link.variable());
    command.envs(variables(settings));
    Ok(command)
}

fn wait(mut child: Child) -> Result<u8> {
    let status: ExitStatus = child.wait().context("cannot wait for the program")?;
    // As shells do.
    let of_signal = |signal: i32| 128 + signal;
    let code = status.code().or(status.signal().map(of_signal)).unwrap_or_default();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn flags_of_run_reach_the_child_of_a_link() {
        for flags in [&["--no-namespace", "--rsockets"][..], &["--rsockets"], &[]] {
            let program = ["--", "cmd", "--link"];
            let line = [&["run"][..], flags, &["--link", "udp:127.0.0.1"], &program].concat();
            let Line { arguments } = Line::parse_from(line);
            let command = without_link(&arguments, &Settings::default()).unwrap();
            let words: Vec<_> = command.get_args().collect();
            assert_eq!(words, [&["run"][..], flags, &program].concat());
        }
    }
}
