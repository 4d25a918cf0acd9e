//! Connections of the target: its verbs, and what it must report of them.

use std::time::Duration;

use crate::ast::{Statement, Word};
use crate::cm::{Accept, CmCall, Connect, Report};
use crate::frame::{self, unlike_bytes};
use crate::target::Call;
use crate::value::{Datum, Given};

use super::call::Sentence;
use super::expect::{Attempt, Expectation, Want};
use super::failure::{ScriptError, Step, difference};
use super::fields::OF_EXPECTATION;
use super::given::{Fields, compare, number_text};
use super::make::first_attributes;
use super::qp::Qp;
use super::scope::{Object, ObjectKind};
use super::stage::Stage;

/// The word for `needs` of scenarios about connections.
pub(crate) const NEED: &str = "cm";

/// QPNs of the target's connections for which nothing else is said follow this one.
const QPNS: u32 = 0x20_0000;

/// Words for [`Report::numbers`]'s `service`, as in REQ.
const SERVICES: [(&str, u64); 3] = [("rc", 0), ("uc", 1), ("xrc", 3)];

impl Stage<'_> {
    /// Management datagrams can come and go from here on.
    pub fn start_cm(&mut self, statement: &Statement) -> Step {
        let none = Fields(Vec::new());
        self.ask(statement, &Call::Cm(CmCall::Start), &none)?;
        let description = self.target.description();
        let (target, peer) = (description.address, description.peer);
        let guid = description.peer_guid;
        let names = ("qp1", "qp1");
        let attributes = first_attributes(frame::cm::GSI, self.options.timeout);
        let mut qp = Qp::new(description, names, "ud", (frame::cm::GSI, 0), attributes);
        qp.flow = frame::cm::flow(target, peer, guid);
        self.gsi = Some(self.qps.len());
        self.qps.push(qp);
        self.scope.qpns.push((frame::cm::GSI, frame::cm::GSI));
        Ok(())
    }

    /// The QP a frame of this name belongs to.
    pub fn qp_for(&self, frame: &Word, on: Option<&Word>) -> Result<usize, ScriptError> {
        match self.gsi {
            Some(gsi) if frame::cm::is_datagram(frame) => Ok(gsi),
            _ => self.qp_of(on, frame),
        }
    }

    /// Puts what `qp NAME` stands for into a REQ or REP: QPN and first PSN of the sender's QP.
    pub fn expand_qp(&self, of_peer: bool, fields: Vec<Given>) -> Result<Vec<Given>, ScriptError> {
        let Some(at) = fields.iter().position(|given| given.name.value == "qp") else {
            return Ok(fields);
        };
        let mut fields = fields;
        let given = fields.remove(at);
        let flow = &self.qps[self.scope.qp(&super::given::word(&given.name, &given.datum)?)?].flow;
        let (qpn, psn) = match of_peer {
            true => (flow.peer_qpn, flow.send_psn),
            false => (flow.target_qpn, flow.receive_psn),
        };
        for (name, value) in [("local-qpn", qpn), ("starting-psn", psn)] {
            if fields.iter().all(|other| other.name.value != name) {
                let name = Word { value: name.to_owned(), ..given.name.clone() };
                fields.push(Given { name, datum: Datum::Number(value.into()) });
            }
        }
        Ok(fields)
    }

    /// Calls a verb of connection management. Whether it refused, as it should.
    pub fn cm_verb(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let fields = &sentence.fields;
        let private_data = fields.bytes("private-data")?.unwrap_or_default().to_vec();
        let connection = |stage: &Stage<'_>| -> Result<String, ScriptError> {
            stage.scope.connection(&sentence.word(0)?).map(str::to_owned)
        };
        let call = match sentence.verb.value.as_str() {
            "listens" => CmCall::Listen {
                port: sentence.number(0)?,
                datagrams: fields.flag("datagrams")?,
                backlog: fields.number_or("backlog", 8)?,
            },
            "connects" => return self.connects(sentence, private_data),
            "accepts" => self.accept(sentence, connection(self)?, private_data)?,
            "confirms" => CmCall::Confirm { connection: connection(self)?, private_data },
            "rejects" => CmCall::Reject {
                connection: connection(self)?,
                reason: fields.number_or("reason", 28)?,
                information: fields.bytes("information")?.unwrap_or_default().to_vec(),
                private_data,
            },
            "prolongs" => CmCall::Prolong { connection: connection(self)? },
            "notifies" => CmCall::Notify { connection: connection(self)? },
            "disconnects" => CmCall::Disconnect { connection: connection(self)?, private_data },
            _ => CmCall::Destroy { connection: connection(self)? },
        };
        self.ask_simply(sentence, &Call::Cm(call))
    }

    /// QPN and first PSN of what a connection binds: those of `qp`, or what is said. Without
    /// either the first PSN is the target's to choose.
    fn bound(&self, fields: &Fields) -> Result<(u32, Option<u32>), ScriptError> {
        let (mut qpn, mut psn) = (QPNS + self.connections, None);
        if let Some(name) = fields.word("qp")? {
            let flow = &self.qps[self.scope.qp(&name)?].flow;
            (qpn, psn) = (flow.target_qpn, Some(flow.receive_psn));
        }
        Ok((fields.number_or("qpn", qpn)?, fields.number("psn")?.or(psn)))
    }

    fn connects(&mut self, sentence: &Sentence<'_>, private_data: Vec<u8>) -> Step<bool> {
        self.connections += 1;
        let fields = &sentence.fields;
        let (qpn, psn) = self.bound(fields)?;
        let name = sentence.needed("as", fields.word("as"))?;
        let service = fields.word("service")?;
        let connection = self.scope.fresh(&name.value);
        let call = CmCall::Connect(Connect {
            connection: connection.clone(),
            port: sentence.number(0)?,
            datagrams: fields.flag("datagrams")?,
            service: service.map_or_else(|| "rc".to_owned(), |service| service.value),
            qpn,
            psn,
            responder_resources: fields.number_or("responder-resources", 16)?,
            initiator_depth: fields.number_or("initiator-depth", 16)?,
            retry_count: fields.number_or("retry-count", 7)?,
            rnr_retry_count: fields.number_or("rnr-retry-count", 7)?,
            ack_timeout: fields.number("ack-timeout")?,
            traffic_class: fields.number_or("traffic-class", 0)?,
            private_data,
        });
        let refused = self.ask_simply(sentence, &Call::Cm(call))?;
        if !refused {
            let object = Object { id: connection, kind: ObjectKind::Connection };
            self.scope.insert(&name.value, object);
        }
        Ok(refused)
    }

    fn accept(
        &mut self,
        sentence: &Sentence<'_>,
        connection: String,
        private_data: Vec<u8>,
    ) -> Step<CmCall> {
        self.connections += 1;
        let fields = &sentence.fields;
        let (qpn, psn) = self.bound(fields)?;
        Ok(CmCall::Accept(Accept {
            connection,
            qpn,
            psn,
            qkey: fields.number("qkey")?,
            responder_resources: fields.number_or("responder-resources", 16)?,
            initiator_depth: fields.number_or("initiator-depth", 16)?,
            rnr_retry_count: fields.number_or("rnr-retry-count", 7)?,
            private_data,
        }))
    }

    /// What a sentence expects to be reported.
    pub fn want_report(&self, event: &Word, fields: &Fields) -> Result<Want, ScriptError> {
        let of = match fields.word("on")? {
            None => None,
            Some(name) => Some(self.scope.connection(&name)?.to_owned()),
        };
        let event = event.value.clone();
        let of_report = Fields(fields.without(&[OF_EXPECTATION, &["as"]].concat()));
        Ok(Want::Report { event, of, name: fields.word("as")?, fields: of_report })
    }

    /// Meets an expectation of a report: the next of its connection, or the next of all.
    pub fn attempt_report(&mut self, expectation: &Expectation<'_>) -> Step<Attempt> {
        let Want::Report { event, of, name, fields } = &expectation.want else {
            return Ok(Attempt::Waiting);
        };
        let is_of = |report: &Report| of.as_ref().is_none_or(|of| *of == report.connection);
        let Some(at) = self.reports.iter().position(|(_, report)| is_of(report)) else {
            return Ok(Attempt::Waiting);
        };
        let (time, report) = &self.reports[at];
        let (mut differences, mut bindings) = (Vec::new(), Vec::new());
        if report.event != *event {
            differences.push(difference("event", event, &report.event));
        } else {
            for given in &fields.0 {
                compare_field(report, given, &mut differences, &mut bindings)?;
            }
        }
        if !differences.is_empty() {
            let got = self.report_text(report);
            let problem = "the next report is not as it must be";
            let failure = self.mismatch(expectation.statement, problem, got, differences);
            return Ok(Attempt::Mismatch(failure));
        }
        let time = *time;
        if let Some(failure) = self.untimely(expectation, time) {
            return Ok(Attempt::Mismatch(failure));
        }
        let report = self.reports.remove(at).map(|(_, report)| report);
        if let (Some(name), Some(report)) = (name, report) {
            let object = Object { id: report.connection, kind: ObjectKind::Connection };
            self.scope.insert(&name.value, object);
        }
        Ok(self.met(time, bindings))
    }

    /// Takes in a report.
    pub fn take_report(&mut self, at: Duration, report: Report) {
        let text = self.report_text(&report);
        self.tell_at(at, super::Side::Target, text, None);
        self.reports.push_back((at, report));
    }

    /// A report as a sentence.
    pub fn report_text(&self, report: &Report) -> String {
        let mut text = format!("target reports {}", report.event);
        match self.scope.name_of(&report.connection) {
            Some(name) => text += &format!(", on {name}"),
            None => text += &format!(", as {}", report.connection),
        }
        for (name, value) in &report.numbers {
            text += &format!(", {name} {}", number_text(*value));
        }
        for (name, bytes) in
            [("information", &report.information), ("private-data", &report.private_data)]
        {
            let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            if len > 0 {
                let hex: Vec<String> = bytes[..len].iter().map(|b| format!("{b:02x}")).collect();
                text += &format!(", {name} hex \"{}\"", hex.join(" "));
            }
        }
        text
    }
}

