//! Verbs of a script, carried out on the device.

use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, FlushLevel, Mr, Mtu, MwBind, MwType, Pd, QpAttr, QpCap, QpInit,
    QpState, QpType, Qpn, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, Sge, UdTarget,
    VerbsError,
};
use ferroce_stack::{MrChange, MrInit, transition};

use super::{MemoryTarget, QueuePair, Region, SGES, Window, find, find_mut};
use crate::target::{Call, QpAttributes, QpMake, Reply, SendOperation, SendRequest, Span};
use crate::words;

pub(super) type Outcome<T> = Result<T, VerbsError>;

/// An object that must be there.
pub(super) fn found<T>(object: Option<T>) -> Outcome<T> {
    object.ok_or(VerbsError::Invalid)
}

impl MemoryTarget {
    /// Carries a verb out; names that nothing has are refused as stale handles are.
    pub(super) fn carry_out(&mut self, call: &Call) -> Reply {
        let outcome = match call {
            Call::AllocPd { .. }
            | Call::RegMr { .. }
            | Call::DeregMr { .. }
            | Call::ReregMr { .. }
            | Call::ReadMemory { .. }
            | Call::WriteMemory { .. }
            | Call::AllocMw { .. } => self.carry_out_memory(call),
            Call::CreateCq { .. }
            | Call::PollCq { .. }
            | Call::ResizeCq { .. }
            | Call::DestroyCq { .. }
            | Call::OpenXrcd { .. }
            | Call::CreateSrq { .. }
            | Call::ArmSrq { .. }
            | Call::ResizeSrq { .. }
            | Call::QuerySrq { .. }
            | Call::DestroySrq { .. } => self.carry_out_queue(call),
            Call::CreateQp(make) => self.create_qp(make),
            Call::ModifyQp { qp, state, attributes } => self.modify_qp(qp, state, attributes),
            Call::QueryQp { qp } => self.qp(qp).and_then(|qp| {
                let state = self.device.qp_state(qp.qpn)?;
                Ok(Reply::State { state: String::from(words::state(state)) })
            }),
            Call::QueryAttributes { qp } => self.attributes(qp),
            Call::DestroyQp { qp } => {
                self.qpn(qp).and_then(|qpn| self.device.destroy_qp(qpn)).map(|()| Reply::Done)
            }
            Call::Multicast { qp, group, attach } => self.multicast(qp, Gid(*group), *attach),
            Call::PostSend { qp, wr } => self.post_send(qp, wr),
            Call::PostRecv { to, wr_id, sges } => self.post_recv(to, *wr_id, sges),
            Call::Cm(call) => self.carry_out_cm(call),
            Call::Counter { name } => Ok(Reply::Counter { value: self.counter(name) }),
        };
        outcome.unwrap_or_else(|error| Reply::Refused { errno: String::from(errno(error)) })
    }

    fn carry_out_memory(&mut self, call: &Call) -> Outcome<Reply> {
        match call {
            Call::AllocPd { pd } => {
                let handle = self.device.alloc_pd()?;
                self.objects.pds.push((pd.clone(), handle));
                Ok(Reply::Done)
            }
            Call::RegMr { memory, pd, length, iova, access, holds } => {
                self.reg_mr(memory, pd, *length, *iova, Access(*access), holds)
            }
            Call::DeregMr { memory } => {
                self.device.dereg_mr(self.region(memory)?.mr).map(|()| Reply::Done)
            }
            Call::ReregMr { memory, access, pd } => {
                self.rereg_mr(memory, access.map(Access), pd.as_deref())
            }
            Call::ReadMemory { memory, offset, length } => {
                let region = self.region(memory)?;
                let at = region.inside(*offset, *length)?;
                let bytes = found(self.device.memory().bytes(at, *length))?.to_vec();
                Ok(Reply::Bytes { bytes })
            }
            Call::WriteMemory { memory, offset, bytes } => {
                let length = bytes.len() as u64;
                let at = self.region(memory)?.inside(*offset, length)?;
                found(self.device.memory_mut().bytes_mut(at, length))?.copy_from_slice(bytes);
                Ok(Reply::Done)
            }
            Call::AllocMw { window, pd, mw_type } => {
                let mw_type = match mw_type {
                    1 => MwType::Type1,
                    2 => MwType::Type2,
                    _ => return Err(VerbsError::Invalid),
                };
                let (mw, key) = self.device.alloc_mw(self.pd(pd)?, mw_type)?;
                self.objects.windows.push((window.clone(), Window { mw, mw_type, key }));
                Ok(Reply::Key { rkey: key })
            }
            _ => Err(VerbsError::NotSupported),
        }
    }

