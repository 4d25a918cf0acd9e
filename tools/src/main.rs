//! The `ferroce` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ferroce_tools::decode::{self, Outcome};
use ferroce_tools::demo;

/// RoCE v2 in userspace: see it work, and look at its traffic packet by packet.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Decode(decode::Arguments),
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().command {
        Command::Demo(arguments) => demo::run(&arguments).map(|right| match right {
            true => Outcome::Clean,
            false => Outcome::Violations,
        }),
        Command::Decode(arguments) => decode::run(&arguments),
    };
    match outcome {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Violations) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ferroce: {error:#}");
            ExitCode::from(2)
        }
    }
}
