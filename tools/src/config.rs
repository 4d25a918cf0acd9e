//! `ferroce config`: each setting, and where it came from.

use std::io::{self, Write};

use anyhow::Result;
use ferroce::config::{Entry, Key};
use serde::Serialize;

use crate::settings::{LinkFlag, SettingFlags};

/// Shown below `ferroce config --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce config
  FERROCE_MTU=1024 ferroce config --seed 7
  ferroce config --json | jq -r 'select(.source != \"default\").key'

A flag wins over a variable, a variable over the file that FERROCE_CONFIG names.
The variable of a key is FERROCE_ and the key in capitals. In the file:

  addr = [\"192.0.2.1\", \"192.0.2.2\"]
  fabric = \"lab\"
  fault = [\"drop 1% of rc-send\", \"delay 2nd ack by 1ms\"]
  mtu = 1024

Exit status: 0, or 2 if a value is wrong; the message names the key, the value,
where it came from and what would be right.";

/// Show every setting, and where its value came from.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// One object a line: key, value, source
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    link: LinkFlag,
    #[command(flatten)]
    settings: SettingFlags,
}

#[derive(Serialize)]
struct Line<'a> {
    key: &'a str,
    value: &'a str,
    source: String,
}

/// Shows them.
///
/// # Errors
/// If a setting is wrong or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let settings = arguments.settings.load_with(&arguments.link)?;
    let lines = Key::ALL.map(|key| {
        let Entry { text, source } = settings.entry(key);
        Line { key: key.name(), value: text, source: source.to_string() }
    });
    let mut out = io::stdout().lock();
    let width = lines.iter().map(|line| line.value.chars().count()).max().unwrap_or(0);
    for line in &lines {
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
            continue;
        }
        let Line { key, value, source } = line;
        let value = if value.is_empty() { "-" } else { value }.replace('\n', "; ");
        writeln!(out, "{key:<6}  {value:<width$}  {source}")?;
    }
    Ok(())
}
