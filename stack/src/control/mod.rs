//! The verbs of a device: objects made, changed and destroyed, work requests posted, completions
//! polled; those of queue pairs are in `qp`. Arguments are checked here or below; a refused call has
//! changed nothing.

mod qp;

use crate::ah::{AddressHandle, Path};
use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::memory::Memory;
use crate::port::GidEntry;
use crate::srq::{RecvQueue, SharedRecvQueue, XrcPart};
use crate::verbs::{
    Access, Ah, AhAttr, Cq, Event, EventKind, Mr, MrKeys, Mw, MwType, Pd, RecvWr, Srq, VerbsError,
    Wc, Xrcd,
};

/// GID table entries a port may have.
const MAX_GIDS: usize = 256;

type Outcome<T> = Result<T, VerbsError>;

fn found<T>(object: Option<T>) -> Outcome<T> {
    object.ok_or(VerbsError::Invalid)
}

fn stored<T>(handle: Option<T>) -> Outcome<T> {
    handle.ok_or(VerbsError::NoMemory)
}

/// What a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInit {
    /// Application address of the first byte.
    pub addr: u64,
    /// Bytes; a region of 0 bytes takes only accesses of 0 bytes.
    pub length: u64,
    /// What SGEs and peers call the first byte; [`Access::ZERO_BASED`] makes it 0.
    pub iova: u64,
    /// Rights.
    pub access: Access,
}

/// What changes in a region ([`Device::rereg_mr`]); `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrChange {
    /// Address, length and iova.
    pub range: Option<(u64, u64, u64)>,
    /// Protection domain.
    pub pd: Option<Pd>,
    /// Rights.
    pub access: Option<Access>,
}

/// What an SRQ is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInit {
    /// Protection domain of its receive buffers and, for XRC, of the peer's accesses.
    pub pd: Pd,
    /// Work requests.
    pub max_wr: u32,
    /// Scatter/gather entries of each.
    pub max_sge: u32,
    /// XRC: its domain, and the CQ where its receives complete.
    pub xrc: Option<(Xrcd, Cq)>,
}

/// State of an SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Work requests.
    pub max_wr: u32,
    /// Scatter/gather entries of each.
    pub max_sge: u32,
    /// Limit, 0 if not armed.
    pub srq_limit: u32,
}

/// Port and GID table.
impl<M: Memory> Device<M> {
    /// Adds an address to the port and returns its index; raises GID_CHANGE.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if it is multicast, there already, or on a VLAN that is not 1 to
    /// 4094; [`VerbsError::NoMemory`] if the table is full.
    pub fn add_gid(&mut self, entry: GidEntry) -> Outcome<u8> {
        let gids = &mut self.shared.port.gids;
        let possible = entry.vlan.is_none_or(|vid| (1..=4094).contains(&vid));
        if entry.gid.is_multicast() || !possible || gids.contains(&Some(entry)) {
            return Err(VerbsError::Invalid);
        }
        let index = match gids.iter().position(Option::is_none) {
            Some(free) => free,
            None if gids.len() == MAX_GIDS => return Err(VerbsError::NoMemory),
            None => {
                gids.push(None);
                gids.len() - 1
            }
        };
        gids[index] = Some(entry);
        self.shared.events.push_back(Event::Port(EventKind::GidChange));
        Ok(index as u8)
    }

    /// Takes an address away; QPs and address handles that use it keep sending from it, but hear
    /// nothing more. Raises GID_CHANGE.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if there is none at `index`.
    pub fn remove_gid(&mut self, index: u8) -> Outcome<()> {
        let entry = found(self.shared.port.gids.get_mut(usize::from(index)))?;
        found(entry.take())?;
        self.shared.events.push_back(Event::Port(EventKind::GidChange));
        Ok(())
    }

    /// Tells the device whether its link is up.
    pub fn set_port_active(&mut self, active: bool) {
        if self.shared.port.active != active {
            self.shared.port.active = active;
            let kind = if active { EventKind::PortActive } else { EventKind::PortErr };
            self.shared.events.push_back(Event::Port(kind));
        }
    }
}

