//! For people.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::run::{Failure, Outcome, Verdict};
use crate::session::{Judged, Status};

use super::Totals;

/// Entries of a transcript that are shown before what went wrong.
const SHOWN: usize = 20;

/// What is to be said of a scenario: why it did not pass, or that it did.
pub fn explain(judged: &Judged<'_>) -> String {
    let Judged { case, outcome, known, .. } = judged;
    let name = &case.name;
    let status = judged.status().word();
    match &outcome.verdict {
        Verdict::Passed => match known {
            None => format!("{name}: {status}\n"),
            Some(reason) => format!("{name}: {status}, although known: {reason}\n"),
        },
        Verdict::Skipped(why) => format!("{name}: {status}: {why}\n"),
        Verdict::Invalid(error) => {
            format!("{name}: {status}: the script is wrong\n{}\n", case.problem(error))
        }
        Verdict::Broken(broken) => format!("{name}: {status}: {broken}\n"),
        Verdict::Failed(failure) => {
            let known = known.map_or_else(String::new, |reason| format!(", as known: {reason}"));
            let title = &case.scenario.title;
            let failed = failed(failure, outcome, &case.file);
            format!("{name}: {status}{known}\n  {title}\n\n{failed}\n")
        }
    }
}

/// Whether that has the whole transcript.
pub(super) fn is_shown(judged: &Judged<'_>) -> bool {
    let entries = judged.outcome.transcript.len();
    match &judged.outcome.verdict {
        Verdict::Failed(failure) => entries <= failure.before.min(SHOWN),
        _ => entries == 0,
    }
}

fn failed(failure: &Failure, outcome: &Outcome, file: &str) -> String {
    let Failure { line, sentence, variables, rule, problem, got, differences, before } = failure;
    let mut text = format!("  {file}:{line}\n");
    for line in sentence.lines() {
        let _ = writeln!(text, "    {}", line.trim());
    }
    for (name, value) in variables {
        let _ = writeln!(text, "    # {name} = {value}");
    }
    if let Some(rule) = rule {
        let _ = writeln!(text, "  rule {}: {}", rule.clause, rule.text);
    }
    let _ = writeln!(text, "  {problem}");
    if let Some(got) = got {
        let _ = writeln!(text, "  got: {got}");
    }
    let width = |of: fn(&crate::frame::Difference) -> &str, title: &str| {
        let widths = differences.iter().map(|difference| of(difference).chars().count());
        widths.max().unwrap_or_default().max(title.len())
    };
    if !differences.is_empty() {
        let field = width(|difference| &difference.field, "field");
        let expected = width(|difference| &difference.expected, "expected");
        let _ = writeln!(text, "    {:field$}  {:expected$}  got", "field", "expected");
        for difference in differences {
            let (name, wanted) = (&difference.field, &difference.expected);
            let _ = writeln!(text, "    {name:field$}  {wanted:expected$}  {}", difference.got);
        }
    }
    let entries = &outcome.transcript[..(*before).min(outcome.transcript.len())];
    let hidden = entries.len().saturating_sub(SHOWN);
    let _ = writeln!(text, "  what happened:");
    if hidden > 0 {
        let _ = writeln!(text, "    ... {hidden} before");
    }
    for entry in &entries[hidden..] {
        let _ = writeln!(text, "    {entry}");
    }
    text
}

/// Writes how many scenarios ended how, in all and of each tag.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_totals(totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
    let width = totals.tags.keys().map(String::len).max().unwrap_or_default().max("all".len());
    let row = |out: &mut dyn Write, name: &str, cells: [String; 4]| {
        write!(out, "{name:width$}")?;
        cells.iter().try_for_each(|cell| write!(out, "  {cell:>8}"))?;
        writeln!(out)
    };
    let numbers = |counts: [usize; 4]| {
        counts.map(|count| if count == 0 { "-".to_owned() } else { count.to_string() })
    };
    row(out, "tag", Status::ALL.map(|status| status.word().to_owned()))?;
    for (tag, &counts) in &totals.tags {
        row(out, tag, numbers(counts))?;
    }
    row(out, "all", numbers(totals.counts))?;
    for name in &totals.unexpected {
        writeln!(out, "{name} passes, although it is listed as a known deviation")?;
    }
    Ok(())
}
