use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::words::{POSITIONS, SUBJECTS, SUFFIXES, TRANSPORTS};
use super::*;

#[test]
fn rules_mean_what_they_say() {
    let rule: Rule = "drop 2..4th rc-read-response-last from node 1".parse().unwrap();
    let class = Class {
        transport: Some(Transport::Rc),
        subject: Some(Subject::Kind(Kind::ReadResponse)),
        position: Some(Position::Last),
        suffix: None,
    };
    let expected = Rule::new(Action::Drop, class).which(Which::Nth(2..=4));
    assert_eq!(rule, expected.when(Condition::FromNode(1)));

    let rule: Rule = "delay 2nd ack by 1.5us".parse().unwrap();
    assert_eq!(rule.action, Action::Delay { nanos: 1500 });
    assert_eq!(rule.class.subject, Some(Subject::Ack));

    let rule: Rule = "drop 2.5% of any".parse().unwrap();
    assert_eq!(rule, Rule::random(Action::Drop, 0.025));

    let rule: Rule = "corrupt byte 0x3c of 1st write-only-imm".parse().unwrap();
    assert_eq!(rule.action, Action::Corrupt(Corruption::of(Place::Byte(60))));
    assert_eq!(rule.class.suffix, Some(HeaderSet::IMM_DT));

    let rule: Rule = "corrupt psn of 1st send by -1 with icrc fixed".parse().unwrap();
    let place = Place::Field(Field::Psn);
    let what = Corruption { place, change: Change::By(-1), icrc_fixed: true };
    assert_eq!(rule.action, Action::Corrupt(what));

    let rule: Rule = "drop every 100th cm-rep from fd00::1 in bursts of 3".parse().unwrap();
    assert_eq!(rule.which, Which::Every { nth: 100, burst: 3 });
    let rule: Rule = "truncate 1st write to 10.0.0.2 by 8 bytes".parse().unwrap();
    assert_eq!(rule.action, Action::Truncate { bytes: 8, icrc_fixed: false });
}

#[test]
fn a_condition_may_stand_where_a_field_might() {
    for (text, condition) in [
        ("corrupt psn 5", Condition::Psn(5..=5)),
        ("corrupt opcode 0x0a", Condition::Opcode(10..=10)),
        ("corrupt opcode rc-write-only", Condition::Opcode(10..=10)),
    ] {
        let expected = Rule::new(Action::Corrupt(Corruption::ANY_BIT), Class::default());
        assert_eq!(text.parse(), Ok(expected.when(condition)), "{text}");
    }
    let rule: Rule = "corrupt opcode to 0xff of any".parse().unwrap();
    assert!(matches!(rule.action, Action::Corrupt(Corruption { change: Change::To(255), .. })));
}

