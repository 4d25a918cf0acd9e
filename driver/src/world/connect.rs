//! Objects and connections in a few words: what programs do once before anything happens.

use ferroce_stack::memory::Memory;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, Ah, AhAttr, AttrMask, Cq, GSI_QKEY, MrKeys, Mtu, Pd, QpAttr, QpCap, QpInit, QpState,
    QpType, Qpn, Remote, Sge, Srq, VerbsError, Xrcd,
};
use ferroce_stack::{Device, MrInit, SrqInit};

use super::World;

/// What QPs are made and connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Path MTU.
    pub mtu: Mtu,
    /// ACK timeout code, 0 to 31: 4.096 us * 2^code.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// RNR timer code, 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics each side may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics each side serves at a time.
    pub max_dest_rd_atomic: u8,
    /// First PSN of the first side and of the second.
    pub psns: [Psn; 2],
    /// What the peer may do.
    pub access: Access,
    /// Queue sizes.
    pub cap: QpCap,
    /// Completions of each CQ.
    pub cqe: usize,
    /// Every send makes a completion.
    pub sq_sig_all: bool,
    /// Q_Key, UD only.
    pub qkey: u32,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            mtu: Mtu::Mtu1024,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            psns: [Psn::new(0x10_0000), Psn::new(0x20_0000)],
            access: Access::REMOTE.with(Access::LOCAL_WRITE),
            cap: QpCap::default(),
            cqe: 1024,
            sq_sig_all: false,
            qkey: 0x1111_1111,
        }
    }
}

/// One end: a QP with its protection domain and completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its node.
    pub node: usize,
    /// Its protection domain.
    pub pd: Pd,
    /// Where its sends complete.
    pub send_cq: Cq,
    /// Where its receives complete.
    pub recv_cq: Cq,
    /// The QP.
    pub qpn: Qpn,
}

/// An XRC connection: an initiator, and the target with the SRQ its messages go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcPair {
    /// The initiator's end.
    pub initiator: Endpoint,
    /// The target's end; its `recv_cq` is the SRQ's.
    pub target: Endpoint,
    /// The domain of target and SRQ.
    pub xrcd: Xrcd,
    /// The SRQ; its value goes into [`ferroce_stack::verbs::SendWr::srqn`].
    pub srq: Srq,
}

/// Registered memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its node.
    pub node: usize,
    /// Address of its first byte.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// Handle and keys of its region.
    pub keys: MrKeys,
}

impl Buffer {
    /// All of it, for local use.
    pub fn sge(&self) -> Sge {
        Sge { addr: self.addr, length: self.len as u32, lkey: self.keys.lkey }
    }

    /// `len` bytes from `offset` on, for local use.
    pub fn slice(&self, offset: usize, len: usize) -> Sge {
        Sge { addr: self.addr + offset as u64, length: len as u32, lkey: self.keys.lkey }
    }

    /// It, for the peer.
    pub fn remote(&self) -> Remote {
        Remote { addr: self.addr, rkey: self.keys.rkey }
    }
}

/// Connections.
impl World {
    /// Makes and connects an RC QP on each of two nodes, which may be one.
    ///
    /// # Errors
    /// What the devices refuse, as for every method below.
    pub fn connect_rc(
        &mut self,
        a: usize,
        b: usize,
        options: &ConnectOptions,
    ) -> Result<(Endpoint, Endpoint), VerbsError> {
        self.connect_pair(QpType::Rc, a, b, options)
    }

