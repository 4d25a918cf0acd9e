//! What every algorithm has in common, for one QP: pacing by the rate the algorithm says, the
//! measurement of round trips, and when a mark owes the peer a CNP.

use super::{Config, PathInfo, QpRate, State};
use crate::psn::Psn;
use crate::time::Instant;

const NANOS: u64 = 1_000_000_000;

/// Which half of a QP has a packet that must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The requester: requests.
    Request,
    /// The responder: READ responses.
    Reply,
}

/// Congestion control of one QP, both as reaction point and as notification point.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    control: State,
    path: PathInfo,
    /// Bytes that may leave at once after a pause.
    burst: u64,
    /// The next packet may leave from here on.
    ready_at: Instant,
    /// What is left of a nanosecond, in its product with the rate.
    remainder: u64,
    /// A request, a READ response, waits for that.
    requests_wait: bool,
    replies_wait: bool,
    /// A packet that asked for an acknowledgement, and when it left.
    probe: Option<(Psn, Instant)>,
    /// A CNP is owed to the peer.
    owes_cnp: bool,
    /// No CNP leaves before this.
    next_cnp: Instant,
    min_time_between_cnps: u64,
}

impl Limiter {
    /// For packets of `path_mtu` bytes, which with their headers take up to `overhead` more.
    pub fn new(config: &Config, path_mtu: u32, overhead: usize) -> Limiter {
        let config = config.clone().on_link(None);
        let path = PathInfo { line_rate: config.line_rate, path_mtu };
        let two_packets = 2 * (u64::from(path_mtu) + overhead as u64);
        Limiter {
            control: State::new(&config.algorithm, &path),
            path,
            burst: u64::from(config.burst).max(two_packets),
            ready_at: Instant::ZERO,
            remainder: 0,
            requests_wait: false,
            replies_wait: false,
            probe: None,
            owes_cnp: false,
            next_cnp: Instant::ZERO,
            min_time_between_cnps: config.min_time_between_cnps,
        }
    }

    /// The present limits.
    pub fn limits(&self, now: Instant) -> QpRate {
        let mut control = self.control.clone();
        let rate = control.rate(now).min(self.path.line_rate);
        QpRate { rate, window: control.window() }
    }

    /// Path MTUs it may have unacknowledged, if that is limited.
    pub fn window(&self) -> Option<u32> {
        let packets = |bytes: u64| (bytes / u64::from(self.path.path_mtu)).max(1);
        self.control.window().map(|bytes| u32::try_from(packets(bytes)).unwrap_or(u32::MAX))
    }

    /// Whether a packet must wait, as it then does until [`resume`](Limiter::resume).
    #[inline]
    pub fn must_wait(&mut self, now: Instant, half: Half) -> bool {
        if self.ready_at <= now {
            return false;
        }
        match half {
            Half::Request => self.requests_wait = true,
            Half::Reply => self.replies_wait = true,
        }
        true
    }

    /// Whether a packet of this half waits.
    pub fn waits(&self, half: Half) -> bool {
        match half {
            Half::Request => self.requests_wait,
            Half::Reply => self.replies_wait,
        }
    }

    /// When to look at the QP, the requester of which wants that at `timer`. While requests wait
    /// their turn, no answer is late.
    pub fn deadline(&self, timer: Option<Instant>) -> Option<Instant> {
        let moment = Some(self.ready_at);
        match (self.requests_wait, self.replies_wait) {
            (true, _) => moment,
            (false, true) => moment.min(timer.or(moment)),
            (false, false) => timer,
        }
    }

    /// Ends the wait if there is one and it is over by `now`. Says who had waited; of two, the
    /// requests.
    pub fn resume(&mut self, now: Instant) -> Option<Half> {
        if self.ready_at > now {
            return None;
        }
        let ended = match (self.requests_wait, self.replies_wait) {
            (true, _) => Some(Half::Request),
            (false, true) => Some(Half::Reply),
            (false, false) => None,
        };
        self.requests_wait = false;
        self.replies_wait = false;
        ended
    }

