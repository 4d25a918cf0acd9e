//! The in-memory link between any number of nodes, on the caller's clock.
//!
//! Every frame passes the same stations in this order: it is recorded, measured against the MTU,
//! serialised at the sender's rate, injured by the faults, addressed by its destination MAC, and
//! arrives after the delay. Buffers are pooled: in steady state nothing is allocated.

use std::collections::VecDeque;
use std::io;

use ferroce_stack::time::Instant;
use ferroce_stack::wire::Mac;

use super::fault::{Fate, Injector, Way};
use super::pcap::Recorder;

/// Ethernet header, and the tag a frame may have besides.
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// Preamble, FCS and gap, which take their time on a real link but are in no buffer.
const FRAMING_LEN: u64 = 24;

/// What the link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Nanoseconds from the end of sending to arrival.
    pub delay_ns: u64,
    /// Bits per second each node sends at most; unlimited if none.
    pub rate_bps: Option<u64>,
    /// The longest IP packet; longer ones are dropped.
    pub mtu: usize,
}

impl Default for Link {
    /// Jumbo frames, 1 us apart, as fast as they come.
    fn default() -> Link {
        Link { delay_ns: 1000, rate_bps: None, mtu: 9000 }
    }
}

/// Where a recording looks at the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// At the senders, before the faults: every frame once, when it was sent.
    Sent,
    /// At the receivers, after the faults: what arrives, as often as it does, when it does.
    Arrived,
}

/// What has happened on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived.
    pub arrived: u64,
    /// Frames longer than the MTU.
    pub too_long: u64,
    /// Frames nobody has the address of.
    pub unaddressed: u64,
    /// Frames dropped by a fault.
    pub dropped: u64,
    /// Frames that arrive more than once.
    pub duplicated: u64,
    /// Frames held up by a fault.
    pub delayed: u64,
    /// Frames with bits changed by a fault.
    pub corrupted: u64,
    /// Frames that a fault has marked: congestion experienced.
    pub marked: u64,
    /// Frames cut short by a fault.
    pub truncated: u64,
}

/// A frame that was sent, as [`Wire::keep_log`] remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// When.
    pub at: Instant,
    /// The node that sent it.
    pub from: usize,
    /// As it was sent, before the faults.
    pub bytes: Vec<u8>,
    /// What the faults did to it.
    pub fate: Fate,
}

/// A frame that was written into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Its bytes.
    pub len: usize,
    /// The QP it is from, if that is known.
    pub source_qp: Option<u32>,
}

#[derive(Debug)]
struct InFlight {
    at: Instant,
    to: usize,
    buffer: Vec<u8>,
    len: usize,
}

/// The link.
pub struct Wire {
    link: Link,
    stations: Vec<Mac>,
    /// When each node has sent all it has given the link.
    busy_until: Vec<Instant>,
    faults: Injector,
    /// By arrival; frames that arrive together in the order they were sent.
    in_flight: VecDeque<InFlight>,
    pool: Vec<Vec<u8>>,
    buffer_len: usize,
    counters: WireCounters,
    recording: Option<(CapturePoint, Recorder)>,
    log: Option<Vec<SentFrame>>,
}

