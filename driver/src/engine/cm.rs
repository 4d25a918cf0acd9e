//! Connection management on a device: the general services QP and the datagrams it carries, who is
//! told what comes of them, and whether the peers' processes still live.
//!
//! [`Cm`] decides, this moves. The QP is made with the verbs of everybody else, but its completions
//! end here. A peer's communication ID names the slot of its process, so a connection whose process
//! ends is told so within [`LOOK_NS`], as the kernel of a killed process would tell.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::mad::{Cm, CmConfig, CmEvent, CmEventKind, CommId, Path};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Access, Ah, AhAttr, AttrMask, Cq, GSI_QKEY, Mr, Pd, QpAttr, QpCap, QpInit, QpState, QpType,
    Qpn, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, UdTarget, VerbsError, Wc, WcOpcode,
    WcStatus,
};
use ferroce_stack::wire::{CmMessage, Mad};
use ferroce_stack::{Device, MrInit};

use super::batch::Inner;
use super::{Engine, Guard};
use crate::fabric::{Member, Route};
use crate::identity::eui64;
use crate::memory::{HostMemory, Region};
use crate::resolve::HOP_LIMIT;
use crate::sys;

/// Bytes in front of a received datagram: a GRH, or what stands for it.
const GRH_LEN: usize = 40;

/// Room for one received datagram.
const BUFFER_LEN: usize = GRH_LEN + MAD_LEN;

/// Datagrams that may have arrived and not been looked at. All are between two batches, which
/// take fewer.
const RECEIVES: usize = 256;

/// Datagrams that may wait to be sent.
const SENDS: usize = 128;

/// Address handles kept.
const AHS: usize = 64;

/// Completions looked at at a time.
const WC_BATCH: usize = 32;

/// How often it is looked whether the peers' processes live.
const LOOK_NS: u64 = 250_000_000;

/// Who is told what happens to connections.
pub trait CmSink: Send + Sync + Debug {
    /// Takes an event. Called with the engine's lock held: it must not lock the engine again, nor
    /// block.
    fn deliver(&self, event: CmEvent);
}

/// A connection manager, to oneself. When the guard goes, what is to be sent is sent and events
/// are delivered.
#[derive(Debug)]
pub struct CmGuard<'a>(Guard<'a>);

impl CmGuard<'_> {
    /// The time, as the calls of [`Cm`] want it.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(sys::now_ns())
    }
}

impl Deref for CmGuard<'_> {
    type Target = Cm;

    fn deref(&self) -> &Cm {
        &self.0.inner.services.as_ref().expect("was there when the guard was made").cm
    }
}

impl DerefMut for CmGuard<'_> {
    fn deref_mut(&mut self) -> &mut Cm {
        &mut self.0.inner.services.as_mut().expect("was there when the guard was made").cm
    }
}

impl Engine {
    /// Starts connection management on this device and says so to the fabric. Events go to `sink`.
    /// Once; later calls do nothing.
    ///
    /// # Errors
    /// As [`Engine::lock`]; [`VerbsError::NoMemory`], also if the device is full of objects.
    pub fn start_cm(&self, sink: Arc<dyn CmSink>) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        let Inner { device, member, services, .. } = &mut *guard.inner;
        if services.is_none() {
            *services = Some(Box::new(Services::start(device, member, sink)?));
            member.serve_connections();
        }
        Ok(())
    }

    /// The connection manager of this device, to oneself.
    ///
    /// # Errors
    /// As [`Engine::lock`]; [`VerbsError::Invalid`] before [`Engine::start_cm`].
    pub fn cm(&self) -> Result<CmGuard<'_>, VerbsError> {
        let guard = self.lock()?;
        match guard.inner.services {
            Some(_) => Ok(CmGuard(guard)),
            None => Err(VerbsError::Invalid),
        }
    }

    /// Whether a process of the fabric has the address. One that has died has not.
    pub fn reaches(&self, gid: Gid) -> bool {
        self.lock().is_ok_and(|mut guard| guard.inner.member.reaches(gid))
    }
}

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    slot: u8,
    generation: u64,
}

