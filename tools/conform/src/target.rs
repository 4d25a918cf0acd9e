//! What a runner needs of the implementation that is judged: frames to and from it, its verbs, and
//! what they tell. Calls and replies are plain values, so that they can cross a network to an agent.

use std::fmt;
use std::time::Duration;

use ferroce_stack::GidEntry;
use serde::{Deserialize, Serialize};

use crate::cm::{CmCall, Report};

/// An implementation with one port, on which it is reachable from the peer that we play.
///
/// Time is what has passed since [`begin`](Target::begin).
pub trait Target {
    /// What it is and can do.
    fn description(&self) -> &Description;

    /// Forgets everything of the scenario before and begins another.
    ///
    /// # Errors
    /// [`Broken`] if the target cannot be used any more.
    fn begin(&mut self) -> Result<(), Broken>;

    /// Now.
    fn now(&self) -> Duration;

    /// The peer sends a frame, from its Ethernet header to the ICRC.
    ///
    /// # Errors
    /// [`Broken`] if the target cannot be used any more.
    fn inject(&mut self, frame: &[u8]) -> Result<(), Broken>;

    /// What happens next at the target, or nothing once it is `until`. In the order of each kind;
    /// kinds may overtake each other.
    ///
    /// # Errors
    /// [`Broken`] if the target cannot be used any more.
    fn observe(&mut self, until: Duration) -> Result<Option<Observation>, Broken>;

    /// Calls a verb.
    ///
    /// # Errors
    /// [`Broken`] if the target cannot be used any more. What the verb refuses is a [`Reply`].
    fn call(&mut self, call: &Call) -> Result<Reply, Broken>;
}

/// What a target is and can do.
#[derive(Clone, Debug)]
pub struct Description {
    /// Such as `ferroce 0.1.0 in memory` or `rxe, Linux 6.12.9`.
    pub name: String,
    /// Its address.
    pub address: GidEntry,
    /// The address of the peer that we play.
    pub peer: GidEntry,
    /// GUID of the peer's channel adapter, host order: in this scenario, for a target may remember
    /// connections of those before.
    pub peer_guid: u64,
    /// The words for `needs` that it fulfils: `rc`, `uc`, `ud`, `xrc`, `atomic`, `atomic-write`,
    /// `flush`, `flush-persistent`, `windows`, `srq`, `multicast`, `reregister`, `resize-cq`,
    /// `resize-srq`, `cm`, `counters`, `mtu-2048`, `mtu-4096`, `ipv4`, `ipv6`, `vlan`, `exact-time`
    /// (a virtual clock), `congestion` (marks are answered by CNPs, CNPs slow down).
    /// [`SELECTIVE_REPEAT`] tells how it sends, though no scenario may need it.
    pub features: Vec<String>,
}

/// The protection domain of objects for which no other is named: it is there when it is needed.
pub const FIRST_DOMAIN: &str = "pd";

/// The XRC domain of objects for which no other is named: it is there when it is needed.
pub const FIRST_XRC_DOMAIN: &str = "xrcd";

/// The feature of a target that offers selective repeat: it marks its requests. Towards the peer
/// that we play, which never does, nothing else may differ.
pub const SELECTIVE_REPEAT: &str = "selective-repeat";

/// The target cannot be used any more: the connection to its agent is lost, the link is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the target is lost: {}", self.0)
    }
}

impl std::error::Error for Broken {}

/// Something that happened at the target.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// It sent a frame to the peer.
    Frame {
        /// When.
        at: Duration,
        /// From the Ethernet header to the ICRC.
        bytes: Vec<u8>,
    },
    /// A work request completed.
    Completion(Completion),
    /// An asynchronous event.
    Event(Event),
    /// Something has happened to a connection.
    Report(Report),
}

/// A name the script gave an object of the target.
pub type Object = String;