    pub(super) fn pd(&self, name: &str) -> Outcome<Pd> {
        found(find(&self.objects.pds, name).copied())
    }

    fn region(&self, name: &str) -> Outcome<Region> {
        found(find(&self.objects.memories, name).copied())
    }

    fn qp(&self, name: &str) -> Outcome<&QueuePair> {
        found(find(&self.objects.qps, name))
    }

    fn qpn(&self, name: &str) -> Outcome<Qpn> {
        self.qp(name).map(|qp| qp.qpn)
    }

    fn reg_mr(
        &mut self,
        name: &str,
        pd: &str,
        length: u64,
        iova: Option<u64>,
        access: Access,
        holds: &[u8],
    ) -> Outcome<Reply> {
        let pd = self.pd(pd)?;
        let at = self.device.memory_mut().allocate(length, holds);
        let at = at.ok_or(VerbsError::NoMemory)?;
        let address = iova.unwrap_or(at);
        let keys = self.device.reg_mr(pd, &MrInit { addr: at, length, iova: address, access })?;
        let region = Region { mr: keys.mr, lkey: keys.lkey, at, length, address };
        self.objects.memories.push((String::from(name), region));
        Ok(Reply::Memory { address, lkey: keys.lkey, rkey: keys.rkey })
    }

    fn rereg_mr(&mut self, name: &str, access: Option<Access>, pd: Option<&str>) -> Outcome<Reply> {
        let pd = pd.map(|pd| self.pd(pd)).transpose()?;
        let region = self.region(name)?;
        let keys = self.device.rereg_mr(region.mr, &MrChange { range: None, pd, access })?;
        if let Some(region) = find_mut(&mut self.objects.memories, name) {
            (region.mr, region.lkey) = (keys.mr, keys.lkey);
        }
        Ok(Reply::Memory { address: region.address, lkey: keys.lkey, rkey: keys.rkey })
    }

    fn create_qp(&mut self, make: &QpMake) -> Outcome<Reply> {
        let qp_type = found(words::service_of(&make.service))?;
        let pd = self.pd(&make.pd)?;
        let srq = make.srq.as_ref().map(|name| found(find(&self.objects.srqs, name).copied()));
        let srq = srq.transpose()?;
        let is_target = qp_type == QpType::XrcRecv;
        let receives = !matches!(qp_type, QpType::XrcSend | QpType::XrcRecv);
        let xrcd = match &make.xrcd {
            Some(name) => Some(self.xrcd(name)?),
            None => None,
        };
        let send_cq = if is_target { None } else { Some(self.cq_or_own(make.send_cq.as_deref())?) };
        let recv_cq = if receives { Some(self.cq_or_own(make.recv_cq.as_deref())?) } else { None };
        let cap = QpCap {
            max_send_wr: make.max_send_wr,
            max_recv_wr: make.max_recv_wr,
            max_send_sge: SGES,
            max_recv_sge: SGES,
            max_inline_data: make.max_inline,
        };
        let qpn = self.device.create_qp(&QpInit {
            qp_type,
            pd: (!is_target).then_some(pd),
            send_cq,
            recv_cq,
            srq,
            xrcd,
            cap,
            sq_sig_all: make.signal_all,
        })?;
        let cqs = [send_cq, recv_cq].into_iter().flatten().collect();
        let qp = QueuePair { qpn, qp_type, pd, cqs, ah: None };
        self.objects.qps.push((make.qp.clone(), qp));
        Ok(Reply::Qp { qpn: qpn.0 })
    }

    fn modify_qp(&mut self, name: &str, to: &str, attributes: &QpAttributes) -> Outcome<Reply> {
        let (qpn, qp_type, pd) = self.qp(name).map(|qp| (qp.qpn, qp.qp_type, qp.pd))?;
        let to = found(words::state_of(to))?;
        let from = self.device.qp_state(qpn)?;
        let row = transition(qp_type, from, to);
        let mut mask = row.map_or(AttrMask::NONE, |row| row.required);
        if row.is_some_and(|row| row.optional.has(AttrMask::EN_SQD_ASYNC_NOTIFY)) {
            mask = mask | AttrMask::EN_SQD_ASYNC_NOTIFY;
        }
        for field in &attributes.change {
            mask = mask | found(words::attribute_of(field))?;
        }
        let attr = self.attr(attributes, to)?;
        self.device.modify_qp(qpn, &attr, mask | AttrMask::STATE)?;
        if qp_type == QpType::Ud && to == QpState::Rtr {
            let ah = self.device.create_ah(pd, &attr.ah_attr)?;
            if let Some(qp) = find_mut(&mut self.objects.qps, name) {
                qp.ah = Some(ah);
            }
        }
        Ok(Reply::Done)
    }

