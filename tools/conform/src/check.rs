//! What can be said of a scenario before it is carried out: whether its sentences have the fields
//! they can have, and whether its blocks hold what they may.

use std::collections::BTreeSet;

use crate::ast::{Expr, Field, Kind, Scenario, Statement, Value, Word};
use crate::cm;
use crate::frame::{self, Use};
use crate::hint::{hint, within_few_letters};
use crate::run::cm::NEED;
use crate::run::{ScriptError, fields as known};
use crate::words;

/// Everything that is wrong in a scenario, in the order of its lines.
pub fn scenario(scenario: &Scenario) -> Vec<ScriptError> {
    let mut checker = Checker::default();
    checker.collect(&scenario.body);
    checker.body(&scenario.body);
    let mut errors = checker.errors;
    let strange = |need: &&Word| !known::NEEDS.contains(&need.value.as_str());
    errors.extend(scenario.needs.iter().filter(strange).map(|need| {
        let hint = hint(&need.value, known::NEEDS.iter().copied());
        ScriptError::at(need, format!("no target has `{}`{hint}", need.value))
    }));
    if !scenario.needs.iter().any(|need| need.value == NEED) {
        let line = scenario.name.line;
        errors.extend(about_connections(&scenario.body).map(|statement| {
            let message = format!("a scenario about connections (line {line}) `needs {NEED}`");
            ScriptError::of(statement, message)
        }));
    }
    errors
}

/// Words that fields of frames take.
const WORDS_OF_FRAMES: &[&str] =
    &["wrong", "without-pad", "swapped", "none", "rc", "uc", "rd", "ud", "xrc"];

/// The first sentence about connections.
fn about_connections(statements: &[Statement]) -> Option<&Statement> {
    statements.iter().find_map(|statement| match &statement.kind {
        Kind::PeerSends { frame, .. } | Kind::TargetSends { frame, .. } => {
            frame::cm::is_datagram(frame).then_some(statement)
        }
        Kind::Call { verb, .. } => is_cm_verb(verb).then_some(statement),
        Kind::TargetReports { .. } => Some(statement),
        Kind::For { body, .. } | Kind::Repeat { body, .. } | Kind::AnyOrder(body) => {
            about_connections(body)
        }
        Kind::Either(branches) => branches.iter().find_map(|branch| about_connections(branch)),
        _ => None,
    })
}

fn is_cm_verb(verb: &Word) -> bool {
    known::CM_VERBS.iter().any(|(name, _)| *name == verb.value)
}

#[derive(Default)]
struct Checker<'a> {
    /// Whatever is a variable somewhere: a word that is one may stand for any other.
    variables: BTreeSet<&'a str>,
    errors: Vec<ScriptError>,
}

