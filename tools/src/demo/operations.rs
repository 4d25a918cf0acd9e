//! The operations of the demo, and how each is judged.
//!
//! A reliable service must do all it is asked. An unreliable one may lose a message on a lossy
//! link: then nothing of it may be told to the application, and of memory only what its first
//! packets carried may have changed.

use ferroce_stack::verbs::{
    Access, FlushLevel, Mw, MwBind, MwType, RecvWr, Remote, SendOp, Wc, WcOpcode, WcStatus,
};

use super::lab::{
    Connection, Failure, GRH_LEN, Lab, MAX_LEN, OFFSET, Outcome, ensure, status_name,
};

/// Service of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Datagrams between the general services QPs.
    Gsi,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm,
    /// SEND that invalidates a window.
    SendInv,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data.
    WriteImm,
    /// RDMA READ.
    Read,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// Bind a type 1 window, and access through it.
    BindType1,
    /// Bind a type 2 window, and access through it.
    BindType2,
    /// Invalidate a window locally, and access through it refused.
    LocalInvalidate,
    /// SEND to a multicast group.
    Multicast,
}

use Operation::{
    AtomicWrite, BindType1, BindType2, CompareSwap, FetchAdd, Flush, LocalInvalidate, Multicast,
    Read, Send, SendImm, SendInv, Write, WriteImm,
};

/// Every operation of every transport that has it. A type 2 window belongs to the QP that bound it,
/// and an XRC target binds none: there is nothing to access or to invalidate through it.
pub const PLAN: [(Transport, &[Operation]); 5] = [
    (
        Transport::Rc,
        &[
            Send,
            SendImm,
            SendInv,
            Write,
            WriteImm,
            Read,
            CompareSwap,
            FetchAdd,
            AtomicWrite,
            Flush,
            BindType1,
            BindType2,
            LocalInvalidate,
        ],
    ),
    (Transport::Uc, &[Send, SendImm, Write, WriteImm, BindType1, BindType2, LocalInvalidate]),
    (Transport::Ud, &[Send, SendImm, Multicast]),
    (
        Transport::Xrc,
        &[
            Send,
            SendImm,
            Write,
            WriteImm,
            Read,
            CompareSwap,
            FetchAdd,
            AtomicWrite,
            Flush,
            BindType1,
            LocalInvalidate,
        ],
    ),
    (Transport::Gsi, &[Send]),
];

/// What an operation has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Payload bytes of messages that arrived.
    pub bytes: u64,
    /// Messages sent.
    pub messages: u64,
    /// Messages that an unreliable service lost.
    pub lost: u64,
}

/// Whether a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Whole,
    Lost,
}

impl Transport {
    /// Its abbreviation.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud => "UD",
            Transport::Xrc => "XRC",
            Transport::Gsi => "GSI",
        }
    }

    const fn is_reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::Xrc)
    }

    const fn is_datagram(self) -> bool {
        matches!(self, Transport::Ud | Transport::Gsi)
    }
}

impl Operation {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Send => "SEND",
            SendImm => "SEND with imm",
            SendInv => "SEND with inv",
            Write => "WRITE",
            WriteImm => "WRITE with imm",
            Read => "READ",
            CompareSwap => "CMP and SWAP",
            FetchAdd => "FETCH and ADD",
            AtomicWrite => "ATOMIC WRITE",
            Flush => "FLUSH",
            BindType1 => "BIND MW type 1",
            BindType2 => "BIND MW type 2",
            LocalInvalidate => "LOCAL INV",
            Multicast => "SEND multicast",
        }
    }

    /// What the peer may do with the region directly.
    pub const fn rights(self) -> Access {
        match self {
            SendInv | BindType1 | BindType2 | LocalInvalidate => Access::MW_BIND,
            Send | SendImm | Multicast => Access::NONE,
            _ => Access::REMOTE,
        }
    }

    /// Runs it over `connection` and judges it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(
        self,
        lab: &mut Lab,
        connection: &mut Connection,
        moved: &mut Moved,
    ) -> Result<(), Failure> {
        match self {
            Send | SendImm | Write | WriteImm => messages(self, lab, connection, moved),
            SendInv => sends_with_invalidate(lab, connection, moved),
            Read => reads(lab, connection, moved),
            CompareSwap | FetchAdd => atomics(self, lab, connection, moved),
            AtomicWrite => atomic_writes(lab, connection, moved),
            Flush => flushes(lab, connection),
            BindType1 => bind_and_access(MwType::Type1, lab, connection, moved),
            BindType2 => bind_and_access(MwType::Type2, lab, connection, moved),
            LocalInvalidate => local_invalidate(lab, connection),
            Multicast => multicasts(lab, connection, moved),
        }
    }
}

