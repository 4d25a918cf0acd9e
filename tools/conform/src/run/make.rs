//! Objects of the target are made, and QPs brought to their state.

use crate::ast::{Field, Statement, Value, Word};
use crate::target::{Call, FIRST_DOMAIN, QpAttributes, QpMake, Reply};

use super::failure::{ScriptError, Step, Stop, difference};
use super::given::{Fields, narrow};
use super::qp::Qp;
use super::scope::{Memory, Object, ObjectKind};
use super::stage::Stage;
use super::state::unsuitable;
use super::transcript::Side;

/// QPN of the peer's first QP; each is one more than the one before.
const FIRST_PEER_QPN: u32 = 0xa001;

/// Work requests of a queue, and bytes sent inline, unless more is said.
const QUEUE: u32 = 64;
const INLINE: u32 = 64;

/// The states through which a QP is brought to each of those that `state` takes.
const STATES: &[(&str, &[&str])] = &[
    ("RESET", &[]),
    ("INIT", &["INIT"]),
    ("RTR", &["INIT", "RTR"]),
    ("RTS", &["INIT", "RTR", "RTS"]),
    ("SQD", &["INIT", "RTR", "RTS", "SQD"]),
    ("ERR", &["INIT", "RTR", "RTS", "ERR"]),
];

/// Local write, as in `ibv_access_flags`.
const LOCAL_WRITE: u32 = 1;

/// Words for `ibv_access_flags`.
pub(crate) const ACCESS: &[(&str, u32)] = &[
    ("none", 0),
    ("read-only", 0),
    ("local-write", LOCAL_WRITE),
    ("write", 1 << 1),
    ("read", 1 << 2),
    ("atomic", 1 << 3),
    ("bind", 1 << 4),
    ("zero-based", 1 << 5),
    ("on-demand", 1 << 6),
    ("flush-global", 1 << 8),
    ("flush-persistent", 1 << 9),
    ("relaxed-ordering", 1 << 20),
];

/// `read write atomic`.
const REMOTE_ACCESS: u32 = (1 << 1) | (1 << 2) | (1 << 3);