#[test]
fn a_class_named_like_a_field_is_no_field_without_its_of() {
    let suffix = Some(HeaderSet::IMM_DT);
    let class = Class { suffix, ..Class::default() };
    let place = Place::AnyByte;
    for change in [Change::Flip, Change::By(0), Change::To(5)] {
        let what = Corruption { place, change, icrc_fixed: false };
        let rule = Rule::new(Action::Corrupt(what), class);
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    let rule: Rule = "corrupt imm of imm".parse().unwrap();
    let what = Corruption::of(Place::Field(Field::Imm));
    assert_eq!(rule, Rule::new(Action::Corrupt(what), class));
}

#[test]
fn every_opcode_has_the_standards_name_and_ours() {
    for code in 0..=255 {
        let Some(info) = ferroce_stack::wire::Opcode(code).info() else { continue };
        let name = info.name.to_lowercase().replace(' ', "-");
        let short = name.replace("rdma-", "").replace("with-immediate", "imm");
        for name in [&name, &short.replace("with-invalidate", "inv")] {
            let rule: Rule = format!("drop opcode {name}").parse().unwrap();
            assert_eq!(rule.conditions, [Condition::Opcode(code..=code)], "{name}");
        }
    }
}

#[test]
fn errors_point_at_the_word() {
    let table = [
        ("", 1, ""),
        ("lose any", 1, "lose"),
        ("drop 3th rc-sned", 10, "rc-sned"),
        ("drop 0th any", 6, "0th"),
        ("drop 4..2th any", 6, "4..2th"),
        ("drop 101% of any", 6, "101%"),
        ("drop 1% any", 9, "any"),
        ("drop any psn 0x1000000", 14, "0x1000000"),
        ("drop any from 10.0.0", 15, "10.0.0"),
        ("drop any to node -1", 18, "-1"),
        ("drop any by 1us", 10, "by"),
        ("drop any opcode 256", 17, "256"),
        ("drop any opcode send", 17, "send"),
        ("drop every any", 12, "any"),
        ("drop every 0th any", 12, "0th"),
        ("drop 3rd any in bursts of 2", 14, "in"),
        ("drop 1% of any in bursts of 0", 29, "0"),
        ("drop any with icrc fixed", 10, "with"),
        ("mark 1st any", 6, "1st"),
        ("delay any", 10, ""),
        ("delay any by 10", 14, "10"),
        ("truncate any", 13, ""),
        ("truncate any by 4", 18, ""),
        ("corrupt byte 4 any", 16, "any"),
        ("corrupt rkey 1st any", 14, "1st"),
        ("corrupt rkeys of any", 9, "rkeys"),
        ("corrupt ecn to 4 of any", 16, "4"),
        ("corrupt psn to 4 of any by 1", 25, "by"),
        ("corrupt any with icrc right", 23, "right"),
    ];
    for (text, column, word) in table {
        let error = text.parse::<Rule>().unwrap_err();
        assert_eq!((error.column, error.word.as_str()), (column, word), "{error}");
    }
}

#[test]
fn errors_name_the_word_that_was_meant() {
    let table = [
        ("drpo any", "drop"),
        ("drop sned", "send"),
        ("corrupt rkeys of any", "rkey"),
        ("drop any befor 1s", "before"),
        ("drop any from nod 1", "node"),
    ];
    for (text, nearest) in table {
        let error = text.parse::<Rule>().unwrap_err();
        assert_eq!(error.nearest, Some(nearest), "{error}");
        assert!(error.to_string().ends_with(&format!("; did you mean '{nearest}'?")), "{error}");
    }
}

/// The lines of the document that are rules.
fn documented() -> Vec<&'static str> {
    let text = include_str!("../../../../docs/faults.md");
    let blocks = text.split("\n```faults\n").skip(1);
    blocks.flat_map(|block| block.split("\n```").next().unwrap_or_default().lines()).collect()
}

#[test]
fn every_example_of_the_document_is_a_rule() {
    let examples = documented();
    assert!(examples.len() > 30, "{}", examples.len());
    for text in &examples {
        let rule: Rule = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rule.to_string().parse(), Ok(rule), "{text}");
    }
    for action in ["drop", "duplicate", "delay", "reorder", "corrupt", "mark ce", "truncate"] {
        assert!(examples.iter().any(|text| text.starts_with(action)), "{action} has no example");
    }
}

#[test]
fn every_word_is_in_the_document() {
    let text = include_str!("../../../../docs/faults.md");
    let fields = Field::ALL.iter().map(|field| format!("`{}`", field.name()));
    let subjects = SUBJECTS.iter().map(|(word, _)| match word.strip_prefix("cm-") {
        Some(message) => format!("\"{message}\""),
        None => format!("\"{word}\""),
    });
    for word in fields.chain(subjects) {
        assert!(text.contains(&word), "{word}");
    }
}

#[test]
fn a_script_has_comments() {
    let rules = Rule::parse_all("# nothing\n\ndrop 1st any # the first\n").unwrap();
    assert_eq!(rules.len(), 1);
}

