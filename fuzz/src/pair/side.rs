//! One of the two nodes: its QPs and memory, what it has posted, and what must come of it.

use std::collections::VecDeque;

use ferroce::world::{Buffer, ConnectOptions, Endpoint, World};
use ferroce_stack::memory::AtomicOp;
use ferroce_stack::verbs::{
    Access, Ah, FlushLevel, Qpn, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, Sge,
    UdTarget, VerbsError, Wc, WcStatus,
};

use crate::input::Input;
use crate::ledger::{Ledger, Queue};

/// Bytes of what is sent and read, and of where is written.
const SOURCE_LEN: usize = 4096;
const AREA_LEN: usize = 2048;
/// Bytes of a receive or READ, and more than any message has.
const PART_LEN: usize = 1536;
/// Receives or READs whose places are apart.
const PARTS: usize = 8;
const INLINE_MAX: usize = 64;
const GRH_LEN: usize = 40;

/// Services of the QPs of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Rc,
    Uc,
    Ud,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Rc, Service::Uc, Service::Ud];
}

/// What a receive will be taken for.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Its first byte in the source.
    offset: usize,
    len: usize,
    imm: Option<[u8; 4]>,
    /// Its bytes come into the receive, not elsewhere.
    placed: bool,
}

/// A QP with its memory.
#[derive(Debug)]
struct Port {
    end: Endpoint,
    /// Where its datagrams go.
    to: Option<(Ah, Qpn)>,
    /// Never changes.
    source: Buffer,
    /// Where receives put what comes.
    inbox: Buffer,
    /// Where the peer writes.
    area: Buffer,
    /// Receives posted.
    posted: usize,
    /// `wr_id` and part of each that is outstanding.
    recvs: VecDeque<(u64, usize)>,
    /// Messages come.
    taken: usize,
    /// What this QP has sent that takes a receive.
    sent: Vec<Message>,
}

/// A node.
pub struct Side {
    node: usize,
    ports: [Port; 3],
    pub ledger: Ledger,
    /// What READs and atomics of RC bring.
    sink: Buffer,
    sink_model: Vec<u8>,
    fetches: usize,
    /// What the peer's RC writes to the area make of it.
    area_model: Vec<u8>,
    /// The RC connection was given up after too many losses.
    pub gave_up: bool,
}

/// For calls whose arguments are valid.
const VALID: &str = "the harness's own call is valid";

/// What stands at `at` of every source.
fn pattern(at: usize) -> u8 {
    (at * 13 + at / 251 + 1) as u8
}

/// What the input says of a work request.
struct Choice {
    kind: u8,
    len: usize,
    offset: usize,
    flags: SendFlags,
    inline: bool,
}

impl Side {
    /// One side of connected QPs, in the order of [`Service::ALL`]; datagrams go to `to`.
    pub fn new(world: &mut World, ends: [Endpoint; 3], to: (Ah, Qpn)) -> Side {
        let node = ends[0].node;
        let all = ConnectOptions::default().access;
        let local = Access::LOCAL_WRITE;
        let ports = Service::ALL.map(|service| {
            let end = ends[service as usize];
            let mut register = |len, access| world.register(&end, len, access).expect(VALID);
            let source = register(SOURCE_LEN, Access::REMOTE_READ);
            let inbox = register(PARTS * PART_LEN, local);
            let area = register(AREA_LEN, all);
            let bytes = world.bytes_mut(&source);
            bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
            let to = (service == Service::Ud).then_some(to);
            let (recvs, sent) = (VecDeque::new(), Vec::new());
            Port { end, to, source, inbox, area, posted: 0, recvs, taken: 0, sent }
        });
        Side {
            node,
            ports,
            ledger: Ledger::default(),
            sink: world.register(&ends[0], PARTS * PART_LEN, local).expect(VALID),
            sink_model: vec![0; PARTS * PART_LEN],
            fetches: 0,
            area_model: vec![0; AREA_LEN],
            gave_up: false,
        }
    }

    pub fn end(&self, service: Service) -> Endpoint {
        self.ports[service as usize].end
    }

    /// Posts a receive if there is room; whether there was.
    pub fn post_recv(&mut self, world: &mut World, service: Service) -> bool {
        let wr_id = self.ledger.next_id();
        let port = &mut self.ports[service as usize];
        let part = port.posted % PARTS;
        let wr = RecvWr { wr_id, sges: &[port.inbox.slice(part * PART_LEN, PART_LEN)] };
        let qpn = port.end.qpn;
        if port.recvs.len() == PARTS || world.device(self.node).post_recv(qpn, &wr).is_err() {
            return false;
        }
        port.posted += 1;
        port.recvs.push_back((wr_id, part));
        self.ledger.posted(Queue::Recv(qpn), true, PART_LEN as u64);
        true
    }

