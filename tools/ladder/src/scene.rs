//! What is drawn: which packets, between which columns, and what is marked about them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use ferroce_stack::wire::{Kind, Mac, Position, SyndromeKind, Transport, rnr_delay_ns};

use crate::details::details;
use crate::label::{Class, class, label, short_time};
use crate::packet::{Content, End, Icrc, Parsed, Roce};
use crate::xml::shortened;
use crate::{Event, Fate, Mark, Options};

/// Columns of a picture. Packets of further ends are left out.
const COLUMNS_MAX: usize = 12;
const NAME_MAX: usize = 40;
const LABEL_MAX: usize = 72;
const NOTE_MAX: usize = 160;
const NOTES_MAX: usize = 8;
const DETAILS_MAX: usize = 4000;
const REMARK_MAX: usize = 200;
const QPS_SHOWN: usize = 3;
const QP1: u32 = 1;

/// All that is drawn.
#[derive(Debug)]
pub(crate) struct Scene {
    pub columns: Vec<Column>,
    /// What each flow is called.
    pub flows: Vec<String>,
    /// In the order of sending.
    pub arrows: Vec<Arrow>,
    pub waits: Vec<Wait>,
    /// Lines below the title.
    pub remarks: Vec<String>,
}

/// An end.
#[derive(Debug)]
pub(crate) struct Column {
    pub name: String,
    /// Its QPs, in words; may be empty.
    pub qps: String,
}

/// A packet, or some that are missing.
#[derive(Debug)]
pub(crate) struct Arrow {
    /// The event's; none for packets that are missing.
    pub number: Option<u64>,
    pub at: Duration,
    /// If that is known, and not at once.
    pub arrives: Option<Duration>,
    /// Column of the sender.
    pub from: usize,
    /// Column of the receiver.
    pub to: usize,
    pub flow: usize,
    pub class: Class,
    pub tip: Tip,
    /// Sent again.
    pub again: bool,
    /// Made by the network.
    pub copy: bool,
    /// Marked by a congested switch.
    pub ce: bool,
    pub label: String,
    pub notes: Vec<(Mark, String)>,
    /// Every header field.
    pub details: String,
}

/// How an arrow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tip {
    Arrives,
    Lost,
    Damaged,
    /// Never seen.
    Missing,
}

/// The time from an RNR NAK to the request sent again.
#[derive(Debug)]
pub(crate) struct Wait {
    /// The RNR NAK: an index into the arrows.
    pub from: usize,
    /// The request sent again: likewise.
    pub to: usize,
    /// What the NAK asked for.
    pub asked: String,
    /// What it became.
    pub took: String,
}

/// A selected event, taken apart.
struct Selected<'a> {
    event: &'a Event,
    parsed: Parsed,
}

impl Scene {
    pub fn new(events: &[Event], options: &Options) -> Scene {
        let all = take_apart(events);
        let path_mtus = path_mtus(&all);
        let (beyond, unselected) = (options.left_out, options.unselected);
        let mut left_out = LeftOut { unselected, beyond, ends: 0 };
        let (mut selected, mut ends) = (Vec::new(), Vec::new());
        for one in all {
            if !is_selected(&one, options) {
                left_out.unselected += 1;
            } else if selected.len() >= options.packets_max {
                left_out.beyond += 1;
            } else if !take_ends(&one.parsed, &mut ends) {
                left_out.ends += 1;
            } else {
                selected.push(one);
            }
        }
        let (flows, flow_of) = name_flows(&selected);
        let is_connection =
            |one: &&Selected<'_>| one.parsed.roce().is_some_and(|it| it.mad.is_none());
        let connections: HashSet<usize> = selected
            .iter()
            .zip(&flow_of)
            .filter(|(one, _)| is_connection(one))
            .map(|(_, &flow)| flow)
            .collect();
        let mut repeats = Repeats::default();
        let mut arrows = Vec::new();
        let mut waits = Waits::default();
        for (one, &flow) in selected.iter().zip(&flow_of) {
            let with_qp = connections.len() > 1;
            let path_mtu = path_mtus.get(&pair(one.parsed.src, one.parsed.dst)).copied();
            let mut arrow = Arrow::new(one, &ends, flow, label(&one.parsed, path_mtu, with_qp));
            arrow.again |= repeats.is_again(one) && options.find_repeats;
            arrow.missing_before().into_iter().for_each(|ghost| arrows.push(ghost));
            waits.follow(&one.parsed, &arrow, arrows.len());
            arrows.push(arrow);
        }
        let waits = waits.done;
        let columns = ends.iter().map(|&end| Column::new(end, &selected, options)).collect();
        let mut remarks: Vec<String> =
            options.remarks.iter().map(|line| shortened(line, REMARK_MAX)).collect();
        remarks.push(left_out.words(selected.len()));
        Scene { columns, flows, arrows, waits, remarks }
    }
}

