//! Queue pairs: how they are made, changed and destroyed.

use core::ffi::c_int;
use std::mem::offset_of;

use ferroce_conform::target::{QpAttributes, QpMake};
use ferroce_conform::words;
use ferroce_stack::transition;
use ferroce_stack::verbs::{AttrMask, Mtu, QpState, QpType};
use ferroce_verbs_layout::{
    IbvAh, IbvAhAttr, IbvPd, IbvQp, IbvQpAttr, IbvQpCap, IbvQpEx, IbvQpInitAttr, IbvQpInitAttrEx,
    zeroed,
};

use crate::device::{Device, PORT, extended};
use crate::error::{CallError, STALE, UNSUPPORTED, check, made};
use crate::scenario::Scenario;

/// Elements of a work request, if the device takes so many.
pub const SGES: u32 = 16;

/// Of `ibv_qp_init_attr_ex`: what is given.
const INIT_PD: u32 = 1 << 0;
const INIT_XRCD: u32 = 1 << 1;
const INIT_SEND_OPS: u32 = 1 << 6;

/// `ibv_qp_create_send_ops_flags`: all of RC's; FLUSH and ATOMIC WRITE are the last two.
const SEND_OPS: u64 = 0b1_1011_1111_1111;

/// All of `ibv_qp_attr_mask` that RoCE has.
const QUERIED: u32 = (1 << 21) - 1;

/// From where to where QPs are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Place of the target's address in its table of GIDs.
    pub index: u8,
    /// GID of the peer.
    pub peer: [u8; 16],
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    /// Its name.
    pub name: String,
    /// Its number.
    pub qpn: u32,
    /// Its service.
    pub service: QpType,
    /// Until it is destroyed.
    object: Option<*mut IbvQp>,
    /// It takes work requests by the extended calls as well.
    extended: Option<*mut IbvQpEx>,
    pd: *mut IbvPd,
    /// As they were given last; the address handle of a UD QP follows from them.
    attributes: Option<QpAttributes>,
    handles: Vec<*mut IbvAh>,
    /// The latest of the handles is of these attributes.
    has_handle: bool,
}

impl Qp {
    /// Makes one.
    ///
    /// # Errors
    /// What the verb says.
    pub fn create(scenario: &mut Scenario<'_>, make: &QpMake) -> Result<Qp, CallError> {
        let service = words::service_of(&make.service)
            .ok_or_else(|| CallError::Wrong(format!("there is no service {}", make.service)))?;
        let pd = scenario.domain(&make.pd)?;
        let init = init_attr(scenario, make, service)?;
        let (object, is_extended) = match service {
            QpType::XrcSend | QpType::XrcRecv => {
                (create_extended(scenario, make, &init, pd)?, false)
            }
            QpType::Rc if scenario.device.has_newer_operations() => {
                match create_extended(scenario, make, &init, pd) {
                    Ok(object) => (object, true),
                    // A library older than the device's newer operations.
                    Err(error) if error == UNSUPPORTED => (create(scenario, init, pd)?, false),
                    Err(error) => return Err(error),
                }
            }
            _ => (create(scenario, init, pd)?, false),
        };
        let to_extended = scenario.device.library.ibv_qp_to_qp_ex.filter(|_| is_extended);
        // SAFETY: the QP has just been made.
        let extended = to_extended.map(|to_extended| unsafe { to_extended(object) });
        Ok(Qp {
            name: make.qp.clone(),
            // SAFETY: as above.
            qpn: unsafe { (*object).qp_num },
            service,
            object: Some(object),
            extended: extended.filter(|extended| !extended.is_null()),
            pd,
            attributes: None,
            handles: Vec::new(),
            has_handle: false,
        })
    }

    /// The library's.
    ///
    /// # Errors
    /// Refused if it is destroyed.
    pub fn object(&self) -> Result<*mut IbvQp, CallError> {
        self.object.ok_or(STALE)
    }

    /// The library's, for the extended calls.
    ///
    /// # Errors
    /// Refused if there are none.
    pub fn extended(&self) -> Result<*mut IbvQpEx, CallError> {
        self.object()?;
        self.extended.ok_or(UNSUPPORTED)
    }

    /// Whether the library's has this address.
    pub fn is(&self, address: usize) -> bool {
        self.object.is_some_and(|object| object.addr() == address)
    }

    /// Its state.
    ///
    /// # Errors
    /// What the verb says.
    pub fn state(&self, device: &Device) -> Result<QpState, CallError> {
        let attr = self.ask(device, AttrMask::STATE)?;
        let state = QpState::ALL.into_iter().find(|state| *state as c_int == attr.qp_state);
        state.ok_or_else(|| CallError::Wrong(format!("there is no state {}", attr.qp_state)))
    }

