//! Buffers an application maps, for its peer to write to directly (`riomap`, `riowrite`).

use super::buffer::{LOCAL_WRITE, REMOTE_WRITE, Region};
use super::iov::Cursor;
use super::link::{Flow, Link, Outgoing};
use super::protocol::{Mapping, Message, Target};
use super::stream::{Stream, Way};
use super::transfer::Chunks;
use super::verbs::Place;
use super::wait::Patience;
use crate::device::lock;
use crate::errno::{EINVAL, Errno};

/// The buffers that one side has mapped.
#[derive(Debug, Default)]
pub struct Mapped(Vec<MappedBuffer>);

#[derive(Debug)]
struct MappedBuffer {
    region: Region,
    addr: u64,
    len: usize,
    offset: u64,
    /// Its entry in the peer's table; `None` if the peer may not write.
    entry: Option<u16>,
    is_announced: bool,
}

impl Stream {
    /// Maps a buffer. The peer may write to it if `prot` says so. Returns its offset, which is its
    /// address if `offset` is -1.
    ///
    /// # Errors
    /// EINVAL; ENOTCONN before the connection; ENOMEM if the peer's table is full; those of a
    /// registration.
    ///
    /// # Safety
    /// The peer may write to the buffer until it is unmapped, or the socket closed.
    pub unsafe fn map(
        &self,
        start: *mut u8,
        len: usize,
        prot: libc::c_int,
        offset: libc::off_t,
    ) -> Result<libc::off_t, Errno> {
        if prot & !libc::PROT_WRITE != 0 || u32::try_from(len).is_err() {
            return Err(EINVAL);
        }
        let link = self.link().ok_or(Errno(libc::ENOTCONN))?;
        let mut mapped = lock(&link.mapped);
        let is_writable = prot & libc::PROT_WRITE != 0;
        let entry = if is_writable { Some(mapped.free_entry(link)?) } else { None };
        let access = LOCAL_WRITE | if is_writable { REMOTE_WRITE } else { 0 };
        // SAFETY: the caller's promise; the region ends before the QP's domain.
        let region = unsafe { Region::new(link.pd(), start, len, access)? };
        let addr = start.addr() as u64;
        let offset = if offset == -1 { addr as libc::off_t } else { offset };
        let offset_bits = offset as u64;
        let is_announced = entry.is_none();
        mapped.0.push(MappedBuffer { region, addr, len, offset: offset_bits, entry, is_announced });
        Ok(offset)
    }

    /// Unmaps it.
    ///
    /// # Errors
    /// EINVAL if it is not mapped.
    pub fn unmap(&self, start: *const u8, len: usize) -> Result<(), Errno> {
        let link = self.link().ok_or(EINVAL)?;
        let mut mapped = lock(&link.mapped);
        let addr = start.addr() as u64;
        let place = mapped.0.iter().position(|buffer| (buffer.addr, buffer.len) == (addr, len));
        mapped.0.swap_remove(place.ok_or(EINVAL)?);
        Ok(())
    }

    /// Tells the peer of the buffers it does not know. For the one thread that sends.
    ///
    /// # Errors
    /// EAGAIN, EINTR; why nothing can be sent any more.
    pub fn announce_mappings(&self, link: &Link, patience: Patience) -> Result<(), Errno> {
        loop {
            let Some((entry, mapping)) = lock(&link.mapped).next_unannounced() else {
                return Ok(());
            };
            self.wait_for_room(link, patience, Flow::buffer_room)?;
            let Some((table, _, order)) = link.flow().peer_mappings() else { return Ok(()) };
            let bytes = mapping.emit(order);
            let at = table.addr.wrapping_add(u64::from(entry) * Mapping::LEN as u64);
            let place = Place { addr: at, rkey: table.rkey };
            link.flow().send.reserve_other(0, true, true);
            let outgoing = Outgoing::Inline(bytes.as_ptr(), Mapping::LEN as u32);
            // SAFETY: the bytes are there.
            unsafe { link.post_data(outgoing, place, Some(Message::Mapped(entry)))? };
            lock(&link.mapped).announced(entry);
        }
    }

    /// Writes to buffers the peer has mapped. Returns how much, which is less where no buffer is
    /// mapped.
    ///
    /// # Errors
    /// As those of [`Stream::send`].
    ///
    /// # Safety
    /// The bytes must be there.
    pub unsafe fn write_mapped(
        &self,
        bytes: &mut Cursor<'_>,
        mut offset: u64,
        flags: libc::c_int,
    ) -> Result<usize, Errno> {
        let patience = self.patience(Way::Send, flags);
        let link = self.open_link(patience)?;
        let _turn = lock(&link.sending);
        let (mut written, mut chunks) = (0, Chunks::new());
        let mut outcome = self.announce_mappings(link, patience);
        while outcome.is_ok() && bytes.left() > 0 {
            let Some(target) = target_at(link, offset) else { break };
            let step = self.wait_for_room(link, patience, Flow::buffer_room).and_then(|room| {
                let len = chunks.next(bytes.left(), room.min(target.length));
                // SAFETY: the caller's promise.
                let outgoing = unsafe { link.gather(bytes, len)? };
                link.flow().send.reserve_other(len, outgoing.is_inline(), false);
                let place = Place { addr: target.addr, rkey: target.rkey };
                // SAFETY: as above.
                unsafe { link.post_data(outgoing, place, None)? };
                Ok(len)
            });
            outcome = step.map(|len| {
                written += len as usize;
                offset = offset.wrapping_add(u64::from(len));
            });
        }
        if written > 0 { Ok(written) } else { outcome.map(|()| 0) }
    }
}

/// What the peer has mapped at an offset, from there to the buffer's end.
fn target_at(link: &Link, offset: u64) -> Option<Target> {
    (0..link.sizes().mappings).find_map(|index| {
        let Mapping { offset: start, target } = link.peer_mapping(index);
        let inside = u32::try_from(offset.checked_sub(start)?).ok()?;
        let length = target.length.checked_sub(inside).filter(|&length| length > 0)?;
        let addr = target.addr.wrapping_add(u64::from(inside));
        Some(Target { addr, length, ..target })
    })
}

impl Mapped {
    /// An entry of the peer's table that is free.
    fn free_entry(&self, link: &Link) -> Result<u16, Errno> {
        let (_, count, _) = link.flow().peer_mappings().ok_or(Errno(libc::ENOTCONN))?;
        let is_free = |entry: &u16| self.0.iter().all(|buffer| buffer.entry != Some(*entry));
        (0..count).find(is_free).ok_or(Errno(libc::ENOMEM))
    }

    fn next_unannounced(&self) -> Option<(u16, Mapping)> {
        let buffer = self.0.iter().find(|buffer| !buffer.is_announced)?;
        let length = buffer.len as u32;
        let target = Target { addr: buffer.addr, rkey: buffer.region.rkey(), length };
        Some((buffer.entry?, Mapping { offset: buffer.offset, target }))
    }

    fn announced(&mut self, entry: u16) {
        if let Some(buffer) = self.0.iter_mut().find(|buffer| buffer.entry == Some(entry)) {
            buffer.is_announced = true;
        }
    }
}