/// Message lengths: nothing or little, a full packet, several and an odd rest, many.
///
/// Wireshark looks for other protocols in the payload, and calls packets malformed that are too
/// short for it to look: plain SENDs over RC under 20 bytes, and empty datagrams. The capture is to
/// be free of that; the other operations have the short messages.
fn lengths(lab: &Lab, transport: Transport, operation: Operation) -> Vec<usize> {
    let mtu = lab.settings().mtu.bytes();
    match (transport, operation) {
        (Transport::Gsi, _) => vec![MAD_LEN],
        (Transport::Ud, _) => vec![1, 8, mtu / 2 + 3, mtu],
        (Transport::Rc, Send | SendInv) => vec![20, 29, mtu, 3 * mtu + 17, MAX_LEN],
        _ => vec![0, 1, mtu, 3 * mtu + 17, MAX_LEN],
    }
}

/// How every message begins: as nothing does that Wireshark takes for another protocol.
const GREETING: &[u8] = b"Ferroce ";

/// Stores a new message of `len` bytes at [`OFFSET`] of a node's buffer.
fn store_message(lab: &mut Lab, node: usize, len: usize) -> Vec<u8> {
    let mut message = lab.refill(node, OFFSET, len);
    let greeting = &GREETING[..len.min(GREETING.len())];
    message[..greeting.len()].copy_from_slice(greeting);
    lab.store(node, OFFSET, &message);
    message
}

fn messages(
    operation: Operation,
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let at_remote = remote_at(connection.remote.remote(), OFFSET);
    for (number, len) in lengths(lab, connection.transport, operation).into_iter().enumerate() {
        let imm = [0xca, 0xfe, 0, number as u8];
        let op = match operation {
            Send => SendOp::Send,
            SendImm => SendOp::SendImm(imm),
            Write => SendOp::Write(at_remote),
            _ => SendOp::WriteImm(at_remote, imm),
        };
        message(op, len, lab, connection, moved)?;
    }
    Ok(())
}

