//! The target's verbs are called.

use std::net::IpAddr;

use crate::ast::{Field, Statement, Value, Word};
use crate::target::{Call, Reply};
use crate::value::Datum;

use super::failure::{ScriptError, Step, Stop, difference};
use super::given::{self, Fields};
use super::make::{change_attributes, memory_access, refusal_text};
use super::stage::Stage;
use super::state::unsuitable;

/// A call as its sentence says it.
pub(super) struct Sentence<'a> {
    pub statement: &'a Statement,
    pub verb: &'a Word,
    /// What stands before the first comma.
    pub arguments: Vec<Datum>,
    pub fields: Fields,
}

impl Sentence<'_> {
    /// The word that stands at `index` before the first comma.
    pub fn word(&self, index: usize) -> Result<Word, ScriptError> {
        given::word(self.verb, self.argument(index)?)
    }

    /// The number that stands at `index` before the first comma.
    pub fn number<T: TryFrom<u64>>(&self, index: usize) -> Result<T, ScriptError> {
        given::narrow(self.verb, self.argument(index)?)
    }

    fn argument(&self, index: usize) -> Result<&Datum, ScriptError> {
        let missing = || {
            let verb = &self.verb.value;
            ScriptError::at(self.verb, format!("`{verb}` takes more than {index} values"))
        };
        self.arguments.get(index).ok_or_else(missing)
    }

    /// What the field `name` says, which must be there.
    pub fn needed<T>(
        &self,
        name: &str,
        value: Result<Option<T>, ScriptError>,
    ) -> Result<T, ScriptError> {
        value?.ok_or_else(|| ScriptError::at(self.verb, format!("`{name}` is missing")))
    }
}

