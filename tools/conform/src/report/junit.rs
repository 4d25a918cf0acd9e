//! JUnit XML, which build servers read: a suite a file, a test case a scenario.

use std::fmt::Write;

use crate::run::Verdict;
use crate::session::{Judged, Status};

use super::explain;

/// A report that grows scenario by scenario.
#[derive(Clone, Debug, Default)]
pub struct Junit {
    suites: Vec<TestSuite>,
}

#[derive(Clone, Debug, Default)]
struct TestSuite {
    name: String,
    cases: String,
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
    seconds: f64,
}

impl Junit {
    /// Adds a scenario.
    pub fn add(&mut self, judged: &Judged<'_>) {
        let (file, scenario) = judged.case.name.rsplit_once('/').unwrap_or_default();
        let index = self.suites.iter().position(|suite| suite.name == file);
        let index = index.unwrap_or_else(|| {
            self.suites.push(TestSuite { name: file.to_owned(), ..TestSuite::default() });
            self.suites.len() - 1
        });
        self.suites[index].add(scenario, judged);
    }

    /// The whole report.
    pub fn finish(self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        for suite in self.suites {
            let TestSuite { name, cases, tests, failures, errors, skipped, seconds } = suite;
            let _ = writeln!(
                xml,
                "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" \
                 errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.6}\">\n{cases}  \
                 </testsuite>",
                escaped(&name),
            );
        }
        xml + "</testsuites>\n"
    }
}

impl TestSuite {
    fn add(&mut self, scenario: &str, judged: &Judged<'_>) {
        let seconds = judged.took.as_secs_f64();
        self.tests += 1;
        self.seconds += seconds;
        let text = escaped(&explain(judged));
        let child = match (judged.status(), &judged.outcome.verdict) {
            (Status::Passed, _) => None,
            (Status::Failed, Verdict::Failed(failure)) => {
                self.failures += 1;
                let message = escaped(&failure.problem);
                Some(format!("<failure message=\"{message}\">{text}</failure>"))
            }
            (Status::Failed, _) => {
                self.errors += 1;
                Some(format!("<error>{text}</error>"))
            }
            (Status::Deviates | Status::Skipped, verdict) => {
                self.skipped += 1;
                let reason = match verdict {
                    Verdict::Skipped(why) => why.clone(),
                    _ => judged.known.unwrap_or_default().to_owned(),
                };
                Some(format!("<skipped message=\"{}\"/>", escaped(&reason)))
            }
        };
        let (class, name) = (escaped(&self.name), escaped(scenario));
        let head = format!("<testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.6}\"");
        let _ = match child {
            None => writeln!(self.cases, "    {head}/>"),
            Some(child) => writeln!(self.cases, "    {head}>{child}</testcase>"),
        };
    }
}

/// Text as it may stand in XML, in an attribute too. Characters XML has no way to say are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_say_is_left_out() {
        assert_eq!(escaped("a<b> & \"c\"\u{1b}\n"), "a&lt;b&gt; &amp; &quot;c&quot;\n");
    }
}
