//! Switches: output queues of each class in one buffer, marking by the length of the queue, and
//! pausing by what has come in by a port and is still there.

use ferroce_stack::wire::Mac;

use super::clock::Event;
use super::frames::{Meta, NONE};
use super::header::{mark, port_mac};
use super::link::CONTROL;
use super::pause::{LEN, Pause, QUANTA_MAX, quanta_time};
use super::port::Port;
use super::{Network, SimError};
use crate::plan::{CLASSES, Ecn, Node, Pfc, Plan};

/// A switch.
#[derive(Debug)]
pub struct Switch {
    /// Marking and pausing of each class, and the share of what is free for a queue of one without
    /// pauses: as its plan says.
    ecn: [Option<Ecn>; CLASSES],
    pfc: [Option<Pfc>; CLASSES],
    alpha: f64,
    /// Bytes of its buffer that are no port's headroom.
    shared: u64,
    /// How many of them are taken.
    used: u64,
}

/// Where in the buffer a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Shared,
    Headroom,
    /// There is no room.
    Nowhere,
}

impl Switch {
    /// All of a plan's.
    ///
    /// # Errors
    /// [`SimError::NoBuffer`] for one whose ports' headroom takes all of it.
    pub fn all(plan: &Plan, ports: &[Port]) -> Result<Vec<Switch>, SimError> {
        let mut count = vec![0u64; plan.topology.switches];
        for port in ports {
            if let Node::Switch(switch) = port.node {
                count[switch] += 1;
            }
        }
        let of = |(switch, ports): (usize, u64)| {
            let crate::plan::Switch { buffer, ecn, pfc, alpha } = *plan.switch(switch);
            let headrooms = pfc.iter().flatten().map(|pfc| pfc.headroom);
            let headroom = headrooms.fold(0, u64::saturating_add).saturating_mul(ports);
            match buffer.checked_sub(headroom) {
                None | Some(0) => Err(SimError::NoBuffer { switch, headroom, buffer }),
                Some(shared) => Ok(Switch { ecn, pfc, alpha, shared, used: 0 }),
            }
        };
        count.into_iter().enumerate().map(of).collect()
    }
}

impl Ecn {
    /// The probability that a packet is marked that joins a queue of so many bytes.
    pub fn probability(&self, queue: u64) -> f64 {
        if queue >= self.kmax {
            1.0
        } else if queue <= self.kmin {
            0.0
        } else {
            self.pmax * (queue - self.kmin) as f64 / (self.kmax - self.kmin) as f64
        }
    }
}

