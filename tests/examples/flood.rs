//! A hostile host: `flood INTERFACE MAC OWN_IP VICTIM_IP SECONDS SEED CAPTURES` sends what is wrong,
//! as fast as it can, to the host with that Ethernet and IPv4 address.
//!
//! Its frames are made from those of the capture files in a folder, and from those it sees on the
//! interface just now, which a transfer of somebody else's causes. It does not do what no receiver
//! could tell from its peer: a frame with a right ICRC never names a QP that may be somebody's
//! (QPNs here have 0x8000 set, which none of the first 32,768 QPs of a process has), and of frames
//! of the living one bit is changed, which UDP's checksum finds as well: where the ICRC has to tell
//! a receiver the identification, it is a weaker check.
//!
//! Prints how many frames of each kind it has sent.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::rand::Rng;
use ferroce_stack::verbs::Qpn;
use ferroce_stack::wire::{Ipv4, Net, Packet, seal};
use pcap_file::pcap::PcapReader;
use pnet::datalink::{self, Channel, Config, DataLinkReceiver, DataLinkSender, NetworkInterface};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ETHERNET: usize = 14;
const IPV4: usize = ETHERNET + 20;
const UDP: usize = IPV4 + 8;

/// Frames of others kept to be used again.
const SEEN: usize = 256;

/// Frames between two looks at the clock.
const TURN: u32 = 64;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, mac, own, victim, seconds, seed, captures] = &arguments[..] else {
        return Err("usage: flood INTERFACE MAC OWN_IP VICTIM_IP SECONDS SEED CAPTURES".into());
    };
    let is_it = |found: &NetworkInterface| found.name == *interface;
    let interface = datalink::interfaces().into_iter().find(is_it).ok_or("no such interface")?;
    let Channel::Ethernet(sender, receiver) = datalink::channel(&interface, Config::default())?
    else {
        return Err("not an Ethernet interface".into());
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watched = seen.clone();
    thread::spawn(move || watch(receiver, &watched));
    let mac: Vec<u8> =
        mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    let mut flood = Flood {
        sender,
        rng: Rng::new(seed.parse()?),
        seeds: seeds(Path::new(captures))?,
        seen,
        to: mac.try_into().map_err(|_| "not an Ethernet address")?,
        from: interface.mac.ok_or("no Ethernet address")?.octets(),
        ips: [own.parse()?, victim.parse()?],
        sent: [0; KINDS.len()],
    };
    flood.run(Duration::from_secs(seconds.parse()?))?;
    for ((name, _), sent) in KINDS.iter().zip(flood.sent) {
        println!("{sent} {name}");
    }
    Ok(())
}

/// Keeps the last frames of others.
fn watch(mut receiver: Box<dyn DataLinkReceiver>, seen: &Mutex<Vec<Vec<u8>>>) {
    let mut at = 0;
    while let Ok(frame) = receiver.next() {
        let mut seen = seen.lock().expect("nobody panics with it");
        match seen.get_mut(at) {
            Some(old) => *old = frame.to_vec(),
            None => seen.push(frame.to_vec()),
        }
        at = (at + 1) % SEEN;
    }
}

/// Every frame of the capture files with Ethernet and IPv4.
fn seeds(folder: &Path) -> Outcome<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        let mut reader = PcapReader::new(File::open(path)?)?;
        while let Some(packet) = reader.next_packet() {
            let frame = packet?.data.into_owned();
            if let Ok(Packet { headers, .. }) = Packet::parse(&frame)
                && let (Net::V4(_), None) = (headers.net, headers.eth.vlan)
            {
                seeds.push(frame);
            }
        }
    }
    Ok(seeds)
}

/// Makes one frame of a kind; none if there is nothing to make it of.
type Make = fn(&mut Flood) -> Option<Vec<u8>>;

const KINDS: [(&str, Make); 8] = [
    ("frames of captures to QPs that are nobody's", Flood::stray),
    ("frames of captures with changed bytes", Flood::damaged),
    ("management datagrams with changed bytes", Flood::management),
    ("frames of others once more", Flood::replayed),
    ("frames of others with a changed bit", Flood::flipped),
    ("frames whose headers lie about lengths", Flood::lying),
    ("datagrams of anything", Flood::noise),
    ("frames of anything", Flood::babble),
];

struct Flood {
    sender: Box<dyn DataLinkSender>,
    rng: Rng,
    seeds: Vec<Vec<u8>>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    to: [u8; 6],
    from: [u8; 6],
    ips: [Ipv4Addr; 2],
    sent: [u64; KINDS.len()],
}

