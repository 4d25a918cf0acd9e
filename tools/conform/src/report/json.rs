//! For programs: an object a scenario, and one of totals.

use serde_json::{Value, json};

use crate::run::{Entry, Failure, Outcome, Side, Verdict};
use crate::session::{Judged, Status};

use super::Totals;

/// What is known of a scenario that was carried out.
pub fn case_json(judged: &Judged<'_>) -> Value {
    let Judged { case, outcome, known, took } = judged;
    let tags: Vec<&str> = case.scenario.tags.iter().map(|tag| tag.value.as_str()).collect();
    let mut object = json!({
        "scenario": case.name,
        "title": case.scenario.title,
        "file": *case.file,
        "line": case.scenario.name.line,
        "tags": tags,
        "status": judged.status().word(),
        "took_us": took.as_micros() as u64,
        "time_us": outcome.time.as_micros() as u64,
    });
    if let Some(reason) = known {
        object["known"] = json!(reason);
    }
    match &outcome.verdict {
        Verdict::Passed => {}
        Verdict::Skipped(why) => object["reason"] = json!(why),
        Verdict::Failed(failure) => object["failure"] = failure_json(failure, outcome),
        Verdict::Invalid(error) => object["error"] = json!(error.to_string()),
        Verdict::Broken(broken) => object["error"] = json!(broken.to_string()),
    }
    object
}

/// How many scenarios ended how.
pub fn summary_json(totals: &Totals) -> Value {
    let counts = |counts: &[usize; 4]| {
        let pair = |status: Status| (status.word().to_owned(), json!(counts[status as usize]));
        Value::Object(Status::ALL.into_iter().map(pair).collect())
    };
    let tags: serde_json::Map<String, Value> =
        totals.tags.iter().map(|(tag, of_tag)| (tag.clone(), counts(of_tag))).collect();
    let mut summary = counts(&totals.counts);
    summary["tags"] = Value::Object(tags);
    summary["passed_although_known"] = json!(totals.unexpected);
    json!({ "summary": summary })
}

fn failure_json(failure: &Failure, outcome: &Outcome) -> Value {
    let differences: Vec<Value> = failure
        .differences
        .iter()
        .map(|each| json!({ "field": each.field, "expected": each.expected, "got": each.got }))
        .collect();
    let variables: serde_json::Map<String, Value> =
        failure.variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let rule = failure.rule.as_ref();
    json!({
        "line": failure.line,
        "sentence": failure.sentence,
        "variables": variables,
        "rule": rule.map(|rule| json!({ "clause": rule.clause, "text": rule.text })),
        "problem": failure.problem,
        "got": failure.got,
        "differences": differences,
        "transcript": outcome.transcript.iter().map(entry_json).collect::<Vec<_>>(),
    })
}

fn entry_json(entry: &Entry) -> Value {
    let side = match entry.side {
        Side::Peer => "peer",
        Side::Target => "target",
    };
    json!({ "time_ns": entry.at.as_nanos() as u64, "side": side, "text": entry.text })
}
