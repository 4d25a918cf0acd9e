//! Deviations that are known of an implementation: scenarios it is expected to fail, and why.
//!
//! One a line: a scenario's name or a pattern, a colon, and the reason with its evidence. Lines that
//! begin with `#` are comments. A line `never raises EVENT: REASON` is about all scenarios: the
//! event is not waited for, and the rest of the scenario is judged. So is `does not keep FIELD:
//! REASON`: of what every frame must be, this field is not judged. A scenario that ends the
//! implementation is not carried out: `does not survive SCENARIO: REASON`.

use crate::suite::names;

/// How a line about an event begins.
const NEVER_RAISES: &str = "never raises ";

/// How one begins about what every frame must keep.
const DOES_NOT_KEEP: &str = "does not keep ";

/// How one begins about a scenario that is not to be carried out.
const DOES_NOT_SURVIVE: &str = "does not survive ";

/// What is known of an implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    deviations: Vec<Deviation>,
    unraised: Vec<String>,
    unkept: Vec<String>,
    fatal: Vec<Deviation>,
}

/// A deviation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Deviation {
    /// Name or pattern of scenarios.
    scenario: String,
    /// Why they fail, with the evidence.
    reason: String,
}

impl Known {
    /// Reads a file of deviations.
    ///
    /// # Errors
    /// The first line that is none, with its number.
    pub fn parse(text: &str) -> Result<Known, String> {
        let mut known = Known::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts = line.split_once(':').map(|(name, reason)| (name.trim(), reason.trim()));
            match parts {
                Some((name, reason)) if !name.is_empty() && !reason.is_empty() => {
                    if let Some(event) = name.strip_prefix(NEVER_RAISES) {
                        known.unraised.push(event.trim().to_owned());
                        continue;
                    }
                    if let Some(field) = name.strip_prefix(DOES_NOT_KEEP) {
                        known.unkept.push(field.trim().to_owned());
                        continue;
                    }
                    let reason = reason.to_owned();
                    match name.strip_prefix(DOES_NOT_SURVIVE) {
                        Some(name) => {
                            let scenario = name.trim().to_owned();
                            known.fatal.push(Deviation { scenario, reason });
                        }
                        None => {
                            let scenario = name.to_owned();
                            known.deviations.push(Deviation { scenario, reason });
                        }
                    }
                }
                _ => return Err(format!("line {}: expected `SCENARIO: REASON`", index + 1)),
            }
        }
        Ok(known)
    }

    /// Events that it never raises.
    pub fn unraised(&self) -> &[String] {
        &self.unraised
    }

    /// Fields that its frames have otherwise than every frame must.
    pub fn unkept(&self) -> &[String] {
        &self.unkept
    }

    /// Why a scenario is expected to fail, if it is.
    pub fn reason(&self, scenario: &str) -> Option<&str> {
        find(&self.deviations, scenario)
    }

    /// How a scenario ends the implementation, if it does.
    pub fn is_fatal(&self, scenario: &str) -> Option<&str> {
        find(&self.fatal, scenario)
    }
}

fn find<'a>(deviations: &'a [Deviation], scenario: &str) -> Option<&'a str> {
    let known = deviations.iter().find(|known| names(&known.scenario, scenario));
    known.map(|known| known.reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_deviation() {
        let known = Known::parse(
            "# rxe, Linux 6.12\n\nkeys/write-with-wrong-key: answers late, see report 7\n\
             cnp/*: sends none: not implemented",
        )
        .unwrap();
        assert_eq!(known.reason("keys/write-with-wrong-key"), Some("answers late, see report 7"));
        assert_eq!(known.reason("cnp/rate"), Some("sends none: not implemented"));
        assert_eq!(known.reason("keys/other"), None);
    }

    #[test]
    fn events_that_are_never_raised_are_of_all_scenarios() {
        let known = Known::parse("never raises qp-access-error: only the kernel is told").unwrap();
        assert_eq!(known.unraised(), ["qp-access-error"]);
        assert_eq!(known.reason("never raises qp-access-error"), None);
    }

    #[test]
    fn fields_that_are_not_kept_are_of_all_frames() {
        let known = Known::parse("does not keep ack-request: set in datagrams").unwrap();
        assert_eq!(known.unkept(), ["ack-request"]);
        assert_eq!(known.reason("does not keep ack-request"), None);
    }

    #[test]
    fn what_it_does_not_survive_is_another_matter() {
        let known = Known::parse("does not survive lengths/none: the kernel panics").unwrap();
        assert_eq!(known.is_fatal("lengths/none"), Some("the kernel panics"));
        assert_eq!((known.reason("lengths/none"), known.is_fatal("lengths/other")), (None, None));
    }

    #[test]
    fn a_deviation_needs_a_reason() {
        let error = Known::parse("# comment\nkeys/write-with-wrong-key:").unwrap_err();
        assert_eq!(error, "line 2: expected `SCENARIO: REASON`");
    }
}