impl Stage<'_> {
    /// Calls a verb. It must do what it is asked, or refuse if the field `refused` says so.
    pub fn verb(
        &mut self,
        statement: &Statement,
        verb: &Word,
        arguments: &[Value],
        fields: &[Field],
    ) -> Step {
        let arguments = arguments.iter().map(|value| self.scope.datum(value, verb));
        let arguments = arguments.collect::<Result<_, _>>()?;
        let fields = Fields::new(&self.scope, fields)?;
        let sentence = Sentence { statement, verb, arguments, fields };
        self.tell_sentence(statement);
        let refused = match verb.value.as_str() {
            "posts" => self.posts(&sentence)?,
            "moves" => self.moves(&sentence)?,
            "listens" | "connects" | "accepts" | "confirms" | "rejects" | "prolongs"
            | "notifies" | "disconnects" => self.cm_verb(&sentence)?,
            "destroys" if self.scope.connection(&sentence.word(0)?).is_ok() => {
                self.cm_verb(&sentence)?
            }
            "destroys" => self.destroys(&sentence)?,
            "polls" => {
                let cq = self.scope.cq(&sentence.word(0)?)?.to_owned();
                self.ask_simply(&sentence, &Call::PollCq { cq })?
            }
            "resizes" => self.resizes(&sentence)?,
            "deregisters" => {
                let name = sentence.word(0)?;
                let memory = self.scope.memory(&name)?.0.to_owned();
                self.ask_simply(&sentence, &Call::DeregMr { memory })?
            }
            "reregisters" => self.reregisters(&sentence)?,
            "arms" => {
                let name = sentence.word(0)?;
                let srq = self.scope.srq(&name)?.0.to_owned();
                self.ask_simply(&sentence, &Call::ArmSrq { srq, limit: sentence.number(1)? })?
            }
            "joins" | "leaves" => self.multicast(&sentence)?,
            "stores" => self.stores(&sentence)?,
            _ => {
                let message = format!("a target does not know how it `{}`", verb.value);
                return Err(ScriptError::at(verb, message).into());
            }
        };
        self.check_refusal(&sentence, refused)
    }

    /// Calls a verb that replies nothing. Whether it refused, as it should.
    pub fn ask_simply(&mut self, sentence: &Sentence<'_>, call: &Call) -> Step<bool> {
        Ok(self.ask(sentence.statement, call, &sentence.fields)?.is_none())
    }

    /// Whoever should have refused has.
    fn check_refusal(&mut self, sentence: &Sentence<'_>, refused: bool) -> Step {
        match sentence.fields.words("refused")? {
            Some(errnos) if !refused => {
                let mut failure = self.failure(sentence.statement, "the verb does not refuse");
                let expected = refusal_text(&errnos);
                failure.differences.push(difference("verb", expected, "done"));
                Err(Stop::Failed(failure))
            }
            _ => Ok(()),
        }
    }

    fn moves(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let index = self.scope.qp(&sentence.word(0)?)?;
        let qp = &self.qps[index];
        let mut attributes = qp.attributes.clone();
        change_attributes(&mut attributes, &sentence.fields)?;
        let state = sentence.word(1)?.value;
        let call = Call::ModifyQp { qp: qp.id.clone(), state, attributes: attributes.clone() };
        if self.ask_simply(sentence, &call)? {
            return Ok(true);
        }
        attributes.change.clear();
        self.qps[index].set_attributes(attributes);
        Ok(false)
    }

    fn reregisters(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let name = sentence.word(0)?;
        let pd = match sentence.fields.word("domain")? {
            None => None,
            Some(domain) => Some(self.scope.domain(&domain)?.to_owned()),
        };
        let access = memory_access(&sentence.fields)?;
        let call = Call::ReregMr { memory: self.scope.memory(&name)?.0.to_owned(), access, pd };
        match self.ask(sentence.statement, &call, &sentence.fields)? {
            None => Ok(true),
            Some(Reply::Memory { address, lkey, rkey }) => {
                let (_, memory) = self.scope.memory(&name)?;
                (memory.address, memory.lkey, memory.rkey) = (address, lkey, rkey);
                Ok(false)
            }
            Some(other) => Err(unsuitable(&call, &other)),
        }
    }

    fn multicast(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let Some(Datum::Text(text)) = sentence.arguments.first() else {
            let message = "a group is a text, such as \"ff0e::1\"";
            return Err(ScriptError::at(sentence.verb, message).into());
        };
        let group = match text.parse() {
            Ok(IpAddr::V4(group)) => group.to_ipv6_mapped(),
            Ok(IpAddr::V6(group)) => group,
            Err(_) => {
                let message = format!("{text:?} is no address");
                return Err(ScriptError::at(sentence.verb, message).into());
            }
        };
        let on = sentence.fields.word("on")?;
        let index = self.qp_of(on.as_ref(), sentence.verb)?;
        let qp = self.qps[index].id.clone();
        let attach = sentence.verb.value == "joins";
        self.ask_simply(sentence, &Call::Multicast { qp, group: group.octets(), attach })
    }

    fn stores(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let Some(Datum::Bytes(bytes)) = sentence.arguments.first() else {
            let message = "`stores` takes bytes, such as `64 of 1`";
            return Err(ScriptError::at(sentence.verb, message).into());
        };
        let offset: u64 = match sentence.arguments.get(1) {
            None => 0,
            Some(_) => sentence.number(1)?,
        };
        let name = sentence.needed("in", sentence.fields.word("in"))?;
        let (id, memory) = self.scope.memory(&name)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|&end| end <= memory.length);
        let Some(end) = end else {
            let message = format!("`{}` has no {} bytes at {offset}", name.value, bytes.len());
            return Err(ScriptError::at(sentence.verb, message).into());
        };
        let call = Call::WriteMemory { memory: id.to_owned(), offset, bytes: bytes.clone() };
        let content = &mut memory.content;
        if (content.len() as u64) < end {
            content.resize(end as usize, 0);
        }
        content[offset as usize..end as usize].copy_from_slice(bytes);
        self.ask_simply(sentence, &call)
    }
}
