//! What is still owed to peers when a process ends without having closed anything: an ACK that is
//! held back ([`answers`](super::answers)) would never leave, and a peer that is in order would see
//! its last message fail.

use std::sync::{Arc, Mutex, Once, Weak};

use super::Core;
use super::batch::Driver;
use crate::sync::lock;
use crate::sys;

/// Engines that hold ACKs back.
static WATCHED: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

/// Has the engine pay its debts when the process ends.
pub(super) fn watch(core: &Arc<Core>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| sys::at_exit(pay));
    let mut watched = lock(&WATCHED);
    watched.retain(|other| other.strong_count() > 0);
    watched.push(Arc::downgrade(core));
}

/// Waits for nobody: `exit` may have been called by a signal handler, above the owner of a lock.
extern "C" fn pay() {
    let Ok(watched) = WATCHED.try_lock() else { return };
    for core in watched.iter().filter_map(Weak::upgrade).filter(|core| core.is_here()) {
        let Some(mut inner) = core.try_lock() else { continue };
        inner.device.release_ack();
        inner.batch(Driver::Other);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ferroce_stack::gid::Gid;
    use ferroce_stack::memory::Memory;
    use ferroce_stack::time::Instant;
    use ferroce_stack::verbs::{
        Access, AhAttr, QpAttr, QpCap, QpInit, QpType, Qpn, Remote, SendOp, SendWr,
    };
    use ferroce_stack::wire::Mac;
    use ferroce_stack::{Config, Device, GidEntry, GidType};

    use super::*;
    use crate::engine::{Engine, Options};
    use crate::memory::Arena;
    use crate::world::bring_up;

    fn entry(host: u8) -> GidEntry {
        let gid = Gid::from(Ipv4Addr::new(10, 9, 1, host));
        GidEntry { gid, gid_type: GidType::RoceV2, mac: Mac([2, 0, 10, 9, 1, host]), vlan: None }
    }

    fn qp<M: Memory>(device: &mut Device<M>) -> Qpn {
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4).unwrap());
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrcd: None,
            cap: QpCap::default(),
            sq_sig_all: true,
        };
        device.create_qp(&init).unwrap()
    }

    fn connect<M: Memory>(device: &mut Device<M>, qpn: Qpn, dest_qp_num: Qpn, to: GidEntry) {
        let ah_attr = AhAttr { dgid: to.gid, dmac: to.mac, hop_limit: 64, ..AhAttr::default() };
        let qp_access_flags = Access::REMOTE_WRITE;
        let attr =
            QpAttr { ah_attr, dest_qp_num, qp_access_flags, port_num: 1, ..QpAttr::default() };
        bring_up(device, qpn, &attr).unwrap();
    }

    #[test]
    fn an_ack_that_is_held_back_leaves_before_the_process_does() {
        let dir = std::env::temp_dir().join(format!("ferroce-exit-{}", std::process::id()));
        let (own, other) = (entry(1), entry(2));
        let mut engine = Engine::open(&Options::plain(&dir, &[own])).unwrap();
        // Nobody else drives.
        engine.core.progress.stop();
        engine.thread.take().unwrap().join().unwrap();
        watch(&engine.core);

        let mut peer = Device::new(Config::default(), Arena::with_capacity(64));
        peer.add_gid(other).unwrap();
        let mut inner = lock(&engine.core.inner);
        let (here, there) = (qp(&mut inner.device), qp(&mut peer));
        connect(&mut inner.device, here, there, other);
        connect(&mut peer, there, here, own);
        let nothing = SendOp::Write(Remote { addr: 0, rkey: 0 });
        peer.post_send(there, &SendWr::new(1, nothing, &[])).unwrap();
        let now = Instant::from_nanos(sys::now_ns());
        let mut frame = vec![0; peer.max_frame_len()];
        let len = peer.poll_transmit(now, &mut frame).unwrap();
        inner.device.handle_frame(now, &frame[..len]).unwrap();
        assert!(inner.device.hold_ack());
        drop(inner);

        pay();
        let inner = lock(&engine.core.inner);
        assert_eq!(inner.device.held_ack(), None);
        assert_eq!(inner.device.counters().sent_pkts, 1);
        drop(inner);
        drop(engine);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