    /// Makes and connects a UC QP on each of two nodes.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn connect_uc(
        &mut self,
        a: usize,
        b: usize,
        options: &ConnectOptions,
    ) -> Result<(Endpoint, Endpoint), VerbsError> {
        self.connect_pair(QpType::Uc, a, b, options)
    }

    /// Makes an XRC initiator on node `a`, a target and an SRQ on node `b`, and connects them.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn connect_xrc(
        &mut self,
        a: usize,
        b: usize,
        options: &ConnectOptions,
    ) -> Result<XrcPair, VerbsError> {
        let initiator = self.endpoint(a, QpType::XrcSend, options)?;
        let device = self.device(b);
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(options.cqe)?;
        let xrcd = device.open_xrcd()?;
        let srq = device.create_srq(&SrqInit {
            pd,
            max_wr: options.cap.max_recv_wr,
            max_sge: options.cap.max_recv_sge,
            xrc: Some((xrcd, cq)),
        })?;
        let qpn = device.create_qp(&QpInit {
            qp_type: QpType::XrcRecv,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(xrcd),
            cap: options.cap,
            sq_sig_all: false,
        })?;
        let target = Endpoint { node: b, pd, send_cq: cq, recv_cq: cq, qpn };
        self.connect(&initiator, &target, options)?;
        Ok(XrcPair { initiator, target, xrcd, srq })
    }

    /// Makes a UD QP, ready to send.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn ud(&mut self, node: usize, options: &ConnectOptions) -> Result<Endpoint, VerbsError> {
        let endpoint = self.endpoint(node, QpType::Ud, options)?;
        bring_up(self.device(node), endpoint.qpn, &self_attr(options))?;
        Ok(endpoint)
    }

    /// Makes the general services QP of a node, ready to send.
    ///
    /// # Errors
    /// See [`World::connect_rc`]; [`VerbsError::NoMemory`] if the node has one.
    pub fn gsi(&mut self, node: usize, options: &ConnectOptions) -> Result<Endpoint, VerbsError> {
        let endpoint = self.endpoint(node, QpType::Gsi, options)?;
        let attr = QpAttr { qkey: GSI_QKEY, ..self_attr(options) };
        bring_up(self.device(node), endpoint.qpn, &attr)?;
        Ok(endpoint)
    }

    /// Makes an address handle of `endpoint`'s node and protection domain.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn create_ah(&mut self, endpoint: &Endpoint, attr: &AhAttr) -> Result<Ah, VerbsError> {
        self.device(endpoint.node).create_ah(endpoint.pd, attr)
    }

    /// Makes a QP in RESET, with a protection domain and completion queues of its own.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn endpoint(
        &mut self,
        node: usize,
        qp_type: QpType,
        options: &ConnectOptions,
    ) -> Result<Endpoint, VerbsError> {
        let pd = self.device(node).alloc_pd()?;
        self.endpoint_in(node, pd, qp_type, options)
    }

    /// Makes a QP in RESET in a protection domain of its node, with completion queues of its own.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn endpoint_in(
        &mut self,
        node: usize,
        pd: Pd,
        qp_type: QpType,
        options: &ConnectOptions,
    ) -> Result<Endpoint, VerbsError> {
        let device = self.device(node);
        let send_cq = device.create_cq(options.cqe)?;
        let recv_cq = device.create_cq(options.cqe)?;
        let qpn = device.create_qp(&QpInit {
            qp_type,
            pd: Some(pd),
            send_cq: Some(send_cq),
            recv_cq: (qp_type != QpType::XrcSend).then_some(recv_cq),
            srq: None,
            xrcd: None,
            cap: options.cap,
            sq_sig_all: options.sq_sig_all,
        })?;
        Ok(Endpoint { node, pd, send_cq, recv_cq, qpn })
    }

    /// Brings two connected QPs from RESET to RTS, each with the other as its peer.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn connect(
        &mut self,
        a: &Endpoint,
        b: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), VerbsError> {
        let [first, second] = options.psns;
        for (own, peer, sq_psn, rq_psn) in [(a, b, first, second), (b, a, second, first)] {
            let ah_attr = self.ah_attr(peer.node);
            let attr =
                QpAttr { ah_attr, dest_qp_num: peer.qpn, sq_psn, rq_psn, ..self_attr(options) };
            bring_up(self.device(own.node), own.qpn, &attr)?;
        }
        Ok(())
    }

    fn connect_pair(
        &mut self,
        qp_type: QpType,
        a: usize,
        b: usize,
        options: &ConnectOptions,
    ) -> Result<(Endpoint, Endpoint), VerbsError> {
        let first = self.endpoint(a, qp_type, options)?;
        let second = self.endpoint(b, qp_type, options)?;
        self.connect(&first, &second, options)?;
        Ok((first, second))
    }
}