impl<'a> Checker<'a> {
    fn collect(&mut self, body: &'a [Statement]) {
        for statement in body {
            match &statement.kind {
                Kind::Let { name, .. } => drop(self.variables.insert(&name.value)),
                Kind::For { name, body, .. } => {
                    self.variables.insert(&name.value);
                    self.collect(body);
                }
                Kind::Repeat { body, .. } | Kind::AnyOrder(body) => self.collect(body),
                Kind::Either(branches) => branches.iter().for_each(|branch| self.collect(branch)),
                Kind::TargetSends { fields, .. }
                | Kind::TargetAcknowledges { fields }
                | Kind::TargetCompletes { fields, .. }
                | Kind::TargetReports { fields, .. } => {
                    self.variables.extend(fields.iter().filter_map(|field| match &field.value {
                        Value::Any(Some(name)) => Some(name.value.as_str()),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
    }

    fn body(&mut self, statements: &[Statement]) {
        for statement in statements {
            let checked = self.sentence(statement);
            self.errors.extend(checked.err());
            match &statement.kind {
                Kind::For { body, .. } | Kind::Repeat { body, .. } => self.body(body),
                Kind::AnyOrder(expectations) => self.any_order(expectations),
                Kind::Either(branches) => {
                    for branch in branches {
                        self.errors.extend(opening(statement, branch).err());
                        self.body(branch);
                    }
                }
                _ => {}
            }
        }
    }

    /// Groups in any order hold expectations that something meets, and rules.
    fn any_order(&mut self, expectations: &[Statement]) {
        for statement in expectations {
            if !is_expectation(statement) && !matches!(statement.kind, Kind::Rule(_)) {
                let message = "in any order there can be nothing but expectations";
                self.errors.push(ScriptError::of(statement, message));
            }
        }
        self.body(expectations);
    }

    fn sentence(&self, statement: &Statement) -> Result<(), ScriptError> {
        match &statement.kind {
            Kind::Make { what, of, fields, .. } => self.make(statement, what, of.as_ref(), fields),
            Kind::PeerSends { frame, fields } => {
                self.frame(frame, fields, Use::Built, known::OF_PEER)
            }
            Kind::Call { verb, arguments, fields } => self.call(verb, arguments, fields),
            Kind::TargetSends { frame, fields } => {
                self.frame(frame, fields, Use::Compared, known::OF_EXPECTATION)
            }
            Kind::TargetAcknowledges { fields } => {
                if !fields.iter().any(|field| field.name.value == "psn") {
                    return Err(ScriptError::of(statement, "`psn` is missing"));
                }
                let ack = Word { value: "ack".to_owned(), line: statement.line, column: 1 };
                self.frame(&ack, fields, Use::Compared, known::OF_EXPECTATION)
            }
            Kind::TargetCompletes { fields, .. } => {
                names(fields, &[known::OF_EXPECTATION, known::COMPLETION], "a completion")?;
                self.words(fields, "status", known::STATUSES)?;
                self.words(fields, "opcode", &words::OPCODES.map(|(_, word)| word))
            }
            Kind::TargetRaises { event, fields } => {
                self.word(event, known::EVENTS, "event")?;
                names(fields, &[known::OF_EXPECTATION], "an event")
            }
            Kind::TargetReports { event, fields } => {
                self.word(event, cm::EVENTS, "event of a connection")?;
                let own = [known::OF_EXPECTATION, known::OF_REPORT, cm::NUMBERS];
                names(fields, &own, "a report")
            }
            Kind::Has { what, fields, .. } => {
                let own = if what.value == "qp" { known::OF_QP } else { known::OF_SRQ };
                names(fields, &[own], &format!("a query of a {}", what.value))?;
                self.words(fields, "access", &known::access())
            }
            Kind::QpIs { state, .. } => self.word(state, &words::STATES, "state of a QP"),
            _ => Ok(()),
        }
    }

    fn frame(
        &self,
        frame: &Word,
        fields: &[Field],
        of: Use,
        runners: &[&str],
    ) -> Result<(), ScriptError> {
        own(fields, runners)?;
        if self.variables.contains(frame.value.as_str()) {
            return Ok(());
        }
        frame::check(frame, fields, of)?;
        match frame::cm::is_datagram(frame) {
            // Their fields take many words.
            true => Ok(()),
            false => fields.iter().try_for_each(|field| self.variable(field)),
        }
    }

    /// A word in a field that resembles a variable is taken for a slip.
    fn variable(&self, field: &Field) -> Result<(), ScriptError> {
        let Value::Expr(Expr::Name(word)) = &field.value else { return Ok(()) };
        let own = word.value.as_str();
        let is_word = frame::RUNNERS.contains(&field.name.value.as_str())
            || WORDS_OF_FRAMES.contains(&own)
            || self.variables.contains(own);
        match within_few_letters(own, self.variables.iter().copied()) {
            Some(meant) if !is_word => {
                let message = format!("there is no variable `{own}`; is it `{meant}`?");
                Err(ScriptError::at(word, message))
            }
            _ => Ok(()),
        }
    }

    fn make(
        &self,
        statement: &Statement,
        what: &Word,
        of: Option<&Value>,
        fields: &[Field],
    ) -> Result<(), ScriptError> {
        let own = known::OBJECTS.iter().find(|(name, _)| *name == what.value);
        let Some(&(_, own)) = own else {
            return self.word(what, &known::OBJECTS.map(|(name, _)| name), "object");
        };
        names(fields, own, &format!("a {}", what.value))?;
        self.words(fields, "state", &words::STATES)?;
        self.words(fields, "access", &known::access())?;
        match (what.value.as_str(), of) {
            ("domain" | "xrc-domain", None) => Ok(()),
            ("domain" | "xrc-domain", Some(_)) => {
                Err(ScriptError::of(statement, "a domain has no size"))
            }
            (_, None) => {
                let needed = match what.value.as_str() {
                    "qp" => "its service, such as `qp a rc`",
                    "memory" => "its bytes, such as `memory m 4096 bytes`",
                    "window" => "its type, such as `window w 2`",
                    _ => "its size, such as 16",
                };
                let message = format!("a {} needs {needed}, behind its name", what.value);
                Err(ScriptError::of(statement, message))
            }
            ("qp", Some(Value::Expr(Expr::Name(service)))) => {
                self.word(service, &words::SERVICES, "service")
            }
            _ => Ok(()),
        }
    }

    fn call(&self, verb: &Word, arguments: &[Value], fields: &[Field]) -> Result<(), ScriptError> {
        self.words(fields, "access", &known::access())?;
        if verb.value != "posts" {
            let mut verbs = known::VERBS.iter().chain(&known::CM_VERBS);
            let Some(&(_, own)) = verbs.find(|(name, _)| *name == verb.value) else {
                let verbs = known::VERBS.iter().chain(&known::CM_VERBS);
                let mut words: Vec<&str> = verbs.map(|&(name, _)| name).collect();
                words.extend(["posts", "sends", "acknowledges", "completes", "raises", "stays"]);
                return self.word(verb, &words, "verb");
            };
            return names(fields, own, &format!("`target {}`", verb.value));
        }
        let [Value::Expr(Expr::Name(operation)), _] = arguments else {
            let message = "`posts` takes a work request and its number, such as `posts send 1`";
            return Err(ScriptError::at(verb, message));
        };
        let own = known::WORK_REQUESTS.iter().find(|(name, _)| *name == operation.value);
        match own {
            Some(&(name, own)) => {
                names(fields, &[own, &[&["refused", "on"]]].concat(), &format!("`{name}`"))
            }
            None => {
                let operations = known::WORK_REQUESTS.map(|(name, _)| name);
                self.word(operation, &operations, "work request")
            }
        }
    }

    /// The words of a field must be among these.
    fn words(&self, fields: &[Field], name: &str, words: &[&str]) -> Result<(), ScriptError> {
        match fields.iter().find(|field| field.name.value == name).map(|field| &field.value) {
            Some(Value::Expr(Expr::Name(word))) => self.word(word, words, name),
            Some(Value::Words(several)) => {
                several.iter().try_for_each(|word| self.word(word, words, name))
            }
            _ => Ok(()),
        }
    }

    /// A word must be one of these, or a variable.
    fn word(&self, word: &Word, words: &[&str], what: &str) -> Result<(), ScriptError> {
        let own = word.value.as_str();
        if words.contains(&own) || self.variables.contains(own) {
            return Ok(());
        }
        let hint = hint(own, words.iter().copied());
        Err(ScriptError::at(word, format!("there is no {what} `{own}`{hint}")))
    }
}

/// The fields of the runner stand beside others; here only whether a value suits them.
fn own(fields: &[Field], names: &[&str]) -> Result<(), ScriptError> {
    for field in fields {
        let stranger = frame::RUNNERS.contains(&field.name.value.as_str())
            && !names.contains(&field.name.value.as_str());
        if stranger {
            let message = format!("`{}` cannot be said here", field.name.value);
            return Err(ScriptError::at(&field.name, message));
        }
    }
    twice(fields)
}

fn names(fields: &[Field], known: &[&[&str]], of: &str) -> Result<(), ScriptError> {
    for Field { name, .. } in fields {
        let all = || known.iter().copied().flatten().copied();
        if !all().any(|known| known == name.value) {
            let hint = hint(&name.value, all());
            let message = format!("{of} has no field `{}`{hint}", name.value);
            return Err(ScriptError::at(name, message));
        }
    }
    twice(fields)
}

fn twice(fields: &[Field]) -> Result<(), ScriptError> {
    for (index, Field { name, .. }) in fields.iter().enumerate() {
        // Bytes of a frame are changed one by one.
        let again = fields[..index].iter().any(|field| field.name.value == name.value);
        if again && name.value != "byte" {
            return Err(ScriptError::at(name, format!("`{}` is said twice", name.value)));
        }
    }
    Ok(())
}

/// A branch begins with an expectation, and rules at most before it.
fn opening(statement: &Statement, branch: &[Statement]) -> Result<(), ScriptError> {
    let is_rule = |statement: &&Statement| matches!(statement.kind, Kind::Rule(_));
    match branch.iter().find(|statement| !is_rule(statement)) {
        None => Err(ScriptError::of(statement, "a branch expects nothing")),
        Some(first) if is_expectation(first) || matches!(first.kind, Kind::Silence { .. }) => {
            Ok(())
        }
        Some(first) => {
            let message = "a branch begins with an expectation, which chooses it";
            Err(ScriptError::of(first, message))
        }
    }
}

fn is_expectation(statement: &Statement) -> bool {
    matches!(
        statement.kind,
        Kind::TargetSends { .. }
            | Kind::TargetAcknowledges { .. }
            | Kind::TargetCompletes { .. }
            | Kind::TargetRaises { .. }
            | Kind::TargetReports { .. }
            | Kind::QpIs { .. }
            | Kind::Has { .. }
            | Kind::MemoryHolds { .. }
            | Kind::CounterRises { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    /// What is wrong in a scenario with this body.
    fn mistakes(body: &str) -> Vec<String> {
        let text = format!("ferroce scenarios 1\nscenario s\n\"t\"\n{body}\n");
        let file = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let errors = file.scenarios.iter().flat_map(scenario);
        errors.map(|error| error.to_string()).collect()
    }

    #[test]
    fn a_need_that_no_target_meets_is_a_mistake() {
        assert_eq!(mistakes("needs uc"), [""; 0]);
        assert_eq!(mistakes("needs windws"), ["4:7: no target has `windws`; is it `windows`?"]);
    }

    #[test]
    fn an_object_without_what_it_is_made_of_is_a_mistake() {
        let service = "a qp needs its service, such as `qp a rc`, behind its name";
        assert_eq!(mistakes("qp a, mtu 256"), [format!("4: {service}")]);
        let size = "a cq needs its size, such as 16, behind its name";
        assert_eq!(mistakes("cq c"), [format!("4: {size}")]);
    }

    #[test]
    fn a_work_request_without_its_number_is_a_mistake() {
        let mistaken = "`posts` takes a work request and its number, such as `posts send 1`";
        assert_eq!(mistakes("target posts send, from m"), [format!("4:8: {mistaken}")]);
    }
}