/// Sends or writes one message of `len` bytes to [`OFFSET`] of the peer's buffer.
fn message(
    op: SendOp,
    len: usize,
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<Arrival, Failure> {
    let data = match connection.transport {
        Transport::Gsi => store_mad(lab),
        _ => store_message(lab, 0, len),
    };
    let consumes_receive = !matches!(op, SendOp::Write(_));
    if consumes_receive {
        lab.post_receive(connection)?;
    }
    let sges = [connection.local.slice(OFFSET, len)];
    let outcome = lab.ask(connection, op, &sges)?;
    succeeded(&outcome, len)?;
    moved.messages += 1;
    let arrival = match consumes_receive {
        true => match outcome.received[..] {
            [] => Arrival::Lost,
            [wc] => check_received(&wc, op, len, connection).map(|()| Arrival::Whole)?,
            _ => return Err(Failure(String::from("one message was received twice"))),
        },
        // Only memory tells whether a plain WRITE arrived.
        false if lab.actual(1, OFFSET, len) == data => Arrival::Whole,
        false => Arrival::Lost,
    };
    settle(arrival, &data, lab, connection, moved)?;
    lab.check_memory()?;
    Ok(arrival)
}

/// Brings the model up to date with a message that arrived or may have been lost.
fn settle(
    arrival: Arrival,
    data: &[u8],
    lab: &mut Lab,
    connection: &Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    if arrival == Arrival::Lost {
        let may_lose = !connection.transport.is_reliable() && lab.settings().loss > 0.0;
        ensure(may_lose, || format!("a message of {} bytes did not arrive", data.len()))?;
        moved.lost += 1;
        return expect_beginning(data, lab);
    }
    moved.bytes += data.len() as u64;
    lab.expect(1, OFFSET, data);
    if connection.transport.is_datagram() {
        expect_grh(lab)?;
    }
    Ok(())
}

/// Of a lost message some packets may have been placed: the first ones, and no others.
fn expect_beginning(data: &[u8], lab: &mut Lab) -> Result<(), Failure> {
    let actual = lab.actual(1, OFFSET, data.len()).to_vec();
    let before = lab.expected(1, OFFSET, data.len());
    let mtu = lab.settings().mtu.bytes();
    let is_beginning =
        |&len: &usize| actual[..len] == data[..len] && actual[len..] == before[len..];
    let placed = (0..data.len().max(1)).step_by(mtu).find(is_beginning);
    ensure(placed.is_some(), || String::from("a lost message left more than its beginning"))?;
    lab.expect(1, OFFSET, &actual);
    Ok(())
}

/// The 40 bytes before a datagram end in its network header (IPv4: behind 20 undefined bytes,
/// Annex A17.4.5.2); it must name the sender and the receiver.
fn expect_grh(lab: &mut Lab) -> Result<(), Failure> {
    let grh = lab.actual(1, OFFSET - GRH_LEN, GRH_LEN).to_vec();
    let [src, dst] = [0, 1].map(|node| lab.world.address(node).gid);
    let named = match (src.ipv4(), dst.ipv4()) {
        (Some(src), Some(_)) => grh[20] == 0x45 && grh[32..36] == src.octets(),
        _ => grh[0] >> 4 == 6 && grh[8..24] == src.0,
    };
    ensure(named, || String::from("the datagram's network header does not name its sender"))?;
    lab.expect(1, OFFSET - GRH_LEN, &grh);
    Ok(())
}

fn succeeded(outcome: &Outcome, len: usize) -> Result<(), Failure> {
    let status = outcome.send.status;
    ensure(status == WcStatus::Success, || format!("{} at {len} bytes", status_name(status)))
}

fn check_received(wc: &Wc, op: SendOp, len: usize, connection: &Connection) -> Result<(), Failure> {
    let is_datagram = connection.transport.is_datagram();
    let (opcode, imm, invalidated) = match op {
        SendOp::SendImm(imm) => (WcOpcode::Recv, Some(imm), None),
        SendOp::SendInv(rkey) => (WcOpcode::Recv, None, Some(rkey)),
        SendOp::WriteImm(_, imm) => (WcOpcode::RecvRdmaWithImm, Some(imm), None),
        _ => (WcOpcode::Recv, None, None),
    };
    let byte_len = if is_datagram { len + GRH_LEN } else { len };
    let right = wc.status == WcStatus::Success
        && wc.opcode == opcode
        && wc.byte_len as usize == byte_len
        && wc.imm_data == imm
        && wc.invalidated_rkey == invalidated
        && wc.grh == is_datagram
        && (!is_datagram || wc.src_qp == connection.asker.qpn);
    ensure(right, || format!("the receive of {len} bytes completed wrongly: {wc:?}"))
}

fn sends_with_invalidate(
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let (mw, _) = lab.world.device(1).alloc_mw(connection.answerer.pd, MwType::Type2)?;
    for (number, len) in lengths(lab, connection.transport, SendInv).into_iter().enumerate() {
        // A window that is still bound would refuse to be bound again.
        let key = bind(mw, number as u8, lab, connection)?;
        message(SendOp::SendInv(key), len, lab, connection, moved)?;
    }
    Ok(())
}

fn reads(lab: &mut Lab, connection: &mut Connection, moved: &mut Moved) -> Result<(), Failure> {
    for len in lengths(lab, connection.transport, Read) {
        read(remote_at(connection.remote.remote(), OFFSET), len, lab, connection, moved)?;
    }
    Ok(())
}

fn read(
    remote: Remote,
    len: usize,
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let data = store_message(lab, 1, len);
    let sges = [connection.local.slice(OFFSET, len)];
    let outcome = lab.ask(connection, SendOp::Read(remote), &sges)?;
    succeeded(&outcome, len)?;
    lab.expect(0, OFFSET, &data);
    moved.bytes += len as u64;
    lab.check_memory()
}

/// Where atomic results go, and the word they work on: aligned.
const WORD_AT: usize = 64;

fn atomics(
    operation: Operation,
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let remote = remote_at(connection.remote.remote(), WORD_AT);
    // The word before, the operand, and the word after; each is tried hit and miss, with and
    // without a carry out.
    let table = [(7u64, 7u64), (7, 8), (u64::MAX, 2), (1 << 63, 1 << 63)];
    for (before, operand) in table {
        let swap = 0x0123_4567_89ab_cdef;
        let (op, after) = match operation {
            CompareSwap => {
                let after = if before == operand { swap } else { before };
                (SendOp::CompareSwap { remote, compare: operand, swap }, after)
            }
            _ => (SendOp::FetchAdd { remote, add: operand }, before.wrapping_add(operand)),
        };
        lab.store(1, WORD_AT, &before.to_ne_bytes());
        let sges = [connection.local.slice(WORD_AT, 8)];
        let outcome = lab.ask(connection, op, &sges)?;
        succeeded(&outcome, 8)?;
        lab.expect(0, WORD_AT, &before.to_ne_bytes());
        lab.expect(1, WORD_AT, &after.to_ne_bytes());
        moved.bytes += 8;
        lab.check_memory()?;
    }
    Ok(())
}

fn atomic_writes(
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let remote = remote_at(connection.remote.remote(), WORD_AT);
    for value in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
        let outcome = lab.ask(connection, SendOp::AtomicWrite(remote, value), &[])?;
        succeeded(&outcome, 8)?;
        lab.expect(1, WORD_AT, &value.to_ne_bytes());
        moved.bytes += 8;
        lab.check_memory()?;
    }
    Ok(())
}