    /// Its attributes.
    ///
    /// # Errors
    /// What the verb says.
    pub fn query(&self, device: &Device) -> Result<QpAttributes, CallError> {
        let attr = self.ask(device, AttrMask(QUERIED))?;
        let mtu = Mtu::ALL.into_iter().find(|mtu| *mtu as c_int == attr.path_mtu);
        Ok(QpAttributes {
            path_mtu: mtu.map_or(0, |mtu| mtu.bytes() as u32),
            dest_qp_num: attr.dest_qp_num,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            access: attr.qp_access_flags,
            qkey: attr.qkey,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            min_rnr_timer: attr.min_rnr_timer,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            traffic_class: attr.ah_attr.grh.traffic_class,
            flow_label: attr.ah_attr.grh.flow_label,
            hop_limit: attr.ah_attr.grh.hop_limit,
            sl: attr.ah_attr.sl,
            change: Vec::new(),
        })
    }

    fn ask(&self, device: &Device, mask: AttrMask) -> Result<IbvQpAttr, CallError> {
        let object = self.object()?;
        let (mut attr, mut init): (IbvQpAttr, IbvQpInitAttr) = (zeroed(), zeroed());
        let mask = mask.0 as c_int;
        // SAFETY: the QP is there, the attributes are the verb's to fill.
        let code =
            unsafe { (device.library.ibv_query_qp)(object, &raw mut attr, mask, &raw mut init) };
        check(code)?;
        Ok(attr)
    }

    /// Changes its state, with what the transition requires.
    ///
    /// # Errors
    /// What the verb says.
    pub fn modify(
        &mut self,
        device: &Device,
        path: Path,
        state: &str,
        attributes: &QpAttributes,
    ) -> Result<(), CallError> {
        let to = words::state_of(state)
            .ok_or_else(|| CallError::Wrong(format!("there is no state {state}")))?;
        let object = self.object()?;
        // Where there is no such transition, it is the verb that should say so.
        let row = transition(self.service, self.state(device)?, to);
        let mut mask = AttrMask::STATE | row.map_or(AttrMask::NONE, |row| row.required);
        if row.is_some_and(|row| row.optional.has(AttrMask::EN_SQD_ASYNC_NOTIFY)) {
            mask = mask | AttrMask::EN_SQD_ASYNC_NOTIFY;
        }
        for name in &attributes.change {
            mask = mask | mask_of(name)?;
        }
        let mut attr = attributes_of(path, to, attributes)?;
        // SAFETY: the QP is there, the attributes are whole.
        check(unsafe { (device.library.ibv_modify_qp)(object, &raw mut attr, mask.0 as c_int) })?;
        self.has_handle &= self.attributes.as_ref() == Some(attributes);
        self.attributes = Some(attributes.clone());
        Ok(())
    }

    /// The address handle for its peer.
    ///
    /// # Errors
    /// What the verb says.
    pub fn handle(&mut self, device: &Device, path: Path) -> Result<*mut IbvAh, CallError> {
        if let Some(handle) = self.handles.last().filter(|_| self.has_handle) {
            return Ok(*handle);
        }
        let Some(attributes) = &self.attributes else {
            return Err(CallError::Wrong(format!("{} was never brought up", self.name)));
        };
        let mut attr = address(path, attributes);
        // SAFETY: the domain is there, the attributes are whole.
        let handle = made(unsafe { (device.library.ibv_create_ah)(self.pd, &raw mut attr) })?;
        self.handles.push(handle);
        self.has_handle = true;
        Ok(handle)
    }

    /// Destroys it, if it is not already.
    ///
    /// # Errors
    /// What the verb says.
    pub fn destroy(&mut self, device: &Device) -> Result<(), CallError> {
        let Some(object) = self.object else { return Ok(()) };
        // SAFETY: the QP is there; it is forgotten if that succeeds.
        check(unsafe { (device.library.ibv_destroy_qp)(object) })?;
        (self.object, self.extended) = (None, None);
        for handle in self.handles.drain(..) {
            // SAFETY: its one user is gone.
            unsafe { (device.library.ibv_destroy_ah)(handle) };
        }
        Ok(())
    }
}

fn init_attr(
    scenario: &mut Scenario<'_>,
    make: &QpMake,
    service: QpType,
) -> Result<IbvQpInitAttr, CallError> {
    let mut init: IbvQpInitAttr = zeroed();
    init.send_cq = scenario.cq_or_own(make.send_cq.as_deref())?;
    init.recv_cq = scenario.cq_or_own(make.recv_cq.as_deref())?;
    if let Some(srq) = &make.srq {
        init.srq = scenario.srqs.get(srq)?.object()?;
    }
    let sges = SGES.min(scenario.device.max_sge());
    init.cap = IbvQpCap {
        max_send_wr: make.max_send_wr,
        max_recv_wr: make.max_recv_wr,
        max_send_sge: sges,
        max_recv_sge: sges,
        max_inline_data: make.max_inline,
    };
    init.qp_type = service as c_int;
    init.sq_sig_all = c_int::from(make.signal_all);
    Ok(init)
}