/// Protection domains, regions, windows, address handles.
impl<M: Memory> Device<M> {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`VerbsError::NoMemory`] if the table is full, as for every object below.
    pub fn alloc_pd(&mut self) -> Outcome<Pd> {
        stored(self.pds.insert(())).map(Pd)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while objects belong to it, [`VerbsError::Invalid`] if it does not
    /// exist, as for every object below.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Outcome<()> {
        self.check_pd(pd)?;
        if self.pd_is_used(pd) {
            return Err(VerbsError::Busy);
        }
        self.pds.remove(pd.0);
        Ok(())
    }

    fn check_pd(&self, pd: Pd) -> Outcome<()> {
        found(self.pds.get(pd.0)).map(drop)
    }

    /// Registers memory (IBA 10.6.3).
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if remote writing is asked for without local writing, a flag is
    /// unknown, or the range wraps.
    pub fn reg_mr(&mut self, pd: Pd, init: &MrInit) -> Outcome<MrKeys> {
        self.check_pd(pd)?;
        self.shared.regions.register(pd, init.addr, init.length, init.iova, init.access)
    }

    /// Makes a region of nothing (`ibv_alloc_null_mr`): under its L_Key every address reads as zero
    /// and what is written vanishes. It has no R_Key and is deregistered as any other.
    ///
    /// # Errors
    /// See [`Device::alloc_pd`].
    pub fn alloc_null_mr(&mut self, pd: Pd) -> Outcome<MrKeys> {
        self.check_pd(pd)?;
        self.shared.regions.register_null(pd)
    }

    /// Changes a region. Where its memory changes, its old keys are dead, and the handle too.
    ///
    /// # Errors
    /// As for [`Device::reg_mr`]; [`VerbsError::Busy`] while windows are bound.
    pub fn rereg_mr(&mut self, mr: Mr, change: &MrChange) -> Outcome<MrKeys> {
        if let Some(pd) = change.pd {
            self.check_pd(pd)?;
        }
        self.shared.regions.reregister(mr, change.range, change.pd, change.access)
    }

    /// Deregisters a region.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while windows are bound.
    pub fn dereg_mr(&mut self, mr: Mr) -> Outcome<()> {
        self.shared.regions.deregister(mr)
    }

    /// Makes a memory window, bound to nothing; also returns its key, unusable so far.
    ///
    /// # Errors
    /// See [`Device::alloc_pd`].
    pub fn alloc_mw(&mut self, pd: Pd, mw_type: MwType) -> Outcome<(Mw, u32)> {
        self.check_pd(pd)?;
        self.shared.regions.alloc_window(pd, mw_type)
    }

    /// Unbinds and destroys a window.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn dealloc_mw(&mut self, mw: Mw) -> Outcome<()> {
        self.shared.regions.dealloc_window(mw)
    }

    /// The R_Key a window has now; a bind changes it when it is executed.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn mw_rkey(&self, mw: Mw) -> Outcome<u32> {
        found(self.shared.regions.window_key(mw))
    }

    /// Makes an address handle.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if source and destination are not of one family or a field is out of
    /// range.
    pub fn create_ah(&mut self, pd: Pd, attr: &AhAttr) -> Outcome<Ah> {
        self.check_pd(pd)?;
        let path = Path::new(&self.shared.port, attr, 0)?;
        stored(self.shared.ahs.insert(AddressHandle { pd, path })).map(Ah)
    }

    /// Destroys an address handle. Sends still queued with it fail.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn destroy_ah(&mut self, ah: Ah) -> Outcome<()> {
        found(self.shared.ahs.remove(ah.0)).map(drop)
    }
}

/// Completion queues.
impl<M: Memory> Device<M> {
    /// Makes a completion queue for `cqe` completions.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if `cqe` is 0 or beyond the device's limit.
    pub fn create_cq(&mut self, cqe: usize) -> Outcome<Cq> {
        self.check_cqe(cqe)?;
        stored(self.shared.cqs.insert(CompletionQueue::new(cqe))).map(Cq)
    }

    fn check_cqe(&self, cqe: usize) -> Outcome<()> {
        if cqe == 0 || cqe > self.config.max_cqe { Err(VerbsError::Invalid) } else { Ok(()) }
    }

    /// Changes how many completions a queue takes; those it holds stay, in order.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] below the number held or beyond the device's limit.
    pub fn resize_cq(&mut self, cq: Cq, cqe: usize) -> Outcome<()> {
        self.check_cqe(cqe)?;
        found(self.shared.cqs.get_mut(cq.0))?.resize(cqe)
    }

    /// Destroys a completion queue and what it holds.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while QPs or SRQs complete there.
    pub fn destroy_cq(&mut self, cq: Cq) -> Outcome<()> {
        if found(self.shared.cqs.get(cq.0))?.users > 0 {
            return Err(VerbsError::Busy);
        }
        self.shared.cqs.remove(cq.0);
        self.shared.ready_cqs.retain(|&ready| ready != cq);
        Ok(())
    }

    /// Takes the oldest completions into `out`; returns how many.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn poll_cq(&mut self, cq: Cq, out: &mut [Wc]) -> Outcome<usize> {
        found(self.shared.cqs.get_mut(cq.0)).map(|queue| queue.poll(out))
    }

    /// Arms a queue for one [`Event::Completion`]: at the next completion, or only at a solicited
    /// or failed one. Completions it holds already do not count.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn req_notify_cq(&mut self, cq: Cq, solicited_only: bool) -> Outcome<()> {
        found(self.shared.cqs.get_mut(cq.0)).map(|queue| queue.arm(solicited_only))
    }

    fn use_cq(&mut self, cq: Cq, more: bool) {
        if let Some(queue) = self.shared.cqs.get_mut(cq.0) {
            queue.users = if more { queue.users + 1 } else { queue.users - 1 };
        }
    }
}