/// Connection management and its QP.
#[derive(Debug)]
pub(super) struct Services {
    pub cm: Cm,
    sink: Arc<dyn CmSink>,
    pd: Pd,
    cq: Cq,
    lkey: u32,
    /// What arrives, in pieces of [`BUFFER_LEN`].
    buffers: Region,
    /// Address handles made so far. A datagram on its way needs its own.
    ahs: Vec<(AhAttr, Ah)>,
    /// Where the peers of connections are.
    holders: HashMap<CommId, Holder>,
    /// When to look whether they live; none while there are none.
    look_at: Option<Instant>,
    /// Datagrams there was no way for.
    pub unsent: u64,
}

/// What is made for the QP, to be undone if not all of it can be.
#[derive(Debug, Default)]
struct Objects {
    pd: Option<Pd>,
    cq: Option<Cq>,
    mr: Option<Mr>,
    qpn: Option<Qpn>,
}

impl Objects {
    fn destroy(self, device: &mut Device<HostMemory>) {
        let outcomes = [
            self.qpn.map(|qpn| device.destroy_qp(qpn)),
            self.mr.map(|mr| device.dereg_mr(mr)),
            self.cq.map(|cq| device.destroy_cq(cq)),
            self.pd.map(|pd| device.dealloc_pd(pd)),
        ];
        debug_assert!(outcomes.iter().flatten().all(Result::is_ok));
    }
}

impl Services {
    fn start(
        device: &mut Device<HostMemory>,
        member: &Member,
        sink: Arc<dyn CmSink>,
    ) -> Result<Services, VerbsError> {
        let buffers = Region::zeroed(RECEIVES * BUFFER_LEN).map_err(|_| VerbsError::NoMemory)?;
        let mut objects = Objects::default();
        let (pd, cq, lkey) = match make_qp(device, &buffers, &mut objects) {
            Ok(made) => made,
            Err(error) => {
                objects.destroy(device);
                return Err(error);
            }
        };
        let slot = u32::from(member.slot());
        let guid = device.query_gid(0).map_or(0, |entry| u64::from_be_bytes(eui64(entry.mac)));
        let config = CmConfig {
            ids: slot << 24..(slot << 24 | 0xff_ffff),
            ca_guid: guid,
            seed: member.generation() ^ sys::now_ns(),
            ..CmConfig::default()
        };
        let services = Services {
            cm: Cm::new(config),
            sink,
            pd,
            cq,
            lkey,
            buffers,
            ahs: Vec::new(),
            holders: HashMap::new(),
            look_at: None,
            unsent: 0,
        };
        for index in 0..RECEIVES {
            services.post_recv(device, index);
        }
        Ok(services)
    }

    /// Whether completions of `cq` are for nobody else.
    pub fn owns(&self, cq: Cq) -> bool {
        self.cq == cq
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.cm.poll_timeout().into_iter().chain(self.look_at).min()
    }

    /// Whether there are datagrams that had to wait for others, which have been sent since.
    pub fn has_more(&self, device: &Device<HostMemory>) -> bool {
        !self.cm.is_quiet() && device.outstanding(Qpn::GSI).is_some_and(|(sends, _)| sends == 0)
    }

