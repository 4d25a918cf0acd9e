//! What following a connection can bring to light.

use serde::Serialize;

/// Something worth telling about a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The frame it is about, counted from 1.
    pub frame: u64,
    /// The flow it belongs to: an index into the report's flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<usize>,
    /// What it is.
    pub kind: Kind,
    /// Whether the protocol was broken; if not, a network that loses, repeats and reorders
    /// packets (or a capture that misses some) explains it.
    pub violation: bool,
    /// In words, with the numbers at hand.
    pub detail: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $weight:ident;)*) => {
        /// Kinds of findings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub enum Kind {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Kind {
            /// Every kind, events before violations.
            pub const ALL: &'static [Kind] = &[$(Kind::$variant,)*];

            /// The name it has in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$variant => $name,)*
                }
            }

            const fn weight(self) -> Weight {
                match self {
                    $(Kind::$variant => Weight::$weight,)*
                }
            }
        }
    };
}

impl Kind {
    /// Whether it breaks the protocol, in a capture that holds every frame if `complete`.
    pub fn is_violation(self, complete: bool) -> bool {
        match self.weight() {
            Weight::Event => false,
            Weight::Missing => complete,
            Weight::Doubtful | Weight::Violation => true,
        }
    }

    /// Whether a frame that the capture missed may explain it.
    pub(super) fn is_doubtful(self) -> bool {
        self.weight() == Weight::Doubtful
    }
}

/// How bad a kind of finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// Legal on a network that loses, repeats or reorders.
    Event,
    /// Legal if the capture missed a frame; a violation if it holds them all.
    Missing,
    /// Breaks the protocol, unless the capture has missed the frame that explains it.
    Doubtful,
    /// Breaks the protocol.
    Violation,
}

kinds! {
    /// PSNs were skipped: lost before the capture point, or missed by it.
    Gap = "gap", Event;
    /// A request sent again, unchanged.
    Retransmission = "retransmission", Event;
    /// The rest of a READ asked for again.
    ReadResume = "read_resume", Event;
    /// Requests sent again though nothing the responder said asked for it.
    Timeout = "timeout", Event;
    /// A request behind later ones, never seen before: reordered, or resent after a loss.
    Late = "late", Event;
    /// The same frame twice, repeated by the network.
    DuplicateFrame = "duplicate_frame", Event;
    /// NAK for a gap in the PSNs.
    SequenceNak = "sequence_nak", Event;
    /// NAK for lack of a receive work request.
    RnrNak = "rnr_nak", Event;
    /// A request refused for good.
    Nak = "nak", Event;
    /// An ACK of what was acknowledged before.
    DuplicateAck = "duplicate_ack", Event;
    /// Responses of a READ were skipped.
    ResponseGap = "response_gap", Event;
    /// A response of a READ or atomic repeated.
    DuplicateResponse = "duplicate_response", Event;
    /// The responder went past a READ or atomic that it has not answered here: an implied NAK.
    ResponseLost = "response_lost", Event;
    /// A response whose request is not in the capture.
    UnmatchedResponse = "unmatched_response", Missing;
    /// The connection's PSNs begin anew: the QP was set up again.
    Restart = "restart", Event;
    /// The MSN went back. Peers count differently; nothing depends on it.
    Msn = "msn", Event;
    /// Pad bytes that are not zero.
    NonzeroPad = "nonzero_pad", Event;
    /// A sequence NAK for the PSN that drew an RNR NAK. Linux rxe does so; the standard is silent.
    NakAfterRnr = "nak_after_rnr", Event;
    /// FLUSH with the ICRC of Linux rxe, which differs from the standard's.
    RxeFlush = "rxe_flush", Event;
    /// A congestion notification.
    Cnp = "cnp", Event;
    /// Acknowledged or answered, but not in the capture.
    Missing = "missing", Missing;
    /// The ICRC is wrong.
    BadIcrc = "bad_icrc", Violation;
    /// Lengths, headers or versions contradict each other.
    Malformed = "malformed", Violation;
    /// A payload or message length that the opcode, the path MTU or the RETH forbids.
    WrongLength = "wrong_length", Violation;
    /// A pad count that does not fit the payload.
    BadPad = "bad_pad", Violation;
    /// First, Middle, Last and Only in an order that makes no message.
    OpcodeSequence = "opcode_sequence", Violation;
    /// A request sent again with other content.
    ResendDiffers = "resend_differs", Violation;
    /// An ACK, NAK or response for a PSN never sent.
    AckUnsent = "ack_unsent", Doubtful;
    /// A sequence NAK where no later request can have shown a gap.
    NakWithoutGap = "nak_without_gap", Doubtful;
    /// A second sequence NAK for one gap.
    RepeatedNak = "repeated_nak", Doubtful;
    /// A response that does not fit its request.
    UnexpectedResponse = "unexpected_response", Violation;
    /// An atomic answered twice, with different values.
    ReplayDiffers = "replay_differs", Violation;
    /// An AETH syndrome that is reserved, or not for this opcode.
    BadSyndrome = "bad_syndrome", Violation;
}