fn flushes(lab: &mut Lab, connection: &mut Connection) -> Result<(), Failure> {
    let remote = remote_at(connection.remote.remote(), OFFSET);
    for level in [FlushLevel::Range, FlushLevel::Region] {
        for placement in [
            Access::FLUSH_GLOBAL,
            Access::FLUSH_PERSISTENT,
            Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT,
        ] {
            let op = SendOp::Flush { remote, length: 4096, level, placement };
            let outcome = lab.ask(connection, op, &[])?;
            succeeded(&outcome, 0)?;
            lab.check_memory()?;
        }
    }
    Ok(())
}

/// Bytes of the peer's buffer a window covers, from [`OFFSET`] on.
const WINDOW_LEN: usize = 64 << 10;

/// Binds a window to the peer's buffer and returns its key.
fn bind(mw: Mw, variant: u8, lab: &mut Lab, connection: &mut Connection) -> Result<u32, Failure> {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let bind = MwBind {
        mr: connection.remote.keys.mr,
        addr: connection.remote.addr + OFFSET as u64,
        length: WINDOW_LEN as u64,
        access,
    };
    let rkey = u32::from(variant);
    lab.run_local(connection, SendOp::BindMw { mw, rkey, bind })?;
    Ok(lab.world.device(1).mw_rkey(mw)?)
}