impl Stage<'_> {
    pub fn make(
        &mut self,
        statement: &Statement,
        what: &Word,
        name: &Word,
        of: Option<&Value>,
        fields: &[Field],
    ) -> Step {
        let of = of.map(|value| self.scope.datum(value, name)).transpose()?;
        let fields = Fields::new(&self.scope, fields)?;
        let size = || {
            let missing = || ScriptError::at(name, format!("how large is `{}`?", name.value));
            of.as_ref().ok_or_else(missing)
        };
        self.tell_sentence(statement);
        match what.value.as_str() {
            "memory" => self.make_memory(statement, name, narrow(name, size()?)?, &fields),
            "qp" => {
                let service = super::given::word(name, size()?)?;
                self.make_qp(statement, name, &service.value, &fields)
            }
            "cq" => self.make_cq(statement, name, narrow(name, size()?)?, &fields),
            "srq" => self.make_srq(statement, name, narrow(name, size()?)?, &fields),
            "window" => self.make_window(statement, name, narrow(name, size()?)?, &fields),
            "domain" => {
                let pd = self.scope.fresh(&name.value);
                let made = self.ask(statement, &Call::AllocPd { pd: pd.clone() }, &fields)?;
                if made.is_some() {
                    self.scope.insert(&name.value, Object { id: pd, kind: ObjectKind::Domain });
                }
                Ok(())
            }
            "xrc-domain" => {
                let xrcd = self.scope.fresh(&name.value);
                let made = self.ask(statement, &Call::OpenXrcd { xrcd: xrcd.clone() }, &fields)?;
                if made.is_some() {
                    self.scope
                        .insert(&name.value, Object { id: xrcd, kind: ObjectKind::XrcDomain });
                }
                Ok(())
            }
            _ => Err(ScriptError::at(what, format!("no `{}` can be made", what.value)).into()),
        }
    }

    fn make_memory(
        &mut self,
        statement: &Statement,
        name: &Word,
        length: u64,
        fields: &Fields,
    ) -> Step {
        let id = self.scope.fresh(&name.value);
        let holds = fields.bytes("holds")?.unwrap_or_default().to_vec();
        let call = Call::RegMr {
            memory: id.clone(),
            pd: self.domain(fields)?,
            length,
            iova: fields.number("at")?,
            access: memory_access(fields)?.unwrap_or(REMOTE_ACCESS | LOCAL_WRITE),
            holds: holds.clone(),
        };
        match self.ask(statement, &call, fields)? {
            None => Ok(()),
            Some(Reply::Memory { address, lkey, rkey }) => {
                let memory = Memory { address, lkey, rkey, length, content: holds };
                let object = Object { id, kind: ObjectKind::Memory(memory) };
                self.scope.insert(&name.value, object);
                Ok(())
            }
            Some(other) => Err(unsuitable(&call, &other)),
        }
    }

    fn make_window(
        &mut self,
        statement: &Statement,
        name: &Word,
        mw_type: u8,
        fields: &Fields,
    ) -> Step {
        let window = self.scope.fresh(&name.value);
        let call = Call::AllocMw { window: window.clone(), pd: self.domain(fields)?, mw_type };
        match self.ask(statement, &call, fields)? {
            None => Ok(()),
            Some(Reply::Key { rkey }) => {
                let object = Object { id: window, kind: ObjectKind::Window { rkey } };
                self.scope.insert(&name.value, object);
                Ok(())
            }
            Some(other) => Err(unsuitable(&call, &other)),
        }
    }

    fn make_qp(
        &mut self,
        statement: &Statement,
        name: &Word,
        service: &str,
        fields: &Fields,
    ) -> Step {
        let id = self.scope.fresh(&name.value);
        let cq = self.cq_of("cq", fields)?;
        let (send_cq, recv_cq) =
            (self.cq_of("send-cq", fields)?, self.cq_of("receive-cq", fields)?);
        let xrcd = self.xrc_domain(fields)?;
        let srq = match fields.word("srq")? {
            None => None,
            Some(srq) => Some(self.scope.srq(&srq)?),
        };
        let srqn = srq.and_then(|(_, number)| number);
        let peer_qpn = FIRST_PEER_QPN + self.qps.len() as u32;
        let mut attributes = first_attributes(peer_qpn, self.options.timeout);
        change_attributes(&mut attributes, fields)?;
        let state = fields.word("state")?.map_or_else(|| "RTS".to_owned(), |state| state.value);
        let call = Call::CreateQp(Box::new(QpMake {
            qp: id.clone(),
            service: service.to_owned(),
            pd: self.domain(fields)?,
            // A receiving QP of XRC has none of its own: each packet names one.
            srq: srq.filter(|(_, number)| number.is_none()).map(|(id, _)| id.to_owned()),
            send_cq: send_cq.or_else(|| cq.clone()),
            recv_cq: recv_cq.or(cq),
            xrcd: (service == "xrc-receive").then_some(xrcd),
            max_send_wr: fields.number_or("send-queue", QUEUE)?,
            max_recv_wr: fields.number_or("receive-queue", QUEUE)?,
            max_inline: fields.number_or("inline", INLINE)?,
            signal_all: fields.flag("signal-all")?,
            state: state.clone(),
            attributes: attributes.clone(),
        }));
        let qpn = match self.ask(statement, &call, fields)? {
            None => return Ok(()),
            Some(Reply::Qp { qpn }) => qpn,
            Some(Reply::Met { qpn, psn }) => {
                attributes.rq_psn = psn;
                qpn
            }
            Some(other) => return Err(unsuitable(&call, &other)),
        };
        attributes.change.clear();
        let index = self.qps.len();
        let names = (id.as_str(), name.value.as_str());
        let numbers = (qpn, srqn.unwrap_or_default());
        let description = self.target.description();
        self.qps.push(Qp::new(description, names, service, numbers, attributes));
        self.scope.qpns.push((qpn, peer_qpn));
        self.scope.insert(&name.value, Object { id, kind: ObjectKind::Qp(index) });
        self.bring_to_state(statement, index, &state, fields)
    }

    fn bring_to_state(
        &mut self,
        statement: &Statement,
        index: usize,
        wanted: &str,
        fields: &Fields,
    ) -> Step {
        let path = STATES.iter().find(|(state, _)| *state == wanted).map(|&(_, path)| path);
        let Some(path) = path else {
            let message = format!("a QP cannot be made in the state `{wanted}`");
            return Err(ScriptError::of(statement, message).into());
        };
        for (at, state) in path.iter().enumerate() {
            let Qp { id, attributes, .. } = &self.qps[index];
            let call = Call::ModifyQp {
                qp: id.clone(),
                state: (*state).to_owned(),
                attributes: attributes.clone(),
            };
            // A refusal that is asked for is that of the last of the calls.
            match at + 1 == path.len() {
                true => drop(self.ask(statement, &call, fields)?),
                false => self.demand(statement, &call)?,
            }
        }
        Ok(())
    }

    pub fn domain(&self, fields: &Fields) -> Result<String, ScriptError> {
        match fields.word("domain")? {
            None => Ok(FIRST_DOMAIN.to_owned()),
            Some(name) => self.scope.domain(&name).map(str::to_owned),
        }
    }

    /// Calls a verb that must do what it says, or refuse if the field `refused` says so. Nothing if
    /// it was right to refuse.
    pub fn ask(
        &mut self,
        statement: &Statement,
        call: &Call,
        fields: &Fields,
    ) -> Step<Option<Reply>> {
        self.mark = self.target.now();
        let expected = fields.words("refused")?.unwrap_or_default();
        let reply = self.target.call(call)?;
        let errno = match reply {
            Reply::Refused { errno } => errno,
            Reply::Unable { why } => return Err(Stop::Skipped(why)),
            reply => return Ok(Some(reply)),
        };
        if expected.iter().any(|expected| expected.value == errno) {
            self.tell(Side::Target, format!("refused {errno}"));
            return Ok(None);
        }
        let mut failure = self.failure(statement, "the verb refuses");
        let got = format!("refused {errno}");
        failure.differences.push(difference("verb", refusal_text(&expected), got));
        Err(Stop::Failed(failure))
    }

    /// Calls a verb that must not refuse.
    fn demand(&mut self, statement: &Statement, call: &Call) -> Step {
        self.ask(statement, call, &Fields(Vec::new())).map(drop)
    }

    /// A sentence of the script is carried out at the target.
    pub fn tell_sentence(&mut self, statement: &Statement) {
        let words: Vec<&str> = statement.text.split_whitespace().collect();
        let mut text = words.join(" ");
        if !self.loops.is_empty() {
            let variables: Vec<String> =
                self.loops.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            text += &format!("   # {}", variables.join(", "));
        }
        self.tell(Side::Target, text);
    }
}