/// Compares what a report says with a field.
fn compare_field(
    report: &Report,
    given: &Given,
    differences: &mut Vec<frame::Difference>,
    bindings: &mut Vec<(String, u64)>,
) -> Result<(), ScriptError> {
    let name = given.name.value.as_str();
    let is_untold = |name: &str| report.untold.iter().any(|untold| untold == name);
    if is_untold(name) || name == "private-data-length" && is_untold("private-data") {
        return Ok(());
    }
    match (name, &given.datum) {
        ("private-data", Datum::Bytes(wanted)) => {
            let mut wanted = wanted.clone();
            wanted.resize(wanted.len().max(report.private_data.len()), 0);
            if wanted != report.private_data {
                differences.push(unlike_bytes(name, &wanted, &report.private_data));
            }
            Ok(())
        }
        ("information", Datum::Bytes(wanted)) => {
            if *wanted != report.information {
                differences.push(unlike_bytes(name, wanted, &report.information));
            }
            Ok(())
        }
        ("private-data-length", _) => {
            let length = report.private_data.len() as u64;
            compare(given, Some(length), differences, bindings)
        }
        _ => {
            let number = report.numbers.iter().find(|(own, _)| own == name);
            let code = match &given.datum {
                Datum::Word(word) if name == "service" => {
                    SERVICES.iter().find(|(own, _)| own == word).map(|&(_, code)| code)
                }
                _ => None,
            };
            let given = match code {
                None => given.clone(),
                Some(code) => Given { datum: Datum::Number(code), ..given.clone() },
            };
            compare(&given, number.map(|&(_, number)| number), differences, bindings)
        }
    }
}