fn corruption() -> impl Strategy<Value = Action> {
    let field = select(Field::ALL).prop_map(|field| (Place::Field(field), field.value_bits()));
    let byte = (0..1usize << 24).prop_map(|at| (Place::Byte(at), 8));
    let place = prop_oneof![Just((Place::AnyByte, 8)), byte, field];
    (place, 0..3, any::<u64>(), any::<bool>()).prop_map(
        |((place, bits), kind, value, icrc_fixed)| {
            let change = match kind {
                0 => Change::Flip,
                1 => Change::To(value >> (64 - bits)),
                _ => Change::By(value as i64),
            };
            Action::Corrupt(Corruption { place, change, icrc_fixed })
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Drop),
        Just(Action::Duplicate),
        Just(Action::MarkCe),
        any::<u64>().prop_map(|nanos| Action::Delay { nanos }),
        any::<u64>().prop_map(|nanos| Action::Reorder { nanos }),
        corruption(),
        (1..1usize << 24, any::<bool>())
            .prop_map(|(bytes, icrc_fixed)| Action::Truncate { bytes, icrc_fixed }),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    let share = prop_oneof![0.0..=1.0, (0..=100u8).prop_map(|percent| f64::from(percent) / 100.0)];
    prop_oneof![
        Just(Which::All),
        (1u64.., 0u64..9)
            .prop_map(|(first, more): (u64, _)| { Which::Nth(first..=first.saturating_add(more)) }),
        (1u64..).prop_map(|first| Which::Nth(first..=u64::MAX)),
        (1u64.., 1u64..).prop_map(|(nth, burst)| Which::Every { nth, burst }),
        share.clone().prop_map(Which::Chance),
        (share, 1u64..).prop_map(|(share, len)| Which::Bursts { share, len }),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    use proptest::option::of;
    let transport = of(select(&TRANSPORTS).prop_map(|(_, value)| value));
    let subject = of(select(&SUBJECTS).prop_map(|(_, value)| value));
    let position = of(select(&POSITIONS).prop_map(|(_, value)| value));
    let suffix = of(select(&SUFFIXES).prop_map(|(_, value)| value));
    (transport, subject, position, suffix).prop_map(|(transport, subject, position, suffix)| {
        Class { transport, subject, position, suffix }
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    let number = 0..1u32 << 24;
    let address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()),
    ];
    let moment = any::<u64>().prop_map(Instant::from_nanos);
    prop_oneof![
        number.clone().prop_map(|node| Condition::FromNode(node as usize)),
        number.clone().prop_map(|node| Condition::ToNode(node as usize)),
        Just(Condition::Outgoing),
        Just(Condition::Incoming),
        address.clone().prop_map(Condition::FromAddress),
        address.prop_map(Condition::ToAddress),
        number.clone().prop_map(Condition::FromQp),
        number.clone().prop_map(Condition::ToQp),
        (number.clone(), number).prop_map(|(a, b)| Condition::Psn(a.min(b)..=a.max(b))),
        any::<(u8, u8)>().prop_map(|(a, b)| Condition::Opcode(a.min(b)..=a.max(b))),
        moment.clone().prop_map(Condition::After),
        moment.prop_map(Condition::Before),
    ]
}

/// Rules that text can say.
pub fn rule() -> impl Strategy<Value = Rule> {
    (action(), which(), class(), vec(condition(), 0..4))
        .prop_map(|(action, which, class, conditions)| Rule { action, which, class, conditions })
}

proptest! {
    #[test]
    fn what_a_rule_says_is_read_back_as_the_same_rule(rule in rule()) {
        prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(drop|corrupt|truncate|mark|every|of|to|by|in|with|\
        icrc|bursts|bytes|byte|psn|ce|any|from|node|5|1%|2nd|\\PC{0,3}| |  ){0,12}") {
        if let Err(error) = text.parse::<Rule>() {
            prop_assert!(error.column <= text.chars().count() + 1);
        }
    }
}