    fn attributes(&self, name: &str) -> Outcome<Reply> {
        let (attr, _) = self.device.query_qp(self.qpn(name)?)?;
        let ah = attr.ah_attr;
        let attributes = QpAttributes {
            path_mtu: attr.path_mtu.bytes() as u32,
            dest_qp_num: attr.dest_qp_num.0,
            rq_psn: attr.rq_psn.value(),
            sq_psn: attr.sq_psn.value(),
            access: attr.qp_access_flags.0,
            qkey: attr.qkey,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            min_rnr_timer: attr.min_rnr_timer,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            traffic_class: ah.traffic_class,
            flow_label: ah.flow_label,
            hop_limit: ah.hop_limit,
            sl: ah.sl,
            change: Vec::new(),
        };
        Ok(Reply::Attributes { attributes: Box::new(attributes) })
    }

    fn attr(&self, from: &QpAttributes, qp_state: QpState) -> Outcome<QpAttr> {
        let peer = &self.description.peer;
        let ah_attr = AhAttr {
            dgid: peer.gid,
            sgid_index: 0,
            flow_label: from.flow_label,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
            sl: from.sl,
            dmac: peer.mac,
        };
        Ok(QpAttr {
            qp_state,
            path_mtu: found(Mtu::from_bytes(from.path_mtu as usize))?,
            qkey: from.qkey,
            rq_psn: Psn::new(from.rq_psn),
            sq_psn: Psn::new(from.sq_psn),
            dest_qp_num: Qpn(from.dest_qp_num),
            qp_access_flags: Access(from.access),
            ah_attr,
            max_rd_atomic: from.max_rd_atomic,
            max_dest_rd_atomic: from.max_dest_rd_atomic,
            min_rnr_timer: from.min_rnr_timer,
            port_num: 1,
            timeout: from.timeout,
            retry_cnt: from.retry_cnt,
            rnr_retry: from.rnr_retry,
            en_sqd_async_notify: true,
            ..QpAttr::default()
        })
    }

    fn multicast(&mut self, qp: &str, group: Gid, attach: bool) -> Outcome<Reply> {
        let qpn = self.qpn(qp)?;
        match attach {
            true => self.device.attach_mcast(qpn, group)?,
            false => self.device.detach_mcast(qpn, group)?,
        }
        Ok(Reply::Done)
    }

    fn sges(&self, spans: &[Span]) -> Outcome<Vec<Sge>> {
        let sge = |span: &Span| {
            let region = self.region(&span.memory)?;
            Ok(Sge {
                addr: region.address.wrapping_add(span.offset),
                length: span.length,
                lkey: span.lkey.unwrap_or(region.lkey),
            })
        };
        spans.iter().map(sge).collect()
    }

    /// What lies in the spans, whatever keys they have.
    fn gather(&self, spans: &[Span]) -> Outcome<Vec<u8>> {
        let mut bytes = Vec::new();
        for span in spans {
            let length = u64::from(span.length);
            let at = self.region(&span.memory)?.inside(span.offset, length)?;
            bytes.extend_from_slice(found(self.device.memory().bytes(at, length))?);
        }
        Ok(bytes)
    }

    fn post_send(&mut self, name: &str, wr: &SendRequest) -> Outcome<Reply> {
        let (qpn, ah) = self.qp(name).map(|qp| (qp.qpn, qp.ah))?;
        let flags = SendFlags(wr.flags);
        let (sges, inline) = match flags.has(SendFlags::INLINE) {
            true => (Vec::new(), Some(self.gather(&wr.sges)?)),
            false => (self.sges(&wr.sges)?, None),
        };
        let (op, key) = self.operation(&wr.op)?;
        let ud = match wr.datagram {
            Some((qpn, qkey)) => Some(UdTarget { ah: found(ah)?, qpn: Qpn(qpn), qkey }),
            None => None,
        };
        let data = match &inline {
            Some(bytes) => SendData::Inline(bytes),
            None => SendData::Sges(&sges),
        };
        let request = SendWr { wr_id: wr.wr_id, op, data, flags, ud, srqn: wr.srqn };
        self.device.post_send(qpn, &request)?;
        let (SendOperation::BindMw { window, .. }, Some(key)) = (&wr.op, key) else {
            return Ok(Reply::Done);
        };
        if let Some(window) = find_mut(&mut self.objects.windows, window) {
            window.key = key;
        }
        Ok(Reply::Key { rkey: key })
    }

