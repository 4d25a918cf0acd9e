//! The peer sends.

use crate::ast::{Field, Word};
use crate::frame::{self, FieldError};
use crate::value::Datum;

use super::failure::{ScriptError, Step};
use super::fields::OF_PEER;
use super::given::Fields;
use super::stage::Stage;
use super::transcript::Side;

impl Stage<'_> {
    pub fn peer_sends(&mut self, frame: &Word, fields: &[Field]) -> Step {
        let fields = Fields::new(&self.scope, fields)?;
        let frame = &Word { value: self.scope.word(frame)?, ..frame.clone() };
        let index = self.qp_for(frame, fields.word("on")?.as_ref())?;
        let of_frame = self.expand_qp(true, fields.without(OF_PEER))?;
        let flow = &self.qps[index].flow;
        let bytes = frame::build(frame, &of_frame, flow).map_err(|error| {
            let message = error.message.clone();
            match of_frame.iter().find(|given| is_at(&error, &given.name)).map(|at| &at.datum) {
                Some(Datum::Word(word)) => FieldError {
                    message: format!("{message}, and `{word}` is no variable"),
                    ..error
                },
                _ => error,
            }
        })?;
        if let Some(label) = fields.word("as")? {
            self.labels.insert(label.value, (index, bytes.clone()));
        }
        let text = format!("peer sends {}", frame::describe(&bytes, &self.qps[index].flow));
        self.inject(index, text, bytes)
    }

    pub fn peer_resends(&mut self, label: &Word) -> Step {
        let Some((index, bytes)) = self.labels.get(&label.value).cloned() else {
            let hint = crate::hint::hint(&label.value, self.labels.keys().map(String::as_str));
            let message = format!("no frame was sent `as {}`{hint}", label.value);
            return Err(ScriptError::at(label, message).into());
        };
        let frame = frame::describe(&bytes, &self.qps[index].flow);
        self.inject(index, format!("peer resends {}: {frame}", label.value), bytes)
    }

    fn inject(&mut self, index: usize, text: String, bytes: Vec<u8>) -> Step {
        self.mark = self.target.now();
        let text = self.with_name(text, index);
        self.tell_at(self.mark, Side::Peer, text, Some(bytes.clone()));
        self.qps[index].flow.note(&bytes);
        self.target.inject(&bytes)?;
        Ok(())
    }
}

fn is_at(error: &FieldError, name: &Word) -> bool {
    (error.line, error.column) == (name.line, name.column)
}
