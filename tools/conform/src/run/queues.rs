//! Completion queues and shared receive queues; and what queries tell.

use crate::ast::{Field, Statement, Word};
use crate::frame::Difference;
use crate::target::{Call, FIRST_XRC_DOMAIN, QpAttributes, Reply};

use super::call::Sentence;
use super::failure::{Failure, ScriptError, Step, difference};
use super::given::{Fields, compare};
use super::make::access;
use super::scope::{Object, ObjectKind};
use super::stage::Stage;
use super::state::{Look, unsuitable};

impl Stage<'_> {
    pub fn make_cq(
        &mut self,
        statement: &Statement,
        name: &Word,
        cqe: u32,
        fields: &Fields,
    ) -> Step {
        let cq = self.scope.fresh(&name.value);
        let unpolled = fields.flag("unpolled")?;
        let call = Call::CreateCq { cq: cq.clone(), cqe, unpolled };
        match self.ask(statement, &call, fields)? {
            None => Ok(()),
            Some(Reply::Size { size }) => {
                self.scope.insert(&name.value, Object { id: cq, kind: ObjectKind::Cq { size } });
                Ok(())
            }
            Some(other) => Err(unsuitable(&call, &other)),
        }
    }

    pub fn make_srq(
        &mut self,
        statement: &Statement,
        name: &Word,
        max_wr: u32,
        fields: &Fields,
    ) -> Step {
        let srq = self.scope.fresh(&name.value);
        let is_xrc = fields.flag("xrc")?;
        if let Some(strange) = fields.get("xrc-domain").or(fields.get("cq")).filter(|_| !is_xrc) {
            let message = format!("`{}` is of an SRQ that is `xrc`", strange.name.value);
            return Err(ScriptError::at(&strange.name, message).into());
        }
        let xrcd = self.xrc_domain(fields)?;
        let call = Call::CreateSrq {
            srq: srq.clone(),
            pd: self.domain(fields)?,
            max_wr,
            xrcd: is_xrc.then_some(xrcd),
            cq: self.cq_of("cq", fields)?,
        };
        let (number, size) = match self.ask(statement, &call, fields)? {
            None => return Ok(()),
            Some(Reply::Srq { srqn, size }) if srqn.is_some() == is_xrc => (srqn, size),
            Some(other) => return Err(unsuitable(&call, &other)),
        };
        let object = Object { id: srq.clone(), kind: ObjectKind::Srq { number, size } };
        self.scope.insert(&name.value, object);
        if let Some(limit) = fields.number("limit")? {
            self.ask(statement, &Call::ArmSrq { srq, limit }, fields)?;
        }
        Ok(())
    }

    /// The name at the target of the CQ that a field names.
    pub fn cq_of(&self, field: &str, fields: &Fields) -> Result<Option<String>, ScriptError> {
        let name = fields.word(field)?;
        name.map(|name| self.scope.cq(&name).map(str::to_owned)).transpose()
    }

    /// The name at the target of the XRC domain of an object.
    pub fn xrc_domain(&self, fields: &Fields) -> Result<String, ScriptError> {
        match fields.word("xrc-domain")? {
            None => Ok(FIRST_XRC_DOMAIN.to_owned()),
            Some(name) => self.scope.xrc_domain(&name).map(str::to_owned),
        }
    }

    /// Destroys a QP or a queue. Whether that was refused, as it should.
    pub fn destroys(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let name = sentence.word(0)?;
        let Object { id, kind } = self.scope.object(&name)?.clone();
        let call = match kind {
            ObjectKind::Cq { .. } => Call::DestroyCq { cq: id },
            ObjectKind::Srq { .. } => Call::DestroySrq { srq: id },
            _ => Call::DestroyQp { qp: self.qps[self.scope.qp(&name)?].id.clone() },
        };
        self.ask_simply(sentence, &call)
    }

    /// Changes what a queue holds. Whether that was refused, as it should.
    pub fn resizes(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let (name, size) = (sentence.word(0)?, sentence.number(1)?);
        let call = match self.scope.object(&name)?.clone() {
            Object { id, kind: ObjectKind::Srq { .. } } => {
                Call::ResizeSrq { srq: id, max_wr: size }
            }
            _ => Call::ResizeCq { cq: self.scope.cq(&name)?.to_owned(), cqe: size },
        };
        match self.ask(sentence.statement, &call, &sentence.fields)? {
            None => Ok(true),
            Some(Reply::Size { size }) => {
                self.scope.resized(&name, size);
                Ok(false)
            }
            Some(other) => Err(unsuitable(&call, &other)),
        }
    }

    /// Looks whether a query tells what it must.
    pub fn look_at_query(
        &mut self,
        statement: &Statement,
        what: &Word,
        name: &Word,
        fields: &[Field],
    ) -> Step<Look> {
        let fields = Fields::new(&self.scope, fields)?;
        let call = match what.value.as_str() {
            "qp" => {
                let qp = self.qps[self.scope.qp(name)?].id.clone();
                Call::QueryAttributes { qp }
            }
            _ => Call::QuerySrq { srq: self.scope.srq(name)?.0.to_owned() },
        };
        let (mut differences, mut bindings) = (Vec::new(), Vec::new());
        match self.target.call(&call)? {
            Reply::Attributes { attributes } => {
                let told = numbers_of(&attributes);
                compare_all(&fields, &told, &mut differences, &mut bindings)?;
                if let Some(wanted) = access(&fields)?.filter(|&wanted| wanted != attributes.access)
                {
                    let text = |access: u32| format!("{access:#x}");
                    differences.push(difference("access", text(wanted), text(attributes.access)));
                }
            }
            Reply::SrqAttributes { size, limit } => {
                let told = [("size", size.into()), ("limit", limit.into())];
                compare_all(&fields, &told, &mut differences, &mut bindings)?;
            }
            Reply::Refused { errno } => {
                differences.push(difference("verb", "done", format!("refused {errno}")));
            }
            other => return Err(unsuitable(&call, &other)),
        }
        if differences.is_empty() {
            self.met(self.target.now(), bindings);
            return Ok(Look::Right);
        }
        let failure = self.failure(statement, "the query tells something else");
        Ok(Look::NotYet(Box::new(Failure { differences, ..*failure })))
    }
}

/// Compares the fields that are numbers.
fn compare_all(
    fields: &Fields,
    told: &[(&str, u64)],
    differences: &mut Vec<Difference>,
    bindings: &mut Vec<(String, u64)>,
) -> Result<(), ScriptError> {
    for &(name, got) in told {
        if let Some(given) = fields.get(name) {
            compare(given, Some(got), differences, bindings)?;
        }
    }
    Ok(())
}

/// What a query has told, by the fields of `qp`.
fn numbers_of(attributes: &QpAttributes) -> [(&'static str, u64); 14] {
    let a = attributes;
    [
        ("mtu", a.path_mtu.into()),
        ("send-psn", a.sq_psn.into()),
        ("receive-psn", a.rq_psn.into()),
        ("timeout", a.timeout.into()),
        ("retries", a.retry_cnt.into()),
        ("rnr-retries", a.rnr_retry.into()),
        ("rnr-timer", a.min_rnr_timer.into()),
        ("initiator-depth", a.max_rd_atomic.into()),
        ("responder-depth", a.max_dest_rd_atomic.into()),
        ("traffic-class", a.traffic_class.into()),
        ("flow-label", a.flow_label.into()),
        ("hop-limit", a.hop_limit.into()),
        ("sl", a.sl.into()),
        ("qkey", a.qkey.into()),
    ]
}