    /// The operation, and the key that a bind will give its window.
    fn operation(&self, op: &SendOperation) -> Outcome<(SendOp, Option<u32>)> {
        let remote = |addr: u64, rkey: u32| Remote { addr, rkey };
        let op = match *op {
            SendOperation::Send => SendOp::Send,
            SendOperation::SendImm(imm) => SendOp::SendImm(imm),
            SendOperation::SendInv(key) => SendOp::SendInv(key),
            SendOperation::Write { address, key } => SendOp::Write(remote(address, key)),
            SendOperation::WriteImm { address, key, imm } => {
                SendOp::WriteImm(remote(address, key), imm)
            }
            SendOperation::Read { address, key } => SendOp::Read(remote(address, key)),
            SendOperation::CompareSwap { address, key, compare, swap } => {
                SendOp::CompareSwap { remote: remote(address, key), compare, swap }
            }
            SendOperation::FetchAdd { address, key, add } => {
                SendOp::FetchAdd { remote: remote(address, key), add }
            }
            SendOperation::AtomicWrite { address, key, value } => {
                SendOp::AtomicWrite(remote(address, key), value)
            }
            SendOperation::Flush { address, key, length, placement, region } => SendOp::Flush {
                remote: remote(address, key),
                length,
                level: if region { FlushLevel::Region } else { FlushLevel::Range },
                placement: flush_access(placement),
            },
            SendOperation::BindMw { ref window, ref memory, offset, length, access } => {
                let window = found(find(&self.objects.windows, window))?;
                let region = self.region(memory)?;
                let key = window.key & !0xff | window.key.wrapping_add(1) & 0xff;
                let unbinds = length == 0 && window.mw_type == MwType::Type1;
                let bind = MwBind {
                    mr: if unbinds { Mr::NONE } else { region.mr },
                    addr: region.address.wrapping_add(offset),
                    length,
                    access: Access(access),
                };
                return Ok((SendOp::BindMw { mw: window.mw, rkey: key, bind }, Some(key)));
            }
            SendOperation::LocalInv(key) => SendOp::LocalInv(key),
        };
        Ok((op, None))
    }

    fn post_recv(&mut self, to: &str, wr_id: u64, spans: &[Span]) -> Outcome<Reply> {
        let sges = self.sges(spans)?;
        let wr = RecvWr { wr_id, sges: &sges };
        match find(&self.objects.qps, to) {
            Some(qp) => self.device.post_recv(qp.qpn, &wr)?,
            None => {
                let srq = found(find(&self.objects.srqs, to).copied())?;
                self.device.post_srq_recv(srq, &wr)?;
            }
        }
        Ok(Reply::Done)
    }

    fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.device.counters();
        let discards = counters.discards().map(|(reason, count)| (reason.name(), count));
        counters
            .iter()
            .chain(discards)
            .chain(self.cm_counters())
            .find(|&(own, _)| own == name)
            .map(|(_, count)| count)
    }
}

impl Region {
    /// Where `length` bytes at `offset` are in the host.
    fn inside(&self, offset: u64, length: u64) -> Outcome<u64> {
        let end = found(offset.checked_add(length))?;
        if end > self.length {
            return Err(VerbsError::Invalid);
        }
        Ok(self.at + offset)
    }
}

/// The rights a placement type of FLUSH stands for.
fn flush_access(placement: u8) -> Access {
    let right = |bit: u8, access: Access| match placement & bit {
        0 => Access::NONE,
        _ => access,
    };
    right(1, Access::FLUSH_GLOBAL) | right(2, Access::FLUSH_PERSISTENT)
}

/// The name of an errno.
const fn errno(error: VerbsError) -> &'static str {
    match error {
        VerbsError::Invalid => "EINVAL",
        VerbsError::NoMemory => "ENOMEM",
        VerbsError::Busy => "EBUSY",
        VerbsError::NotSupported => "EOPNOTSUPP",
    }
}
