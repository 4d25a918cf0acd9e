//! `ferroce demo --ladder`: the packets of the run that are drawn. Of a run that has lost none these
//! are the first; else those around each that was lost, with what was done about it.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ferroce::frame::wire::SentFrame;
use ferroce_ladder::{Event, Fate, Note, Options, PACKETS_MAX};
use ferroce_stack::gid::Gid;

use super::lab::{Ends, Lab};

/// Frames drawn before a lost one, and behind it: up to its repetition on a link of this length.
const BEFORE: usize = 8;
const BEHIND: usize = 24;

/// Bytes of a frame that are kept: headers, and a whole management datagram.
const FRAME_MAX: usize = 512;

/// What is drawn.
#[derive(Debug, Default)]
pub struct Drawing {
    events: Vec<Event>,
    /// Frames sent so far.
    sent: u64,
    unselected: u64,
    left_out: u64,
}

impl Drawing {
    /// Takes what was sent during one operation, between these ends if it has come so far. On a
    /// link that `loses` frames only what is around a lost one counts.
    pub fn add(&mut self, log: &[SentFrame], name: &str, ends: Option<&Ends>, loses: bool) {
        let is_lost: Vec<bool> = log.iter().map(|frame| frame.fate.dropped).collect();
        let is_near = |index: usize| {
            let near = index.saturating_sub(BEHIND)..=index.saturating_add(BEFORE);
            is_lost.iter().enumerate().any(|(at, lost)| *lost && near.contains(&at))
        };
        let mut is_first = true;
        for (index, frame) in log.iter().enumerate() {
            self.sent += 1;
            if loses && !is_near(index) {
                self.unselected += 1;
                continue;
            }
            if self.events.len() >= PACKETS_MAX {
                self.left_out += 1;
                continue;
            }
            let kept = frame.bytes.len().min(FRAME_MAX);
            let at = Duration::from_nanos(frame.at.nanos());
            let mut event = Event::new(self.sent, at, frame.bytes[..kept].to_vec());
            event.cut = kept < frame.bytes.len();
            event.source_qp = ends.map(|ends| ends.0[frame.from].0);
            if frame.fate.dropped {
                event.fate = Fate::Lost;
            }
            if std::mem::take(&mut is_first) {
                event.notes.push(Note::plain(name));
            }
            self.events.push(event);
        }
    }

    /// The events, and how to draw them.
    pub fn finish(self, lab: &Lab) -> (Vec<Event>, Options) {
        let name = |node: usize| (address(lab.world.ah_attr(node).dgid), format!("node {node}"));
        let options = Options {
            title: String::from("ferroce demo"),
            remarks: vec![format!("{}", lab.settings())],
            names: vec![name(0), name(1)],
            left_out: self.left_out,
            unselected: self.unselected,
            ..Options::default()
        };
        (self.events, options)
    }
}

fn address(gid: Gid) -> IpAddr {
    gid.ipv4().map_or_else(|| Ipv6Addr::from(gid.0).into(), IpAddr::from)
}

#[cfg(test)]
mod tests {
    use ferroce::frame::fault;
    use ferroce_stack::time::Instant;

    use super::*;

    fn log(count: usize, lost: &[usize]) -> Vec<SentFrame> {
        let frame = |index| SentFrame {
            at: Instant::from_nanos(index as u64),
            from: index % 2,
            bytes: vec![0; 1000],
            fate: fault::Fate { dropped: lost.contains(&index), ..fault::Fate::default() },
        };
        (0..count).map(frame).collect()
    }

    #[test]
    fn what_is_around_a_lost_frame_is_drawn() {
        let mut drawing = Drawing::default();
        drawing.add(&log(100, &[50]), "SEND over RC", None, true);
        drawing.add(&log(100, &[]), "READ over RC", None, true);
        let numbers: Vec<u64> = drawing.events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (43..=75).collect::<Vec<u64>>());
        assert_eq!(drawing.events[8].fate, Fate::Lost);
        assert_eq!((drawing.unselected, drawing.left_out), (200 - 33, 0));
        assert_eq!(drawing.events[0].notes, [Note::plain("SEND over RC")]);
    }

    #[test]
    fn a_drawing_is_bounded() {
        let mut drawing = Drawing::default();
        drawing.add(&log(PACKETS_MAX + 5, &[]), "SEND over RC", None, false);
        assert_eq!((drawing.events.len(), drawing.left_out), (PACKETS_MAX, 5));
        assert!(drawing.events.iter().all(|event| event.cut && event.frame.len() == FRAME_MAX));
    }
}