fn create(
    scenario: &Scenario<'_>,
    mut init: IbvQpInitAttr,
    pd: *mut IbvPd,
) -> Result<*mut IbvQp, CallError> {
    // SAFETY: the domain is there, and what the attributes name.
    made(unsafe { (scenario.device.library.ibv_create_qp)(pd, &raw mut init) })
}

/// Makes a QP of XRC, or one that takes the newer operations.
fn create_extended(
    scenario: &mut Scenario<'_>,
    make: &QpMake,
    init: &IbvQpInitAttr,
    pd: *mut IbvPd,
) -> Result<*mut IbvQp, CallError> {
    let context = scenario.device.context;
    let create = extended!(context, create_qp_ex).ok_or(UNSUPPORTED)?;
    let mut attr: IbvQpInitAttrEx = zeroed();
    (attr.send_cq, attr.recv_cq, attr.srq) = (init.send_cq, init.recv_cq, init.srq);
    (attr.cap, attr.qp_type, attr.sq_sig_all) = (init.cap, init.qp_type, init.sq_sig_all);
    if init.qp_type == QpType::XrcRecv as c_int {
        // It has no domain and no queues of its own.
        let xrcd = make.xrcd.as_deref().unwrap_or_default();
        (attr.comp_mask, attr.xrcd) = (INIT_XRCD, scenario.xrc_domain(xrcd)?);
        (attr.send_cq, attr.recv_cq) = (std::ptr::null_mut(), std::ptr::null_mut());
        attr.cap = zeroed();
    } else {
        (attr.comp_mask, attr.pd) = (INIT_PD, pd);
        if init.qp_type == QpType::XrcSend as c_int {
            (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (0, 0);
        } else {
            (attr.comp_mask, attr.send_ops_flags) = (INIT_PD | INIT_SEND_OPS, SEND_OPS);
        }
    }
    // SAFETY: the device is open, and what the attributes name is there.
    made(unsafe { create(context, &raw mut attr) })
}

/// The peer's address.
fn address(path: Path, attributes: &QpAttributes) -> IbvAhAttr {
    let mut attr: IbvAhAttr = zeroed();
    attr.grh.dgid.raw = path.peer;
    attr.grh.flow_label = attributes.flow_label;
    attr.grh.sgid_index = path.index;
    attr.grh.hop_limit = attributes.hop_limit;
    attr.grh.traffic_class = attributes.traffic_class;
    attr.sl = attributes.sl;
    attr.is_global = 1;
    attr.port_num = PORT;
    attr
}

fn attributes_of(
    path: Path,
    to: QpState,
    attributes: &QpAttributes,
) -> Result<IbvQpAttr, CallError> {
    let mtu = Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == attributes.path_mtu as usize);
    let mtu = mtu.ok_or_else(|| {
        CallError::Wrong(format!("there is no path MTU of {} bytes", attributes.path_mtu))
    })?;
    let mut attr: IbvQpAttr = zeroed();
    attr.qp_state = to as c_int;
    attr.path_mtu = mtu as c_int;
    attr.qkey = attributes.qkey;
    (attr.rq_psn, attr.sq_psn) = (attributes.rq_psn, attributes.sq_psn);
    attr.dest_qp_num = attributes.dest_qp_num;
    attr.qp_access_flags = attributes.access;
    attr.ah_attr = address(path, attributes);
    attr.en_sqd_async_notify = 1;
    attr.max_rd_atomic = attributes.max_rd_atomic;
    attr.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
    attr.min_rnr_timer = attributes.min_rnr_timer;
    attr.port_num = PORT;
    attr.timeout = attributes.timeout;
    (attr.retry_cnt, attr.rnr_retry) = (attributes.retry_cnt, attributes.rnr_retry);
    Ok(attr)
}

/// Which attribute a name of [`QpAttributes`] is.
fn mask_of(name: &str) -> Result<AttrMask, CallError> {
    let wrong = || CallError::Wrong(format!("a QP has no attribute {name}"));
    words::attribute_of(name).ok_or_else(wrong)
}

// Extended calls are looked for at offsets of the newest structure.
const _: () = assert!(offset_of!(IbvQpEx, wr_flush) == 352);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_known_by_either_spelling() {
        assert_eq!(mask_of("rnr-retry"), Ok(AttrMask::RNR_RETRY));
        assert_eq!(mask_of("hop_limit"), Ok(AttrMask::AV));
        assert!(matches!(mask_of("port"), Err(CallError::Wrong(_))));
    }
}
