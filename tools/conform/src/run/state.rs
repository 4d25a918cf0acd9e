//! What is looked at rather than told: states of QPs, memory, counters; and silence.

use std::time::Duration;

use crate::ast::{Bytes, Expr, Kind, Statement, Word};
use crate::target::{Broken, Call, Reply};

use super::failure::{Failure, ScriptError, Step, Stop, difference};
use super::given::number_text;
use super::stage::Stage;

/// How something is that must be so and so.
pub(super) enum Look {
    Right,
    /// It may become right.
    NotYet(Box<Failure>),
    Wrong(Box<Failure>),
}

/// Bytes that are shown around one that differs.
const SHOWN: usize = 8;

impl Stage<'_> {
    /// Looks whether a state, a memory or a counter is as `statement` says.
    pub fn look(&mut self, statement: &Statement) -> Step<Look> {
        match &statement.kind {
            Kind::QpIs { name, state } => self.look_at_qp(statement, name, state),
            Kind::Has { what, name, fields } => self.look_at_query(statement, what, name, fields),
            Kind::MemoryHolds { name, bytes: Some(bytes), at } => {
                self.look_at_memory(statement, name, bytes, at.as_ref())
            }
            Kind::MemoryHolds { name, bytes: None, .. } => self.look_untouched(statement, name),
            Kind::CounterRises { name, by } => self.look_at_counter(statement, name, by),
            _ => {
                let message = "this is no expectation that can stand here";
                Err(ScriptError::of(statement, message).into())
            }
        }
    }

    fn look_at_qp(&mut self, statement: &Statement, name: &Word, state: &Word) -> Step<Look> {
        let index = self.scope.qp(name)?;
        let state = self.scope.word(state)?;
        let call = Call::QueryQp { qp: self.qps[index].id.clone() };
        let got = match self.target.call(&call)? {
            Reply::State { state } => state,
            Reply::Refused { errno } => format!("none: the query is refused with {errno}"),
            // Where nobody can look, it is not judged; what it does is.
            Reply::Unable { .. } => return Ok(Look::Right),
            other => return Err(unsuitable(&call, &other)),
        };
        if got == state {
            return Ok(Look::Right);
        }
        let mut failure = self.failure(statement, "the QP is in another state");
        failure.differences.push(difference("state", state, got));
        Ok(Look::NotYet(failure))
    }

    fn look_at_memory(
        &mut self,
        statement: &Statement,
        name: &Word,
        bytes: &Bytes,
        at: Option<&Expr>,
    ) -> Step<Look> {
        let expected = self.scope.bytes(bytes, name)?;
        let offset = at.map_or(Ok(0), |at| self.scope.number(at))?;
        let got = self.read(name, offset, expected.len() as u64)?;
        Ok(match self.unlike(statement, offset, &expected, &got) {
            None => Look::Right,
            Some(failure) => Look::NotYet(failure),
        })
    }

    fn look_untouched(&mut self, statement: &Statement, name: &Word) -> Step<Look> {
        let (_, memory) = self.scope.memory(name)?;
        let (length, mut expected) = (memory.length, memory.content.clone());
        let got = self.read(name, 0, length)?;
        expected.resize(got.len(), 0);
        Ok(match self.unlike(statement, 0, &expected, &got) {
            None => Look::Right,
            Some(failure) => Look::Wrong(failure),
        })
    }

    /// How bytes of a memory differ, if they do.
    fn unlike(
        &self,
        statement: &Statement,
        offset: u64,
        expected: &[u8],
        got: &[u8],
    ) -> Option<Box<Failure>> {
        if expected == got {
            return None;
        }
        let differs = |index: &usize| expected.get(*index) != got.get(*index);
        let all: Vec<usize> = (0..expected.len().max(got.len())).filter(differs).collect();
        let first = all.first().copied().unwrap_or_default();
        let count = all.len();
        let place = offset.saturating_add(first as u64);
        let problem = match count {
            1 => format!("the byte at {place} is another"),
            _ => format!("{count} bytes are others, the first of them at {place}"),
        };
        let mut failure = self.failure(statement, problem);
        let field = format!("bytes at {place}");
        let difference = difference(field, some(expected, first), some(got, first));
        failure.differences.push(difference);
        Some(failure)
    }

    fn read(&mut self, name: &Word, offset: u64, length: u64) -> Step<Vec<u8>> {
        let (id, _) = self.scope.memory(name)?;
        let call = Call::ReadMemory { memory: id.to_owned(), offset, length };
        match self.target.call(&call)? {
            Reply::Bytes { bytes } => Ok(bytes),
            Reply::Refused { errno } => {
                let message = format!("{length} bytes at {offset} cannot be read: {errno}");
                Err(ScriptError::at(name, message).into())
            }
            other => Err(unsuitable(&call, &other)),
        }
    }

    fn look_at_counter(&mut self, statement: &Statement, name: &Word, by: &Expr) -> Step<Look> {
        let by = self.scope.number(by)?;
        let before = self.counters.iter().find(|(known, _)| *known == name.value);
        let before = before.and_then(|&(_, before)| before);
        // A target without the counter is not judged by it.
        let (Some(before), Some(now)) = (before, self.read_counter(&name.value)?) else {
            return Ok(Look::Right);
        };
        let rise = now.wrapping_sub(before);
        if rise == by {
            return Ok(Look::Right);
        }
        let mut failure = self.failure(statement, "the counter has risen otherwise");
        failure.differences.push(difference(
            format!("counter {}", name.value),
            format!("{by} more than {before}"),
            format!("{} more", number_text(rise)),
        ));
        Ok(if rise < by { Look::NotYet(failure) } else { Look::Wrong(failure) })
    }

    /// The counters that the scenario asks for.
    pub fn read_counters(&mut self) -> Step<Vec<(String, Option<u64>)>> {
        let names: Vec<String> = self.counters.iter().map(|(name, _)| name.clone()).collect();
        names.into_iter().map(|name| Ok((name.clone(), self.read_counter(&name)?))).collect()
    }

    fn read_counter(&mut self, name: &str) -> Step<Option<u64>> {
        let call = Call::Counter { name: name.to_owned() };
        match self.target.call(&call)? {
            Reply::Counter { value } => Ok(value),
            Reply::Refused { .. } => Ok(None),
            other => Err(unsuitable(&call, &other)),
        }
    }

    /// The target does nothing for so long.
    pub fn silence(&mut self, statement: &Statement, frames_only: bool, time: Duration) -> Step {
        let until = self.target.now() + time.max(self.options.silence);
        loop {
            if let Some(got) = self.leftover(frames_only) {
                let problem = "the target is not silent";
                return Err(Stop::Failed(self.mismatch(statement, problem, got, Vec::new())));
            }
            if !self.observe(statement, until)? {
                self.mark = self.target.now();
                return Ok(());
            }
        }
    }

    /// Time passes.
    pub fn wait(&mut self, statement: &Statement, time: Duration) -> Step {
        self.observe_for(statement, time)?;
        self.mark = self.target.now();
        Ok(())
    }
}

/// A few bytes, beginning with one that differs.
fn some(bytes: &[u8], from: usize) -> String {
    let rest = bytes.get(from..).unwrap_or_default();
    let shown: Vec<String> = rest.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let more = if rest.len() > SHOWN { " ..." } else { "" };
    match shown.is_empty() {
        true => "nothing".to_owned(),
        false => format!("{}{more}", shown.join(" ")),
    }
}

/// A reply that does not belong to its call.
pub(super) fn unsuitable(call: &Call, reply: &Reply) -> Stop {
    Stop::Broken(Broken(format!("the answer to {call:?} is {reply:?}")))
}