fn bind_and_access(
    kind: MwType,
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let (mw, _) = lab.world.device(1).alloc_mw(connection.answerer.pd, kind)?;
    let rkey = bind(mw, 0x5a, lab, connection)?;
    let window = Remote { addr: connection.remote.addr + OFFSET as u64, rkey };
    for len in [1, 3 * lab.settings().mtu.bytes() + 17, WINDOW_LEN] {
        message(SendOp::Write(window), len, lab, connection, moved)?;
        if connection.transport.is_reliable() {
            read(window, len, lab, connection, moved)?;
        }
    }
    Ok(())
}

fn local_invalidate(lab: &mut Lab, connection: &mut Connection) -> Result<(), Failure> {
    let (mw, _) = lab.world.device(1).alloc_mw(connection.answerer.pd, MwType::Type2)?;
    let key = bind(mw, 1, lab, connection)?;
    lab.run_local(connection, SendOp::LocalInv(key))?;
    // A window that is still bound would refuse to be bound again.
    let key = bind(mw, 2, lab, connection)?;
    lab.run_local(connection, SendOp::LocalInv(key))?;
    let window = Remote { addr: connection.remote.addr + OFFSET as u64, rkey: key };
    let sges = [connection.local.slice(OFFSET, 8)];
    let outcome = lab.ask(connection, SendOp::Write(window), &sges)?;
    let status = outcome.send.status;
    let is_right = match status {
        WcStatus::Success => !connection.transport.is_reliable(),
        WcStatus::RemAccessErr => connection.transport.is_reliable(),
        // The refusal was lost, and a QP that has refused answers no more.
        WcStatus::RetryExcErr => lab.settings().loss > 0.0,
        _ => false,
    };
    ensure(is_right, || format!("access through an invalid key: {}", status_name(status)))?;
    lab.check_memory()
}

fn multicasts(
    lab: &mut Lab,
    connection: &mut Connection,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let other = lab.join_group(connection)?;
    let room = GRH_LEN + lab.settings().mtu.bytes();
    let buffer = lab.world.register(&other, room, Access::LOCAL_WRITE)?;
    let mut waiting = false;
    for len in lengths(lab, connection.transport, Multicast) {
        if !waiting {
            let wr = RecvWr { wr_id: 0, sges: &[buffer.sge()] };
            lab.world.device(1).post_recv(other.qpn, &wr)?;
        }
        let arrival = message(SendOp::Send, len, lab, connection, moved)?;
        let copies = lab.world.poll(1, other.recv_cq)?.len();
        waiting = copies == 0;
        ensure(copies == usize::from(arrival == Arrival::Whole), || {
            format!("{copies} copies of {len} bytes reached the other member")
        })?;
        let copy = &lab.world.bytes(&buffer)[GRH_LEN..][..len];
        ensure(waiting || copy == lab.actual(0, OFFSET, len), || {
            String::from("the other member received something else")
        })?;
    }
    Ok(())
}

/// Bytes of a management datagram.
const MAD_LEN: usize = 256;

/// Stores a management datagram of a vendor's class in node 0's buffer: only its header has a
/// meaning to others.
fn store_mad(lab: &mut Lab) -> Vec<u8> {
    const HEADER: [u8; 24] = {
        let mut header = [0; 24];
        // BaseVersion, MgmtClass, ClassVersion, Method (Send); AttributeID.
        (header[0], header[1], header[2], header[3]) = (1, 0x09, 1, 0x03);
        (header[16], header[17]) = (0xff, 0x01);
        header
    };
    let mut mad = lab.refill(0, OFFSET, MAD_LEN);
    mad[..24].copy_from_slice(&HEADER);
    lab.store(0, OFFSET, &mad);
    mad
}

fn remote_at(remote: Remote, offset: usize) -> Remote {
    Remote { addr: remote.addr + offset as u64, ..remote }
}
