//! What there is while a scenario runs, and how its sentences are told apart.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::ast::{Kind, Rule, Scenario, Statement, Word};
use crate::cm::Report;
use crate::frame::Difference;
use crate::target::{Event, Target};

use super::Options;
use super::failure::{Failure, ScriptError, Step, Stop};
use super::passage::Passage;
use super::qp::Qp;
use super::scope::Scope;
use super::transcript::{Entry, Side};

/// Sentences a scenario may carry out: a loop that would never end is an error.
const MAX_SENTENCES: u32 = 1_000_000;

/// A scenario as it runs.
pub(super) struct Stage<'a> {
    pub target: Passage<'a>,
    pub options: &'a Options,
    pub scope: Scope,
    /// In the order they were made; those whose name was used again too.
    pub qps: Vec<Qp>,
    pub events: VecDeque<(Duration, Event)>,
    /// What the target has reported of its connections.
    pub reports: VecDeque<(Duration, Report)>,
    /// Connections that the target has begun or accepted.
    pub connections: u32,
    /// Both QP1s, if the scenario is about connections.
    pub gsi: Option<usize>,
    /// Frames of the peer that were given a name, and the QP they went to.
    pub labels: HashMap<String, (usize, Vec<u8>)>,
    pub transcript: Vec<Entry>,
    /// What the expectations from here on rest on.
    pub rule: Option<Rule>,
    /// Variables of the loops around, outermost first.
    pub loops: Vec<(String, String)>,
    /// Counters the scenario asks for, with their values before the last frame of the peer.
    pub counters: Vec<(String, Option<u64>)>,
    /// When the sentence before happened.
    pub mark: Duration,
    sentences: u32,
}

