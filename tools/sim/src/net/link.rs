//! From port to port: a frame takes its time to leave, and then that of the way.

use ferroce::frame::fault::{Fate, Way};
use ferroce_stack::time::Instant;

use super::clock::{Event, PER_NANO};
use super::frames::NONE;
use super::header::Header;
use super::pause::Pause;
use super::{Network, SimError};
use crate::outcome::Captured;
use crate::plan::Node;

/// Class of frames that end at the other end of the link: pauses.
pub const CONTROL: u8 = u8::MAX;

impl Network<'_> {
    /// Sends what waits at a port and may leave, if its link is free; else, or if more waits, when
    /// it will be.
    pub(super) fn transmit(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        if port.free_at <= self.now
            && let Some(frame) = port.pop(&self.frames)
        {
            self.launch(number, frame);
        }
        if self.ports[number as usize].has_ready() {
            self.await_free(number);
        }
    }

    /// Has the port looked at again when its link is free.
    pub(super) fn await_free(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        if !port.awaits_free {
            port.awaits_free = true;
            self.clock.set(port.free_at, Event::Free(number));
        }
    }

    /// Puts a frame on the link, which is free.
    pub(super) fn launch(&mut self, number: u32, frame: u32) {
        let port = &mut self.ports[number as usize];
        let len = self.frames.meta(frame).len;
        port.free_at = self.now + port.frame_time(len);
        port.record.frames += 1;
        port.record.bytes += u64::from(len);
        self.hops += 1;
        let at = port.free_at + port.delay;
        self.capture(number, frame, false);
        self.release(frame);
        match self.faults[number as usize / 2] {
            None => self.put_on_way(number, frame, at),
            Some(_) => self.put_at_risk(number, frame, at),
        }
    }

    /// Keeps a frame that a port sends or has received, if it is captured.
    fn capture(&mut self, number: u32, frame: u32, came_in: bool) {
        if self.ports[number as usize].is_captured {
            self.captures.push(Captured {
                port: number as usize,
                came_in,
                at: self.now / PER_NANO,
                frame: self.frames.bytes(frame).to_vec(),
            });
        }
    }

    fn put_on_way(&mut self, number: u32, frame: u32, at: u64) {
        self.frames.meta_mut(frame).at = at;
        let port = &mut self.ports[number as usize];
        if port.flight.is_empty() {
            self.clock.set(at, Event::Arrive(number));
        }
        port.flight.push(&mut self.frames, frame);
    }

    /// Lets the rules of the link strike a frame.
    fn put_at_risk(&mut self, number: u32, frame: u32, at: u64) {
        let fate = self.strike(number, frame);
        if fate != Fate::default() {
            self.ports[number as usize].record.struck += 1;
            self.look_again(frame, fate);
        }
        let copies = if fate.dropped { 0 } else { fate.duplicates };
        for _ in 0..copies {
            let copy = self.frames.copy(frame);
            self.put_on_way_late(number, copy, at, fate.delay_ns);
        }
        match fate.dropped {
            true => self.frames.give_back(frame),
            false => self.put_on_way_late(number, frame, at, fate.delay_ns),
        }
    }

    fn put_on_way_late(&mut self, number: u32, frame: u32, at: u64, delay_ns: u64) {
        if delay_ns == 0 {
            return self.put_on_way(number, frame, at);
        }
        self.frames.meta_mut(frame).ingress = number;
        let at = at.saturating_add(delay_ns.saturating_mul(PER_NANO));
        self.clock.set(at, Event::Late(frame));
    }

    fn strike(&mut self, number: u32, frame: u32) -> Fate {
        let Some(injector) = &mut self.faults[number as usize / 2] else { return Fate::default() };
        let hosts = self.plan.topology.hosts;
        let name = |port: u32| match self.ports[port as usize].node {
            Node::Host(host) => host,
            Node::Switch(switch) => hosts + switch,
        };
        let source_qp = self.frames.meta(frame).source_qp;
        let way = Way {
            from: name(number),
            to: Some(name(number ^ 1)),
            source_qp: (source_qp != NONE).then_some(source_qp),
        };
        let now = Instant::from_nanos(self.now / PER_NANO);
        injector.strike(now, way, self.frames.bytes_mut(frame))
    }

    /// What is known of a frame follows from its bytes, which have changed.
    fn look_again(&mut self, frame: u32, fate: Fate) {
        self.frames.meta_mut(frame).len -= fate.cut as u32;
        let bytes = self.frames.bytes(frame);
        let is_pause = Pause::parse(bytes).is_some();
        let header = Header::of(bytes);
        let meta = self.frames.meta_mut(frame);
        meta.class = match is_pause {
            true => CONTROL,
            false => self.plan.host.classes[usize::from(header.dscp)],
        };
        meta.to = header.to;
        meta.hash = header.hash;
    }

    /// The first frame on its way from a port has come to the other end.
    pub(super) fn arrive(&mut self, number: u32) -> Result<(), SimError> {
        let port = &mut self.ports[number as usize];
        let Some(frame) = port.flight.pop(&self.frames) else { return Ok(()) };
        if let Some(next) = port.flight.front() {
            self.clock.set(self.frames.meta(next).at, Event::Arrive(number));
        }
        self.receive(number ^ 1, frame)
    }

    /// A frame has come in by a port.
    pub(super) fn receive(&mut self, number: u32, frame: u32) -> Result<(), SimError> {
        self.capture(number, frame, true);
        if self.frames.meta(frame).class == CONTROL {
            let pause = Pause::parse(self.frames.bytes(frame));
            self.frames.give_back(frame);
            return pause.map_or(Ok(()), |pause| self.obey(number, &pause));
        }
        match self.ports[number as usize].node {
            Node::Host(host) => self.take_in(host, frame),
            Node::Switch(switch) => {
                self.forward(switch, number, frame);
                Ok(())
            }
        }
    }

    /// A port does what a pause frame says.
    fn obey(&mut self, number: u32, pause: &Pause) -> Result<(), SimError> {
        let port = &mut self.ports[number as usize];
        for (class, &quanta) in pause.quanta.iter().enumerate() {
            if pause.classes >> class & 1 == 1 {
                let until = self.now + super::pause::quanta_time(quanta, port.rate);
                port.hold(class, self.now, until);
                if until > self.now {
                    self.clock.set(until, Event::PauseEnd(number));
                }
            }
        }
        self.send_on(number)
    }
}