    /// Takes what has arrived, lets time pass, hands on what is to be sent, and tells what came of
    /// it; whether there was anything.
    pub fn run(
        &mut self,
        now: Instant,
        device: &mut Device<HostMemory>,
        member: &mut Member,
    ) -> bool {
        let mut worked = self.receive(now, device);
        if self.cm.poll_timeout().is_some_and(|at| at <= now) {
            self.cm.handle_timeout(now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look(now, member);
        }
        worked |= self.transmit(now, device, member);
        while let Some(event) = self.cm.poll_event() {
            worked = true;
            if let CmEventKind::Request(request) = &event.kind {
                let slot = slot_of(request.remote_comm_id);
                self.note(now, member, event.id, request.path.dgid, slot);
            }
            self.sink.deliver(event);
        }
        worked
    }

    fn receive(&mut self, now: Instant, device: &mut Device<HostMemory>) -> bool {
        let mut received = false;
        loop {
            let mut batch = [Wc::default(); WC_BATCH];
            let count = device.poll_cq(self.cq, &mut batch).unwrap_or(0);
            for wc in batch[..count].iter().filter(|wc| wc.opcode == WcOpcode::Recv) {
                received = true;
                let index = wc.wr_id as usize;
                if wc.status == WcStatus::Success {
                    self.take(now, index, wc.byte_len as usize);
                }
                self.post_recv(device, index);
            }
            if count < WC_BATCH {
                return received;
            }
        }
    }

    fn take(&mut self, now: Instant, index: usize, len: usize) {
        let mut bytes = [0; BUFFER_LEN];
        let len = len.clamp(GRH_LEN, BUFFER_LEN);
        if self.buffers.read_at(index * BUFFER_LEN, &mut bytes[..len]).is_ok() {
            self.cm.handle_mad(now, &path_back(&bytes), &bytes[GRH_LEN..len]);
        }
    }

    fn post_recv(&self, device: &mut Device<HostMemory>, index: usize) {
        let addr = self.buffers.addr() + (index * BUFFER_LEN) as u64;
        let sges = [Sge { addr, length: BUFFER_LEN as u32, lkey: self.lkey }];
        // As many are posted as the queue takes, each again when it has completed.
        let _ = device.post_recv(Qpn::GSI, &RecvWr { wr_id: index as u64, sges: &sges });
    }

    fn transmit(
        &mut self,
        now: Instant,
        device: &mut Device<HostMemory>,
        member: &mut Member,
    ) -> bool {
        let mut posted = false;
        loop {
            let waiting = device.outstanding(Qpn::GSI).map_or(0, |(sends, _)| sends);
            if self.ahs.len() >= AHS && waiting == 0 {
                for (_, ah) in self.ahs.drain(..) {
                    let _ = device.destroy_ah(ah);
                }
            }
            if waiting >= SENDS || self.ahs.len() >= AHS {
                return posted;
            }
            let Some((path, mad)) = self.cm.poll_transmit() else { return posted };
            posted = true;
            self.note_sent(now, member, path.dgid, &mad);
            if self.post_send(device, member, &path, &mad).is_err() {
                self.unsent += 1;
            }
        }
    }

    fn post_send(
        &mut self,
        device: &mut Device<HostMemory>,
        member: &mut Member,
        path: &Path,
        mad: &[u8],
    ) -> Result<(), VerbsError> {
        let gids = (0..=u8::MAX).map_while(|index| Some((index, device.query_gid(index)?.gid)));
        let sgid_index = gids.into_iter().find(|(_, gid)| *gid == path.sgid);
        let attr = AhAttr {
            dgid: path.dgid,
            sgid_index: sgid_index.ok_or(VerbsError::Invalid)?.0,
            flow_label: path.flow_label,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            sl: path.sl,
            dmac: member.mac_of(path.dgid).unwrap_or_default(),
        };
        let ah = match self.ahs.iter().find(|(known, _)| *known == attr) {
            Some((_, ah)) => *ah,
            None => {
                let ah = device.create_ah(self.pd, &attr)?;
                self.ahs.push((attr, ah));
                ah
            }
        };
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Send,
            data: SendData::Inline(mad),
            flags: SendFlags::INLINE,
            ud: Some(UdTarget { ah, qpn: Qpn::GSI, qkey: GSI_QKEY }),
            srqn: None,
        };
        device.post_send(Qpn::GSI, &wr)
    }