impl Wire {
    /// A link between nodes with these addresses, for frames of up to `frame_len` bytes.
    pub fn new(link: Link, stations: Vec<Mac>, frame_len: usize, faults: Injector) -> Wire {
        Wire {
            link,
            busy_until: vec![Instant::ZERO; stations.len()],
            stations,
            faults,
            in_flight: VecDeque::new(),
            pool: Vec::new(),
            buffer_len: frame_len,
            counters: WireCounters::default(),
            recording: None,
            log: None,
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> WireCounters {
        self.counters
    }

    /// The faults, to be changed on the way.
    pub fn faults_mut(&mut self) -> &mut Injector {
        &mut self.faults
    }

    /// Records from here on; a recording that runs already is replaced and incomplete.
    pub fn record(&mut self, recorder: Recorder, point: CapturePoint) {
        self.recording = Some((point, recorder));
    }

    /// Completes the recording, if there is one; returns how many frames it holds.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish_recording(&mut self) -> io::Result<u64> {
        self.recording.take().map_or(Ok(0), |(_, recorder)| recorder.finish())
    }

    /// Remembers every frame from here on.
    pub fn keep_log(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Takes the frames remembered since the last call.
    pub fn take_log(&mut self) -> Vec<SentFrame> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// When node `from` may send its next frame: now or earlier if its side of the link is free.
    pub fn free_at(&self, from: usize) -> Instant {
        self.busy_until[from]
    }

    /// Sends a copy of `frame` from node `from`.
    pub fn send(&mut self, now: Instant, from: usize, frame: &[u8]) {
        self.buffer_len = self.buffer_len.max(frame.len());
        self.transmit(now, from, |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            Some(Filled { len: frame.len(), source_qp: None })
        });
    }

    /// Sends the frame that `fill` writes into the buffer it is given, if it does; whether it did.
    pub fn transmit(
        &mut self,
        now: Instant,
        from: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<Filled>,
    ) -> bool {
        let mut buffer = self.take_buffer();
        match fill(&mut buffer) {
            Some(filled) => {
                self.dispatch(now, from, buffer, filled);
                true
            }
            None => {
                self.pool.push(buffer);
                false
            }
        }
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.front().map(|frame| frame.at)
    }

    /// Shows `receive` the next frame that has arrived by `now`, with the node it arrives at;
    /// whether there was one.
    pub fn deliver(&mut self, now: Instant, receive: impl FnOnce(usize, &[u8])) -> bool {
        if self.next_arrival().is_none_or(|at| at > now) {
            return false;
        }
        let Some(frame) = self.in_flight.pop_front() else { return false };
        let bytes = &frame.buffer[..frame.len];
        self.counters.arrived += 1;
        if let Some((CapturePoint::Arrived, recorder)) = &mut self.recording {
            recorder.record(now, frame.to, bytes);
        }
        receive(frame.to, bytes);
        self.pool.push(frame.buffer);
        true
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.pool.pop().unwrap_or_default();
        if buffer.len() < self.buffer_len {
            buffer.resize(self.buffer_len, 0);
        }
        buffer
    }

    fn dispatch(&mut self, now: Instant, from: usize, mut buffer: Vec<u8>, filled: Filled) {
        let Filled { len, source_qp } = filled;
        let departure = self.serialise(now, from, len);
        self.counters.sent += 1;
        if let Some((CapturePoint::Sent, recorder)) = &mut self.recording {
            recorder.record(now, from, &buffer[..len]);
        }
        if let Some(log) = &mut self.log {
            let bytes = buffer[..len].to_vec();
            log.push(SentFrame { at: now, from, bytes, fate: Fate::default() });
        }
        if len > self.longest(&buffer[..len]) {
            self.counters.too_long += 1;
            self.pool.push(buffer);
            return;
        }
        let way = Way { from, to: self.station(&buffer[..len]), source_qp };
        let fate = self.faults.strike(now, way, &mut buffer[..len]);
        let len = len - fate.cut;
        self.note(fate);
        if fate.dropped {
            self.pool.push(buffer);
            return;
        }
        let at = departure + self.link.delay_ns + fate.delay_ns;
        for _ in 0..fate.duplicates {
            let mut copy = self.take_buffer();
            copy[..len].copy_from_slice(&buffer[..len]);
            self.route(at, from, copy, len);
        }
        self.route(at, from, buffer, len);
    }

    /// The station a frame is for, if it is for one.
    fn station(&self, frame: &[u8]) -> Option<usize> {
        let mac = frame.first_chunk::<6>()?;
        self.stations.iter().position(|station| station.0 == *mac)
    }

    /// When the last bit of a frame has left its sender.
    fn serialise(&mut self, now: Instant, from: usize, len: usize) -> Instant {
        let Some(rate) = self.link.rate_bps else { return now };
        let bits = (len as u64 + FRAMING_LEN) * 8;
        let start = self.busy_until[from].max(now);
        self.busy_until[from] = start + (bits * 1_000_000_000).div_ceil(rate.max(1));
        self.busy_until[from]
    }

    fn longest(&self, frame: &[u8]) -> usize {
        let is_tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
        self.link.mtu + ETHERNET_LEN + if is_tagged { TAG_LEN } else { 0 }
    }

    fn note(&mut self, fate: Fate) {
        if fate == Fate::default() {
            return;
        }
        self.counters.dropped += u64::from(fate.dropped);
        self.counters.duplicated += u64::from(fate.duplicates > 0);
        self.counters.delayed += u64::from(fate.delay_ns > 0);
        self.counters.corrupted += u64::from(fate.corrupted);
        self.counters.marked += u64::from(fate.marked);
        self.counters.truncated += u64::from(fate.cut > 0);
        if let Some(frame) = self.log.as_mut().and_then(|log| log.last_mut()) {
            frame.fate = fate;
        }
    }

    /// To the station with the destination MAC, the sender's own included; to all others if it is
    /// a group.
    fn route(&mut self, at: Instant, from: usize, buffer: Vec<u8>, len: usize) {
        let Some(&mac) = buffer[..len].first_chunk::<6>() else {
            self.counters.unaddressed += 1;
            self.pool.push(buffer);
            return;
        };
        if mac[0] & 1 == 0 {
            match self.station(&buffer[..len]) {
                Some(to) => self.enqueue(InFlight { at, to, buffer, len }),
                None => {
                    self.counters.unaddressed += 1;
                    self.pool.push(buffer);
                }
            }
            return;
        }
        for to in (0..self.stations.len()).filter(|&to| to != from) {
            let mut copy = self.take_buffer();
            copy[..len].copy_from_slice(&buffer[..len]);
            self.enqueue(InFlight { at, to, buffer: copy, len });
        }
        self.pool.push(buffer);
    }

    /// Frames mostly arrive in the order they are sent, so the place is looked for from the end.
    fn enqueue(&mut self, frame: InFlight) {
        let later = self.in_flight.iter().rev().take_while(|other| other.at > frame.at).count();
        self.in_flight.insert(self.in_flight.len() - later, frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIONS: [Mac; 3] =
        [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 3])];

    fn wire(link: Link, rules: &[&str]) -> Wire {
        let rules = rules.iter().map(|rule| rule.parse().unwrap());
        Wire::new(link, STATIONS.to_vec(), 200, Injector::new(rules, 1))
    }

    /// A frame to `mac` that ends in `tag`.
    fn frame(mac: [u8; 6], len: usize, tag: u8) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&mac);
        frame[len - 1] = tag;
        frame
    }

    /// Arrival time, node and last byte of every frame.
    fn drain(wire: &mut Wire) -> Vec<(u64, usize, u8)> {
        let mut all = Vec::new();
        while let Some(at) = wire.next_arrival() {
            wire.deliver(at, |to, frame| all.push((at.nanos(), to, frame[frame.len() - 1])));
        }
        all
    }

    #[test]
    fn the_destination_address_decides() {
        let mut wire = wire(Link::default(), &[]);
        wire.send(Instant::ZERO, 0, &frame(STATIONS[1].0, 60, 1));
        wire.send(Instant::ZERO, 0, &frame(STATIONS[0].0, 60, 2));
        wire.send(Instant::ZERO, 1, &frame([1, 0, 0x5e, 0, 0, 1], 60, 3));
        wire.send(Instant::ZERO, 1, &frame([2, 9, 9, 9, 9, 9], 60, 4));
        wire.send(Instant::ZERO, 1, &[1, 2, 3]);
        assert_eq!(drain(&mut wire), [(1000, 1, 1), (1000, 0, 2), (1000, 0, 3), (1000, 2, 3)]);
        assert_eq!(wire.counters().unaddressed, 2);
    }

    #[test]
    fn frames_take_turns_at_the_rate() {
        let link = Link { rate_bps: Some(1_000_000_000), delay_ns: 500, ..Link::default() };
        let mut wire = wire(link, &[]);
        for tag in 0..2 {
            wire.send(Instant::ZERO, 0, &frame(STATIONS[1].0, 101, tag));
        }
        // 125 bytes with their framing take 1 us.
        assert_eq!(wire.free_at(0), Instant::from_nanos(2000));
        assert_eq!(drain(&mut wire), [(1500, 1, 0), (2500, 1, 1)]);
    }

    #[test]
    fn long_frames_are_dropped_and_counted() {
        let mut wire = wire(Link { mtu: 100, ..Link::default() }, &[]);
        wire.send(Instant::ZERO, 0, &frame(STATIONS[1].0, 114, 1));
        wire.send(Instant::ZERO, 0, &frame(STATIONS[1].0, 115, 2));
        let mut tagged = frame(STATIONS[1].0, 118, 3);
        tagged[12..14].copy_from_slice(&[0x81, 0]);
        wire.send(Instant::ZERO, 0, &tagged);
        assert_eq!(drain(&mut wire), [(1000, 1, 1), (1000, 1, 3)]);
        assert_eq!(wire.counters().too_long, 1);
    }

    #[test]
    fn faults_happen_on_the_way() {
        let rules = ["drop 1st any", "duplicate 2nd any", "delay 3rd any by 1us"];
        let mut wire = wire(Link::default(), &rules);
        wire.keep_log();
        for tag in 1..=4 {
            wire.send(Instant::ZERO, 0, &frame(STATIONS[1].0, 60, tag));
        }
        assert_eq!(drain(&mut wire), [(1000, 1, 2), (1000, 1, 2), (1000, 1, 4), (2000, 1, 3)]);
        let log = wire.take_log();
        assert!(log[0].fate.dropped && log[1].fate.duplicates == 1 && log[2].fate.delay_ns == 1000);
    }

    #[test]
    fn buffers_come_back() {
        let mut wire = wire(Link::default(), &[]);
        for _ in 0..100 {
            wire.send(Instant::ZERO, 0, &frame(STATIONS[1].0, 60, 0));
            drain(&mut wire);
        }
        assert_eq!(wire.pool.len(), 1);
    }
}