impl Network<'_> {
    /// A switch has received a frame whole, and puts it into the queue of the port that is next.
    pub(super) fn forward(&mut self, switch: usize, ingress: u32, frame: u32) {
        let meta = *self.frames.meta(frame);
        let egress = meta.to.and_then(|to| self.routes.next(switch, to, meta.hash));
        let Some(egress) = egress else {
            // Damaged on the way: it is for nobody.
            self.ports[ingress as usize].record.dropped += 1;
            self.frames.give_back(frame);
            return;
        };
        let place = self.place(switch, ingress, egress, &meta);
        if place == Place::Nowhere {
            self.ports[egress as usize].record.dropped += 1;
            self.frames.give_back(frame);
            return;
        }
        self.admit(switch, ingress, frame, place);
        self.mark_congestion(switch, egress, frame);
        self.ports[egress as usize].push(&mut self.frames, frame);
        self.transmit(egress);
    }

    /// Where a frame finds room. A queue of a class that does not pause may take its share of what
    /// is free; one that does is bounded by the pauses, and what comes after them has the headroom.
    fn place(&self, switch: usize, ingress: u32, egress: u32, meta: &Meta) -> Place {
        let Switch { ref pfc, alpha, shared, used, .. } = self.switches[switch];
        let (class, len) = (usize::from(meta.class), u64::from(meta.len));
        let fits = used + len <= shared;
        let Some(pfc) = pfc[class] else {
            let most = alpha * (shared - used) as f64;
            let queue = self.ports[egress as usize].queues[class].bytes;
            return if fits && (queue + len) as f64 <= most {
                Place::Shared
            } else {
                Place::Nowhere
            };
        };
        let ingress = &self.ports[ingress as usize].ingress;
        if fits && ingress.pausing >> class & 1 == 0 {
            Place::Shared
        } else if ingress.headroom[class] + len <= pfc.headroom {
            Place::Headroom
        } else {
            Place::Nowhere
        }
    }

    fn admit(&mut self, switch: usize, number: u32, frame: u32, place: Place) {
        let meta = self.frames.meta_mut(frame);
        meta.ingress = number;
        let (class, len) = (usize::from(meta.class), u64::from(meta.len));
        let ingress = &mut self.ports[number as usize].ingress;
        ingress.bytes[class] += len;
        match place {
            Place::Headroom => ingress.headroom[class] += len,
            _ => self.switches[switch].used += len,
        }
        let is_over = |xoff| ingress.bytes[class] >= xoff || place == Place::Headroom;
        if let Some(pfc) = self.switches[switch].pfc[class]
            && ingress.pausing >> class & 1 == 0
            && is_over(pfc.xoff)
        {
            ingress.pausing |= 1 << class;
            self.send_pause(number, 1 << class, QUANTA_MAX);
            self.await_refresh(number);
        }
    }

    /// A frame leaves the buffer of the switch it is in, if it is in one.
    pub(super) fn release(&mut self, frame: u32) {
        let Meta { ingress: number, class, len, .. } = *self.frames.meta(frame);
        if number == NONE {
            return;
        }
        self.frames.meta_mut(frame).ingress = NONE;
        let port = &mut self.ports[number as usize];
        let Node::Switch(switch) = port.node else { return };
        let (class, len) = (usize::from(class), u64::from(len));
        let ingress = &mut port.ingress;
        ingress.bytes[class] -= len;
        // Whatever leaves makes room for what is in the headroom.
        let moved = len.min(ingress.headroom[class]);
        ingress.headroom[class] -= moved;
        self.switches[switch].used -= len - moved;
        if let Some(pfc) = self.switches[switch].pfc[class]
            && ingress.pausing >> class & 1 == 1
            && ingress.bytes[class] <= pfc.xon
            && ingress.headroom[class] == 0
        {
            ingress.pausing &= !(1 << class);
            self.send_pause(number, 1 << class, 0);
        }
    }

    /// Marks a frame as the queue it is about to join has it.
    fn mark_congestion(&mut self, switch: usize, egress: u32, frame: u32) {
        let class = usize::from(self.frames.meta(frame).class);
        let Some(ecn) = self.switches[switch].ecn[class] else { return };
        let port = &mut self.ports[egress as usize];
        let probability = ecn.probability(port.queues[class].bytes);
        let chosen = probability > 0.0 && port.rng.chance(probability);
        if chosen && mark(self.frames.bytes_mut(frame)) {
            port.record.marked += 1;
        }
    }

    /// Has the other end of a port's link pause, or go on.
    fn send_pause(&mut self, number: u32, classes: u8, quanta: u16) {
        if quanta > 0 {
            let sent = &mut self.ports[number as usize].record.pauses_sent;
            for (class, count) in sent.iter_mut().enumerate() {
                *count += u64::from(classes >> class & 1);
            }
        }
        let frame = self.frames.take();
        let from: Mac = port_mac(number);
        Pause::of(classes, quanta).emit(from, self.frames.buffer_mut(frame));
        *self.frames.meta_mut(frame) = Meta {
            len: LEN as u32,
            class: CONTROL,
            ingress: NONE,
            source_qp: NONE,
            ..Meta::default()
        };
        self.ports[number as usize].control.push(&mut self.frames, frame);
        self.transmit(number);
    }

    /// Pauses last for a time; before it is over they are asked for again.
    fn await_refresh(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        if !port.ingress.awaits_refresh {
            port.ingress.awaits_refresh = true;
            let at = self.now + quanta_time(QUANTA_MAX / 2, port.rate);
            self.clock.set(at, Event::Refresh(number));
        }
    }

    /// Asks again for the pauses that are still needed.
    pub(super) fn refresh_pauses(&mut self, number: u32) {
        let ingress = &mut self.ports[number as usize].ingress;
        ingress.awaits_refresh = false;
        let classes = ingress.pausing;
        if classes != 0 {
            self.send_pause(number, classes, QUANTA_MAX);
            self.await_refresh(number);
        }
    }
}