/// Takes events apart. Where there is but an Ethernet address, it stands for the IP address seen
/// with it.
fn take_apart(events: &[Event]) -> Vec<Selected<'_>> {
    let mut all: Vec<Selected<'_>> = events
        .iter()
        .filter_map(|event| {
            let parsed = Parsed::new(&event.frame, event.cut, event.source_qp)?;
            Some(Selected { event, parsed })
        })
        .collect();
    let mut by_mac: HashMap<Mac, End> = HashMap::new();
    for one in &all {
        if let Some(roce) = one.parsed.roce() {
            by_mac.entry(roce.headers.eth.src).or_insert(one.parsed.src);
            by_mac.entry(roce.headers.eth.dst).or_insert(one.parsed.dst);
        }
    }
    let known = |end: End| match end {
        End::Mac(mac) => by_mac.get(&mac).copied().unwrap_or(end),
        end => end,
    };
    for one in &mut all {
        (one.parsed.src, one.parsed.dst) = (known(one.parsed.src), known(one.parsed.dst));
    }
    learn_senders(&mut all);
    all
}

/// Where the sender's QP is not known, takes it from other packets between the two ends, of either
/// direction.
fn learn_senders(all: &mut [Selected<'_>]) {
    let mut senders: HashMap<(End, End, u32), u32> = HashMap::new();
    for one in &*all {
        let (src, dst) = (one.parsed.src, one.parsed.dst);
        if let Some(roce) = one.parsed.roce()
            && let Some(source_qp) = roce.source_qp
        {
            let dest_qp = roce.headers.bth.dest_qp;
            senders.insert((src, dst, dest_qp), source_qp);
            senders.insert((dst, src, source_qp), dest_qp);
        }
    }
    for one in all {
        let (src, dst) = (one.parsed.src, one.parsed.dst);
        if let Content::Roce(roce) = &mut one.parsed.content
            && roce.source_qp.is_none()
        {
            roce.source_qp = senders.get(&(src, dst, roce.headers.bth.dest_qp)).copied();
        }
    }
}

/// Both ends, whichever sends.
fn pair(a: End, b: End) -> (String, String) {
    let (a, b) = (format!("{a:?}"), format!("{b:?}"));
    if a <= b { (a, b) } else { (b, a) }
}

/// The path MTU between two ends, as far as First and Middle packets tell it.
fn path_mtus(all: &[Selected<'_>]) -> HashMap<(String, String), usize> {
    let mut path_mtus = HashMap::new();
    for one in all {
        let Some(roce) = one.parsed.roce() else { continue };
        let position = roce.headers.bth.opcode.info().map(|info| info.position);
        if matches!(position, Some(Position::First | Position::Middle)) {
            let of = path_mtus.entry(pair(one.parsed.src, one.parsed.dst)).or_insert(0);
            *of = roce.payload_len.max(*of);
        }
    }
    path_mtus
}

fn is_selected(one: &Selected<'_>, options: &Options) -> bool {
    let numbers = options.numbers.as_ref();
    if numbers.is_some_and(|numbers| !numbers.contains(&one.event.number)) {
        return false;
    }
    options.qps.is_empty()
        || one.parsed.roce().is_some_and(|roce| {
            let ends = [Some(roce.headers.bth.dest_qp), roce.source_qp];
            ends.into_iter().flatten().any(|qpn| options.qps.contains(&qpn))
        })
}

/// Adds the packet's ends to the columns; false if there is no more room.
fn take_ends(parsed: &Parsed, ends: &mut Vec<End>) -> bool {
    let new: Vec<End> =
        [parsed.src, parsed.dst].into_iter().filter(|end| !ends.contains(end)).collect();
    let fits = ends.len() + new.len() <= COLUMNS_MAX;
    if fits {
        ends.extend(new);
        ends.dedup();
    }
    fits
}

/// The names of all flows, and of each packet the flow it belongs to.
fn name_flows(selected: &[Selected<'_>]) -> (Vec<String>, Vec<usize>) {
    let mut names: Vec<String> = Vec::new();
    let mut by_key: HashMap<(String, String), usize> = HashMap::new();
    let flow_of = selected
        .iter()
        .map(|one| {
            let side = |end: End, qpn: Option<u32>| match qpn {
                Some(qpn) => format!("{end} qp {qpn:#x}"),
                None => format!("{end}"),
            };
            let roce = one.parsed.roce();
            let (src, dst) = (one.parsed.src, one.parsed.dst);
            let from = side(src, roce.and_then(|roce| roce.source_qp));
            let to = side(dst, roce.map(|roce| roce.headers.bth.dest_qp));
            let key =
                if from <= to { (from.clone(), to.clone()) } else { (to.clone(), from.clone()) };
            *by_key.entry(key).or_insert_with(|| {
                names.push(format!("{from} \u{2013} {to}"));
                names.len() - 1
            })
        })
        .collect();
    (names, flow_of)
}

impl Column {
    fn new(end: End, selected: &[Selected<'_>], options: &Options) -> Column {
        let ip = match end {
            End::Ip(ip) | End::Loopback(ip, _) => Some(ip),
            End::Mac(_) => None,
        };
        let name = options.names.iter().find(|(known, _)| Some(*known) == ip);
        let name = name.map_or_else(|| end.to_string(), |(_, name)| name.clone());
        let mut qps = BTreeSet::new();
        for one in selected {
            let Some(roce) = one.parsed.roce() else { continue };
            if one.parsed.dst == end {
                qps.insert(roce.headers.bth.dest_qp);
            }
            if one.parsed.src == end {
                qps.extend(roce.source_qp);
            }
        }
        if qps.len() > 1 {
            // Everybody has it; what it exchanges says what it is.
            qps.remove(&QP1);
        }
        let mut texts: Vec<String> =
            qps.iter().take(QPS_SHOWN).map(|qpn| format!("{qpn:#x}")).collect();
        if qps.len() > QPS_SHOWN {
            texts.push(format!("{} more", qps.len() - QPS_SHOWN));
        }
        let qps = if texts.is_empty() { String::new() } else { format!("qp {}", texts.join(", ")) };
        Column { name: shortened(&name, NAME_MAX), qps }
    }
}

impl Arrow {
    fn new(one: &Selected<'_>, ends: &[End], flow: usize, label: String) -> Arrow {
        let column = |end: End| ends.iter().position(|&known| known == end).unwrap_or_default();
        let (event, parsed) = (one.event, &one.parsed);
        let wrong = parsed.roce().is_some_and(|roce| roce.icrc == Icrc::Wrong);
        let tip = match event.fate {
            Fate::Lost => Tip::Lost,
            Fate::Damaged { .. } => Tip::Damaged,
            _ if wrong => Tip::Damaged,
            Fate::Captured | Fate::Arrived { .. } | Fate::Duplicate { .. } => Tip::Arrives,
        };
        let mut notes: Vec<(Mark, String)> = event
            .notes
            .iter()
            .take(NOTES_MAX)
            .map(|note| {
                let text = shortened(&note.text, NOTE_MAX);
                match note.mark {
                    Mark::Violation => (note.mark, format!("violation: {text}")),
                    mark => (mark, text),
                }
            })
            .collect();
        if event.notes.len() > NOTES_MAX {
            notes.push((Mark::Plain, format!("and {} more", event.notes.len() - NOTES_MAX)));
        }
        let lines = details(parsed).join("\n");
        Arrow {
            number: Some(event.number),
            at: event.at,
            arrives: event.fate.arrival().filter(|&arrival| arrival > event.at),
            from: column(parsed.src),
            to: column(parsed.dst),
            flow,
            class: class(parsed),
            tip,
            again: event.notes.iter().any(|note| note.mark == Mark::Again),
            copy: matches!(event.fate, Fate::Duplicate { .. }),
            ce: parsed.roce().is_some_and(|roce| roce.headers.net.traffic_class() & 3 == 3),
            label: shortened(&label, LABEL_MAX),
            notes,
            details: lines.chars().take(DETAILS_MAX).collect(),
        }
    }

    /// Takes the notes about packets missing before this one, to be arrows of their own.
    fn missing_before(&mut self) -> Vec<Arrow> {
        let notes = std::mem::take(&mut self.notes);
        let (missing, others) = notes.into_iter().partition(|(mark, _)| *mark == Mark::Missing);
        self.notes = others;
        let ghost = |(_, text): (Mark, String)| Arrow {
            number: None,
            at: self.at,
            arrives: None,
            from: self.from,
            to: self.to,
            flow: self.flow,
            class: Class::Other,
            tip: Tip::Missing,
            again: false,
            copy: false,
            ce: false,
            details: text.clone(),
            label: shortened(&text, LABEL_MAX),
            notes: Vec::new(),
        };
        let missing: Vec<(Mark, String)> = missing;
        missing.into_iter().map(ghost).collect()
    }
}

/// What was not drawn, and why.
struct LeftOut {
    unselected: u64,
    beyond: u64,
    ends: u64,
}

impl LeftOut {
    fn words(&self, drawn: usize) -> String {
        let all = drawn as u64 + self.unselected + self.beyond + self.ends;
        if all == drawn as u64 {
            return format!("{drawn} packets");
        }
        let reasons = [
            (self.unselected, "not selected"),
            (self.beyond, "beyond the limit"),
            (self.ends, "of further ends"),
        ];
        let reasons: Vec<String> = reasons
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        format!("{drawn} of {all} packets; left out: {}", reasons.join(", "))
    }
}

/// Requests seen so far.
#[derive(Default)]
struct Repeats {
    seen: HashSet<RequestKey>,
}

/// Two ends, QPN, PSN, opcode, extended headers, bytes of payload.
type RequestKey = (End, End, u32, u32, u8, Vec<u8>, usize);

impl Repeats {
    /// Whether the same request was there before, other than by a copy the network made.
    fn is_again(&mut self, one: &Selected<'_>) -> bool {
        let Some(roce) = one.parsed.roce().filter(|roce| is_connected_request(roce)) else {
            return false;
        };
        if matches!(one.event.fate, Fate::Duplicate { .. }) {
            return false;
        }
        let bth = &roce.headers.bth;
        let mut headers = [0; 128];
        let len = roce.headers.ext.emit(&mut headers);
        let (src, dst) = (one.parsed.src, one.parsed.dst);
        let headers = headers[..len].to_vec();
        let psn = bth.psn.value();
        !self.seen.insert((src, dst, bth.dest_qp, psn, bth.opcode.0, headers, roce.payload_len))
    }
}

/// Whether it is a request of a service with connections.
fn is_connected_request(roce: &Roce) -> bool {
    roce.headers.bth.opcode.info().is_some_and(|info| {
        info.transport != Transport::Ud && info.kind != Kind::Cnp && !info.kind.is_response()
    })
}

/// RNR NAKs whose request has not been sent again so far, and those whose has.
#[derive(Default)]
struct Waits {
    /// By requester, responder and PSN.
    open: HashMap<(End, End, u32), OpenWait>,
    done: Vec<Wait>,
}

struct OpenWait {
    arrow: usize,
    /// When the requester knew.
    since: Duration,
    asked: Duration,
    responder_qp: Option<u32>,
}

impl Waits {
    /// Looks at a packet, which will be the arrow `index`.
    fn follow(&mut self, parsed: &Parsed, arrow: &Arrow, index: usize) {
        let Some(roce) = parsed.roce() else { return };
        let (bth, aeth) = (&roce.headers.bth, roce.headers.ext.aeth);
        let psn = bth.psn.value();
        if let Some(SyndromeKind::RnrNak { timer }) = aeth.map(|aeth| aeth.syndrome.kind()) {
            let wait = OpenWait {
                arrow: index,
                since: arrow.arrives.unwrap_or(arrow.at),
                asked: Duration::from_nanos(rnr_delay_ns(timer)),
                responder_qp: roce.source_qp,
            };
            if arrow.tip == Tip::Arrives {
                self.open.insert((parsed.dst, parsed.src, psn), wait);
            }
        } else if is_connected_request(roce) {
            let key = (parsed.src, parsed.dst, psn);
            let fits = |wait: &OpenWait| wait.responder_qp.is_none_or(|qpn| qpn == bth.dest_qp);
            if self.open.get(&key).is_some_and(fits)
                && let Some(wait) = self.open.remove(&key)
            {
                let asked = format!("RNR {}", short_time(wait.asked));
                let took = format!("took {}", short_time(arrow.at.saturating_sub(wait.since)));
                self.done.push(Wait { from: wait.arrow, to: index, asked, took });
            }
        }
    }
}
