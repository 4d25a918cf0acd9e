//! What a stream does about what connection management says, in the service thread.

use std::sync::{Arc, Weak};

use super::cm::{CmId, Event, EventChannel};
use super::link::{End, Link};
use super::protocol::Hello;
use super::service::{self, Served};
use super::stream::{Phase, RESOLVE_MS, Stream};
use crate::device::lock;
use crate::errno::Errno;
use crate::layout::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE,
    RdmaConnParam, zeroed,
};

/// `retry_count` and `rnr_retry_count`: the most there are, of the latter without end.
const RETRIES: u8 = 7;

impl Served for Stream {
    fn serve(self: Arc<Stream>) {
        loop {
            // Requests that find no room wait where they are, and the peers with them.
            if self.is_full() {
                service::pause(self.fd());
                if self.is_full() {
                    return;
                }
                service::resume(self.fd());
            }
            let Some(event) = self.channel.next() else { return };
            self.heard(&event);
        }
    }

    fn keep_alive(&self) {
        Stream::keep_alive(self);
    }
}

impl Stream {
    /// Whether it is a listener whose queue is full.
    fn is_full(&self) -> bool {
        matches!(&*self.phase(), Phase::Listening(listener) if listener.is_full())
    }

    fn heard(self: &Arc<Stream>, event: &Event) {
        let outcome = match event.kind {
            RDMA_CM_EVENT_ADDR_RESOLVED => self.id.resolve_route(RESOLVE_MS),
            RDMA_CM_EVENT_ROUTE_RESOLVED => self.ask(),
            RDMA_CM_EVENT_CONNECT_REQUEST => {
                self.requested(event);
                Ok(())
            }
            RDMA_CM_EVENT_ESTABLISHED => self.established(&event.private_data),
            RDMA_CM_EVENT_TIMEWAIT_EXIT | RDMA_CM_EVENT_ADDR_CHANGE => Ok(()),
            _ => Err(errno_of(event)),
        };
        tracing::debug!(kind = event.kind, status = event.status, ?outcome, "rsocket: event");
        if let Err(error) = outcome {
            self.over(error, event.kind == RDMA_CM_EVENT_DISCONNECTED);
        }
    }

    /// Asks the peer for a connection.
    fn ask(&self) -> Result<(), Errno> {
        let link = Link::new(&self.id, self.sizes())?;
        let link = self.link.get_or_init(|| link);
        let (retry_count, rnr_retry_count) = (RETRIES, RETRIES);
        let param = RdmaConnParam { flow_control: 1, retry_count, rnr_retry_count, ..zeroed() };
        self.id.connect(&param, &link.hello().emit())
    }

    /// A peer asks this listener for a connection.
    fn requested(self: &Arc<Stream>, event: &Event) {
        // SAFETY: the id of such an event is new and nobody else's.
        let id = unsafe { CmId::of_request(event.id) };
        let Some(hello) = Hello::parse(&event.private_data) else {
            tracing::info!("rsocket: a connection request that is not of an rsocket is refused");
            id.reject();
            return;
        };
        if let Err(error) = self.answer(id, &hello, &event.param) {
            tracing::warn!(errno = error.0, "rsocket: a connection request cannot be answered");
        }
    }

    /// Accepts a request; its id is rejected if that fails.
    fn answer(
        self: &Arc<Stream>,
        id: CmId,
        hello: &Hello,
        param: &RdmaConnParam,
    ) -> Result<(), Errno> {
        let reject = |error: Errno| {
            id.reject();
            error
        };
        let channel = EventChannel::new().map_err(reject)?;
        id.migrate(&channel).map_err(reject)?;
        let options = lock(&self.options).inherited();
        let link = Link::new(&id, options.sizes).map_err(reject)?;
        link.meet(hello);
        let phase = Phase::Accepting(Arc::downgrade(self));
        let stream = Arc::new(Stream::with(channel, id, phase, options));
        let link = stream.link.get_or_init(|| link);
        match &mut *self.phase() {
            Phase::Listening(listener) => listener.pending.push(stream.clone()),
            // It was closed meanwhile.
            _ => return Err(Errno(libc::EBADF)),
        }
        let accepted = stream
            .id
            .accept(param, &link.hello().emit())
            .and_then(|()| service::watch(stream.fd(), &stream));
        accepted.inspect_err(|_| {
            stream.id.reject();
            self.take_pending(&stream);
        })
    }

    /// There is a connection.
    fn established(self: &Arc<Stream>, private_data: &[u8]) -> Result<(), Errno> {
        let Some(link) = self.link() else { return Ok(()) };
        let before = {
            let mut phase = self.phase();
            if matches!(&*phase, Phase::Connecting) {
                let hello = Hello::parse(private_data).ok_or(Errno(libc::EPROTO))?;
                link.meet(&hello);
            } else if !matches!(&*phase, Phase::Accepting(_)) {
                return Ok(());
            }
            link.open();
            std::mem::replace(&mut *phase, Phase::Open)
        };
        self.process(link, &mut link.flow());
        self.waiters.wake();
        if let Phase::Accepting(listener) = before
            && let Some(listener) = listener.upgrade()
        {
            listener.is_ready(self);
        }
        Ok(())
    }

    /// A connection of this listener is established.
    fn is_ready(&self, stream: &Arc<Stream>) {
        if self.take_pending(stream)
            && let Phase::Listening(listener) = &mut *self.phase()
        {
            listener.ready.push_back(stream.clone());
        }
        self.waiters.wake();
    }

    fn take_pending(&self, stream: &Arc<Stream>) -> bool {
        let Phase::Listening(listener) = &mut *self.phase() else { return false };
        let place = listener.pending.iter().position(|pending| Arc::ptr_eq(pending, stream));
        place.map(|place| listener.pending.swap_remove(place)).is_some()
    }

    /// There is no connection, or no more.
    fn over(self: &Arc<Stream>, error: Errno, is_orderly: bool) {
        let (is_open, listener) = {
            let mut phase = self.phase();
            match &*phase {
                Phase::Open => (true, None),
                Phase::Connecting => {
                    lock(&self.options).error = Some(error);
                    *phase = Phase::Failed(error);
                    (false, None)
                }
                Phase::Accepting(listener) => {
                    let listener = listener.clone();
                    *phase = Phase::Failed(error);
                    (false, Some(listener))
                }
                Phase::Idle | Phase::Listening(_) | Phase::Failed(_) => return,
            }
        };
        if let Some(link) = self.link() {
            let mut flow = link.flow();
            // What came before the end counts.
            self.process(link, &mut flow);
            flow.end(if is_orderly { End::Orderly } else { End::Broken(error) });
        }
        if is_open {
            self.id.disconnect();
        }
        self.waiters.wake();
        if let Some(listener) = listener.and_then(|listener: Weak<Stream>| listener.upgrade()) {
            listener.take_pending(self);
            service::resume(listener.fd());
        }
    }
}

/// What a program is told of an event that ends things.
fn errno_of(event: &Event) -> Errno {
    match event.kind {
        RDMA_CM_EVENT_REJECTED => Errno(libc::ECONNREFUSED),
        RDMA_CM_EVENT_DISCONNECTED => Errno(libc::ECONNRESET),
        _ if event.status < 0 => Errno(-event.status),
        RDMA_CM_EVENT_UNREACHABLE => Errno(libc::ETIMEDOUT),
        _ => Errno(libc::EHOSTUNREACH),
    }
}
