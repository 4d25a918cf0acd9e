//! Memory regions and windows: turns a claim `(key, address, length)` into a checked [`Span`].
//!
//! Regions and windows share one key space, so a key names at most one of them. The order of
//! the checks is that of IBA 10.6.6: key, state, protection domain, rights, bounds.

use crate::memory::Span;
use crate::table::Table;
use crate::verbs::{Access, Mr, MrKeys, Mw, MwBind, MwType, Pd, Qpn, VerbsError};

/// A claim the table does not grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

/// What a peer wants of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteClaim {
    /// Domain of the QP (XRC: of the SRQ).
    pub pd: Pd,
    /// The QP the request came to.
    pub qpn: Qpn,
    pub rkey: u32,
    pub va: u64,
    pub len: u64,
    /// Every right needed.
    pub access: Access,
}

#[derive(Debug)]
struct Region {
    pd: Pd,
    /// Where the application counts from: its address, an iova, or 0.
    base: u64,
    /// Where the memory is.
    addr: u64,
    len: u64,
    access: Access,
    windows: u32,
}

#[derive(Debug)]
struct Window {
    pd: Pd,
    kind: MwType,
    bound: Option<Binding>,
}

#[derive(Debug)]
struct Binding {
    mr: Mr,
    base: u64,
    addr: u64,
    len: u64,
    access: Access,
    /// The one QP a type 2 window works through.
    qpn: Option<Qpn>,
}

#[derive(Debug)]
enum Entry {
    Region(Region),
    Window(Window),
    /// A region of nothing, at every address.
    Null(Pd),
}

/// What an SGE names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    Memory(Span),
    /// Reads as zeros, and what is written vanishes.
    Null,
}

/// All regions and windows of a device.
#[derive(Debug)]
pub(crate) struct Regions {
    entries: Table<Entry>,
    /// Windows by handle: the key each has now.
    windows: Table<u32>,
}

/// Offset of `va..va + len` in a range that begins at `base`, if it lies inside.
fn offset_in(base: u64, range_len: u64, va: u64, len: u64) -> Result<u64, Denied> {
    let offset = va.checked_sub(base).ok_or(Denied)?;
    match range_len.checked_sub(offset) {
        Some(room) if len <= room => Ok(offset),
        _ => Err(Denied),
    }
}

fn check_access(access: Access) -> Result<(), VerbsError> {
    let writes = access.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if !access.is_known() || writes && !access.has(Access::LOCAL_WRITE) {
        return Err(VerbsError::Invalid);
    }
    Ok(())
}

impl Regions {
    pub fn new(capacity: usize) -> Regions {
        Regions { entries: Table::new(capacity), windows: Table::new(capacity) }
    }

