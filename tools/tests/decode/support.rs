//! Captures to decode: those recorded, and those made from them with something wrong.

use std::io::Cursor;
use std::path::PathBuf;

use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{Headers, Packet, seal};
use ferroce_tools::capture::{Capture, Frame};
use ferroce_tools::decode::{Options, decode};
use serde_json::Value;

/// Where the recorded captures are.
pub fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/captures"))
}

/// Every recorded capture, by name and in order.
pub fn recorded() -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory()).expect("captures are in the repository");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("directory").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort();
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), std::fs::read(path).expect("file"))).collect()
}

/// One recorded capture.
pub fn file(name: &str) -> Vec<u8> {
    std::fs::read(directory().join(name)).expect("capture")
}

/// The frames of a capture, as bytes.
pub fn frames_of(bytes: Vec<u8>) -> Vec<Vec<u8>> {
    let capture = Capture::new(Cursor::new(bytes)).expect("header");
    capture.map(|frame| frame.expect("undamaged").bytes).collect()
}

/// The frames of a recorded capture.
pub fn frames(name: &str) -> Vec<Frame> {
    let capture = Capture::new(Cursor::new(file(name))).expect("header");
    capture.map(|frame| frame.expect("undamaged")).collect()
}

/// A capture of Ethernet frames, a microsecond apart.
pub fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        for word in [0, index as u32, len, len] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// What `ferroce decode --json` writes about a capture: packets and other lines, and the summary.
pub fn json(bytes: Vec<u8>, verify: bool, complete: bool) -> (Vec<Value>, Value) {
    let capture = Capture::new(Cursor::new(bytes)).expect("header");
    let mut out = Vec::new();
    decode(capture, Options { json: true, verify, complete }, &mut out).expect("memory takes it");
    let text = String::from_utf8(out).expect("UTF-8");
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    let mut last = lines.pop().expect("a summary");
    (lines, last["summary"].take())
}

/// Findings as `kind@frame`, in order; violations are marked with `!`.
pub fn findings(frames: &[Vec<u8>], complete: bool) -> Vec<String> {
    let (lines, summary) = json(pcap(frames), true, complete);
    let unattached = summary["unattached"].as_array().cloned().unwrap_or_default();
    let in_lines = lines.iter().filter_map(|line| line["findings"].as_array()).flatten().cloned();
    in_lines
        .chain(unattached)
        .map(|finding| {
            let mark = if finding["violation"] == true { "!" } else { "" };
            format!("{mark}{}@{}", finding["kind"].as_str().expect("a kind"), finding["frame"])
        })
        .collect()
}

/// A recorded capture's frames, to be changed and then looked at.
pub struct Altered(pub Vec<Vec<u8>>);

impl Altered {
    /// The frames of a recorded capture.
    pub fn of(name: &str) -> Altered {
        Altered(frames(name).into_iter().map(|frame| frame.bytes).collect())
    }

    /// Lets `change` alter headers and payload of a frame (counted from 1); lengths, pad and ICRC
    /// follow.
    pub fn change(
        mut self,
        frame: usize,
        change: impl FnOnce(&mut Headers, &mut Vec<u8>),
    ) -> Altered {
        let bytes = &mut self.0[frame - 1];
        let packet = Packet::parse(bytes).expect("a packet");
        let (mut headers, mut payload) = (packet.headers, packet.payload.to_vec());
        change(&mut headers, &mut payload);
        let mut changed = vec![0; payload.len() + 200];
        let layout = headers.emit(payload.len(), &mut changed).expect("room");
        changed[layout.payload..][..payload.len()].copy_from_slice(&payload);
        let len = seal(&mut changed, &layout, payload.len());
        changed.truncate(len);
        *bytes = changed;
        self
    }

    /// Moves the PSN of a frame.
    pub fn move_psn(self, frame: usize, by: i32) -> Altered {
        self.change(frame, |headers, _| {
            headers.bth.psn = Psn::new(headers.bth.psn.value().wrapping_add_signed(by));
        })
    }

    /// Leaves a frame out.
    pub fn without(mut self, frame: usize) -> Altered {
        self.0.remove(frame - 1);
        self
    }

    /// Puts a copy of a frame, with a new IP identification, behind frame `behind`.
    pub fn again(mut self, frame: usize, behind: usize) -> Altered {
        let copy = self.0[frame - 1].clone();
        self.0.insert(behind, copy);
        self.change(behind + 1, |headers, _| {
            if let ferroce_stack::wire::Net::V4(ip) = &mut headers.net {
                ip.ident = ip.ident.wrapping_add(0x4000);
            }
        })
    }

    /// What is found in it.
    pub fn findings(&self) -> Vec<String> {
        findings(&self.0, false)
    }

    /// What is found in it if it holds every frame.
    pub fn findings_complete(&self) -> Vec<String> {
        findings(&self.0, true)
    }
}

/// A small generator of numbers, so that a failure repeats.
pub struct Random(pub u64);

impl Random {
    /// The next number, below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
