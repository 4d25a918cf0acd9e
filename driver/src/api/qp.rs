//! Queue pairs: made, connected to a peer, posted to.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, Mtu, QpAttr, QpCap, QpInit, QpState, QpType, Qpn, VerbsError,
};

use super::ah::HOP_LIMIT;
use super::work::{RecvBatch, SendBatch};
use super::{Cq, Error, LocalSlice, Pd, SendRequest, Srq, Xrcd};
use crate::engine::{QueuePair, Subject};
use crate::sync::lock;

/// What a QP is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpOptions<'a> {
    /// RC, UC, UD, one of the two of XRC, or raw packets: each send is then a whole Ethernet frame,
    /// put on the link as it is, from the first byte of the destination MAC on and without FCS.
    pub qp_type: QpType,
    /// Where sends complete; not looked at for an XRC target.
    pub send_cq: &'a Cq,
    /// Where receives complete; not looked at for XRC.
    pub recv_cq: &'a Cq,
    /// Receives from here instead of a queue of its own.
    pub srq: Option<&'a Srq>,
    /// Domain of an XRC target.
    pub xrcd: Option<&'a Xrcd>,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// What the peer may ask for, as far as the regions allow it too (all but UD).
    pub access: Access,
    /// What datagrams to it must name (UD).
    pub qkey: u32,
}

impl<'a> QpOptions<'a> {
    /// Queues of 128 work requests that complete in `cq`; the peer may ask for everything the
    /// regions allow; Q_Key 0x11111111.
    pub fn new(qp_type: QpType, cq: &'a Cq) -> QpOptions<'a> {
        QpOptions {
            qp_type,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            xrcd: None,
            cap: QpCap::default(),
            access: Access::REMOTE | Access::LOCAL_WRITE,
            qkey: 0x1111_1111,
        }
    }
}

/// How a connection behaves. Codes are those of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Payload bytes of a full packet; none: the most that both ends take.
    pub path_mtu: Option<Mtu>,
    /// ACK timeout: 4.096 µs times 2 to this power; 0 for none.
    pub timeout: u8,
    /// Retries after timeouts, 0 to 7.
    pub retry_cnt: u8,
    /// Retries where the peer has no receive posted, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// How long the peer is to wait before such a retry: code 0 to 31 of IBA table 45.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding in each direction.
    pub max_rd_atomic: u8,
    /// DSCP and ECN bits of the packets.
    pub traffic_class: u8,
}

impl Default for ConnectOptions {
    /// 67 ms and 7 retries before a peer is given up, 0.64 ms between tries for ever where it has
    /// no receive posted, 16 READs and atomics.
    fn default() -> ConnectOptions {
        ConnectOptions {
            path_mtu: None,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            traffic_class: 0,
        }
    }
}

/// What a peer is told of a QP to connect to it: plain numbers and an address. As text,
/// `qpn,psn,mtu,gid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN it sends.
    pub psn: Psn,
    /// The largest payload of a packet its device takes.
    pub mtu: Mtu,
    /// Address of its device.
    pub gid: Gid,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { qpn, psn, mtu, gid } = self;
        write!(f, "{},{},{},{gid}", qpn.0, psn.value(), mtu.bytes())
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint, Error> {
        let parse = || {
            let mut parts = text.trim().splitn(4, ',');
            let qpn = Qpn(parts.next()?.parse().ok().filter(|&qpn: &u32| qpn < 1 << 24)?);
            let psn = Psn::new(parts.next()?.parse().ok().filter(|&psn: &u32| psn < 1 << 24)?);
            let mtu = Mtu::from_bytes(parts.next()?.parse().ok()?)?;
            let gid = Gid::from(parts.next()?.parse::<std::net::Ipv6Addr>().ok()?);
            Some(Endpoint { qpn, psn, mtu, gid })
        };
        let expected = "an endpoint: qpn,psn,mtu,gid";
        parse().ok_or_else(|| Error::Parse { expected, text: text.to_owned() })
    }
}

/// A queue pair. When it is dropped its work requests vanish without completions.
#[derive(Debug)]
pub struct Qp {
    pd: Pd,
    qp: Arc<QueuePair>,
    id: u64,
    psn: Psn,
    /// Multicast groups it is attached to.
    groups: Mutex<Vec<Gid>>,
    // What it uses lives as long as it does.
    send_cq: Cq,
    recv_cq: Cq,
    _srq: Option<Srq>,
    _xrcd: Option<Xrcd>,
}

