//! What the application does, from the input: work requests, and changes of every object.

use ferroce_stack::MrChange;
use ferroce_stack::verbs::{
    Access, AttrMask, FlushLevel, MwBind, MwType, QpAttr, QpState, QpType, Qpn, RecvWr, Remote,
    SendData, SendFlags, SendOp, SendWr, Sge, UdTarget,
};

use super::rig::{GROUP, GROUP_V4, NODE, QKEY, Rig};
use crate::input::Input;
use crate::ledger::Queue;

/// Memory windows at a time.
const WINDOWS_MAX: usize = 6;

/// A part of a plot, for local use.
fn sge(rig: &Rig, input: &mut Input) -> Sge {
    let at = input.below(rig.plots.len());
    let plot = &rig.plots[at];
    let length = u32::from(input.byte()) * 4;
    let offset = u64::from(input.byte()) * 4;
    // Of a plot that is gone, a key that may be another's.
    let lkey = plot.keys.map_or(at as u32 * 256 + 1, |keys| keys.lkey);
    Sge { addr: plot.base().wrapping_add(offset), length, lkey }
}

fn sges(rig: &Rig, input: &mut Input) -> Vec<Sge> {
    let count = input.below(4);
    (0..count).map(|_| sge(rig, input)).collect()
}

/// Posts a receive to a QP or an SRQ.
pub fn post_recv(rig: &mut Rig, input: &mut Input) {
    let at = input.below(rig.slots.len() + 2);
    let sges = sges(rig, input);
    let wr = RecvWr { wr_id: rig.ledger.next_id(), sges: &sges };
    let (outcome, queue) = match rig.slots.get(at) {
        Some(slot) => {
            let qpn = slot.own.qpn;
            (rig.device().post_recv(qpn, &wr), Queue::Recv(qpn))
        }
        None => {
            let srq = if at.is_multiple_of(2) { rig.srq } else { rig.xrc_srq };
            (rig.device().post_srq_recv(srq, &wr), Queue::Shared(srq))
        }
    };
    if outcome.is_ok() {
        let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
        rig.ledger.posted(queue, true, len);
    }
}

/// Posts a send.
pub fn post_send(rig: &mut Rig, input: &mut Input) {
    let at = input.below(rig.slots.len());
    let (qpn, qp_type) = (rig.slots[at].own.qpn, rig.slots[at].role.qp_type);
    let op = operation(rig, input);
    let flags = SendFlags(u32::from(input.byte()) & 7);
    let inline = input.byte();
    let mut sges = sges(rig, input);
    match op {
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
            sges.truncate(1);
            sges.iter_mut().for_each(|sge| sge.length = 8);
        }
        SendOp::AtomicWrite(..) | SendOp::Flush { .. } => sges.clear(),
        SendOp::BindMw { .. } | SendOp::LocalInv(_) => sges.clear(),
        _ => {}
    }
    let bytes = [inline; 80];
    let data = match inline {
        0xb0.. => SendData::Inline(&bytes[..usize::from(inline) - 0xb0]),
        _ => SendData::Sges(&sges),
    };
    let datagram = matches!(qp_type, QpType::Ud | QpType::Gsi);
    let ah = rig.ahs.get(usize::from(inline) % 4).copied();
    let ud = ah.filter(|_| datagram).map(|ah| UdTarget { ah, qpn: Qpn(0x42), qkey: QKEY });
    let srqn = (qp_type == QpType::XrcSend).then_some(5);
    let wr = SendWr { wr_id: rig.ledger.next_id(), op, data, flags, ud, srqn };
    if rig.device().post_send(qpn, &wr).is_ok() {
        rig.ledger.posted(Queue::Send(qpn), flags.has(SendFlags::SIGNALED), 0);
    }
}

fn operation(rig: &Rig, input: &mut Input) -> SendOp {
    let (kind, value) = (input.below(14), input.byte());
    let remote = Remote { addr: u64::from(value) * 8, rkey: u32::from(value) };
    let word = u64::from(value);
    match kind {
        0 => SendOp::Send,
        1 => SendOp::SendImm([value; 4]),
        2 => SendOp::SendInv(word as u32),
        3 => SendOp::Write(remote),
        4 => SendOp::WriteImm(remote, [value; 4]),
        5 | 6 => SendOp::Read(remote),
        7 => SendOp::CompareSwap { remote, compare: word, swap: 1 },
        8 => SendOp::FetchAdd { remote, add: word },
        9 => SendOp::AtomicWrite(remote, word),
        10 => SendOp::Flush {
            remote,
            length: u32::from(value),
            level: if value & 1 == 0 { FlushLevel::Range } else { FlushLevel::Region },
            placement: Access::FLUSH_GLOBAL,
        },
        11 | 12 => bind(rig, input, value),
        _ => {
            let at = usize::from(value) % rig.windows.len().max(1);
            let mw = rig.windows.get(at).map(|&(mw, _)| mw);
            let key = mw.and_then(|mw| rig.world.device_ref(NODE).mw_rkey(mw).ok());
            SendOp::LocalInv(key.unwrap_or(u32::from(value)))
        }
    }
}