/// What the field `refused` wants, as its words say it.
pub(super) fn refusal_text(errnos: &[Word]) -> String {
    let words: Vec<&str> = errnos.iter().map(|errno| errno.value.as_str()).collect();
    match words.is_empty() {
        true => "done".to_owned(),
        false => format!("refused {}", words.join(" ")),
    }
}

/// A QP of which nothing is said.
pub(super) fn plain_qp(timeout: u8) -> QpMake {
    QpMake {
        qp: "qp".to_owned(),
        service: "rc".to_owned(),
        pd: FIRST_DOMAIN.to_owned(),
        srq: None,
        send_cq: None,
        recv_cq: None,
        xrcd: None,
        max_send_wr: QUEUE,
        max_recv_wr: QUEUE,
        max_inline: INLINE,
        signal_all: false,
        state: "RTS".to_owned(),
        attributes: first_attributes(FIRST_PEER_QPN, timeout),
    }
}

pub(super) fn first_attributes(peer_qpn: u32, timeout: u8) -> QpAttributes {
    QpAttributes {
        path_mtu: 1024,
        dest_qp_num: peer_qpn,
        rq_psn: 0x100,
        sq_psn: 0x800,
        access: REMOTE_ACCESS,
        qkey: 0x1111_1111,
        timeout,
        retry_cnt: 3,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        sl: 0,
        change: Vec::new(),
    }
}

/// Takes over the attributes that are said, and notes their names.
pub(super) fn change_attributes(
    attributes: &mut QpAttributes,
    fields: &Fields,
) -> Result<(), ScriptError> {
    let a = attributes;
    let mut change = Vec::new();
    macro_rules! take {
        ($($field:literal => $attribute:ident,)*) => {
            $(if let Some(value) = fields.number($field)? {
                a.$attribute = value;
                change.push(stringify!($attribute).to_owned());
            })*
        };
    }
    take! {
        "mtu" => path_mtu,
        "send-psn" => sq_psn,
        "receive-psn" => rq_psn,
        "timeout" => timeout,
        "retries" => retry_cnt,
        "rnr-retries" => rnr_retry,
        "rnr-timer" => min_rnr_timer,
        "initiator-depth" => max_rd_atomic,
        "responder-depth" => max_dest_rd_atomic,
        "traffic-class" => traffic_class,
        "flow-label" => flow_label,
        "hop-limit" => hop_limit,
        "sl" => sl,
        "qkey" => qkey,
    }
    if let Some(access) = access(fields)? {
        a.access = access;
        change.push("access".to_owned());
    }
    a.change = change;
    Ok(())
}

/// The access that is said for a memory: local write unless it is read only.
pub(super) fn memory_access(fields: &Fields) -> Result<Option<u32>, ScriptError> {
    let words = fields.words("access")?.unwrap_or_default();
    let read_only = fields.flag("read-only")? || words.iter().any(|word| word.value == "read-only");
    let access = access(fields)?;
    Ok(match read_only {
        true => Some(access.unwrap_or(REMOTE_ACCESS)),
        false => access.map(|access| access | LOCAL_WRITE),
    })
}

/// The access that is said.
pub(super) fn access(fields: &Fields) -> Result<Option<u32>, ScriptError> {
    let Some(words) = fields.words("access")? else { return Ok(None) };
    let flag = |word: &Word| {
        let known = ACCESS.iter().find(|(name, _)| *name == word.value);
        known.map(|&(_, flag)| flag).ok_or_else(|| {
            let hint = crate::hint::hint(&word.value, ACCESS.iter().map(|&(name, _)| name));
            ScriptError::at(word, format!("there is no access `{}`{hint}", word.value))
        })
    };
    words.iter().try_fold(0, |flags, word| Ok(flags | flag(word)?)).map(Some)
}