    /// A packet of `bytes` has left.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        self.control.on_sent(now, bytes);
        let rate = self.control.rate(now).max(1);
        if rate < self.path.line_rate {
            self.charge(now, bytes, rate);
        }
    }

    fn charge(&mut self, now: Instant, bytes: u64, rate: u64) {
        let saved = self.burst.saturating_sub(bytes) * 8 * NANOS / rate;
        let from = Instant::from_nanos(now.nanos().saturating_sub(saved));
        if self.ready_at < from {
            self.ready_at = from;
            self.remainder = 0;
        }
        let cost = bytes * 8 * NANOS + self.remainder;
        self.ready_at = self.ready_at + cost / rate;
        self.remainder = cost % rate;
    }

    /// Whether the algorithm lives on round trips.
    pub fn measures_round_trips(&self) -> bool {
        self.control.measures_round_trips()
    }

    /// Whether the next packet sent for the first time should ask for an answer: one would be
    /// measured, and none is.
    #[inline]
    pub fn wants_probe(&self) -> bool {
        self.probe.is_none() && self.measures_round_trips()
    }

    /// The packet `psn`, sent for the first time, asks for an answer.
    pub fn probe(&mut self, now: Instant, psn: Psn) {
        self.probe.get_or_insert((psn, now));
    }

    /// Everything before `psn` has been acknowledged, `count` PSNs more than before.
    pub fn acked(&mut self, now: Instant, psn: Psn, count: u32) {
        let answered = self.probe.filter(|(probe, _)| probe.distance(psn) < 0);
        let rtt = answered.map(|(_, sent_at)| now.nanos().saturating_sub(sent_at.nanos()));
        if rtt.is_some() {
            self.probe = None;
        }
        self.control.on_ack(now, rtt, u64::from(count) * u64::from(self.path.path_mtu));
    }

    /// What is measured would be measured of packets sent again.
    pub fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// Packets were lost.
    pub fn lost(&mut self, now: Instant) {
        self.forget_probe();
        self.control.on_loss(now);
    }

    /// A CNP has come. Whether it changed anything.
    pub fn notified(&mut self, now: Instant) -> bool {
        self.control.on_cnp(now)
    }

    /// A packet with a mark has come.
    pub fn marked(&mut self, now: Instant) {
        self.owes_cnp |= now >= self.next_cnp;
    }

    /// Whether the peer is owed a CNP.
    pub fn owes_cnp(&self) -> bool {
        self.owes_cnp
    }

    /// The CNP that is owed leaves.
    pub fn cnp_leaves(&mut self, now: Instant) {
        self.owes_cnp = false;
        self.next_cnp = now + self.min_time_between_cnps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Algorithm, dcqcn};

    const SECOND: u64 = 1_000_000_000;

    /// Held to `mbit` Mbit/s.
    fn limiter(mbit: u64, burst: u32) -> Limiter {
        let params = dcqcn::Params { rpg_max_rate: mbit, ..dcqcn::Params::paper() };
        let config = Config::new(Algorithm::Dcqcn(params), 100_000_000_000);
        Limiter::new(&Config { burst, ..config }, 1024, 76)
    }

    /// Bytes that leave in `nanos` nanoseconds in packets of `len`, looked at when they may.
    fn sent_in(limiter: &mut Limiter, nanos: u64, len: u64) -> u64 {
        let (mut now, mut bytes) = (Instant::from_nanos(SECOND), 0);
        let end = now + nanos;
        while now < end {
            if limiter.must_wait(now, Half::Request) {
                now = limiter.deadline(None).unwrap();
                assert_eq!(limiter.resume(now), Some(Half::Request));
            } else {
                limiter.sent(now, len);
                bytes += len;
            }
        }
        bytes
    }

    #[test]
    fn a_second_takes_what_the_rate_says_to_the_packet() {
        for (mbit, len) in [(1, 1100), (777, 1100), (9_999, 64), (99_999, 1100)] {
            let bytes = sent_in(&mut limiter(mbit, 0), SECOND, len);
            let expected = mbit * 125_000;
            assert!((expected..=expected + 2200 + len).contains(&bytes), "{mbit}: {bytes}");
        }
    }

    #[test]
    fn after_a_pause_two_packets_leave_at_once_or_what_the_burst_says() {
        let mut two = limiter(1, 0);
        assert_eq!(sent_in(&mut two, 1, 1100), 2200);
        let mut ten = limiter(1, 11_000);
        assert_eq!(sent_in(&mut ten, 1, 1100), 11_000);
        ten.resume(Instant::from_nanos(100 * SECOND));
        assert!(!ten.must_wait(Instant::from_nanos(100 * SECOND), Half::Reply));
    }

    #[test]
    fn at_the_line_rate_nothing_waits() {
        let config = Config::new(Algorithm::Dcqcn(dcqcn::Params::paper()), SECOND);
        let mut limiter = Limiter::new(&config, 1024, 76);
        for _ in 0..1000 {
            assert!(!limiter.must_wait(Instant::ZERO, Half::Request));
            limiter.sent(Instant::ZERO, 1100);
        }
    }

    #[test]
    fn while_requests_wait_no_timer_of_theirs_counts() {
        let mut limiter = limiter(1, 0);
        let now = Instant::from_nanos(SECOND);
        let timer = now + 5;
        sent_in(&mut limiter, 1, 1100);
        assert!(limiter.must_wait(now, Half::Request));
        assert_eq!(limiter.deadline(Some(timer)), Some(now + 8_800_000), "requests wait");
        assert!(limiter.must_wait(now, Half::Reply));
        assert_eq!(limiter.resume(now), None);
        assert_eq!(limiter.resume(now + 8_800_000), Some(Half::Request));
        assert_eq!(limiter.deadline(Some(timer)), Some(timer));
        assert!(limiter.must_wait(now, Half::Reply));
        assert_eq!(limiter.deadline(Some(timer)), Some(timer), "replies wait");
        assert_eq!(limiter.deadline(None), Some(now + 8_800_000));
    }

    #[test]
    fn a_round_trip_is_measured_of_packets_sent_once() {
        let mut limiter = limiter(1, 0);
        let at = Instant::from_nanos;
        limiter.probe(at(10), Psn::new(0xff_ffff));
        limiter.probe(at(20), Psn::new(0));
        limiter.acked(at(30), Psn::new(0xff_ffff), 1);
        assert_eq!(limiter.probe, Some((Psn::new(0xff_ffff), at(10))), "not of that packet yet");
        limiter.acked(at(40), Psn::new(0), 1);
        assert_eq!(limiter.probe, None);
        limiter.probe(at(50), Psn::new(1));
        limiter.lost(at(60));
        assert_eq!(limiter.probe, None);
    }

    #[test]
    fn marks_owe_one_cnp_in_each_interval() {
        let mut limiter = limiter(1, 0);
        let at = |us: u64| Instant::from_nanos(us * 1000);
        let mut left = Vec::new();
        for us in 0..200u64 {
            limiter.marked(at(us));
            if limiter.owes_cnp() {
                limiter.cnp_leaves(at(us));
                left.push(us);
            }
        }
        assert_eq!(left, [0, 50, 100, 150]);
    }
}
