//! A frame that rules look at and change. What stands where is found out once, before the first
//! change: a field keeps its place whatever becomes of those before it.

use ferroce_stack::icrc;
use ferroce_stack::wire::{Headers, Ipv4, Ipv6, Layout, Net, Udp, pad_count};

use crate::frame::rule::{Action, Bits, Change, Corruption, Field, Place};
use crate::rand::Rng;

/// Bytes of the ICRC.
const ICRC_LEN: usize = 4;

/// Where a part of an IPv4 header stands in it.
const IPV4_LENGTH: usize = 2;
const IPV4_CHECKSUM: usize = 10;
const IPV6_LENGTH: usize = 4;
const UDP_LENGTH: usize = 4;

/// Of the second byte of a BTH: the pad count, and where.
const PAD_COUNT_MASK: u8 = 0x30;
const PAD_COUNT_SHIFT: u8 = 4;

/// A frame, and what it was before anything was changed.
#[derive(Debug)]
pub struct Target<'a> {
    frame: &'a mut [u8],
    /// Of a RoCE packet, whole or not.
    parsed: Option<(Headers, Layout)>,
}

impl<'a> Target<'a> {
    pub fn new(frame: &'a mut [u8]) -> Target<'a> {
        let parsed = Headers::parse(frame).ok();
        Target { frame, parsed }
    }

    /// The headers of a RoCE packet.
    pub fn headers(&self) -> Option<&Headers> {
        self.parsed.as_ref().map(|(headers, _)| headers)
    }

    /// The first `N` bytes of the payload.
    pub fn payload<const N: usize>(&self) -> Option<&[u8; N]> {
        let (_, layout) = self.parsed.as_ref()?;
        self.frame.get(layout.payload..layout.icrc)?.first_chunk()
    }

    /// Whether there is what the action changes.
    pub fn takes(&self, action: Action) -> bool {
        match action {
            Action::Drop | Action::Duplicate | Action::Delay { .. } | Action::Reorder { .. } => {
                true
            }
            Action::Corrupt(Corruption { place: Place::AnyByte, .. }) => !self.frame.is_empty(),
            Action::Corrupt(Corruption { place: Place::Byte(at), .. }) => at < self.frame.len(),
            Action::Corrupt(Corruption { place: Place::Field(field), .. }) => {
                self.bits(field).is_some()
            }
            Action::MarkCe => self.bits(Field::Ecn).is_some(),
            Action::Truncate { .. } => {
                self.whole().is_some() && self.bits(Field::Payload).is_some()
            }
        }
    }

    /// Changes bits; whether there were any.
    pub fn corrupt(&mut self, what: &Corruption, rng: &mut Rng) -> bool {
        let bits = match what.place {
            Place::AnyByte if self.frame.is_empty() => None,
            Place::AnyByte => Some(Bits::of_bytes(rng.below(self.frame.len() as u64) as usize, 1)),
            Place::Byte(at) => (at < self.frame.len()).then(|| Bits::of_bytes(at, 1)),
            Place::Field(field) => self.bits(field),
        };
        let Some(bits) = bits else { return false };
        change(self.frame, bits, what.change, rng);
        if let Place::Field(field) = what.place
            && field.is_of_ip()
            && field != Field::IpChecksum
        {
            self.fix_ip_checksum();
        }
        if what.icrc_fixed {
            self.fix_icrc();
        }
        true
    }

    /// Marks congestion; whether there was a place for it.
    pub fn mark_ce(&mut self) -> bool {
        let Some(bits) = self.bits(Field::Ecn) else { return false };
        write(self.frame, bits, 3);
        self.fix_ip_checksum();
        true
    }

    /// Takes bytes off the end of the payload, and with them all that stands behind the packet.
    /// Returns by how much the frame is shorter; the target is of the rest.
    pub fn truncate(&mut self, bytes: usize, icrc_fixed: bool) -> usize {
        let Some((headers, layout)) = self.whole() else { return 0 };
        let pad = usize::from(headers.bth.pad_count);
        let payload_len = layout.icrc.saturating_sub(layout.payload + pad);
        let rest = payload_len.saturating_sub(bytes);
        let pad = pad_count(rest);
        let icrc = layout.payload + rest + usize::from(pad);
        self.frame.copy_within(layout.icrc..layout.icrc + ICRC_LEN, icrc);
        self.frame[layout.payload + rest..icrc].fill(0);
        let flags = &mut self.frame[layout.bth + 1];
        *flags = *flags & !PAD_COUNT_MASK | pad << PAD_COUNT_SHIFT;
        self.put_lengths(&headers.net, &layout, icrc + ICRC_LEN);
        let cut = self.frame.len() - (icrc + ICRC_LEN);
        let frame = std::mem::take(&mut self.frame);
        self.frame = &mut frame[..icrc + ICRC_LEN];
        let mut headers = headers;
        headers.bth.pad_count = pad;
        self.parsed = Some((headers, Layout { icrc, ..layout }));
        self.fix_ip_checksum();
        if icrc_fixed {
            self.fix_icrc();
        }
        cut
    }

    /// The lengths of a packet that ends at `end`.
    fn put_lengths(&mut self, net: &Net, layout: &Layout, end: usize) {
        let mut put = |at: usize, len: usize| {
            // A part of what was in 16 bits.
            self.frame[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
        };
        match net {
            Net::V4(_) => put(layout.net + IPV4_LENGTH, end - layout.net),
            Net::V6(_) | Net::V1(_) => {
                put(layout.net + IPV6_LENGTH, end - layout.net - Ipv6::LEN);
            }
        }
        if !net.is_v1() {
            let udp = layout.bth - Udp::LEN;
            put(udp + UDP_LENGTH, end - udp);
        }
    }

    /// Where a field stands, if it is in the frame.
    fn bits(&self, field: Field) -> Option<Bits> {
        let (headers, layout) = self.parsed.as_ref()?;
        field.bits(headers, layout).filter(|bits| bits.end() <= self.frame.len())
    }

    /// Headers and layout of a packet that is not cut short.
    fn whole(&self) -> Option<(Headers, Layout)> {
        self.parsed.filter(|(_, layout)| layout.icrc + ICRC_LEN <= self.frame.len())
    }

    fn fix_icrc(&mut self) {
        if let Some((_, layout)) = self.whole() {
            let icrc = icrc::compute(self.frame, &layout).to_le_bytes();
            self.frame[layout.icrc..layout.icrc + ICRC_LEN].copy_from_slice(&icrc);
        }
    }

    /// Of an IPv4 header; no other has one.
    fn fix_ip_checksum(&mut self) {
        let Some((Headers { net: Net::V4(_), .. }, layout)) = self.parsed else { return };
        let Some(header) = self.frame[layout.net..].first_chunk_mut::<{ Ipv4::LEN }>() else {
            return;
        };
        let checksum = &mut header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2];
        checksum.fill(0);
        let words = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !(sum as u16);
        header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Changes bits of a frame that has them.
fn change(frame: &mut [u8], bits: Bits, change: Change, rng: &mut Rng) {
    let len = bits.len.min(64);
    let last = Bits { first: bits.first + bits.len - len, len };
    match change {
        Change::Flip => {
            // Of a byte, counted from its lowest bit.
            let bit = bits.first + bits.len - 1 - rng.below(bits.len as u64) as usize;
            frame[bit / 8] ^= 0x80 >> (bit % 8);
        }
        Change::To(value) => write(frame, last, value),
        Change::By(amount) => {
            let value = read(frame, last).wrapping_add(amount as u64);
            write(frame, last, value);
        }
    }
}

/// At most 64 bits, the last the lowest.
fn read(frame: &[u8], bits: Bits) -> u64 {
    let bit = |at: usize| u64::from(frame[at / 8] >> (7 - at % 8) & 1);
    (bits.first..bits.first + bits.len).fold(0, |value, at| value << 1 | bit(at))
}

/// At most 64 bits; those of `value` that do not fit are left out.
fn write(frame: &mut [u8], bits: Bits, value: u64) {
    for (shift, at) in (bits.first..bits.first + bits.len).rev().enumerate() {
        let mask = 0x80 >> (at % 8);
        let bit = if value >> shift & 1 == 1 { mask } else { 0 };
        frame[at / 8] = frame[at / 8] & !mask | bit;
    }
}

#[cfg(test)]
mod tests {
    use ferroce_stack::psn::Psn;
    use ferroce_stack::time::Instant;
    use ferroce_stack::wire::{
        Aeth, AtomicEth, Bth, Deth, Ethernet, Extensions, ImmDt, Mac, Opcode, Packet, Reth,
        Syndrome, Vlan, seal,
    };
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::frame::fault::{Fate, Injector, Way};
    use crate::frame::rule::tests::rule;

    const PAYLOAD: [u8; 41] = [0xa5; 41];

    fn nets() -> [Net; 3] {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let v4 = Ipv4 { src, dst, tos: 0, ident: 7, dont_fragment: true, ttl: 64 };
        let (src, dst) = (1u128.into(), 2u128.into());
        let v6 = Ipv6 { src, dst, traffic_class: 0, flow_label: 0, hop_limit: 64 };
        [Net::V4(v4), Net::V6(v6), Net::V1(v6)]
    }

    /// A frame of each network and with and without a tag, with Ethernet's padding behind it.
    fn frames(opcode: Opcode) -> Vec<Vec<u8>> {
        let vlans = [None, Some(Vlan { pcp: 0, dei: false, vid: 1 })];
        let each = nets().into_iter().flat_map(|net| vlans.map(|vlan| (net, vlan)));
        each.map(|(net, vlan)| frame(net, vlan, opcode, &PAYLOAD)).collect()
    }

    fn frame(net: Net, vlan: Option<Vlan>, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        let set = opcode.info().unwrap().headers;
        let has = |header| set.has(header);
        use ferroce_stack::wire::HeaderSet as Set;
        let reth = Reth { va: 1, rkey: 2, dma_len: 41 };
        let atomic = AtomicEth { va: 1, rkey: 2, swap_or_add: 3, compare: 4 };
        let headers = Headers {
            eth: Ethernet { dst: Mac::default(), src: Mac::default(), vlan },
            net,
            udp: Udp { source_port: 49_152, checksum: 0 },
            bth: Bth::new(opcode, 0x11, Psn::new(5)),
            ext: Extensions {
                reth: has(Set::RETH).then_some(reth),
                atomic_eth: has(Set::ATOMIC_ETH).then_some(atomic),
                deth: has(Set::DETH).then_some(Deth { qkey: 1, reserved: 0, src_qp: 0x12 }),
                aeth: has(Set::AETH).then_some(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
                imm_dt: has(Set::IMM_DT).then_some(ImmDt([0; 4])),
                ..Extensions::default()
            },
        };
        let mut frame = vec![0; 256];
        let layout = headers.emit(payload.len(), &mut frame).unwrap();
        frame[layout.payload..layout.payload + payload.len()].copy_from_slice(payload);
        let len = seal(&mut frame, &layout, payload.len());
        frame.truncate(len + 3);
        frame
    }

    /// What a rule makes of a frame.
    fn struck(rule: &str, frame: &[u8]) -> (Vec<u8>, Fate) {
        let mut frame = frame.to_vec();
        let mut injector = Injector::new([rule.parse().unwrap()], 1);
        let fate = injector.strike(Instant::ZERO, Way::default(), &mut frame);
        frame.truncate(frame.len() - fate.cut);
        (frame, fate)
    }

    fn parsed<'a>(rule: &str, frame: &'a [u8]) -> Packet<'a> {
        Packet::parse(frame).unwrap_or_else(|discard| panic!("{rule}: {discard:?}"))
    }

    #[test]
    fn fields_become_what_a_rule_says_in_every_kind_of_frame() {
        type Read = fn(&Headers) -> u64;
        let table: [(&str, Opcode, u64, Read); 16] = [
            ("vlan", Opcode::RC_WRITE_ONLY, 0x123, |h| h.eth.vlan.map_or(0x123, |v| v.vid.into())),
            ("pcp", Opcode::RC_WRITE_ONLY, 5, |h| h.eth.vlan.map_or(5, |v| v.pcp.into())),
            ("tos", Opcode::RC_WRITE_ONLY, 0x5a, |h| h.net.traffic_class().into()),
            ("dscp", Opcode::RC_WRITE_ONLY, 0x2a, |h| (h.net.traffic_class() >> 2).into()),
            ("ecn", Opcode::RC_WRITE_ONLY, 1, |h| h.net.traffic_class().into()),
            ("pkey", Opcode::RC_WRITE_ONLY, 0x8001, |h| h.bth.pkey.into()),
            ("dest-qp", Opcode::RC_WRITE_ONLY, 0xabcdef, |h| h.bth.dest_qp.into()),
            ("psn", Opcode::RC_WRITE_ONLY, 0xfedcba, |h| h.bth.psn.value().into()),
            ("va", Opcode::RC_WRITE_ONLY, u64::MAX, |h| h.ext.reth.unwrap().va),
            ("rkey", Opcode::RC_WRITE_ONLY, 0x1234, |h| h.ext.reth.unwrap().rkey.into()),
            ("dma-length", Opcode::RC_WRITE_ONLY_IMM, 7, |h| h.ext.reth.unwrap().dma_len.into()),
            ("imm", Opcode::RC_WRITE_ONLY_IMM, 7, |h| {
                u32::from_be_bytes(h.ext.imm_dt.unwrap().0).into()
            }),
            ("rkey", Opcode::RC_CMP_SWAP, 9, |h| h.ext.atomic_eth.unwrap().rkey.into()),
            ("compare", Opcode::RC_CMP_SWAP, 9, |h| h.ext.atomic_eth.unwrap().compare),
            ("syndrome", Opcode::RC_READ_RESPONSE_ONLY, 0x62, |h| {
                h.ext.aeth.unwrap().syndrome.0.into()
            }),
            ("source-qp", Opcode::UD_SEND_ONLY_IMM, 0x99, |h| h.ext.deth.unwrap().src_qp.into()),
        ];
        for (field, opcode, value, read) in table {
            for frame in frames(opcode) {
                let rule = format!("corrupt {field} to {value} of any with icrc fixed");
                let (changed, _) = struck(&rule, &frame);
                let packet = parsed(&rule, &changed);
                assert_eq!(read(&packet.headers), value, "{rule}");
                assert!(packet.icrc_ok(&changed), "{rule}");
                let rest = |frame: &[u8]| Packet::parse(frame).unwrap().payload.to_vec();
                assert_eq!(rest(&changed), rest(&frame), "{rule}");
            }
        }
    }

    #[test]
    fn a_field_is_changed_by_an_amount_and_wraps() {
        for frame in frames(Opcode::RC_SEND_ONLY) {
            for (by, psn) in [("1", 6), ("-6", 0xff_ffff), ("0x1000000", 5)] {
                let rule = format!("corrupt psn of any by {by}");
                let (changed, fate) = struck(&rule, &frame);
                let packet = parsed(&rule, &changed);
                assert_eq!(packet.headers.bth.psn.value(), psn, "{rule}");
                assert_eq!(packet.icrc_ok(&changed), psn == 5);
                assert!(fate.corrupted);
            }
        }
    }

    #[test]
    fn marked_frames_are_right_but_for_the_mark() {
        for frame in frames(Opcode::RC_SEND_ONLY) {
            let (marked, fate) = struck("mark ce", &frame);
            let packet = parsed("mark ce", &marked);
            assert_eq!(packet.headers.net.traffic_class() & 3, 3);
            assert!(packet.icrc_ok(&marked) && fate.marked && !fate.corrupted);
        }
    }

    #[test]
    fn what_is_truncated_has_lengths_and_pad_of_the_rest() {
        for frame in frames(Opcode::RC_SEND_ONLY) {
            for (bytes, rest) in [(1, 40), (2, 39), (5, 36), (41, 0), (99, 0)] {
                let rule = format!("truncate any by {bytes} bytes with icrc fixed");
                let (cut, fate) = struck(&rule, &frame);
                let packet = parsed(&rule, &cut);
                assert_eq!(packet.payload, &PAYLOAD[..rest], "{rule}");
                assert!(packet.icrc_ok(&cut), "{rule}");
                assert_eq!(packet.layout.icrc + 4, cut.len());
                assert_eq!(fate.cut, frame.len() - cut.len());
                let (left, _) = struck(&format!("truncate any by {bytes} bytes"), &frame);
                assert!(!parsed(&rule, &left).icrc_ok(&left), "{rule}");
            }
        }
    }

    #[test]
    fn frames_without_the_field_do_not_count() {
        let [v4, ..] = nets();
        let [send, write] = [Opcode::RC_SEND_ONLY, Opcode::RC_WRITE_ONLY]
            .map(|opcode| frame(v4, None, opcode, &PAYLOAD));
        let mut injector = Injector::new(["corrupt rkey of 1st any".parse().unwrap()], 1);
        let mut corrupted = |frame: &[u8]| {
            injector.strike(Instant::ZERO, Way::default(), &mut frame.to_vec()).corrupted
        };
        assert_eq!([corrupted(&send), corrupted(&[]), corrupted(&write)], [false, false, true]);
    }

    #[test]
    fn a_wrong_header_checksum_can_be_asked_for() {
        let [v4, ..] = nets();
        let frame = frame(v4, None, Opcode::RC_SEND_ONLY, &PAYLOAD);
        for rule in ["corrupt ip-checksum of any", "corrupt byte 22 of any"] {
            assert!(Packet::parse(&struck(rule, &frame).0).is_err(), "{rule}");
        }
        let (changed, _) = struck("corrupt ttl to 1 of any", &frame);
        assert!(parsed("ttl", &changed).icrc_ok(&changed));
    }

    fn some_frame() -> impl Strategy<Value = Vec<u8>> {
        let opcodes = [
            Opcode::RC_SEND_ONLY,
            Opcode::RC_WRITE_ONLY_IMM,
            Opcode::RC_CMP_SWAP,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::UD_SEND_ONLY,
            Opcode::CNP,
        ];
        let whole: Vec<Vec<u8>> = opcodes.into_iter().flat_map(frames).collect();
        let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
        let near = (prop::sample::select(whole), 0..300usize, damage).prop_map(
            |(mut frame, len, damage)| {
                frame.truncate(len);
                for (at, value) in damage.into_iter().filter(|_| len > 0) {
                    let at = at.index(frame.len());
                    frame[at] = value;
                }
                frame
            },
        );
        prop_oneof![1 => vec(any::<u8>(), 0..200), 4 => near]
    }

    proptest! {
        #[test]
        fn no_rule_panics_on_any_frame(
            rules in vec(rule(), 1..5),
            frame in some_frame(),
            seed in any::<u64>(),
        ) {
            // Whatever else they ask for, so that all strike.
            let rules = rules.into_iter().flat_map(|rule| {
                let always = crate::frame::rule::Rule::new(rule.action, Default::default());
                [rule, always]
            });
            let mut injector = Injector::new(rules, seed);
            let mut struck = frame.clone();
            for from in 0..3 {
                let way = Way { from, to: Some(1), source_qp: None };
                let fate = injector.strike(Instant::from_nanos(seed), way, &mut struck);
                prop_assert!(fate.cut <= struck.len());
                struck.truncate(struck.len() - fate.cut);
            }
        }
    }
}
