//! Loops, groups in any order, and choices.

use std::time::Duration;

use crate::ast::{Expr, Kind, Statement, Values, Word};
use crate::value::Datum;

use super::expect::{Attempt, Expectation};
use super::failure::{Failure, ScriptError, Step, Stop};
use super::stage::Stage;

/// Turns a loop may have.
const MAX_TURNS: u64 = 1_000_000;

impl Stage<'_> {
    pub fn repeat_for(&mut self, name: &Word, values: &Values, body: &[Statement]) -> Step {
        let before = self.scope.variable(&name.value).cloned();
        match values {
            Values::Range(from, to) => {
                let (from, to) = (self.scope.number(from)?, self.scope.number(to)?);
                let turns = to.wrapping_sub(from);
                if turns >= MAX_TURNS {
                    let message = format!("{from:#x} to {to:#x} goes backwards, or is too long");
                    return Err(ScriptError::at(name, message).into());
                }
                for turn in 0..=turns {
                    self.turn(name, Datum::Number(from.wrapping_add(turn)), body)?;
                }
            }
            Values::List(list) => {
                for value in list {
                    let value = self.scope.expr(value)?;
                    self.turn(name, value, body)?;
                }
            }
        }
        self.scope.restore(&name.value, before);
        Ok(())
    }

    fn turn(&mut self, name: &Word, value: Datum, body: &[Statement]) -> Step {
        let text = match &value {
            Datum::Number(number) => match number.cast_signed() {
                negative @ ..0 => negative.to_string(),
                _ => format!("{number:#x}"),
            },
            Datum::Word(word) => word.clone(),
            // A variable is one of the two.
            _ => String::new(),
        };
        self.scope.set(&name.value, value);
        self.loops.push((name.value.clone(), text));
        self.body(body)?;
        self.loops.pop();
        Ok(())
    }

    pub fn repeat(&mut self, times: &Expr, body: &[Statement]) -> Step {
        for turn in 1..=self.scope.number(times)? {
            self.loops.push(("turn".to_owned(), turn.to_string()));
            self.body(body)?;
            self.loops.pop();
        }
        Ok(())
    }

    /// Meets expectations in whatever order what they expect comes.
    pub fn in_any_order(&mut self, statements: &[Statement]) -> Step {
        let mut pending = Vec::with_capacity(statements.len());
        for statement in statements {
            match &statement.kind {
                Kind::Rule(rule) => self.rule = Some(rule.clone()),
                _ => pending.push(self.expectation(statement)?),
            }
        }
        let mut dry = false;
        while let Some(first) = pending.first() {
            let statement = first.statement;
            let mut round = Round::default();
            let mut met = None;
            for (index, expectation) in pending.iter_mut().enumerate() {
                let attempt = self.attempt(expectation)?;
                if let Attempt::Met = attempt {
                    met = Some(index);
                    break;
                }
                self.note(&mut round, expectation, attempt, dry);
            }
            if let Some(index) = met {
                pending.remove(index);
                continue;
            }
            let (until, looks) = (round.until, round.looks);
            if let Some(failure) = round.nearest() {
                return Err(Stop::Failed(failure));
            }
            match until {
                None => return Ok(()),
                Some(until) => dry = self.wait_for(statement, until, looks)?,
            }
        }
        Ok(())
    }

    /// Takes the branch whose first expectation is met.
    pub fn either(&mut self, statement: &Statement, branches: &[Vec<Statement>]) -> Step {
        let mut openings = Vec::with_capacity(branches.len());
        for branch in branches {
            openings.push(self.opening(statement, branch)?);
        }
        let mut dry = false;
        loop {
            let mut round = Round::default();
            for (branch, opening) in branches.iter().zip(&mut openings) {
                match &mut opening.of {
                    OpeningKind::Silence { .. } => {}
                    OpeningKind::Expectation(expectation) => match self.attempt(expectation)? {
                        Attempt::Met => return self.branch(branch, opening.position),
                        attempt => self.note(&mut round, expectation, attempt, dry),
                    },
                }
            }
            for (branch, opening) in branches.iter().zip(&openings) {
                let OpeningKind::Silence { frames_only, until } = opening.of else { continue };
                if self.leftover(frames_only).is_some() {
                    continue;
                }
                if self.target.now() >= until {
                    self.mark = self.target.now();
                    return self.branch(branch, opening.position);
                }
                // Shorter than the others: once it is over, it is chosen.
                round.until = Some(round.until.map_or(until, |other| other.min(until)));
            }
            let Some(until) = round.until else {
                return Err(Stop::Failed(self.no_branch(statement, round)));
            };
            dry = self.wait_for(statement, until, round.looks)?;
        }
    }

    /// The sentence that a branch is chosen by, which only rules may stand before.
    fn opening<'s>(&mut self, statement: &Statement, branch: &'s [Statement]) -> Step<Opening<'s>> {
        let is_rule = |statement: &Statement| matches!(statement.kind, Kind::Rule(_));
        let position = branch.iter().position(|statement| !is_rule(statement));
        let Some(position) = position else {
            return Err(ScriptError::of(statement, "a branch expects nothing").into());
        };
        let of = match &branch[position].kind {
            Kind::Silence { frames_only, time } => {
                OpeningKind::Silence { frames_only: *frames_only, until: self.target.now() + *time }
            }
            _ => OpeningKind::Expectation(Box::new(self.expectation(&branch[position])?)),
        };
        Ok(Opening { position, of })
    }

    fn branch(&mut self, branch: &[Statement], opening: usize) -> Step {
        self.body(&branch[..opening])?;
        self.body(&branch[opening + 1..])
    }

    /// Takes down how an expectation stands that was not met in this round.
    fn note(&self, round: &mut Round, expectation: &Expectation<'_>, attempt: Attempt, dry: bool) {
        let failure = match attempt {
            Attempt::Mismatch(failure) => failure,
            _ if dry || self.target.now() >= expectation.deadline => self.missing(expectation),
            _ => {
                round.looks |= expectation.looks();
                round.until = round.until.max(Some(expectation.deadline));
                return;
            }
        };
        if !expectation.optional {
            round.failures.push(*failure);
        }
    }

    fn no_branch(&self, statement: &Statement, round: Round) -> Box<Failure> {
        let Some(nearest) = round.nearest() else {
            let got = self.leftover(false).unwrap_or_default();
            let problem = "none of the branches begins with what happened";
            return self.mismatch(statement, problem, got, Vec::new());
        };
        let place = format!("line {}: {}", nearest.line, nearest.sentence);
        Box::new(Failure {
            line: statement.line,
            sentence: statement.text.clone(),
            problem: format!(
                "none of the branches was met; of the nearest ({place}): {}",
                nearest.problem
            ),
            ..*nearest
        })
    }

    /// Waits for something to happen. Whether nothing did, and nothing will until then.
    pub fn wait_for(&mut self, statement: &Statement, until: Duration, looks: bool) -> Step<bool> {
        if !looks {
            return Ok(!self.observe(statement, until)?);
        }
        let soon = self.target.now() + self.options.look_again;
        self.observe(statement, until.min(soon))?;
        Ok(false)
    }
}

/// How the expectations of a group stand.
#[derive(Default)]
struct Round {
    failures: Vec<Failure>,
    /// The last deadline of those that still wait; nothing if none does.
    until: Option<Duration>,
    /// Whether one of them asks for a state, which nothing tells of.
    looks: bool,
}

impl Round {
    /// The failure that says most: the one with the fewest differences.
    fn nearest(self) -> Option<Box<Failure>> {
        let unlike = |failure: &Failure| match failure.differences.len() {
            0 => usize::MAX,
            count => count,
        };
        self.failures.into_iter().min_by_key(unlike).map(Box::new)
    }
}

/// What a branch begins with.
struct Opening<'s> {
    /// Which sentence of the branch it is.
    position: usize,
    of: OpeningKind<'s>,
}

enum OpeningKind<'s> {
    Expectation(Box<Expectation<'s>>),
    Silence { frames_only: bool, until: Duration },
}
