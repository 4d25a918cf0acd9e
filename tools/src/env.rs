//! `ferroce env`: what a shell needs so that programs run without `ferroce run`.

use std::io::{self, Write};

use anyhow::{Context, Result};

use crate::run::{library, variables};
use crate::settings::SettingFlags;

/// Shown below `ferroce env --help`.
const EXAMPLES: &str = "\
Examples:
  eval \"$(ferroce env)\"
  eval \"$(ferroce env --addr 10.0.0.1 --fabric lab)\"

Programs of that shell find the library, but neither /sys/class/infiniband nor
/dev/infiniband: those that look there (UCX, for one) need `ferroce run`, or
`mkdir /dev/infiniband` once as root.

Exit status: 0, or 2 if a setting is wrong or the library is not found.";

/// Print what a shell needs to run programs without `ferroce run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    settings: SettingFlags,
}

/// Prints it.
///
/// # Errors
/// If a setting is wrong, the library is not found or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let settings = arguments.settings.load()?;
    let folder = library::folder()?;
    let folder = folder.to_str().context("the path of the library is not UTF-8")?;
    let mut out = io::stdout().lock();
    let rest = "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"";
    writeln!(out, "export LD_LIBRARY_PATH={}{rest}", quoted(folder))?;
    for (name, value) in variables(&settings) {
        writeln!(out, "export {name}={}", quoted(value))?;
    }
    Ok(())
}

/// `text` as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