    /// Remembers which process a connection's datagrams go to: that which listens, then that which
    /// has answered.
    fn note_sent(&mut self, now: Instant, member: &mut Member, dgid: Gid, mad: &[u8; MAD_LEN]) {
        let word = |at: usize| u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]);
        let id = CommId(word(Mad::LEN));
        match Mad::parse(mad).cm_message() {
            // Also when it is sent again: somebody else may listen now.
            Some(CmMessage::Req) => {
                if let Route::Member(slot) = member.route(dgid, Qpn::GSI, mad) {
                    self.note(now, member, id, dgid, slot);
                }
            }
            Some(CmMessage::Rep | CmMessage::Rtu) => {
                self.note(now, member, id, dgid, slot_of(CommId(word(Mad::LEN + 4))));
            }
            _ => {}
        }
    }

    /// Remembers in which slot a connection's peer is, unless it is this process or has left.
    fn note(&mut self, now: Instant, member: &mut Member, id: CommId, dgid: Gid, slot: u8) {
        if let Some(generation) = member.generation_at(slot, dgid)
            && slot != member.slot()
        {
            self.holders.insert(id, Holder { slot, generation });
            self.look_at.get_or_insert(now + LOOK_NS);
        }
    }

    /// Looks whether the peers' processes live, and ends the connections of those that do not.
    #[cold]
    fn look(&mut self, now: Instant, member: &mut Member) {
        let before = std::mem::take(&mut self.holders);
        let mut lives: HashMap<Holder, bool> = HashMap::new();
        let mut bereft = Vec::new();
        for (id, _, _) in self.cm.peers() {
            let Some(&holder) = before.get(&id) else { continue };
            let is_alive = || member.is_alive(holder.slot, holder.generation);
            if *lives.entry(holder).or_insert_with(is_alive) {
                self.holders.insert(id, holder);
            } else {
                bereft.push(id);
            }
        }
        if !bereft.is_empty() {
            member.reap();
        }
        for id in bereft {
            self.cm.peer_died(now, id);
        }
        self.look_at = (!self.holders.is_empty()).then_some(now + LOOK_NS);
    }

    /// Gives up all connections; those that are established are to be ended.
    pub fn end_all(&mut self, now: Instant) -> usize {
        let ids: Vec<CommId> = self.cm.peers().map(|(id, _, _)| id).collect();
        for &id in &ids {
            self.cm.destroy(now, id);
        }
        ids.len()
    }
}

/// The slot of the process whose ID it is, if that is one of the fabric.
fn slot_of(id: CommId) -> u8 {
    (id.0 >> 24) as u8
}

