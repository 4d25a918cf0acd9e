//! What the target tells: sorted, judged, and written down.

use std::time::Duration;

use ferroce_stack::wire::Headers;

use crate::ast::Statement;
use crate::frame::{self, Fault};
use crate::target::{Completion, Event, Observation};

use super::failure::{Step, Stop, difference};
use super::qp::{Frame, Qp};
use super::stage::Stage;
use super::transcript::Side;

impl Stage<'_> {
    /// Takes in the next thing the target tells. Whether there was one until then.
    ///
    /// Every frame is judged here; `statement` is what was carried out when it came.
    pub fn observe(&mut self, statement: &Statement, until: Duration) -> Step<bool> {
        let Some(observation) = self.target.observe(until)? else { return Ok(false) };
        match observation {
            Observation::Frame { at, bytes } => self.take_frame(statement, at, bytes)?,
            Observation::Completion(completion) => self.take_completion(statement, completion)?,
            Observation::Report(report) => self.take_report(self.target.now(), report),
            Observation::Event(event) => {
                let text = event_text(&event, &self.script_name(event.of.as_deref()));
                let at = self.target.now();
                self.tell_at(at, Side::Target, text, None);
                self.events.push_back((at, event));
            }
        }
        Ok(true)
    }

    /// Takes in all that the target tells for so long.
    pub fn observe_for(&mut self, statement: &Statement, time: Duration) -> Step {
        let until = self.target.now() + time;
        while self.observe(statement, until)? {}
        Ok(())
    }

    fn take_frame(&mut self, statement: &Statement, at: Duration, bytes: Vec<u8>) -> Step {
        let Some(index) = self.flow_of(&bytes) else {
            let text = match Headers::parse(&bytes) {
                Ok((headers, _)) => {
                    let dest_qp = headers.bth.dest_qp;
                    format!("target sends a frame to QP {dest_qp:#x}, which the peer has not")
                }
                Err(reason) => format!("target sends a frame that is damaged: {}", reason.name()),
            };
            self.tell_at(at, Side::Target, text.clone(), Some(bytes));
            let problem = "a frame belongs to no QP of the scenario";
            return Err(Stop::Failed(self.mismatch(statement, problem, text, Vec::new())));
        };
        let Qp { flow, judge, .. } = &mut self.qps[index];
        let text = frame::describe(&bytes, flow);
        let mut faults = judge.judge(&bytes, flow);
        faults.retain(|fault| !self.options.unkept.iter().any(|field| field == fault.field));
        let text = self.with_name(format!("target sends {text}"), index);
        self.tell_at(at, Side::Target, text.clone(), Some(bytes.clone()));
        if let Some(first) = faults.first() {
            let problem = format!("a frame is not as every frame must be ({})", first.clause);
            let fault = |fault: &Fault| difference(fault.field, &fault.expected, &fault.got);
            let differences = faults.iter().map(fault).collect();
            return Err(Stop::Failed(self.mismatch(statement, problem, text, differences)));
        }
        self.qps[index].flow.note(&bytes);
        self.qps[index].frames.push_back(Frame { at, bytes });
        Ok(())
    }

    /// The QP a frame of the target is of: it goes to its peer, or a datagram comes from it.
    fn flow_of(&self, bytes: &[u8]) -> Option<usize> {
        let (headers, _) = Headers::parse(bytes).ok()?;
        let position =
            |wanted: &dyn Fn(&(u32, u32)) -> bool| self.scope.qpns.iter().rposition(wanted);
        position(&|&(_, peer_qpn)| peer_qpn == headers.bth.dest_qp).or_else(|| {
            let source = headers.ext.deth?.src_qp;
            position(&|&(qpn, _)| qpn == source)
        })
    }

    fn take_completion(&mut self, statement: &Statement, completion: Completion) -> Step {
        let at = self.target.now();
        let text = completion_text(&completion);
        let Some(index) = self.qps.iter().rposition(|qp| qp.id == completion.qp) else {
            let text = format!("{text}, on {}", completion.qp);
            self.tell_at(at, Side::Target, text.clone(), None);
            let problem = "a completion belongs to no QP of the scenario";
            return Err(Stop::Failed(self.mismatch(statement, problem, text, Vec::new())));
        };
        let text = self.with_name(text, index);
        self.tell_at(at, Side::Target, text, None);
        self.qps[index].completions.push_back((at, completion));
        Ok(())
    }

    /// Says whose it is, if there is more than one QP.
    pub fn with_name(&self, text: String, index: usize) -> String {
        match self.qps.len() {
            0 | 1 => text,
            _ if self.gsi == Some(index) => text,
            _ => format!("{text}, on {}", self.qps[index].name),
        }
    }

    fn script_name(&self, id: Option<&str>) -> String {
        let Some(id) = id else { return String::new() };
        let qp = self.qps.iter().find(|qp| qp.id == id);
        qp.map_or(id, |qp| qp.name.as_str()).to_owned()
    }

    /// The first thing that happened and that no sentence has asked for, in words.
    pub fn leftover(&self, frames_only: bool) -> Option<String> {
        for (index, qp) in self.qps.iter().enumerate() {
            if let Some(frame) = qp.frames.front() {
                let text = frame::describe(&frame.bytes, &qp.flow);
                return Some(self.with_name(format!("target sends {text}"), index));
            }
            if let (false, Some((_, completion))) = (frames_only, qp.completions.front()) {
                return Some(self.with_name(completion_text(completion), index));
            }
        }
        if frames_only {
            return None;
        }
        if let Some((_, report)) = self.reports.front() {
            return Some(self.report_text(report));
        }
        let (_, event) = self.events.front()?;
        Some(event_text(event, &self.script_name(event.of.as_deref())))
    }
}

/// A completion as a sentence.
pub(super) fn completion_text(completion: &Completion) -> String {
    let Completion { wr_id, status, opcode, length, imm, invalidated, source_qp, .. } = completion;
    let mut text = format!("target completes {wr_id}, status {status}");
    if status != "success" {
        // Nothing else of it means anything.
        return text;
    }
    text += &format!(", opcode {opcode}, length {length}");
    let imm = imm.map(u32::from_be_bytes);
    for (name, value) in [("imm", imm), ("invalidated", *invalidated), ("source-qp", *source_qp)] {
        if let Some(value) = value {
            text += &format!(", {name} {value:#x}");
        }
    }
    text
}

/// An event as a sentence.
pub(super) fn event_text(event: &Event, of: &str) -> String {
    match of {
        "" => format!("target raises {}", event.event),
        of => format!("target raises {}, on {of}", event.event),
    }
}
