//! Work requests.

use crate::ast::Word;
use crate::target::{Call, Reply, SendOperation, SendRequest, Span};

use super::call::Sentence;
use super::failure::{ScriptError, Step};
use super::given::Fields;
use super::make::access;
use super::qp::Qp;
use super::stage::Stage;
use super::state::unsuitable;

/// `ibv_send_flags`, by the fields that set them.
const FLAGS: &[(&str, u32)] = &[("fence", 1), ("solicited", 4), ("inline", 8)];

/// What is set unless `unsignaled` is said.
const SIGNALED: u32 = 2;

impl Stage<'_> {
    /// Posts a work request. Whether it was refused, as it should.
    pub fn posts(&mut self, sentence: &Sentence<'_>) -> Step<bool> {
        let operation = sentence.word(0)?;
        let wr_id = sentence.number(1)?;
        if operation.value == "receive" {
            return self.posts_receive(sentence, &operation, wr_id);
        }
        let fields = &sentence.fields;
        let index = self.qp_of(fields.word("on")?.as_ref(), sentence.verb)?;
        let window = fields.word("window")?;
        let op = self.operation(sentence, &operation)?;
        let Qp { id, service, attributes, flow, .. } = &self.qps[index];
        let qp = id.clone();
        let datagram = match service.as_str() {
            "ud" => Some((
                fields.number_or("destination", flow.peer_qpn)?,
                fields.number_or("qkey", attributes.qkey)?,
            )),
            _ => None,
        };
        let srqn = match service.as_str() {
            "xrc-send" => Some(fields.number_or("srq", flow.srqn)?),
            _ => None,
        };
        let mut flags = if fields.flag("unsignaled")? { 0 } else { SIGNALED };
        for (name, flag) in FLAGS {
            flags |= if fields.flag(name)? { *flag } else { 0 };
        }
        let sges = self.spans(fields, &operation)?;
        let wr = Box::new(SendRequest { wr_id, op, sges, flags, datagram, srqn });
        let call = Call::PostSend { qp, wr };
        match (self.ask(sentence.statement, &call, fields)?, window) {
            (None, _) => Ok(true),
            (Some(Reply::Key { rkey }), Some(window)) => {
                *self.scope.window(&window)?.1 = rkey;
                Ok(false)
            }
            (Some(Reply::Done), _) => Ok(false),
            (Some(other), _) => Err(unsuitable(&call, &other)),
        }
    }

    fn posts_receive(
        &mut self,
        sentence: &Sentence<'_>,
        operation: &Word,
        wr_id: u64,
    ) -> Step<bool> {
        let fields = &sentence.fields;
        let on = fields.word("on")?;
        let to = match &on {
            Some(name) if self.scope.qp(name).is_err() => self.scope.srq(name)?.0.to_owned(),
            on => {
                let index = self.qp_of(on.as_ref(), sentence.verb)?;
                self.qps[index].id.clone()
            }
        };
        let sges = self.spans(fields, operation)?;
        let call = Call::PostRecv { to, wr_id, sges };
        Ok(self.ask(sentence.statement, &call, fields)?.is_none())
    }

    fn operation(
        &mut self,
        sentence: &Sentence<'_>,
        operation: &Word,
    ) -> Result<SendOperation, ScriptError> {
        let fields = &sentence.fields;
        let imm = fields.number::<u32>("imm")?.map(u32::to_be_bytes);
        let number = |name: &str| sentence.needed(name, fields.number::<u64>(name));
        let address = || number("to");
        let key = || sentence.needed("key", fields.number::<u32>("key"));
        Ok(match operation.value.as_str() {
            "send" => match (imm, fields.number("invalidate")?) {
                (Some(imm), _) => SendOperation::SendImm(imm),
                (None, Some(key)) => SendOperation::SendInv(key),
                (None, None) => SendOperation::Send,
            },
            "write" => {
                let (address, key) = (address()?, key()?);
                match imm {
                    Some(imm) => SendOperation::WriteImm { address, key, imm },
                    None => SendOperation::Write { address, key },
                }
            }
            "read" => SendOperation::Read { address: address()?, key: key()? },
            "compare-swap" => SendOperation::CompareSwap {
                address: address()?,
                key: key()?,
                compare: number("compare")?,
                swap: number("swap")?,
            },
            "fetch-add" => {
                SendOperation::FetchAdd { address: address()?, key: key()?, add: number("add")? }
            }
            "atomic-write" => SendOperation::AtomicWrite {
                address: address()?,
                key: key()?,
                value: number("value")?,
            },
            "flush" => SendOperation::Flush {
                address: address()?,
                key: key()?,
                length: fields.number_or("length", 0)?,
                placement: fields.number_or("placement", 1)?,
                region: fields.number_or("level", 0u8)? != 0,
            },
            "bind" => self.bind(sentence)?,
            "invalidate" => SendOperation::LocalInv(key()?),
            other => {
                let message = format!("there is no work request `{other}`");
                return Err(ScriptError::at(operation, message));
            }
        })
    }

    fn bind(&mut self, sentence: &Sentence<'_>) -> Result<SendOperation, ScriptError> {
        let fields = &sentence.fields;
        let window = sentence.needed("window", fields.word("window"))?;
        let window = self.scope.window(&window)?.0.to_owned();
        let memory = sentence.needed("memory", fields.word("memory"))?;
        let (memory, known) = self.scope.memory(&memory)?;
        let offset = fields.number_or("offset", 0)?;
        Ok(SendOperation::BindMw {
            window,
            memory: memory.to_owned(),
            offset,
            length: fields.number_or("length", known.length.saturating_sub(offset))?,
            access: sentence.needed("access", access(fields))?,
        })
    }

    /// The local memory of a work request: the part of one memory, or none.
    fn spans(&mut self, fields: &Fields, operation: &Word) -> Result<Vec<Span>, ScriptError> {
        let mut memory = None;
        for name in local_memory(&operation.value) {
            memory = memory.or(fields.word(name)?);
        }
        let Some(name) = memory else { return Ok(Vec::new()) };
        let (id, known) = self.scope.memory(&name)?;
        let offset = fields.number_or("offset", 0)?;
        let all = match operation.value.as_str() {
            "compare-swap" | "fetch-add" => 8,
            _ => known.length.saturating_sub(offset),
        };
        let length = match fields.number("length")? {
            Some(length) => length,
            None => u32::try_from(all).map_err(|_| {
                ScriptError::at(&name, format!("`{}` is too large for one message", name.value))
            })?,
        };
        let lkey = fields.number("lkey")?;
        Ok(vec![Span { memory: id.to_owned(), offset, length, lkey }])
    }
}

/// The fields that name the local memory of a work request.
fn local_memory(operation: &str) -> &'static [&'static str] {
    match operation {
        // For the ear: what is read goes into a memory.
        "read" | "compare-swap" | "fetch-add" => &["into", "from"],
        "receive" => &["to", "into"],
        _ => &["from"],
    }
}
