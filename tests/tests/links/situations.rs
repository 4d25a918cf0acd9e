//! What goes wrong on purpose between our stack and the Linux kernel's rxe, each in both roles: it
//! ends on both sides as the standard says, every byte is compared, and what passes the wire is
//! looked at.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ferroce_tests::links::{Gateway, Kernel, Lab, Peers, has_lost};
use ferroce_tests::programs::{Ended, have, limited};

use crate::placed;

/// Something that goes wrong.
struct Situation {
    /// Rules; `from REQUESTER` and `from RESPONDER` stand for the nodes.
    faults: &'static str,
    /// What the sides do, with our side as requester and with rxe.
    runs: [&'static str; 2],
    /// What our side tells, and what the wire shows, in the same order.
    tells: [&'static str; 2],
    shows: [&'static str; 2],
}

impl Situation {
    const fn new(faults: &'static str, run: &'static str) -> Situation {
        Situation { faults, runs: [run; 2], tells: [""; 2], shows: [""; 2] }
    }

    const fn shows(self, kind: &'static str) -> Situation {
        self.shows_each(kind, kind)
    }

    const fn shows_each(self, ours: &'static str, of_rxe: &'static str) -> Situation {
        Situation { shows: [ours, of_rxe], ..self }
    }

    const fn tells(self, ours: &'static str, of_rxe: &'static str) -> Situation {
        Situation { tells: [ours, of_rxe], ..self }
    }
}

/// Eight messages of ten packets each, unless the options say otherwise.
const SITUATIONS: &[Situation] = &[
    Situation::new("drop 1st rc-send-first from REQUESTER", "transfer").shows("retransmission"),
    Situation::new("drop 1st rc-send-middle from REQUESTER", "transfer").shows("sequence_nak"),
    // With nothing behind it that could show the gap.
    Situation::new("drop 8th rc-send-last from REQUESTER", "transfer").shows("retransmission"),
    Situation::new("drop 1st rc-write-middle from REQUESTER", "transfer op=write")
        .shows("sequence_nak"),
    Situation::new("drop 1st ack from RESPONDER", "transfer count=1").shows("retransmission"),
    Situation::new("drop 1st rc-read-request from REQUESTER", "transfer op=read count=4")
        .shows("retransmission"),
    Situation::new("drop 1st rc-read-response-first from RESPONDER", "transfer op=read")
        .shows("retransmission"),
    Situation::new("drop 3rd rc-read-response-middle from RESPONDER", "transfer op=read")
        .shows("read_resume"),
    Situation::new("drop 8th rc-read-response-last from RESPONDER", "transfer op=read")
        .shows("read_resume"),
    Situation::new("duplicate 3rd rc-send from REQUESTER", "transfer tell=duplicate_request")
        .shows_each("duplicate_frame", "")
        .tells("", "duplicate_request"),
    Situation::new("duplicate 3rd rc-write from REQUESTER", "transfer op=write")
        .shows_each("duplicate_frame", ""),
    Situation::new("duplicate 1st rc-read-request from REQUESTER", "transfer op=read")
        .shows_each("duplicate_frame", ""),
    Situation::new("duplicate 3rd rc-read-response from RESPONDER", "transfer op=read")
        .shows_each("", "duplicate_response"),
    Situation::new("delay 3rd rc-send by 20ms from REQUESTER", "transfer").shows("sequence_nak"),
    Situation::new("delay 3rd rc-read-response by 20ms from RESPONDER", "transfer op=read")
        .shows("read_resume"),
    Situation::new("corrupt byte 70 of 3rd rc-send from REQUESTER", "transfer tell=bad_icrc")
        .shows_each("bad_icrc", "sequence_nak")
        .tells("bad_icrc 0", "bad_icrc 1"),
    Situation::new(
        "corrupt byte 70 of 3rd rc-read-response from RESPONDER",
        "transfer op=read tell=bad_icrc",
    )
    .shows_each("read_resume", "bad_icrc")
    .tells("bad_icrc 1", "bad_icrc 0"),
    Situation::new("", "late count=1").shows("rnr_nak"),
    Situation::new("", "never count=1 rnr_retry=2").shows("rnr_nak"),
    Situation::new("", "wrong_key count=1 op=write").shows("nak"),
    Situation::new("", "wrong_key count=1 op=read").shows("nak"),
    // The standard has an invalid request, and a local length error at the receiver.
    Situation {
        runs: [
            "too_long count=1 sender=REM_OP_ERR receiver=LOC_QP_OP_ERR",
            "too_long count=1 sender=REM_INV_REQ_ERR receiver=LOC_LEN_ERR",
        ],
        ..Situation::new("", "").shows("nak")
    },
    Situation::new("", "destroyed op=write timeout=16 retry=6").shows("retransmission"),
    Situation::new("", "destroyed op=read timeout=16 retry=6").shows("retransmission"),
];

/// Who requests, as the script has it, and the numbers that requester and responder have as nodes.
const REQUESTERS: [(&str, [&str; 2]); 2] = [("here", ["0", "1"]), ("there", ["1", "0"])];

/// Runs it with this requester.
fn provoke(lab: &Lab, peers: &mut Peers, situation: &Situation, side: usize) -> Result<(), String> {
    let (requester, nodes) = REQUESTERS[side];
    let faults = situation.faults.replace("REQUESTER", &format!("node {}", nodes[0]));
    let faults = faults.replace("RESPONDER", &format!("node {}", nodes[1]));
    let capture = lab.home().join("situation.pcapng");
    // What is there is of the situation before.
    let _ = fs::remove_file(&capture);
    let path = capture.to_str().expect("a path of ours");
    let arguments = ["--addr", Lab::HOST, "--pcap", path, "--fault", &faults];
    let gateway = Gateway::start(&mut lab.ferroce(), "packet:h0", &arguments);
    let outcome = peers.run(&format!("{} requester={requester}", situation.runs[side]));
    let ended = gateway.end();
    let decoded = limited(lab.ferroce().args(["decode", "--verify"]).arg(&capture));
    let said = outcome.map_err(|error| format!("{error}\n{ended}\n{decoded}"))?;
    let complain = |what: &str| Err(format!("{what}\n{said}\n{ended}\n{decoded}"));
    if has_lost(&ended) || situation.faults.starts_with("drop") != ended.out.contains("injected 1")
    {
        return complain("frames are lost that should not, or the other way");
    }
    let tells = situation.tells[side];
    // Whatever is counted has happened once or, if it says so, not at all.
    if !said.contains(tells) || (tells == "duplicate_request" && said.contains(" 0\n")) {
        return complain("our side has not counted it");
    }
    if !decoded.out.contains(&format!(" {} ", situation.shows[side]).replace("  ", "")) {
        return complain("the wire does not show it");
    }
    // Frames of ours are in the capture as faults have left them.
    let is_corrupt = situation.shows[side] == "bad_icrc";
    let verdict = if is_corrupt { "1 violation" } else { "no violation" };
    if !decoded.out.contains(verdict) {
        return complain("a rule is broken");
    }
    malformed(&capture)
}

/// What tshark does not understand of a capture.
fn malformed(capture: &Path) -> Result<(), String> {
    let mut tshark = Command::new("tshark");
    let said = limited(tshark.arg("-r").arg(capture).args(["-Y", "_ws.malformed"]));
    if said.out.is_empty() { Ok(()) } else { Err(format!("malformed: {}", said.out)) }
}

/// Who requests, and the ACK timeout it has. A side that has lost the last packet waits for as
/// long; rxe goes on for ever, we give up after eight of them without progress.
const LOSSES: [(&str, u8); 2] = [("here", 17), ("there", 14)];

/// So much of what passes in either direction is lost, but of the data nothing.
fn lose(lab: &Lab, peers: &mut Peers, percent: u32, messages: &str) {
    let capture = lab.home().join("lossy.pcapng");
    let path = capture.to_str().expect("a path of ours");
    for (requester, timeout) in LOSSES {
        let begin = Instant::now();
        let faults = format!("drop {percent}% of any");
        let arguments = ["--addr", Lab::HOST, "--pcap", path, "--fault", &faults];
        let gateway = Gateway::start(&mut lab.ferroce(), "packet:h0", &arguments);
        let run = format!(
            "transfer requester={requester} op=write {messages} depth=4 mtu=4096 \
             timeout={timeout}"
        );
        let outcome = peers.run(&run);
        let ended = gateway.end();
        outcome.unwrap_or_else(|error| panic!("{run} {faults}: {error}\n{ended}"));
        assert!(ended.out.contains("injected") && !has_lost(&ended), "{ended}");
        let decoded = limited(lab.ferroce().args(["decode", "--verify"]).arg(path));
        let verdict = decoded.out.lines().last().unwrap_or_default();
        assert_eq!(verdict, "no violation", "{run} {faults}");
        malformed(&capture).unwrap_or_else(|error| panic!("{run} {faults}: {error}"));
        fs::remove_file(&capture).expect("a file of ours");
        eprintln!("{faults} {requester}: {:?}, {}", begin.elapsed(), counted(&ended));
    }
}

fn every_loss(lab: &Lab, peers: &mut Peers) {
    lose(lab, peers, 1, "size=1048576 count=100");
    // Both sides go back to what was lost and send again what has come behind it: the more is on
    // its way, the more in vain.
    lose(lab, peers, 5, "size=32768 count=3200");
}

fn counted(ended: &Ended) -> &str {
    ended.out.lines().last().unwrap_or_default()
}

/// The two sides on the wire of a guest.
fn peers(lab: &Lab) -> Peers {
    // It tells the side here its address; each situation has a gateway of its own.
    let gateway = Gateway::start(&mut lab.ferroce(), "packet:h0", &["--addr", Lab::HOST]);
    let peers = Peers::start(lab);
    gateway.end();
    peers
}

fn every_situation(lab: &Lab, peers: &mut Peers) {
    let begin = Instant::now();
    for situation in SITUATIONS {
        for (side, (requester, _)) in REQUESTERS.iter().enumerate() {
            let Situation { faults, runs, .. } = situation;
            let outcome = provoke(lab, peers, situation, side);
            let name = format!("{faults} {}, requester {requester}", runs[side]);
            outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    eprintln!("{} situations: {:?}", 2 * SITUATIONS.len(), begin.elapsed());
}

#[test]
fn what_goes_wrong_with_rxe_ends_as_it_should() {
    let Some(lab) = lab(Kernel::Stock) else { return };
    let mut peers = peers(&lab);
    every_situation(&lab, &mut peers);
    every_loss(&lab, &mut peers);
    peers.end().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn what_goes_wrong_with_newer_rxe_ends_as_it_should() {
    let Some(lab) = lab(Kernel::Newer) else { return };
    placed::both_ways(&lab).unwrap_or_else(|error| panic!("{error}"));
    let mut peers = peers(&lab);
    every_situation(&lab, &mut peers);
    every_loss(&lab, &mut peers);
    peers.end().unwrap_or_else(|error| panic!("{error}"));
}

/// A guest with this kernel, where all that is needed is there.
fn lab(kernel: Kernel) -> Option<Lab> {
    have("tshark", "tshark").then(|| Lab::new(kernel, 9000)).flatten()
}