impl Qp {
    pub(super) fn new(pd: &Pd, options: &QpOptions) -> Result<Qp, Error> {
        const VERB: &str = "create_qp";
        let QpOptions { qp_type, send_cq, recv_cq, srq, xrcd, cap, access, qkey } = *options;
        let context = pd.context();
        let refused = |error| {
            context.refused(VERB, error, || {
                let limits = &context.inner.limits;
                let (wr, sge, inline) = (limits.max_wr, limits.max_sge, limits.max_inline);
                format!(
                    "{qp_type:?} with {cap:?}: queues take {wr} work requests of {sge} slices and \
                     {inline} inline bytes; objects are of one device; an XRC target needs a domain"
                )
            })
        };
        if qp_type == QpType::Gsi {
            return Err(refused(VerbsError::NotSupported));
        }
        let is_target = qp_type == QpType::XrcRecv;
        let receives_here = !matches!(qp_type, QpType::XrcSend | QpType::XrcRecv);
        let init = QpInit {
            qp_type,
            pd: (!is_target).then_some(pd.handle()),
            send_cq: (!is_target).then_some(send_cq.handle()),
            recv_cq: receives_here.then_some(recv_cq.handle()),
            srq: srq.map(Srq::handle),
            xrcd: xrcd.map(Xrcd::handle),
            cap,
            sq_sig_all: false,
        };
        let id = context.next_id();
        let events = context.inner.events.clone();
        let qp = Qp {
            qp: context.engine().create_qp(&init, events, id).map_err(refused)?,
            pd: pd.clone(),
            id,
            // Hard to guess, and another for each QP: stale packets of an earlier one do not fit.
            psn: Psn::new(RandomState::new().hash_one(id) as u32),
            groups: Mutex::new(Vec::new()),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            _srq: srq.cloned(),
            _xrcd: xrcd.cloned(),
        };
        qp.initialize(access, qkey)?;
        Ok(qp)
    }