impl<'a> Stage<'a> {
    pub fn new(scenario: &Scenario, target: &'a mut dyn Target, options: &'a Options) -> Stage<'a> {
        let mut counters = Vec::new();
        counters_of(&scenario.body, &mut counters);
        Stage {
            target: Passage::new(target),
            options,
            scope: Scope::default(),
            qps: Vec::new(),
            events: VecDeque::new(),
            reports: VecDeque::new(),
            connections: 0,
            gsi: None,
            labels: HashMap::new(),
            transcript: Vec::new(),
            rule: None,
            loops: Vec::new(),
            counters,
            mark: Duration::ZERO,
            sentences: 0,
        }
    }

    /// Carries out the scenario, and waits for what nobody has asked for.
    pub fn play(&mut self, scenario: &Scenario) -> Step {
        if scenario.needs.iter().any(|need| need.value == super::cm::NEED) {
            self.start_cm(&Statement {
                line: scenario.name.line,
                text: format!("scenario {}", scenario.name.value),
                kind: Kind::Wait(Duration::ZERO),
            })?;
        }
        self.counters = self.read_counters()?;
        self.body(&scenario.body)?;
        self.end(scenario)
    }

    /// Carries out sentences in their order.
    pub fn body(&mut self, body: &[Statement]) -> Step {
        for statement in body {
            let asked = !self.counters.is_empty() && sends(statement);
            let before = if asked { self.read_counters()? } else { Vec::new() };
            self.statement(statement)?;
            if asked {
                self.counters = before;
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Step {
        self.sentences += 1;
        if self.sentences > MAX_SENTENCES {
            let message = format!("more than {MAX_SENTENCES} sentences were carried out");
            return Err(ScriptError::of(statement, message).into());
        }
        match &statement.kind {
            Kind::Rule(rule) => self.rule = Some(rule.clone()),
            Kind::Let { name, value } => {
                let value = self.scope.expr(value)?;
                self.scope.set(&name.value, value);
            }
            Kind::Make { what, name, of, fields } => {
                self.make(statement, what, name, of.as_ref(), fields)?;
            }
            Kind::PeerSends { frame, fields } => self.peer_sends(frame, fields)?,
            Kind::PeerResends { label } => self.peer_resends(label)?,
            Kind::Call { verb, arguments, fields } => {
                self.verb(statement, verb, arguments, fields)?;
            }
            Kind::Silence { frames_only, time } => self.silence(statement, *frames_only, *time)?,
            Kind::Fault(rule) => {
                self.tell(Side::Peer, format!("fault \"{rule}\""));
                self.target.add(rule.clone());
            }
            Kind::Wait(time) => self.wait(statement, *time)?,
            Kind::For { name, values, body } => self.repeat_for(name, values, body)?,
            Kind::Repeat { times, body } => self.repeat(times, body)?,
            Kind::AnyOrder(expectations) => self.in_any_order(expectations)?,
            Kind::Either(branches) => self.either(statement, branches)?,
            Kind::TargetSends { .. }
            | Kind::TargetAcknowledges { .. }
            | Kind::TargetCompletes { .. }
            | Kind::TargetRaises { .. }
            | Kind::TargetReports { .. }
            | Kind::QpIs { .. }
            | Kind::Has { .. }
            | Kind::MemoryHolds { .. }
            | Kind::CounterRises { .. } => self.expect(statement)?,
        }
        Ok(())
    }

    /// The QP that a sentence is about: `on`, or the one made last.
    pub fn qp_of(&self, on: Option<&Word>, place: &Word) -> Result<usize, ScriptError> {
        if let Some(name) = on {
            return self.scope.qp(name);
        }
        let last = (0..self.qps.len()).rfind(|&index| self.gsi != Some(index));
        last.ok_or_else(|| ScriptError::at(place, "there is no qp yet"))
    }

    /// Writes into the transcript what somebody does now.
    pub fn tell(&mut self, side: Side, text: impl Into<String>) {
        self.tell_at(self.target.now(), side, text.into(), None);
    }

    pub fn tell_at(&mut self, at: Duration, side: Side, text: String, frame: Option<Vec<u8>>) {
        self.transcript.push(Entry { at, side, text, frame });
    }

    /// The target does not do what `statement` says.
    pub fn failure(&self, statement: &Statement, problem: impl Into<String>) -> Box<Failure> {
        Box::new(Failure {
            line: statement.line,
            sentence: statement.text.clone(),
            variables: self.loops.clone(),
            rule: self.rule.clone(),
            problem: problem.into(),
            got: None,
            differences: Vec::new(),
            before: self.transcript.len(),
        })
    }

    /// The same, where something else came.
    pub fn mismatch(
        &self,
        statement: &Statement,
        problem: impl Into<String>,
        got: String,
        differences: Vec<Difference>,
    ) -> Box<Failure> {
        let failure = self.failure(statement, problem);
        Box::new(Failure { got: Some(got), differences, ..*failure })
    }

    fn end(&mut self, scenario: &Scenario) -> Step {
        let last = Statement {
            line: scenario.body.last().map_or(scenario.name.line, |last| last.line),
            text: format!("end of scenario {}", scenario.name.value),
            kind: Kind::Wait(self.options.end),
        };
        self.observe_for(&last, self.options.end)?;
        // What nobody has asked for says nothing about the last rule.
        self.rule = None;
        match self.leftover(false) {
            None => Ok(()),
            Some(got) => {
                let problem = "something happened that no sentence asks for";
                Err(Stop::Failed(self.mismatch(&last, problem, got, Vec::new())))
            }
        }
    }
}

/// Whether the peer sends something in this sentence, or in a block that begins with it.
fn sends(statement: &Statement) -> bool {
    match &statement.kind {
        Kind::PeerSends { .. } | Kind::PeerResends { .. } => true,
        Kind::For { body, .. } | Kind::Repeat { body, .. } => body.iter().any(sends),
        Kind::Either(branches) => branches.iter().flatten().any(sends),
        _ => false,
    }
}

/// The counters that sentences ask for.
fn counters_of(body: &[Statement], names: &mut Vec<(String, Option<u64>)>) {
    for statement in body {
        match &statement.kind {
            Kind::CounterRises { name, .. }
                if names.iter().all(|(known, _)| *known != name.value) =>
            {
                names.push((name.value.clone(), None));
            }
            Kind::For { body, .. } | Kind::Repeat { body, .. } | Kind::AnyOrder(body) => {
                counters_of(body, names);
            }
            Kind::Either(branches) => {
                branches.iter().for_each(|branch| counters_of(branch, names));
            }
            _ => {}
        }
    }
}
