//! Bytes into a stream and out of it.

use super::flow::Pieces;
use super::iov::Cursor;
use super::link::{End, Flow, Link};
use super::protocol::Message;
use super::stream::{Stream, Way};
use super::verbs::Place;
use super::wait::{Patience, wait_for};
use crate::device::lock;
use crate::errno::Errno;

/// A long transfer begins with a small message, so that the peer has work early, and goes on with
/// larger ones, up to this.
const FIRST_MESSAGE: u32 = 2048;
const LARGEST_MESSAGE: u32 = 65_536;

/// Sizes of the messages of one transfer.
#[derive(Debug)]
pub struct Chunks(u32);

impl Chunks {
    /// Of a new transfer.
    pub fn new() -> Chunks {
        Chunks(FIRST_MESSAGE)
    }

    /// The next, with `left` bytes left and room for `room`.
    pub fn next(&mut self, left: usize, room: u32) -> u32 {
        let wanted = u32::try_from(left).unwrap_or(u32::MAX).min(self.0);
        if (wanted as usize) < left && self.0 < LARGEST_MESSAGE {
            self.0 *= 2;
        }
        wanted.min(room)
    }
}

impl Stream {
    /// Sends bytes, all of them if it may wait.
    ///
    /// # Errors
    /// EAGAIN, EINTR, EFAULT, ECONNRESET, EPIPE, ENOTCONN; only if nothing was sent.
    ///
    /// # Safety
    /// The bytes must be there.
    pub unsafe fn send(&self, bytes: &mut Cursor<'_>, flags: libc::c_int) -> Result<usize, Errno> {
        let patience = self.patience(Way::Send, flags);
        let link = self.open_link(patience)?;
        let _turn = lock(&link.sending);
        let (mut sent, mut chunks) = (0, Chunks::new());
        let mut outcome = self.announce_mappings(link, patience);
        while outcome.is_ok() && bytes.left() > 0 {
            // SAFETY: the caller's promise.
            let message = unsafe { self.send_message(link, bytes, &mut chunks, patience) };
            outcome = message.map(|len| sent += len as usize);
        }
        if sent > 0 { Ok(sent) } else { outcome.map(|()| 0) }
    }

    /// Sends one message when there is room, and returns its length.
    ///
    /// # Safety
    /// The bytes must be there.
    unsafe fn send_message(
        &self,
        link: &Link,
        bytes: &mut Cursor<'_>,
        chunks: &mut Chunks,
        patience: Patience,
    ) -> Result<u32, Errno> {
        let room = self.wait_for_room(link, patience, Flow::room)?;
        let len = chunks.next(bytes.left(), room);
        // SAFETY: the caller's promise.
        let outgoing = unsafe { link.gather(bytes, len)? };
        let (addr, rkey) = link.flow().send.reserve(len, outgoing.is_inline());
        // SAFETY: as above.
        unsafe { link.post_data(outgoing, Place { addr, rkey }, Some(Message::Data(len)))? };
        Ok(len)
    }

    /// Waits until `room` says that there is some.
    ///
    /// # Errors
    /// EAGAIN, EINTR; why there will never be any.
    pub fn wait_for_room(
        &self,
        link: &Link,
        patience: Patience,
        room: impl Fn(&Flow) -> Option<u32>,
    ) -> Result<u32, Errno> {
        let mut is_first = true;
        wait_for(self, patience, || {
            let mut flow = link.flow();
            // While there is room, nobody needs to know what has completed.
            if !std::mem::take(&mut is_first) || room(&flow) == Some(0) {
                self.process(link, &mut flow);
            }
            match room(&flow) {
                Some(0) => None,
                Some(room) => Some(Ok(room)),
                None => Some(Err(flow.send_error())),
            }
        })?
    }

    /// Receives what is there, or waits for some; with `MSG_WAITALL` for all.
    ///
    /// # Errors
    /// EAGAIN, EINTR, EFAULT, ENOTCONN, why the connection broke; only if nothing was received.
    ///
    /// # Safety
    /// There must be as much room as said.
    pub unsafe fn recv(&self, room: &mut Cursor<'_>, flags: libc::c_int) -> Result<usize, Errno> {
        let patience = self.patience(Way::Recv, flags);
        let link = self.open_link(patience)?;
        if room.left() == 0 {
            return Ok(0);
        }
        let mut received = 0;
        let _turn = lock(&link.receiving);
        let is_peek = flags & libc::MSG_PEEK != 0;
        let outcome = loop {
            let has_data = match self.wait_for_data(link, patience) {
                Ok(has_data) => has_data,
                Err(error) => break Err(error),
            };
            if !has_data {
                break Ok(());
            }
            let pieces = link.flow().recv.peek(room.left());
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { drain(link, room, pieces) } {
                break Err(error);
            }
            let len = pieces[0].1 + pieces[1].1;
            received += len as usize;
            if is_peek {
                break Ok(());
            }
            let mut flow = link.flow();
            flow.recv.read(len);
            link.grant(&mut flow);
            if room.left() == 0 || flags & libc::MSG_WAITALL == 0 {
                break Ok(());
            }
        };
        if received > 0 { Ok(received) } else { outcome.map(|()| 0) }
    }

    /// Waits for data; false if there will be none.
    fn wait_for_data(&self, link: &Link, patience: Patience) -> Result<bool, Errno> {
        wait_for(self, patience, || {
            let mut flow = link.flow();
            if !flow.recv.has_data() {
                self.process(link, &mut flow);
            }
            if flow.recv.has_data() {
                return Some(Ok(true));
            }
            match flow.end {
                Some(End::Broken(error)) => {
                    flow.end = Some(End::Told);
                    Some(Err(error))
                }
                Some(End::Orderly | End::Told) => Some(Ok(false)),
                None if !flow.is_readable => Some(Ok(false)),
                None => None,
            }
        })?
    }
}

/// # Safety
/// As [`Cursor::drain`].
unsafe fn drain(link: &Link, room: &mut Cursor<'_>, pieces: Pieces) -> Result<(), Errno> {
    for (at, len) in pieces {
        // SAFETY: the caller's promise.
        unsafe { room.drain(link.recv_buffer(), at, len)? };
    }
    Ok(())
}