/// Makes the QP and what it needs, and brings it to RTS.
fn make_qp(
    device: &mut Device<HostMemory>,
    buffers: &Region,
    objects: &mut Objects,
) -> Result<(Pd, Cq, u32), VerbsError> {
    let pd = *objects.pd.insert(device.alloc_pd()?);
    let cq = *objects.cq.insert(device.create_cq(RECEIVES + SENDS)?);
    let addr = buffers.addr();
    let length = buffers.len() as u64;
    let init = MrInit { addr, length, iova: addr, access: Access::LOCAL_WRITE };
    let keys = device.reg_mr(pd, &init)?;
    objects.mr = Some(keys.mr);
    let init = QpInit {
        qp_type: QpType::Gsi,
        pd: Some(pd),
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        xrcd: None,
        cap: QpCap {
            max_send_wr: SENDS as u32,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: MAD_LEN as u32,
        },
        sq_sig_all: false,
    };
    let qpn = *objects.qpn.insert(device.create_qp(&init)?);
    let steps = [
        (QpState::Init, AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::QKEY),
        (QpState::Rtr, AttrMask::STATE),
        (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
    ];
    for (qp_state, mask) in steps {
        let attr = QpAttr { qp_state, qkey: GSI_QKEY, ..QpAttr::default() };
        device.modify_qp(qpn, &attr, mask)?;
    }
    Ok((pd, cq, keys.lkey))
}

/// The way back to the sender of a datagram, from the network header in front of it (IBA
/// A17.4.5.1). It has as many hops before it as any, and no congestion mark yet.
fn path_back(bytes: &[u8; BUFFER_LEN]) -> Path {
    let gid = |at: usize| Gid(std::array::from_fn(|index| bytes[at + index]));
    let ipv4 = |at: usize| {
        let [a, b, c, d]: [u8; 4] = std::array::from_fn(|index| bytes[at + index]);
        Gid::from(std::net::Ipv4Addr::new(a, b, c, d))
    };
    let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let (sgid, dgid, traffic_class, flow_label) = match first >> 28 {
        6 => (gid(24), gid(8), (first >> 20) as u8, first & 0xf_ffff),
        _ => (ipv4(36), ipv4(32), bytes[21], 0),
    };
    let traffic_class = traffic_class & !0b11;
    Path { sgid, dgid, flow_label, traffic_class, hop_limit: HOP_LIMIT, sl: 0 }
}

#[cfg(test)]
mod tests {
    use ferroce_stack::mad::{PortSpace, ServiceId, SidrConnect};
    use ferroce_stack::verbs::Mtu;
    use ferroce_stack::{GidEntry, GidType};

    use super::*;
    use crate::engine::Options;
    use crate::engine::batch::Driver;

    fn gid(text: &str) -> Gid {
        Gid::from_ip(text.parse().unwrap())
    }

    #[derive(Debug)]
    struct Deaf;

    impl CmSink for Deaf {
        fn deliver(&self, _: CmEvent) {}
    }

    /// Asks nobody for `count` connections, from the `first`th path on.
    fn ask(cm: &mut Cm, first: u32, count: u32) {
        for flow_label in first..first + count {
            let (sgid, dgid) = (gid("fd99::1"), gid("fd99::2"));
            let path = Path { sgid, dgid, flow_label, hop_limit: HOP_LIMIT, ..Path::default() };
            let service = ServiceId::new(PortSpace::Udp, 1);
            let asked = SidrConnect {
                cookie: 0,
                service,
                path,
                pkey: 0xffff,
                refused_retries: 0,
                ip: None,
                private_data: &[],
            };
            cm.resolve(Instant::from_nanos(sys::now_ns()), &asked).unwrap();
        }
    }

    #[test]
    fn datagrams_that_waited_for_address_handles_are_due_at_once() {
        let name = format!("ferroce-handles-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let mac = ferroce_stack::wire::Mac([2; 6]);
        let entry = GidEntry { gid: gid("fd99::1"), gid_type: GidType::RoceV2, mac, vlan: None };
        let gids = [entry];
        let options = Options { active_mtu: Mtu::Mtu1024, ..Options::plain(&dir, &gids) };
        let engine = Engine::open(&options).unwrap();
        engine.start_cm(Arc::new(Deaf)).unwrap();
        ask(&mut engine.cm().unwrap(), 0, 10);
        // Nobody else drives meanwhile.
        let mut inner = engine.core.inner.lock().unwrap();
        ask(&mut inner.services.as_mut().unwrap().cm, 10, 2 * AHS as u32);
        inner.batch(Driver::Other);
        assert!(!inner.services.as_ref().unwrap().cm.is_quiet());
        while !inner.services.as_ref().unwrap().cm.is_quiet() {
            assert_eq!(inner.next_timeout(), Some(Instant::default()));
            inner.batch(Driver::Other);
        }
        drop(inner);
        drop(engine);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn way_back_of_ipv4_and_ipv6() {
        let mut bytes = [0; BUFFER_LEN];
        bytes[20..24].copy_from_slice(&[0x45, 0x6b, 1, 44]);
        bytes[28] = 3;
        bytes[32..40].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
        let path = Path {
            sgid: gid("10.9.0.2"),
            dgid: gid("10.9.0.1"),
            flow_label: 0,
            traffic_class: 0x68,
            hop_limit: HOP_LIMIT,
            sl: 0,
        };
        assert_eq!(path_back(&bytes), path);

        let (from, to) = (gid("fd99::1"), gid("fd99::2"));
        bytes[..8].copy_from_slice(&[0x66, 0xba, 0xbc, 0xde, 1, 44, 17, 5]);
        bytes[8..24].copy_from_slice(&from.0);
        bytes[24..40].copy_from_slice(&to.0);
        let path = Path { sgid: to, dgid: from, flow_label: 0xa_bcde, ..path };
        assert_eq!(path_back(&bytes), path);
    }
}
