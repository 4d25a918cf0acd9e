//! The `ferroce` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ferroce_tools::decode::{self, Outcome};
use ferroce_tools::output::reader_is_gone;
use ferroce_tools::{
    agent, config, conform, demo, devices, env, install, ports, run, sim, stat, up,
};

/// RoCE v2 in userspace: run RDMA programs, and look at their traffic packet by packet.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Up(up::Arguments),
    Devices(devices::Arguments),
    Config(config::Arguments),
    Env(env::Arguments),
    Install(install::Arguments),
    /// Try what `run` does where it has no rights
    #[command(name = run::TRY_COMMAND, hide = true)]
    TryNamespace,
    Demo(demo::Arguments),
    Decode(decode::Arguments),
    Conform(conform::Arguments),
    Sim(sim::Arguments),
    Stat(stat::Arguments),
    Ports(ports::Arguments),
    ConformAgent(agent::Arguments),
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().command {
        Command::Run(arguments) => {
            let Err(failure) = run::run(&arguments);
            eprintln!("ferroce: {:#}", failure.error);
            return ExitCode::from(failure.status);
        }
        Command::TryNamespace => run::try_user_namespace().map(|()| Outcome::Clean),
        Command::Up(arguments) => up::run(&arguments).map(|()| Outcome::Clean),
        Command::Devices(arguments) => devices::run(&arguments).map(|()| Outcome::Clean),
        Command::Config(arguments) => config::run(&arguments).map(|()| Outcome::Clean),
        Command::Env(arguments) => env::run(&arguments).map(|()| Outcome::Clean),
        Command::Install(arguments) => {
            install::run(&arguments, CommandLine::command()).map(|()| Outcome::Clean)
        }
        Command::Demo(arguments) => demo::run(&arguments).map(|right| match right {
            true => Outcome::Clean,
            false => Outcome::Violations,
        }),
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Conform(arguments) => conform::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments).map(|()| Outcome::Clean),
        Command::Stat(arguments) => stat::run(&arguments).map(|()| Outcome::Clean),
        Command::Ports(arguments) => ports::run(&arguments).map(|()| Outcome::Clean),
        Command::ConformAgent(arguments) => agent::run(&arguments).map(|()| Outcome::Clean),
    };
    match outcome {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Violations) => ExitCode::from(1),
        Err(error) if reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce: {error:#}");
            ExitCode::from(2)
        }
    }
}
