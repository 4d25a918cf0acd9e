//! Whether request packets, taken in PSN order, make messages (IBA 9.7.2, 9.7.4.1).

use ferroce_stack::MAX_MESSAGE;
use ferroce_stack::wire::{Kind as Operation, Position, Reth};

use super::finding::Kind;

/// What of a request packet its place in a message depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub operation: Operation,
    pub position: Position,
    pub payload_len: u32,
    pub reth: Option<Reth>,
}

/// The message being sent, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// Before the capture, or after packets that are missing.
    Unknown,
    /// Between two messages.
    None,
    /// Within one.
    Open {
        operation: Operation,
        sent_len: u64,
        /// RETH.DMALen of a WRITE whose First was seen.
        dma_len: Option<u64>,
    },
}

/// Path MTUs there are, in bytes of payload (IBA 9.2.1).
pub(super) const PATH_MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// The largest of them.
pub(super) const PATH_MTU_MAX: u32 = 4096;

impl Message {
    /// Takes the next packet in PSN order; returns whether it ends a message. What is wrong with
    /// it goes to `report`.
    pub fn take(
        &mut self,
        part: &Part,
        pmtu: Option<u32>,
        mut report: impl FnMut(Kind, String),
    ) -> bool {
        self.check_order(part, &mut report);
        check_packet_len(part, pmtu, &mut report);
        let payload_len = u64::from(part.payload_len);
        let dma_len = part.reth.map(|reth| u64::from(reth.dma_len));
        match part.position {
            Position::First => {
                if dma_len.is_some_and(|dma_len| dma_len <= payload_len) {
                    report(
                        Kind::WrongLength,
                        format!(
                            "First of {payload_len} bytes, but DMALen is {} in all",
                            dma_len.unwrap_or_default(),
                        ),
                    );
                }
                let operation = part.operation;
                *self = Message::Open { operation, sent_len: payload_len, dma_len };
                false
            }
            Position::Middle | Position::Last => self.go_on(part, report),
            Position::Only => {
                let writes = part.operation == Operation::Write;
                if writes && dma_len.is_some_and(|dma_len| dma_len != payload_len) {
                    report(
                        Kind::WrongLength,
                        format!(
                            "WRITE Only of {payload_len} bytes, but DMALen is {}",
                            dma_len.unwrap_or_default(),
                        ),
                    );
                }
                *self = Message::None;
                true
            }
        }
    }

    fn check_order(&self, part: &Part, report: &mut impl FnMut(Kind, String)) {
        let begins = part.position.begins();
        let problem = match self {
            Message::None if !begins => String::from("no message is open"),
            Message::Open { operation, .. } if begins => {
                format!("the {operation:?} before has no Last")
            }
            Message::Open { operation, .. } if *operation != part.operation => {
                format!("the open message is a {operation:?}")
            }
            Message::Unknown | Message::None | Message::Open { .. } => return,
        };
        let detail = format!("{:?} {:?}, but {problem}", part.operation, part.position);
        report(Kind::OpcodeSequence, detail);
    }

    fn go_on(&mut self, part: &Part, mut report: impl FnMut(Kind, String)) -> bool {
        let last = part.position == Position::Last;
        let Message::Open { sent_len, dma_len, .. } = self else {
            *self = if last { Message::None } else { Message::Unknown };
            return last;
        };
        *sent_len += u64::from(part.payload_len);
        let (sent_len, dma_len) = (*sent_len, *dma_len);
        let fits = match dma_len {
            Some(dma_len) if last => sent_len == dma_len,
            Some(dma_len) => sent_len < dma_len,
            None => sent_len <= MAX_MESSAGE,
        };
        if !fits {
            let claim = dma_len.unwrap_or(MAX_MESSAGE);
            let detail = format!("{sent_len} bytes up to this {:?}, DMALen {claim}", part.position);
            report(Kind::WrongLength, detail);
        }
        if last {
            *self = Message::None;
        }
        last
    }
}

/// Checks the payload of one request packet against the opcode and the path MTU.
fn check_packet_len(part: &Part, pmtu: Option<u32>, report: &mut impl FnMut(Kind, String)) {
    if let Some(reth) = part.reth
        && u64::from(reth.dma_len) > MAX_MESSAGE
    {
        report(Kind::WrongLength, format!("DMALen {} is above 2^31", reth.dma_len));
    }
    if let Some(problem) = packet_len_problem(part.position, part.payload_len, pmtu) {
        report(Kind::WrongLength, problem);
    }
}

/// What is wrong with the payload length of a packet of a message of several, or of one.
pub(super) fn packet_len_problem(
    position: Position,
    payload_len: u32,
    pmtu: Option<u32>,
) -> Option<String> {
    let pmtu_max = pmtu.unwrap_or(PATH_MTU_MAX);
    match position {
        Position::First | Position::Middle => match pmtu {
            Some(pmtu) if payload_len != pmtu => {
                Some(format!("{position:?} of {payload_len} bytes, the path MTU is {pmtu}"))
            }
            None if !PATH_MTUS.contains(&payload_len) => {
                Some(format!("{position:?} of {payload_len} bytes, which is no path MTU"))
            }
            _ => None,
        },
        Position::Last if payload_len == 0 => Some(String::from("Last without payload")),
        Position::Last | Position::Only => (payload_len > pmtu_max)
            .then(|| format!("{position:?} of {payload_len} bytes, above path MTU {pmtu_max}")),
    }
}