/// A verb with its arguments. Numbers that a verb would refuse can be said, to see it refuse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "call")]
pub enum Call {
    /// `ibv_alloc_pd`. Objects whose domain is not named are in a first one, of name `pd`.
    AllocPd {
        /// Its name.
        pd: Object,
    },
    /// `ibv_reg_mr` or `ibv_reg_mr_iova` over new memory. Reply: [`Reply::Memory`].
    RegMr {
        /// Its name.
        memory: Object,
        /// Its domain.
        pd: Object,
        /// Bytes.
        length: u64,
        /// Address remote and local accesses use for its first byte; else the real one.
        iova: Option<u64>,
        /// `ibv_access_flags`.
        access: u32,
        /// What it holds at first, from its first byte on; zeros behind.
        holds: Vec<u8>,
    },
    /// `ibv_dereg_mr`.
    DeregMr {
        /// Its name.
        memory: Object,
    },
    /// `ibv_rereg_mr` of the access flags, the domain, or both. Reply: [`Reply::Memory`].
    ReregMr {
        /// Its name.
        memory: Object,
        /// `ibv_access_flags`.
        access: Option<u32>,
        /// Domain.
        pd: Option<Object>,
    },
    /// Bytes of a memory. Reply: [`Reply::Bytes`].
    ReadMemory {
        /// Its name.
        memory: Object,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The program stores into its memory.
    WriteMemory {
        /// Its name.
        memory: Object,
        /// First byte.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// `ibv_alloc_mw`. Reply: [`Reply::Key`].
    AllocMw {
        /// Its name.
        window: Object,
        /// Its domain.
        pd: Object,
        /// 1 or 2.
        mw_type: u8,
    },
    /// `ibv_create_cq`. Reply: [`Reply::Size`].
    CreateCq {
        /// Its name.
        cq: Object,
        /// Completions it holds, at least.
        cqe: u32,
        /// Whether the program leaves in it what completes, until [`Call::PollCq`].
        unpolled: bool,
    },
    /// `ibv_poll_cq`, until it is empty.
    PollCq {
        /// Its name.
        cq: Object,
    },
    /// `ibv_resize_cq`. Reply: [`Reply::Size`].
    ResizeCq {
        /// Its name.
        cq: Object,
        /// Completions it holds, at least.
        cqe: u32,
    },
    /// `ibv_destroy_cq`.
    DestroyCq {
        /// Its name.
        cq: Object,
    },
    /// `ibv_open_xrcd`. Objects of XRC whose XRC domain is not named are in a first one, of name
    /// `xrcd`.
    OpenXrcd {
        /// Its name.
        xrcd: Object,
    },
    /// `ibv_create_srq`, or `ibv_create_srq_ex` for XRC. Reply: [`Reply::Srq`].
    CreateSrq {
        /// Its name.
        srq: Object,
        /// Its domain.
        pd: Object,
        /// Work requests it holds, at least.
        max_wr: u32,
        /// Of an XRC SRQ, its XRC domain.
        xrcd: Option<Object>,
        /// Of an XRC SRQ, where its receives complete; else in a CQ of no name.
        cq: Option<Object>,
    },
    /// `ibv_modify_srq` of the limit.
    ArmSrq {
        /// Its name.
        srq: Object,
        /// Limit.
        limit: u32,
    },
    /// `ibv_modify_srq` of the size. Reply: [`Reply::Size`].
    ResizeSrq {
        /// Its name.
        srq: Object,
        /// Work requests it holds, at least.
        max_wr: u32,
    },
    /// `ibv_query_srq`. Reply: [`Reply::SrqAttributes`].
    QuerySrq {
        /// Its name.
        srq: Object,
    },
    /// `ibv_destroy_srq`.
    DestroySrq {
        /// Its name.
        srq: Object,
    },
    /// `ibv_create_qp`; it is left in RESET. Reply: [`Reply::Qp`]; [`Reply::Met`] where connection
    /// management gives QPs.
    CreateQp(Box<QpMake>),
    /// `ibv_modify_qp`: all attributes that the transition requires, and the optional ones that
    /// `change` names, from `attributes`. Where it is allowed, the event of a drained send queue is
    /// asked for.
    ModifyQp {
        /// Its name.
        qp: Object,
        /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE`, `ERR`.
        state: String,
        /// Values.
        attributes: QpAttributes,
    },
    /// `ibv_query_qp` of the state. Reply: [`Reply::State`].
    QueryQp {
        /// Its name.
        qp: Object,
    },
    /// `ibv_query_qp` of all attributes. Reply: [`Reply::Attributes`].
    QueryAttributes {
        /// Its name.
        qp: Object,
    },
    /// `ibv_destroy_qp`.
    DestroyQp {
        /// Its name.
        qp: Object,
    },
    /// `ibv_attach_mcast`, `ibv_detach_mcast`.
    Multicast {
        /// A UD QP.
        qp: Object,
        /// Group, as an IPv6 or mapped IPv4 address.
        group: [u8; 16],
        /// Whether it joins or leaves.
        attach: bool,
    },
    /// `ibv_post_send` of one work request.
    PostSend {
        /// QP.
        qp: Object,
        /// Work request.
        wr: Box<SendRequest>,
    },
    /// `ibv_post_recv` or `ibv_post_srq_recv` of one work request.
    PostRecv {
        /// QP or SRQ.
        to: Object,
        /// `wr_id`.
        wr_id: u64,
        /// Where to.
        sges: Vec<Span>,
    },
    /// A verb of connection management.
    Cm(CmCall),
    /// A counter by its name: a reason to discard, or one of the kernel's names. Reply:
    /// [`Reply::Counter`].
    Counter {
        /// Name.
        name: String,
    },
}

/// How a QP is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct QpMake {
    /// Its name.
    pub qp: Object,
    /// `rc`, `uc`, `ud`, `xrc-send`, `xrc-receive`.
    pub service: String,
    /// Its domain.
    pub pd: Object,
    /// SRQ it receives from.
    pub srq: Option<Object>,
    /// Where its sends complete; else in a CQ of no name.
    pub send_cq: Option<Object>,
    /// Where its receives complete; else in a CQ of no name.
    pub recv_cq: Option<Object>,
    /// Of a receiving QP of XRC, its XRC domain.
    pub xrcd: Option<Object>,
    /// Send work requests it holds.
    pub max_send_wr: u32,
    /// Receive work requests it holds.
    pub max_recv_wr: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Whether every send is signaled.
    pub signal_all: bool,
    /// The state that [`Call::ModifyQp`] then brings it to.
    pub state: String,
    /// Attributes that it is given on the way; `change` names those that the script says. Where QPs
    /// come by connection management these are asked for at once.
    pub attributes: QpAttributes,
}

/// Attributes of a QP, all with a value; a transition takes those it requires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct QpAttributes {
    /// Bytes: 256, 512, 1024, 2048, 4096.
    pub path_mtu: u32,
    /// Of the peer.
    pub dest_qp_num: u32,
    /// First PSN the target expects.
    pub rq_psn: u32,
    /// First PSN the target sends.
    pub sq_psn: u32,
    /// `ibv_access_flags`.
    pub access: u32,
    /// Q_Key of a UD QP.
    pub qkey: u32,
    /// Code of the ACK timeout.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries; 7 for ever.
    pub rnr_retry: u8,
    /// Code of the RNR timer.
    pub min_rnr_timer: u8,
    /// READs and atomics the target starts at once.
    pub max_rd_atomic: u8,
    /// READs and atomics the target serves at once.
    pub max_dest_rd_atomic: u8,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// GRH flow label.
    pub flow_label: u32,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: u8,
    /// Optional attributes to pass beside the required ones, by the names of this structure.
    pub change: Vec<String>,
}

/// A send work request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SendRequest {
    /// `wr_id`.
    pub wr_id: u64,
    /// What it does.
    pub op: SendOperation,
    /// Local memory.
    pub sges: Vec<Span>,
    /// `ibv_send_flags`.
    pub flags: u32,
    /// For a UD QP: the peer's QPN and Q_Key.
    pub datagram: Option<(u32, u32)>,
    /// For XRC: the peer's SRQ number.
    pub srqn: Option<u32>,
}

/// What a send work request does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "fields are those of the verb")]
pub enum SendOperation {
    /// SEND.
    Send,
    /// SEND with immediate, as on the wire.
    SendImm([u8; 4]),
    /// SEND with invalidate.
    SendInv(u32),
    /// RDMA WRITE.
    Write { address: u64, key: u32 },
    /// RDMA WRITE with immediate, as on the wire.
    WriteImm { address: u64, key: u32, imm: [u8; 4] },
    /// RDMA READ.
    Read { address: u64, key: u32 },
    /// Compare and swap.
    CompareSwap { address: u64, key: u32, compare: u64, swap: u64 },
    /// Fetch and add.
    FetchAdd { address: u64, key: u32, add: u64 },
    /// ATOMIC WRITE.
    AtomicWrite { address: u64, key: u32, value: u64 },
    /// FLUSH: `placement` is 1 for global visibility, 2 for persistence, 3 for both.
    Flush { address: u64, key: u32, length: u32, placement: u8, region: bool },
    /// Bind a memory window of type 1 or 2 to a part of a memory. [`Reply::Key`].
    BindMw { window: Object, memory: Object, offset: u64, length: u64, access: u32 },
    /// Invalidate a local key.
    LocalInv(u32),
}

/// Part of a memory, as a scatter/gather element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Span {
    /// Memory.
    pub memory: Object,
    /// First byte; may lie outside.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Key to use instead of the memory's.
    pub lkey: Option<u32>,
}

/// What a call gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply")]
#[allow(missing_docs, reason = "fields are those of the verb")]
pub enum Reply {
    /// It is done.
    Done,
    /// The verb refused, with the name of an errno: `EINVAL`, `ENOMEM`, `EBUSY`, `EOPNOTSUPP`...
    Refused { errno: String },
    /// The target's interfaces have no way to ask for this, says why: nothing of it was done.
    Unable { why: String },
    /// A registered memory.
    Memory { address: u64, lkey: u32, rkey: u32 },
    /// A key.
    Key { rkey: u32 },
    /// A QP.
    Qp { qpn: u32 },
    /// A QP of a program, to which a connection was made, and the PSN that it expects first.
    Met { qpn: u32, psn: u32 },
    /// An SRQ, with its number if it is one of XRC, and the work requests it holds.
    Srq { srqn: Option<u32>, size: u32 },
    /// What a CQ or an SRQ holds.
    Size { size: u32 },
    /// Size and limit of an SRQ.
    SrqAttributes { size: u32, limit: u32 },
    /// Attributes of a QP.
    Attributes { attributes: Box<QpAttributes> },
    /// State of a QP.
    State { state: String },
    /// Bytes.
    Bytes { bytes: Vec<u8> },
    /// A counter; nothing if the target has none of this name.
    Counter { value: Option<u64> },
}

/// A work completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Completion {
    /// QP.
    pub qp: Object,
    /// `wr_id`.
    pub wr_id: u64,
    /// As `ibv_wc_status`, in words: `success`, `local-length`, `local-qp-operation`,
    /// `local-protection`, `flushed`, `memory-window-bind`, `bad-response`, `local-access`,
    /// `remote-invalid-request`, `remote-access`, `remote-operation`, `retry-exceeded`,
    /// `rnr-retry-exceeded`, ...
    pub status: String,
    /// As `ibv_wc_opcode`, in words: `send`, `write`, `read`, `compare-swap`, `fetch-add`, `bind`,
    /// `invalidate`, `flush`, `atomic-write`, `receive`, `receive-write-imm`.
    pub opcode: String,
    /// `byte_len`.
    pub length: u32,
    /// Immediate data, as on the wire.
    pub imm: Option<[u8; 4]>,
    /// Key that was invalidated.
    pub invalidated: Option<u32>,
    /// Source QPN of a datagram.
    pub source_qp: Option<u32>,
}

/// An asynchronous event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Event {
    /// In words: `cq-error`, `qp-fatal`, `qp-request-error`, `qp-access-error`,
    /// `communication-established`, `send-queue-drained`, `last-wqe-reached`, `srq-limit-reached`...
    pub event: String,
    /// QP, SRQ or CQ.
    pub of: Option<Object>,
}
