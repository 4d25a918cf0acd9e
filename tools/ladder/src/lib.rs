//! Ladder diagrams: the ends of a connection as columns, each packet an arrow between them with
//! what it says, in SVG or as an HTML page.
//!
//! What happened goes in as plain values ([`Event`]), the picture comes out as text: no file, clock
//! or network is touched, and the same values give the same text, byte for byte. Frames come from
//! captures and from peers that may mean harm, so that any bytes are drawn (at least as what they
//! are not), text is escaped, and every length is bounded.
//!
//! ```
//! use std::time::Duration;
//! use ferroce_ladder::{Event, Fate, Note, Options, svg};
//!
//! let mut lost = Event::new(1, Duration::ZERO, vec![0; 60]);
//! lost.fate = Fate::Lost;
//! lost.notes.push(Note::plain("dropped by the script"));
//! let picture = svg(&[lost], &Options { title: "one packet".into(), ..Options::default() });
//! assert!(picture.starts_with("<svg"));
//! ```
//!
//! Inside: [`packet`] reads a frame, [`label`] and [`details`] put it into words, [`scene`] decides
//! what is drawn, [`axis`] where, [`draw`] writes the SVG by way of [`xml`], [`page`] the HTML
//! around it.

#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "the list of modules above is for readers")]

mod axis;
mod details;
mod draw;
mod label;
mod packet;
mod page;
mod scene;
mod xml;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Packets a picture has at most, unless [`Options::packets_max`] says otherwise.
pub const PACKETS_MAX: usize = 2000;

/// A frame that was sent, and what is known of it.
#[derive(Clone, Debug)]
pub struct Event {
    /// The number by which it is named: its place in the capture, counted from 1.
    pub number: u64,
    /// When it was sent, or if that is not known recorded, since the start.
    pub at: Duration,
    /// Its bytes, from the Ethernet header on, without FCS.
    pub frame: Vec<u8>,
    /// `frame` holds but the beginning.
    pub cut: bool,
    /// What became of it.
    pub fate: Fate,
    /// QPN of the sender, if known: packets do not tell it, except datagrams. By it the two
    /// directions of a connection are known as one flow.
    pub source_qp: Option<u32>,
    /// What else is to be said about it, drawn beside it.
    pub notes: Vec<Note>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Seen at one place, as captures have it. Nothing else is known.
    Captured,
    /// It arrived.
    Arrived {
        /// When, since the start.
        at: Duration,
    },
    /// It did not arrive.
    Lost,
    /// It arrived with other content than it was sent with.
    Damaged {
        /// When it arrived, since the start, if that is known.
        at: Option<Duration>,
    },
    /// A second copy of a frame, made by the network.
    Duplicate {
        /// When it arrived, since the start, if that is known.
        at: Option<Duration>,
    },
}

/// Something to be said about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What follows from it for the drawing.
    pub mark: Mark,
    /// In words. One line; what is too long is cut.
    pub text: String,
}

/// What a note means for the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing: the text stands beside the arrow.
    Plain,
    /// The packet is sent again: its arrow is dashed.
    Again,
    /// It shows that packets from the same sender before it are not here: an arrow that ends in a
    /// cross is drawn for them, and has the text.
    Missing,
    /// It breaks the protocol: the text stands out.
    Violation,
}

/// What is drawn, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What stands above the picture.
    pub title: String,
    /// Lines below the title.
    pub remarks: Vec<String>,
    /// What the ends are called, by their addresses; others are called by their address.
    pub names: Vec<(IpAddr, String)>,
    /// Only flows to or from one of these QPs; all if empty.
    pub qps: Vec<u32>,
    /// Only events with these numbers; all if none.
    pub numbers: Option<RangeInclusive<u64>>,
    /// Packets drawn at most. A line says how many are left out.
    pub packets_max: usize,
    /// Packets beyond that limit which the caller has left out already.
    pub left_out: u64,
    /// Packets not selected which the caller has left out already.
    pub unselected: u64,
    /// What the way down means.
    pub axis: Axis,
    /// Whether a request that has been there before is taken as sent again. Otherwise only those
    /// whose notes have [`Mark::Again`] are.
    pub find_repeats: bool,
}

/// What the way down means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Order: even steps, the time beside them.
    #[default]
    Order,
    /// Time: steps as long as the time between, but wide enough for the text; long silence is cut
    /// out.
    Time,
}

/// Draws events, which are in the order in which they were sent, as an SVG document.
pub fn svg(events: &[Event], options: &Options) -> String {
    draw::svg(&scene::Scene::new(events, options), options)
}

/// Draws events, which are in the order in which they were sent, as an HTML page: the picture of
/// [`svg`], flows that can be switched off and on, and every header field of the packet under the
/// pointer. Nothing outside the page is needed.
pub fn html(events: &[Event], options: &Options) -> String {
    page::html(&scene::Scene::new(events, options), options)
}

impl Event {
    /// A captured frame about which nothing else is known.
    pub fn new(number: u64, at: Duration, frame: Vec<u8>) -> Event {
        let (fate, source_qp) = (Fate::Captured, None);
        Event { number, at, frame, cut: false, fate, source_qp, notes: Vec::new() }
    }
}

impl Fate {
    /// When the frame arrived, if that is known.
    pub fn arrival(self) -> Option<Duration> {
        match self {
            Fate::Captured | Fate::Lost => None,
            Fate::Arrived { at } => Some(at),
            Fate::Damaged { at } | Fate::Duplicate { at } => at,
        }
    }
}

impl Note {
    /// A note that changes nothing about the arrow.
    pub fn plain(text: impl Into<String>) -> Note {
        Note { mark: Mark::Plain, text: text.into() }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            title: String::new(),
            remarks: Vec::new(),
            names: Vec::new(),
            qps: Vec::new(),
            numbers: None,
            packets_max: PACKETS_MAX,
            left_out: 0,
            unselected: 0,
            axis: Axis::Order,
            find_repeats: true,
        }
    }
}