impl Flood {
    fn run(&mut self, time: Duration) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            for _ in 0..TURN {
                let kind = self.below(KINDS.len());
                let Some(mut frame) = KINDS[kind].1(self) else { continue };
                frame[..6].copy_from_slice(&self.to);
                frame[6..12].copy_from_slice(&self.from);
                // Else it is longer than the interface takes, or the queue is full.
                if let Some(Ok(())) = self.sender.send_to(&frame, None) {
                    self.sent[kind] += 1;
                }
            }
        }
        Ok(())
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// A frame of a capture, as if from our address to the victim's.
    fn seed(&mut self) -> Vec<u8> {
        let at = self.below(self.seeds.len());
        let mut frame = self.seeds[at].clone();
        let [src, dst] = self.ips;
        let header = Ipv4 { src, dst, ..Ipv4::parse(&frame[ETHERNET..]) };
        let len = (frame.len() - IPV4) as u16;
        header.emit(len, &mut frame[ETHERNET..]);
        frame
    }

    fn change(&mut self, frame: &mut [u8], from: usize, most: usize) {
        for _ in 0..=self.below(most) {
            let at = from + self.below(frame.len().saturating_sub(from));
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << self.rng.below(8);
            }
        }
    }

    fn stray(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.seed();
        let qpn = (self.rng.next_u64() as u32 & 0x00ff_ffff) | 0x8000;
        frame[UDP + 5..UDP + 8].copy_from_slice(&qpn.to_be_bytes()[1..]);
        // An opcode may be none at all.
        if self.rng.chance(0.2) {
            frame[UDP] = self.rng.next_u64() as u8;
        }
        sealed(frame)
    }

    fn damaged(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.seed();
        self.change(&mut frame, ETHERNET, 16);
        Some(frame)
    }

    fn management(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.seed();
        let to_services = |frame: &[u8]| {
            Packet::parse(frame).is_ok_and(|packet| packet.headers.bth.dest_qp == Qpn::GSI.0)
        };
        for _ in 0..100 {
            if to_services(&frame) {
                self.change(&mut frame, UDP + 12 + 8, 40);
                return sealed(frame);
            }
            frame = self.seed();
        }
        None
    }

    /// A frame of others that was for the victim; none if there is none yet.
    fn of_others(&mut self) -> Option<Vec<u8>> {
        let pick = self.rng.next_u64() as usize;
        let seen = self.seen.lock().expect("nobody panics with it");
        let frame = seen.get(pick.checked_rem(seen.len())?)?.clone();
        let Net::V4(ip) = Packet::parse(&frame).ok()?.headers.net else { return None };
        (ip.dst == self.ips[1]).then_some(frame)
    }

    fn replayed(&mut self) -> Option<Vec<u8>> {
        self.of_others()
    }

    fn flipped(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.of_others()?;
        self.change(&mut frame, UDP, 1);
        Some(frame)
    }

    fn lying(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.seed();
        let at = [ETHERNET, ETHERNET + 2, ETHERNET + 6, ETHERNET + 9, IPV4 + 4][self.below(5)];
        frame[at] = self.rng.next_u64() as u8;
        let len = self.below(frame.len() + 1).max(ETHERNET);
        frame.truncate(len);
        Some(frame)
    }

    fn noise(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.seed();
        let len = UDP + self.below(1400);
        frame.resize(len, 0);
        self.rng.fill(&mut frame[UDP..]);
        let header = Ipv4::parse(&frame[ETHERNET..]);
        header.emit((len - IPV4) as u16, &mut frame[ETHERNET..]);
        frame[IPV4 + 4..][..2].copy_from_slice(&((len - IPV4) as u16).to_be_bytes());
        Some(frame)
    }

    fn babble(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; ETHERNET + self.below(1400)];
        self.rng.fill(&mut frame);
        // What RoCE v1, IPv6 and VLANs have in front.
        let kinds = [[0x89, 0x15], [0x86, 0xdd], [0x81, 0x00], [0x08, 0x00]];
        frame[12..14].copy_from_slice(&kinds[self.below(kinds.len())]);
        Some(frame)
    }
}

/// Makes the ICRC right, if it is a packet still.
fn sealed(mut frame: Vec<u8>) -> Option<Vec<u8>> {
    let Ok(packet) = Packet::parse(&frame) else { return Some(frame) };
    let (layout, len) = (packet.layout, packet.payload.len());
    seal(&mut frame, &layout, len);
    Some(frame)
}