    /// Posts the receives that what `peer` has sent on RC still needs; whether it could any.
    pub fn post_owed(&mut self, world: &mut World, peer: &Side) -> bool {
        let rc = Service::Rc as usize;
        let owed = peer.ports[rc].sent.len().saturating_sub(self.ports[rc].posted);
        (0..owed).filter(|_| self.post_recv(world, Service::Rc)).count() > 0
    }

    /// Posts a send of any kind to `peer`, and notes what it will do there.
    pub fn post_send(&mut self, world: &mut World, peer: &mut Side, input: &mut Input) {
        let choice = Choice {
            kind: input.byte(),
            len: usize::from(input.word16()) % (PART_LEN - GRH_LEN),
            offset: usize::from(input.byte()) * 8,
            flags: SendFlags(u32::from(input.byte()) & 7),
            inline: input.flag(),
        };
        match choice.kind >> 5 {
            0 | 1 => self.message(world, Service::Uc, &choice),
            2 => self.loose_write(world, peer, &choice),
            3 => self.message(world, Service::Ud, &choice),
            4 | 5 => self.message(world, Service::Rc, &choice),
            6 => self.write(world, peer, &choice),
            _ => self.fetch(world, peer, &choice),
        }
    }

    fn post(
        &mut self,
        world: &mut World,
        service: Service,
        op: SendOp,
        data: SendData,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        let port = &self.ports[service as usize];
        let ud = port.to.map(|(ah, qpn)| UdTarget { ah, qpn, qkey: super::QKEY });
        let wr_id = self.ledger.next_id();
        let wr = SendWr { wr_id, op, data, flags, ud, srqn: None };
        world.device(self.node).post_send(port.end.qpn, &wr)?;
        let signaled = flags.has(SendFlags::SIGNALED);
        self.ledger.posted(Queue::Send(port.end.qpn), signaled, 0);
        Ok(())
    }

    /// Posts an operation with `len` bytes of the source from `offset` on; whether it could.
    fn post_source(
        &mut self,
        world: &mut World,
        service: Service,
        op: SendOp,
        (offset, len): (usize, usize),
        choice: &Choice,
    ) -> bool {
        let source = &self.ports[service as usize].source;
        let half = len / 2;
        let sges = [source.slice(offset, half), source.slice(offset + half, len - half)];
        let bytes: Vec<u8> = (offset..offset + len).map(pattern).collect();
        let data = match choice.inline && len <= INLINE_MAX {
            true => SendData::Inline(&bytes),
            false => SendData::Sges(&sges),
        };
        self.post(world, service, op, data, choice.flags).is_ok()
    }

    /// A SEND. That of an unreliable service says in its immediate data which one it is.
    fn message(&mut self, world: &mut World, service: Service, choice: &Choice) {
        let number = (self.ports[service as usize].sent.len() as u32).to_be_bytes();
        let imm = (service != Service::Rc || choice.kind & 1 != 0).then_some(number);
        let op = imm.map_or(SendOp::Send, SendOp::SendImm);
        let (offset, len) = (choice.offset, choice.len);
        if self.post_source(world, service, op, (offset, len), choice) {
            let message = Message { offset, len, imm, placed: true };
            self.ports[service as usize].sent.push(message);
        }
    }

    /// A WRITE on UC: it puts each byte where it stands in the source, so that whatever arrives of
    /// whichever is right.
    fn loose_write(&mut self, world: &mut World, peer: &Side, choice: &Choice) {
        let offset = choice.offset.min(AREA_LEN - 1);
        let len = choice.len.min(AREA_LEN - offset);
        let op = SendOp::Write(remote(&peer.ports[Service::Uc as usize].area, offset));
        self.post_source(world, Service::Uc, op, (offset, len), choice);
    }

    /// A WRITE on RC, with immediate data or without.
    fn write(&mut self, world: &mut World, peer: &mut Side, choice: &Choice) {
        let (offset, to) = (choice.offset, choice.offset * 5 % AREA_LEN);
        let len = choice.len.min(AREA_LEN - to);
        let remote = remote(&peer.ports[Service::Rc as usize].area, to);
        let imm = [choice.kind; 4];
        let with_imm = choice.kind & 3 == 0;
        let op = if with_imm { SendOp::WriteImm(remote, imm) } else { SendOp::Write(remote) };
        if self.post_source(world, Service::Rc, op, (offset, len), choice) {
            let model = peer.area_model[to..to + len].iter_mut().zip(offset..);
            model.for_each(|(byte, at)| *byte = pattern(at));
            if with_imm {
                let message = Message { offset, len, imm: Some(imm), placed: false };
                self.ports[Service::Rc as usize].sent.push(message);
            }
        }
    }