    /// To INIT; one without a peer, UD or raw packets, all the way to RTS.
    fn initialize(&self, access: Access, qkey: u32) -> Result<(), Error> {
        let mut attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            qp_access_flags: access,
            qkey,
            sq_psn: self.psn,
            ..QpAttr::default()
        };
        let with_port = AttrMask::STATE | AttrMask::PORT;
        let with_pkey = with_port | AttrMask::PKEY_INDEX;
        let (of_init, of_rts) = match self.qp_type() {
            QpType::Ud => (with_pkey | AttrMask::QKEY, AttrMask::SQ_PSN),
            QpType::RawPacket => (with_port, AttrMask::NONE),
            _ => return self.modify(&attr, with_pkey | AttrMask::ACCESS_FLAGS),
        };
        self.modify(&attr, of_init)?;
        attr.qp_state = QpState::Rtr;
        self.modify(&attr, AttrMask::STATE)?;
        attr.qp_state = QpState::Rts;
        self.modify(&attr, AttrMask::STATE | of_rts)
    }

    /// How events name it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    /// Its service.
    pub fn qp_type(&self) -> QpType {
        self.qp.init().qp_type
    }

    /// Where its sends complete.
    pub fn send_cq(&self) -> &Cq {
        &self.send_cq
    }

    /// Where its receives complete.
    pub fn recv_cq(&self) -> &Cq {
        &self.recv_cq
    }

    /// What the peer needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        let context = self.pd.context();
        let (mtu, gid) = (context.inner.limits.active_mtu, context.gid());
        Endpoint { qpn: self.qpn(), psn: self.psn, mtu, gid }
    }

    /// Connects it to `peer`, ready to receive and to send. The peer has to do the same; what is
    /// sent before it has is sent again.
    ///
    /// # Errors
    /// If it is connected already or has no peer (UD, raw packets), an option is out of range, or
    /// the peer's address is not of the family of the device's.
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        let context = self.pd.context();
        let most = peer.mtu.min(context.inner.limits.active_mtu);
        let mut attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: options.path_mtu.unwrap_or(most),
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            sq_psn: self.psn,
            ah_attr: AhAttr {
                dgid: peer.gid,
                sgid_index: context.inner.gid_index,
                hop_limit: HOP_LIMIT,
                traffic_class: options.traffic_class,
                ..AhAttr::default()
            },
            max_rd_atomic: options.max_rd_atomic,
            max_dest_rd_atomic: options.max_rd_atomic,
            min_rnr_timer: options.min_rnr_timer,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            ..QpAttr::default()
        };
        let responder = AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
        let retries = AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY;
        let requester = retries | AttrMask::MAX_QP_RD_ATOMIC;
        let (of_rtr, of_rts) = match self.qp_type() {
            QpType::Rc => (responder, requester),
            QpType::XrcSend => (AttrMask::NONE, requester),
            QpType::XrcRecv => (responder, AttrMask::TIMEOUT),
            _ => (AttrMask::NONE, AttrMask::NONE),
        };
        let rtr = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN;
        self.modify(&attr, rtr | of_rtr)?;
        attr.qp_state = QpState::Rts;
        self.modify(&attr, AttrMask::STATE | AttrMask::SQ_PSN | of_rts)
    }

    /// Changes state and attributes, as verbs do: for all that [`Qp::connect`] does not cover, for
    /// instance the way to the error state, which flushes the queues.
    ///
    /// # Errors
    /// If the transition does not exist, an attribute is missing, not allowed or out of range.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        let context = self.pd.context();
        context
            .engine()
            .modify_qp(&self.qp, attr, mask)
            .map_err(|error| context.refused("modify", error, || self.explain(attr, mask)))
    }

    /// Attributes and the present state.
    ///
    /// # Errors
    /// In a forked child.
    pub fn query(&self) -> Result<QpAttr, Error> {
        let context = self.pd.context();
        let queried = context.engine().query_qp(&self.qp);
        queried.map(|(attr, _)| attr).map_err(|error| context.refused("query", error, String::new))
    }

    /// Posts a send work request.
    ///
    /// # Errors
    /// As [`SendBatch::push`].
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        self.send_batch().push(request)
    }

    /// Begins to post sends, all at once when the batch is dropped. Until then whoever else posts
    /// sends here, or resets the QP, waits: the thread that holds the batch must not.
    pub fn send_batch(&self) -> SendBatch<'_> {
        SendBatch::new(self.pd.context(), &self.qp)
    }

    /// Posts a receive: the next message goes to `slices`. A datagram has 40 bytes of network
    /// header before it.
    ///
    /// # Errors
    /// As [`RecvBatch::push`].
    pub fn post_recv(&self, wr_id: u64, slices: &[LocalSlice<'_>]) -> Result<(), Error> {
        self.recv_batch().push(wr_id, slices)
    }

    /// Begins to post receives, all at once when the batch is dropped. Until then whoever else
    /// posts receives here, or resets the QP, waits: the thread that holds the batch must not.
    pub fn recv_batch(&self) -> RecvBatch<'_> {
        let (context, cap) = (self.pd.context(), self.qp.init().cap);
        let batch = context.engine().recv(&self.qp);
        RecvBatch::new(context, batch, cap.max_recv_wr, cap.max_recv_sge)
    }

    /// Has a UD QP hear a multicast group, until it is dropped or [`Qp::detach`]ed.
    ///
    /// # Errors
    /// If it is not UD, or `group` is no group.
    pub fn attach(&self, group: Gid) -> Result<(), Error> {
        self.set_multicast("attach", group, true)?;
        let mut groups = lock(&self.groups);
        if !groups.contains(&group) {
            groups.push(group);
        }
        Ok(())
    }

    /// Ends [`Qp::attach`].
    ///
    /// # Errors
    /// If it is not attached.
    pub fn detach(&self, group: Gid) -> Result<(), Error> {
        self.set_multicast("detach", group, false)?;
        lock(&self.groups).retain(|&other| other != group);
        Ok(())
    }

    fn set_multicast(&self, verb: &'static str, group: Gid, attached: bool) -> Result<(), Error> {
        let context = self.pd.context();
        context.engine().set_multicast(&self.qp, group, attached).map_err(|error| {
            let cause = || format!("group {group}, of a {:?} QP", self.qp_type());
            context.refused(verb, error, cause)
        })
    }

    /// Which part of a refused modification is at fault.
    fn explain(&self, attr: &QpAttr, mask: AttrMask) -> String {
        let limits = &self.pd.context().inner.limits;
        let max_mtu = limits.active_mtu;
        let checks = [
            (AttrMask::PATH_MTU, "path_mtu", attr.path_mtu.bytes(), max_mtu.bytes()),
            (AttrMask::TIMEOUT, "timeout", attr.timeout.into(), 31),
            (AttrMask::RETRY_CNT, "retry_cnt", attr.retry_cnt.into(), 7),
            (AttrMask::RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 7),
            (AttrMask::MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer.into(), 31),
            (
                AttrMask::MAX_QP_RD_ATOMIC,
                "max_rd_atomic",
                attr.max_rd_atomic.into(),
                limits.max_rd_atomic.into(),
            ),
            (
                AttrMask::MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                attr.max_dest_rd_atomic.into(),
                limits.max_rd_atomic.into(),
            ),
        ];
        for (bit, name, value, most) in checks {
            if mask.has(bit) && value > most {
                return format!("{name} is {value}, at most {most}");
            }
        }
        let (from, own) = (self.qp.state(), self.pd.context().gid());
        let mut cause = format!("from {from:?} to {:?} with attributes {mask:?}", attr.qp_state);
        if mask.has(AttrMask::AV) {
            let path = format!(", from address {own} to {}", attr.ah_attr.dgid);
            cause.push_str(&path);
        }
        cause
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let context = self.pd.context();
        for group in std::mem::take(&mut *lock(&self.groups)) {
            let _ = context.engine().set_multicast(&self.qp, group, false);
        }
        // The only error left is that of a forked child, where there is nothing to destroy.
        let _: Result<(), VerbsError> = context.engine().destroy_qp(&self.qp);
        context.forget(Subject::Qp(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_as_text() {
        let gid = Gid::from(std::net::Ipv4Addr::new(10, 1, 2, 3));
        let endpoint =
            Endpoint { qpn: Qpn(0x1_0011), psn: Psn::new(0xff_ffff), mtu: Mtu::Mtu1024, gid };
        assert_eq!(endpoint.to_string(), "65553,16777215,1024,::ffff:10.1.2.3");
        assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
        for wrong in ["", "1,2,3", "16777216,0,1024,::1", "1,2,1000,::1", "1,2,1024,::1,5"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