/// Memory.
impl World {
    /// Allocates `len` zero bytes at `endpoint`'s node and registers them in its protection domain.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn register(
        &mut self,
        endpoint: &Endpoint,
        len: usize,
        access: Access,
    ) -> Result<Buffer, VerbsError> {
        let addr = self.device(endpoint.node).memory_mut().alloc(len);
        self.register_at(endpoint, addr, len, access)
    }

    /// Registers memory that is allocated already, as often as one likes.
    ///
    /// # Errors
    /// See [`World::connect_rc`].
    pub fn register_at(
        &mut self,
        endpoint: &Endpoint,
        addr: u64,
        len: usize,
        access: Access,
    ) -> Result<Buffer, VerbsError> {
        let init = MrInit { addr, length: len as u64, iova: addr, access };
        let keys = self.device(endpoint.node).reg_mr(endpoint.pd, &init)?;
        Ok(Buffer { node: endpoint.node, addr, len, keys })
    }

    /// What a buffer holds.
    pub fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.device_ref(buffer.node).memory().bytes(buffer.addr, buffer.len)
    }

    /// What a buffer holds, to be changed.
    pub fn bytes_mut(&mut self, buffer: &Buffer) -> &mut [u8] {
        self.device(buffer.node).memory_mut().bytes_mut(buffer.addr, buffer.len)
    }
}

/// What does not depend on the peer.
fn self_attr(options: &ConnectOptions) -> QpAttr {
    QpAttr {
        path_mtu: options.mtu,
        qkey: options.qkey,
        sq_psn: options.psns[0],
        qp_access_flags: options.access,
        max_rd_atomic: options.max_rd_atomic,
        max_dest_rd_atomic: options.max_dest_rd_atomic,
        min_rnr_timer: options.min_rnr_timer,
        port_num: 1,
        timeout: options.timeout,
        retry_cnt: options.retry_cnt,
        rnr_retry: options.rnr_retry,
        ..QpAttr::default()
    }
}

/// RESET to INIT, RTR and RTS, each step with what its row of the transition table asks for.
///
/// # Errors
/// See [`World::connect_rc`].
pub fn bring_up<M: Memory>(
    device: &mut Device<M>,
    qpn: Qpn,
    attr: &QpAttr,
) -> Result<(), VerbsError> {
    let (_, init) = device.query_qp(qpn)?;
    let steps = [QpState::Init, QpState::Rtr, QpState::Rts].into_iter().zip(masks(init.qp_type));
    for (qp_state, mask) in steps {
        let attr = QpAttr { qp_state, ..*attr };
        device.modify_qp(qpn, &attr, mask | AttrMask::STATE)?;
    }
    Ok(())
}

/// What INIT, RTR and RTS need (IBA 11.2.5.3).
fn masks(qp_type: QpType) -> [AttrMask; 3] {
    type M = AttrMask;
    let init = match qp_type {
        QpType::Ud => M::PKEY_INDEX | M::PORT | M::QKEY,
        QpType::Gsi => M::PKEY_INDEX | M::QKEY,
        QpType::RawPacket => M::PORT,
        _ => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
    };
    let connected = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let responder = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let requester = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    match qp_type {
        QpType::Ud | QpType::Gsi => [init, M::NONE, M::SQ_PSN],
        QpType::RawPacket => [init, M::NONE, M::NONE],
        QpType::Uc => [init, connected, M::SQ_PSN],
        QpType::XrcSend => [init, connected, M::SQ_PSN | requester],
        QpType::XrcRecv => [init, connected | responder, M::SQ_PSN | M::TIMEOUT],
        QpType::Rc => [init, connected | responder, M::SQ_PSN | requester],
    }
}