    /// Registers `len` bytes at `addr`; the application will count them from `iova`.
    pub fn register(
        &mut self,
        pd: Pd,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKeys, VerbsError> {
        check_access(access)?;
        let base = if access.has(Access::ZERO_BASED) { 0 } else { iova };
        if addr.checked_add(len).is_none() || base.checked_add(len).is_none() {
            return Err(VerbsError::Invalid);
        }
        let region = Region { pd, base, addr, len, access, windows: 0 };
        let key = self.entries.insert(Entry::Region(region)).ok_or(VerbsError::NoMemory)?;
        Ok(MrKeys { mr: Mr(key), lkey: key, rkey: remote_key(key, access) })
    }

    /// Makes a region of nothing, for SGEs alone.
    pub fn register_null(&mut self, pd: Pd) -> Result<MrKeys, VerbsError> {
        let key = self.entries.insert(Entry::Null(pd)).ok_or(VerbsError::NoMemory)?;
        Ok(MrKeys { mr: Mr(key), lkey: key, rkey: 0 })
    }

    /// Replaces what is given of a region. Other memory comes under a new key, so that the old one
    /// fails; other rights or another domain apply to the key there is, which peers have.
    pub fn reregister(
        &mut self,
        mr: Mr,
        range: Option<(u64, u64, u64)>,
        pd: Option<Pd>,
        access: Option<Access>,
    ) -> Result<MrKeys, VerbsError> {
        let region = self.region_mut(mr).ok_or(VerbsError::Invalid)?;
        if region.windows > 0 {
            return Err(VerbsError::Busy);
        }
        let (pd, access) = (pd.unwrap_or(region.pd), access.unwrap_or(region.access));
        if let Some((addr, len, iova)) = range {
            let keys = self.register(pd, addr, len, iova, access)?;
            self.entries.remove(mr.0);
            return Ok(keys);
        }
        check_access(access)?;
        if access.has(Access::ZERO_BASED) {
            region.base = 0;
        } else if region.access.has(Access::ZERO_BASED) {
            region.base = region.addr;
        }
        (region.pd, region.access) = (pd, access);
        Ok(MrKeys { mr, lkey: mr.0, rkey: remote_key(mr.0, access) })
    }

    pub fn deregister(&mut self, mr: Mr) -> Result<(), VerbsError> {
        match self.entries.get(mr.0) {
            None | Some(Entry::Window(_)) => Err(VerbsError::Invalid),
            Some(Entry::Region(region)) if region.windows > 0 => Err(VerbsError::Busy),
            Some(Entry::Region(_) | Entry::Null(_)) => {
                self.entries.remove(mr.0);
                Ok(())
            }
        }
    }

    pub fn alloc_window(&mut self, pd: Pd, kind: MwType) -> Result<(Mw, u32), VerbsError> {
        let window = Entry::Window(Window { pd, kind, bound: None });
        let key = self.entries.insert(window).ok_or(VerbsError::NoMemory)?;
        let handle = self.windows.insert(key).ok_or(VerbsError::NoMemory)?;
        Ok((Mw(handle), key))
    }

    pub fn dealloc_window(&mut self, mw: Mw) -> Result<(), VerbsError> {
        let key = self.windows.remove(mw.0).ok_or(VerbsError::Invalid)?;
        self.unbind(key);
        self.entries.remove(key);
        Ok(())
    }

    /// The key a window has now.
    pub fn window_key(&self, mw: Mw) -> Option<u32> {
        self.windows.get(mw.0).copied()
    }

    /// Binds a window (IBA 10.6.7.2.1) and returns its new key: the next one for type 1, with the
    /// consumer's low byte for type 2. If refused, nothing has changed.
    pub fn bind(
        &mut self,
        pd: Pd,
        qpn: Qpn,
        mw: Mw,
        variant: u8,
        bind: &MwBind,
    ) -> Result<u32, Denied> {
        let key = *self.windows.get(mw.0).ok_or(Denied)?;
        let window = self.window(key).ok_or(Denied)?;
        let kind = window.kind;
        let zero_based = bind.access.has(Access::ZERO_BASED);
        let refused = match kind {
            MwType::Type1 => zero_based,
            MwType::Type2 => window.bound.is_some() || bind.length == 0,
        };
        if window.pd != pd || refused {
            return Err(Denied);
        }
        let binding = match (kind, bind.length) {
            (MwType::Type1, 0) => None,
            _ => Some(self.binding(pd, qpn, kind, bind)?),
        };
        self.unbind(key);
        if let Some(region) = binding.as_ref().and_then(|binding| self.region_mut(binding.mr)) {
            region.windows += 1;
        }
        let variant = match kind {
            MwType::Type1 => (key as u8).wrapping_add(1),
            MwType::Type2 => variant,
        };
        let key = self.entries.rename(key, variant).ok_or(Denied)?;
        if let Some(slot) = self.windows.get_mut(mw.0) {
            *slot = key;
        }
        if let Some(window) = self.window_mut(key) {
            window.bound = binding;
        }
        Ok(key)
    }

    fn binding(&self, pd: Pd, qpn: Qpn, kind: MwType, bind: &MwBind) -> Result<Binding, Denied> {
        let region = self.region(bind.mr).ok_or(Denied)?;
        let writes = bind.access.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if region.pd != pd
            || !region.access.has(Access::MW_BIND)
            || region.access.has(Access::ZERO_BASED)
            || writes && !region.access.has(Access::LOCAL_WRITE)
        {
            return Err(Denied);
        }
        let offset = offset_in(region.base, region.len, bind.addr, bind.length)?;
        Ok(Binding {
            mr: bind.mr,
            base: if bind.access.has(Access::ZERO_BASED) { 0 } else { bind.addr },
            addr: region.addr + offset,
            len: bind.length,
            access: bind.access,
            qpn: (kind == MwType::Type2).then_some(qpn),
        })
    }

    /// Makes a type 2 window's key unusable, asked for locally or by a peer (IBA 10.6.5).
    pub fn invalidate(&mut self, pd: Pd, qpn: Qpn, rkey: u32) -> Result<(), Denied> {
        let window = self.window(rkey).ok_or(Denied)?;
        let binding = window.bound.as_ref().ok_or(Denied)?;
        if window.kind != MwType::Type2 || window.pd != pd || binding.qpn != Some(qpn) {
            return Err(Denied);
        }
        self.unbind(rkey);
        Ok(())
    }

    /// The local memory an SGE names, to be written if `write`.
    #[inline]
    pub fn local(
        &self,
        pd: Pd,
        lkey: u32,
        va: u64,
        len: usize,
        write: bool,
    ) -> Result<Local, Denied> {
        let region = match self.entries.get(lkey) {
            Some(Entry::Region(region)) => region,
            Some(Entry::Null(owner)) if *owner == pd => return Ok(Local::Null),
            _ => return Err(Denied),
        };
        if region.pd != pd || write && !region.access.has(Access::LOCAL_WRITE) {
            return Err(Denied);
        }
        let offset = offset_in(region.base, region.len, va, len as u64)?;
        Ok(Local::Memory(Span::new(region.addr + offset, len)))
    }

    /// The span a peer claims.
    #[inline]
    pub fn remote(&self, claim: &RemoteClaim) -> Result<Span, Denied> {
        let (base, addr, len) = self.remote_range(claim)?;
        let offset = offset_in(base, len, claim.va, claim.len)?;
        Ok(Span::new(addr + offset, claim.len as usize))
    }

    /// All the memory behind the R_Key a peer claims, whatever the range.
    pub fn remote_whole(&self, claim: &RemoteClaim) -> Result<Span, Denied> {
        let (_, addr, len) = self.remote_range(claim)?;
        Ok(Span::new(addr, len as usize))
    }

    fn remote_range(&self, claim: &RemoteClaim) -> Result<(u64, u64, u64), Denied> {
        let (pd, access, range) = match self.entries.get(claim.rkey).ok_or(Denied)? {
            Entry::Region(region) => {
                (region.pd, region.access, (region.base, region.addr, region.len))
            }
            Entry::Window(window) => {
                let bound = window.bound.as_ref().ok_or(Denied)?;
                if bound.qpn.is_some_and(|qpn| qpn != claim.qpn) {
                    return Err(Denied);
                }
                (window.pd, bound.access, (bound.base, bound.addr, bound.len))
            }
            Entry::Null(_) => return Err(Denied),
        };
        if pd != claim.pd || !access.has(claim.access) {
            return Err(Denied);
        }
        Ok(range)
    }

    /// Whether anything still belongs to `pd`.
    pub fn uses_pd(&self, pd: Pd) -> bool {
        self.entries.iter().any(|(_, entry)| match entry {
            Entry::Region(region) => region.pd == pd,
            Entry::Window(window) => window.pd == pd,
            Entry::Null(owner) => *owner == pd,
        })
    }

    /// Unbinds the type 2 windows bound through a QP that goes away.
    pub fn unbind_qp(&mut self, qpn: Qpn) {
        let through = |entry: &Entry| match entry {
            Entry::Window(window) => {
                window.bound.as_ref().is_some_and(|bound| bound.qpn == Some(qpn))
            }
            Entry::Region(_) | Entry::Null(_) => false,
        };
        let keys: Vec<u32> = self
            .windows
            .iter()
            .map(|(_, &key)| key)
            .filter(|&key| self.entries.get(key).is_some_and(through))
            .collect();
        for key in keys {
            self.unbind(key);
        }
    }

    fn unbind(&mut self, key: u32) {
        let binding = self.window_mut(key).and_then(|window| window.bound.take());
        if let Some(region) = binding.and_then(|binding| self.region_mut(binding.mr)) {
            region.windows -= 1;
        }
    }

    fn region(&self, mr: Mr) -> Option<&Region> {
        match self.entries.get(mr.0) {
            Some(Entry::Region(region)) => Some(region),
            _ => None,
        }
    }

    fn region_mut(&mut self, mr: Mr) -> Option<&mut Region> {
        match self.entries.get_mut(mr.0) {
            Some(Entry::Region(region)) => Some(region),
            _ => None,
        }
    }

    fn window(&self, key: u32) -> Option<&Window> {
        match self.entries.get(key) {
            Some(Entry::Window(window)) => Some(window),
            _ => None,
        }
    }

    fn window_mut(&mut self, key: u32) -> Option<&mut Window> {
        match self.entries.get_mut(key) {
            Some(Entry::Window(window)) => Some(window),
            _ => None,
        }
    }
}

fn remote_key(key: u32, access: Access) -> u32 {
    if access.has_any(Access::REMOTE) { key } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PD: Pd = Pd(1);
    const QP: Qpn = Qpn(17);

    fn claim(rkey: u32, va: u64, len: u64, access: Access) -> RemoteClaim {
        RemoteClaim { pd: PD, qpn: QP, rkey, va, len, access }
    }

    proptest! {
        /// A span is granted exactly where 128-bit arithmetic says that the claim lies inside.
        #[test]
        fn bounds_like_a_naive_model(
            iova in any::<u64>(),
            len in 0u64..5000,
            start in -10i128..5010,
            claimed in 0u64..5010,
        ) {
            prop_assume!(iova.checked_add(len).is_some());
            let mut regions = Regions::new(4);
            let keys = regions.register(PD, 0x1000, len, iova, Access::REMOTE_READ).unwrap();
            let va = i128::from(iova) + start;
            prop_assume!((0..=i128::from(u64::MAX)).contains(&va));
            let inside = start >= 0 && start + i128::from(claimed) <= i128::from(len);
            let span = regions.remote(&claim(keys.rkey, va as u64, claimed, Access::REMOTE_READ));
            prop_assert_eq!(span.is_ok(), inside);
            if let Ok(span) = span {
                prop_assert_eq!(i128::from(span.addr()), 0x1000 + start);
            }
        }
    }

    #[test]
    fn stale_key_fails_after_reregistration() {
        let mut regions = Regions::new(4);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let old = regions.register(PD, 0, 64, 0, access).unwrap();
        let new = regions.reregister(old.mr, Some((0, 64, 0)), None, None).unwrap();
        assert_ne!(old.rkey, new.rkey);
        assert!(regions.remote(&claim(old.rkey, 0, 8, Access::REMOTE_WRITE)).is_err());
        assert!(regions.remote(&claim(new.rkey, 0, 8, Access::REMOTE_WRITE)).is_ok());
    }

    #[test]
    fn key_stays_when_rights_change() {
        let mut regions = Regions::new(4);
        let old = regions.register(PD, 0, 64, 0, Access::LOCAL_WRITE).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let new = regions.reregister(old.mr, None, None, Some(access)).unwrap();
        assert_eq!((new.mr, new.lkey, new.rkey), (old.mr, old.lkey, old.lkey));
        assert!(regions.remote(&claim(new.rkey, 0, 8, Access::REMOTE_WRITE)).is_ok());
        let refused = regions.reregister(old.mr, None, None, Some(Access::REMOTE_WRITE));
        assert_eq!(refused, Err(VerbsError::Invalid));
        assert!(regions.remote(&claim(new.rkey, 0, 8, Access::REMOTE_WRITE)).is_ok());
    }

    #[test]
    fn zero_length_region_does_not_mean_everything() {
        let mut regions = Regions::new(4);
        let keys = regions.register(PD, 4096, 0, 4096, Access::REMOTE_READ).unwrap();
        for va in [0, 4096, u64::MAX] {
            assert!(regions.remote(&claim(keys.rkey, va, 1, Access::REMOTE_READ)).is_err());
        }
    }

    #[test]
    fn every_requested_right_must_be_there() {
        let mut regions = Regions::new(4);
        let keys = regions.register(PD, 0, 64, 0, Access::FLUSH_GLOBAL).unwrap();
        let both = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        assert!(regions.remote(&claim(keys.rkey, 0, 8, Access::FLUSH_GLOBAL)).is_ok());
        assert!(regions.remote(&claim(keys.rkey, 0, 8, both)).is_err());
    }

    #[test]
    fn a_region_of_nothing_is_for_sges_of_its_domain_alone() {
        let mut regions = Regions::new(4);
        let keys = regions.register_null(PD).unwrap();
        let local = |pd, write| regions.local(pd, keys.lkey, u64::MAX, 1 << 20, write);
        assert!(matches!(local(PD, true), Ok(Local::Null)));
        assert!(matches!(local(PD, false), Ok(Local::Null)));
        assert!(local(Pd(2), false).is_err());
        assert!(regions.remote(&claim(keys.lkey, 0, 8, Access::NONE)).is_err());
        assert!(regions.uses_pd(PD));
        let range = Some((0, 64, 0));
        assert_eq!(regions.reregister(keys.mr, range, None, None), Err(VerbsError::Invalid));
        assert_eq!(regions.deregister(keys.mr), Ok(()));
        assert_eq!(regions.deregister(keys.mr), Err(VerbsError::Invalid));
        assert!(!regions.uses_pd(PD));
    }
}
