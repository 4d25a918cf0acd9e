//! Runs every scenario of a folder against the transport in memory and ends at the first that does not
//! pass: `cargo run -p ferroce-conform --example judge -- tests/scenarios`.
//!
//! What the test `mutants` builds with a broken transport.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ferroce_conform::memory::MemoryTarget;
use ferroce_conform::parse::parse;
use ferroce_conform::run::{Options, Verdict, run};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: judge FOLDER")?;
    let mut plain = MemoryTarget::default();
    let mut controlled = MemoryTarget::default().with_congestion_control();
    for path in files(Path::new(&folder))? {
        let file = parse(&std::fs::read_to_string(&path)?)?;
        for scenario in &file.scenarios {
            let is_controlled = scenario.needs.iter().any(|need| need.value == "congestion");
            let target = if is_controlled { &mut controlled } else { &mut plain };
            let outcome = run(scenario, target, &Options::VIRTUAL);
            if !matches!(outcome.verdict, Verdict::Passed | Verdict::Skipped(_)) {
                println!(
                    "{}/{}",
                    path.file_stem().unwrap_or_default().display(),
                    scenario.name.value
                );
                if std::env::args_os().nth(2).is_some() {
                    println!("{:#?}", outcome.verdict);
                    continue;
                }
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "scenario"));
    paths.sort();
    Ok(paths)
}
