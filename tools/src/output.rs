//! Standard output, when nobody reads it any more.

use std::io;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether this is why a command failed: whoever reads its output, such as `head`, has seen enough.
/// A connection that broke is something else.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    let is_broken = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    });
    is_broken && stdout_is_closed()
}

fn stdout_is_closed() -> bool {
    let stdout = io::stdout();
    let mut ends = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let is_ready = poll(&mut ends, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    is_ready && ends[0].revents().is_some_and(|events| events.intersects(closed))
}
