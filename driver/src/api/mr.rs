//! Registered memory: regions, pieces of them, and what peers are told of them.

use std::fmt;
use std::mem;
use std::ops::{Bound, Deref, RangeBounds};
use std::str::FromStr;

use ferroce_stack::MrInit;
use ferroce_stack::verbs::{self, Access, MrKeys, Remote, Sge, VerbsError};

use super::{Error, Pd};
use crate::memory::{Region, RegionError};

/// Registered memory, which it owns. Its bytes are reached through the methods of [`Region`].
///
/// When it is dropped it is first deregistered and then unmapped. Work requests that still name it
/// fail with a protection error, here or at the peer; none ever touches memory that has been given
/// back. While a [`Window`](super::Window) is bound to it, it cannot be deregistered: it then stays
/// registered, and its memory mapped, for as long as its context is open and beyond.
#[derive(Debug)]
pub struct Mr {
    pd: Pd,
    keys: MrKeys,
    region: Region,
    is_registered: bool,
}

/// A piece of a region for a work request.
#[derive(Clone, Copy, Debug)]
pub struct LocalSlice<'a> {
    mr: &'a Mr,
    offset: usize,
    len: u32,
}

/// What a peer is told of memory it may reach: plain numbers. As text, `addr,rkey,len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// Address of the first byte, as the peer's device counts.
    pub addr: u64,
    /// R_Key.
    pub rkey: u32,
    /// Bytes.
    pub len: u64,
}

impl Mr {
    pub(super) fn new(pd: &Pd, region: Region, access: Access) -> Result<Mr, Error> {
        const VERB: &str = "register";
        let context = pd.context();
        let (addr, length) = (region.addr(), region.len() as u64);
        let init = MrInit { addr, length, iova: addr, access };
        let registered = context.lock(VERB)?.reg_mr(pd.handle(), &init);
        let keys = registered.map_err(|error| {
            context.refused(VERB, error, || {
                let writes = access.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
                match writes && !access.has(Access::LOCAL_WRITE) {
                    true => "access lets peers write, and has no LOCAL_WRITE".to_owned(),
                    false => format!("access is {:#x}, with an unknown flag", access.0),
                }
            })
        })?;
        Ok(Mr { pd: pd.clone(), keys, region, is_registered: true })
    }

    /// The protection domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// A piece of it for a work request: bytes from `range`, less than 4 GiB.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`] if the range leaves the region.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice<'_>, Error> {
        let (offset, len) = resolve(range, self.region.len());
        self.region.check_range(offset, len)?;
        let region_len = self.region.len();
        let len =
            u32::try_from(len).map_err(|_| RegionError::OutOfRange { offset, len, region_len })?;
        Ok(LocalSlice { mr: self, offset, len })
    }

    /// What a peer needs to reach all of it. The key is 0 where `access` let no peer in.
    pub fn remote(&self) -> RemoteRegion {
        let (addr, len) = (self.region.addr(), self.region.len() as u64);
        RemoteRegion { addr, rkey: self.keys.rkey, len }
    }

    /// Key for local use.
    pub fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    /// Gives the memory back. Its keys are dead: who still uses them gets a protection error.
    ///
    /// # Errors
    /// While a window is bound to it.
    pub fn deregister(mut self) -> Result<Region, Error> {
        self.end().map_err(|error| {
            let bound = || "a memory window is bound to it".to_owned();
            self.pd.context().refused("deregister", error, bound)
        })?;
        Ok(mem::take(&mut self.region))
    }

    pub(super) fn handle(&self) -> verbs::Mr {
        self.keys.mr
    }

    fn end(&mut self) -> Result<(), VerbsError> {
        self.pd.context().engine().lock()?.dereg_mr(self.keys.mr)?;
        self.is_registered = false;
        Ok(())
    }
}

impl Deref for Mr {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.is_registered && self.end().is_err() {
            // Peers may still reach it: nobody else may ever have these addresses.
            mem::forget(mem::take(&mut self.region));
        }
    }
}

impl LocalSlice<'_> {
    /// Bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has not one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn mr(&self) -> &Mr {
        self.mr
    }

    pub(super) fn sge(&self) -> Sge {
        let addr = self.mr.region.addr() + self.offset as u64;
        Sge { addr, length: self.len, lkey: self.mr.keys.lkey }
    }
}

impl RemoteRegion {
    /// A piece of it.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`] if the range leaves it.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteRegion, Error> {
        let whole = usize::try_from(self.len).unwrap_or(usize::MAX);
        let (offset, len) = resolve(range, whole);
        let fits = offset.checked_add(len).is_some_and(|end| end <= whole);
        let addr = self.addr.checked_add(offset as u64);
        let (true, Some(addr)) = (fits, addr) else {
            return Err(RegionError::OutOfRange { offset, len, region_len: whole }.into());
        };
        Ok(RemoteRegion { addr, rkey: self.rkey, len: len as u64 })
    }

    pub(super) fn first(&self) -> Remote {
        Remote { addr: self.addr, rkey: self.rkey }
    }
}

impl fmt::Display for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.addr, self.rkey, self.len)
    }
}

impl FromStr for RemoteRegion {
    type Err = Error;

    fn from_str(text: &str) -> Result<RemoteRegion, Error> {
        let parse = || {
            let mut parts = text.trim().split(',');
            let addr = parts.next()?.parse().ok()?;
            let rkey = parts.next()?.parse().ok()?;
            let len = parts.next()?.parse().ok()?;
            parts.next().is_none().then_some(RemoteRegion { addr, rkey, len })
        };
        let expected = "a remote region: addr,rkey,len";
        parse().ok_or_else(|| Error::Parse { expected, text: text.to_owned() })
    }
}

/// Offset and length of a range in something of `whole` bytes. An end before the start makes a
/// length that fits nowhere.
fn resolve(range: impl RangeBounds<usize>, whole: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => whole.max(start),
    };
    (start, end.checked_sub(start).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_regions_as_text_and_in_pieces() {
        let region = RemoteRegion { addr: u64::MAX - 100, rkey: 7, len: 100 };
        assert_eq!(region.to_string().parse::<RemoteRegion>().unwrap(), region);
        assert!("1,2".parse::<RemoteRegion>().is_err());
        assert!("1,2,3,4".parse::<RemoteRegion>().is_err());
        let piece = region.slice(10..=19).unwrap();
        assert_eq!(piece, RemoteRegion { addr: u64::MAX - 90, rkey: 7, len: 10 });
        assert_eq!(region.slice(100..).unwrap().len, 0);
        for range in [0..101, 101..101, 5..usize::MAX] {
            assert!(region.slice(range).is_err());
        }
        let (start, end) = (5, 4);
        assert!(region.slice(start..end).is_err());
    }
}