/// Shared receive queues and XRC domains.
impl<M: Memory> Device<M> {
    /// Makes an XRC domain.
    ///
    /// # Errors
    /// See [`Device::alloc_pd`].
    pub fn open_xrcd(&mut self) -> Outcome<Xrcd> {
        stored(self.xrcds.insert(())).map(Xrcd)
    }

    /// Destroys an XRC domain.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while SRQs or QPs belong to it.
    pub fn close_xrcd(&mut self, xrcd: Xrcd) -> Outcome<()> {
        found(self.xrcds.get(xrcd.0))?;
        let srqs = self.shared.srqs.iter();
        let used = srqs.filter_map(|(_, srq)| srq.xrc).any(|xrc| xrc.xrcd == xrcd)
            || self.qps.iter().any(|qp| qp.init.xrcd == Some(xrcd));
        if used {
            return Err(VerbsError::Busy);
        }
        self.xrcds.remove(xrcd.0);
        Ok(())
    }

    /// Makes a shared receive queue. Its limit is 0 until [`Device::modify_srq`] sets one.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if a size is beyond the device's limits.
    pub fn create_srq(&mut self, init: &SrqInit) -> Outcome<Srq> {
        self.check_pd(init.pd)?;
        self.check_queue(init.max_wr, init.max_sge)?;
        let xrc = match init.xrc {
            None => None,
            Some((xrcd, cq)) => {
                found(self.xrcds.get(xrcd.0))?;
                found(self.shared.cqs.get(cq.0))?;
                Some(XrcPart { xrcd, cq })
            }
        };
        let queue = RecvQueue::new(init.max_wr as usize, init.max_sge as usize);
        let srq = SharedRecvQueue { pd: init.pd, xrc, queue, limit: 0, users: 0 };
        let handle = stored(self.shared.srqs.insert(srq)).map(Srq)?;
        if let Some(xrc) = xrc {
            self.use_cq(xrc.cq, true);
        }
        Ok(handle)
    }

    fn check_queue(&self, max_wr: u32, max_sge: u32) -> Outcome<()> {
        let fits = max_wr <= self.config.max_wr && max_sge <= self.config.max_sge;
        if fits { Ok(()) } else { Err(VerbsError::Invalid) }
    }

    /// Changes the size, or arms the limit: SRQ_LIMIT_REACHED once fewer are posted.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the size is below what is posted or the limit, or the limit
    /// beyond the size.
    pub fn modify_srq(&mut self, srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Outcome<()> {
        self.check_queue(max_wr.unwrap_or(0), 0)?;
        let queue = found(self.shared.srqs.get_mut(srq.0))?;
        let size = max_wr.map_or(queue.queue.capacity(), |max_wr| max_wr as usize);
        if limit.is_some_and(|limit| limit as usize > size) {
            return Err(VerbsError::Invalid);
        }
        if max_wr.is_some() {
            queue.resize(size)?;
        }
        if let Some(limit) = limit {
            queue.limit = limit as usize;
            if queue.limit_reached() {
                self.shared.events.push_back(Event::Srq(srq, EventKind::SrqLimitReached));
            }
        }
        Ok(())
    }

    /// Size and limit of an SRQ.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn query_srq(&self, srq: Srq) -> Outcome<SrqAttr> {
        let queue = found(self.shared.srqs.get(srq.0))?;
        Ok(SrqAttr {
            max_wr: queue.queue.capacity() as u32,
            max_sge: queue.queue.max_sge() as u32,
            srq_limit: queue.limit as u32,
        })
    }

    /// Destroys an SRQ and what is posted to it.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while QPs receive from it.
    pub fn destroy_srq(&mut self, srq: Srq) -> Outcome<()> {
        if found(self.shared.srqs.get(srq.0))?.users > 0 {
            return Err(VerbsError::Busy);
        }
        let xrc = self.shared.srqs.remove(srq.0).and_then(|srq| srq.xrc);
        if let Some(xrc) = xrc {
            self.use_cq(xrc.cq, false);
        }
        Ok(())
    }

    /// Posts a receive work request to an SRQ.
    ///
    /// # Errors
    /// [`VerbsError::NoMemory`] if the queue is full, [`VerbsError::Invalid`] for too many SGEs.
    pub fn post_srq_recv(&mut self, srq: Srq, wr: &RecvWr) -> Outcome<()> {
        found(self.shared.srqs.get_mut(srq.0))?.queue.post(wr, 0)
    }
}