fn bind(rig: &Rig, input: &mut Input, value: u8) -> SendOp {
    let plot = &rig.plots[input.below(rig.plots.len())];
    let access = Access(u32::from(input.byte()) << 1 & 0x32e);
    let window = rig.windows.get(usize::from(value) % rig.windows.len().max(1));
    match (window, plot.keys) {
        (Some(&(mw, _)), Some(keys)) => SendOp::BindMw {
            mw,
            rkey: u32::from(value),
            bind: MwBind {
                mr: keys.mr,
                addr: plot.base().wrapping_add(u64::from(value & 7)),
                length: u64::from(value) * 4,
                access,
            },
        },
        _ => SendOp::LocalInv(0),
    }
}

/// Changes the state of a QP.
pub fn change_qp(rig: &mut Rig, input: &mut Input) {
    let at = input.below(rig.slots.len());
    let qpn = rig.slots[at].own.qpn;
    let to = match input.below(8) {
        0 => return rig.replace(at),
        1 => return rig.reset(at, true),
        2 => return rig.reset(at, false),
        3 => QpState::Err,
        4 => QpState::Sqd,
        _ => QpState::Rts,
    };
    let attr = QpAttr { qp_state: to, en_sqd_async_notify: true, ..QpAttr::default() };
    let notify = match to {
        QpState::Sqd => AttrMask::EN_SQD_ASYNC_NOTIFY,
        _ => AttrMask::NONE,
    };
    // A transition there is not is refused.
    let _ = rig.device().modify_qp(qpn, &attr, AttrMask::STATE | notify);
}

/// Registers, deregisters, changes a region.
pub fn change_region(rig: &mut Rig, input: &mut Input) {
    let at = input.below(rig.plots.len());
    let again = input.flag();
    let device = rig.world.device(NODE);
    let plot = &mut rig.plots[at];
    match plot.keys {
        // The table may be full of windows.
        None => drop(plot.register(device)),
        Some(keys) if again => {
            if let Ok(keys) = device.rereg_mr(keys.mr, &MrChange::default()) {
                plot.keys = Some(keys);
            }
        }
        Some(_) => plot.deregister(device),
    }
}

/// Makes or destroys a window.
pub fn change_window(rig: &mut Rig, input: &mut Input) {
    let kind = if input.flag() { MwType::Type1 } else { MwType::Type2 };
    if rig.windows.len() < WINDOWS_MAX {
        let pd = if input.byte() == 7 { rig.foreign } else { rig.pd };
        rig.windows.extend(rig.world.device(NODE).alloc_mw(pd, kind));
    } else {
        let at = input.below(rig.windows.len());
        let (mw, _) = rig.windows.swap_remove(at);
        rig.device().dealloc_mw(mw).expect("the window is there");
    }
}

/// Changes anything else.
pub fn change_object(rig: &mut Rig, input: &mut Input) {
    let value = input.byte();
    let slot = &rig.slots[input.below(rig.slots.len())];
    let (qpn, cq) = (slot.own.qpn, slot.own.recv_cq);
    let (pd, srq) = (rig.pd, rig.srq);
    let ah = rig.ahs.get(usize::from(value) % 4).copied();
    let peer = rig.world.ah_attr(1);
    let device = rig.world.device(NODE);
    // Each may be refused.
    let outcome = match input.below(9) {
        0 => device.req_notify_cq(cq, value & 1 != 0),
        1 => device.modify_srq(srq, Some(8), Some(u32::from(value & 7))),
        2 => device.attach_mcast(qpn, if value & 1 == 0 { GROUP } else { GROUP_V4 }),
        3 => device.detach_mcast(qpn, if value & 1 == 0 { GROUP } else { GROUP_V4 }),
        4 => ah.map_or(Ok(()), |ah| {
            rig.ahs.retain(|&other| other != ah);
            device.destroy_ah(ah)
        }),
        5 => device.create_ah(pd, &peer).map(|ah| rig.ahs.push(ah)),
        6 => {
            device.set_port_active(value & 1 != 0);
            Ok(())
        }
        7 => device.destroy_srq(srq),
        _ => device.dealloc_pd(pd),
    };
    let _ = outcome;
}