    /// What is answered by more than an ACK: READ, atomics, FLUSH.
    fn fetch(&mut self, world: &mut World, peer: &mut Side, choice: &Choice) {
        let rc = Service::Rc as usize;
        let (offset, part) = (choice.offset, self.fetches % PARTS * PART_LEN);
        let word = offset.min(AREA_LEN - 8);
        let at_word = remote(&peer.ports[rc].area, word);
        let value = choice.len as u64;
        let (op, atomic) = match choice.kind & 7 {
            0 => {
                let op = SendOp::CompareSwap { remote: at_word, compare: 0, swap: value };
                (op, Some(AtomicOp::CompareSwap { compare: 0, swap: value }))
            }
            1 | 2 => {
                let op = SendOp::FetchAdd { remote: at_word, add: value };
                (op, Some(AtomicOp::FetchAdd(value)))
            }
            3 => (SendOp::AtomicWrite(at_word, value), Some(AtomicOp::Store(value))),
            4 => {
                let (level, placement) = (FlushLevel::Region, Access::FLUSH_GLOBAL);
                (SendOp::Flush { remote: at_word, length: 0, level, placement }, None)
            }
            _ => (SendOp::Read(remote(&peer.ports[rc].source, offset)), None),
        };
        let result_len = match op {
            SendOp::Read(_) => choice.len,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 8,
            _ => 0,
        };
        let sge = [self.sink.slice(part, result_len)];
        let sges: &[Sge] = if result_len == 0 { &[] } else { &sge };
        if self.post(world, Service::Rc, op, SendData::Sges(sges), choice.flags).is_err() {
            return;
        }
        self.fetches += 1;
        let result = &mut self.sink_model[part..part + result_len];
        match atomic {
            None => result.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = pattern(at)),
            Some(atomic) => {
                let bytes = &mut peer.area_model[word..word + 8];
                result.copy_from_slice(&bytes[..result_len]);
                let original = u64::from_ne_bytes((&*bytes).try_into().expect("eight bytes"));
                bytes.copy_from_slice(&atomic.apply(original).to_ne_bytes());
            }
        }
    }

    /// Takes all completions; receives must hold what `peer` has sent.
    pub fn poll(&mut self, world: &mut World, peer: &Side) {
        for service in Service::ALL {
            let end = self.end(service);
            for wc in world.poll(self.node, end.send_cq).expect(VALID) {
                self.ledger.completed(&wc);
                self.judge(service, &wc);
            }
            for wc in world.poll(self.node, end.recv_cq).expect(VALID) {
                self.ledger.completed(&wc);
                self.judge(service, &wc);
                self.take(world, service, peer, &wc);
            }
        }
    }

    /// Nothing may fail but for want of answers.
    fn judge(&mut self, service: Service, wc: &Wc) {
        match wc.status {
            WcStatus::Success => {}
            WcStatus::RetryExcErr | WcStatus::WrFlushErr if service == Service::Rc => {
                self.gave_up = true;
            }
            _ => panic!("{service:?}: {wc:?}"),
        }
    }

    fn take(&mut self, world: &World, service: Service, peer: &Side, wc: &Wc) {
        let port = &mut self.ports[service as usize];
        let (wr_id, part) = port.recvs.pop_front().expect("a receive was posted");
        assert_eq!(wr_id, wc.wr_id);
        if wc.status != WcStatus::Success {
            return;
        }
        let sent = &peer.ports[service as usize].sent;
        let number = match (service, wc.imm_data) {
            (Service::Rc, _) => port.taken,
            (_, imm) => u32::from_be_bytes(imm.expect("every message has a number")) as usize,
        };
        port.taken += 1;
        let message = sent[number];
        assert_eq!(wc.imm_data, message.imm);
        let skip = if service == Service::Ud { GRH_LEN } else { 0 };
        assert_eq!(wc.byte_len as usize, skip + message.len);
        if message.placed {
            let bytes = &world.bytes(&port.inbox)[part * PART_LEN + skip..][..message.len];
            let expected = (message.offset..).map(pattern);
            assert!(bytes.iter().copied().eq(expected.take(message.len)), "{message:?} differs");
        }
    }

    /// What must hold in the end, whether RC came through or gave up.
    pub fn check(&self, world: &World, peer: &Side, whole: bool) {
        for port in &self.ports {
            assert_eq!(self.ledger.due(Queue::Send(port.end.qpn)), 0, "{:?}", port.end);
        }
        let rc = &self.ports[Service::Rc as usize];
        if whole {
            assert_eq!(rc.taken, peer.ports[Service::Rc as usize].sent.len());
            assert!(world.bytes(&rc.area) == self.area_model, "written memory differs");
            assert!(world.bytes(&self.sink) == self.sink_model, "what was read differs");
        }
        let loose = world.bytes(&self.ports[Service::Uc as usize].area);
        let right = |(at, &byte): (usize, &u8)| byte == 0 || byte == pattern(at);
        assert!(loose.iter().enumerate().all(right), "loose writes differ");
        let memory = world.device_ref(self.node).memory();
        memory.check_canaries().expect("a byte outside all buffers has changed");
        assert_eq!(memory.stray_accesses(), 0);
    }
}

fn remote(buffer: &Buffer, offset: usize) -> Remote {
    Remote { addr: buffer.addr + offset as u64, rkey: buffer.keys.rkey }
}
