//! Every key of the file, as `docs/sim.md` describes them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::Problem;
use super::units::{Amount, Hosts, OneOrMany, Pair, Rate, Share, Size, Time};
use crate::near::did_you_mean;

/// The file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    pub seed: Option<u64>,
    pub duration: Option<Time>,
    pub warmup: Option<Time>,
    pub sample: Option<Time>,
    pub capture: OneOrMany,
    pub topology: TopologyKeys,
    pub switch: SwitchKeys,
    pub host: HostKeys,
    pub congestion: BTreeMap<String, toml::Value>,
    pub workload: Vec<WorkloadKeys>,
    pub fault: Vec<FaultKeys>,
    pub plots: PlotsKeys,
    pub sweep: Option<SweepKeys>,
}

/// `[topology]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TopologyKeys {
    pub kind: Option<String>,
    pub rate: Option<Rate>,
    pub delay: Option<Time>,
    pub hosts: Option<usize>,
    pub left: Option<usize>,
    pub right: Option<usize>,
    pub bottleneck_rate: Option<Rate>,
    pub bottleneck_delay: Option<Time>,
    pub leaves: Option<usize>,
    pub spines: Option<usize>,
    pub hosts_per_leaf: Option<usize>,
    pub uplink_rate: Option<Rate>,
    pub uplink_delay: Option<Time>,
    pub k: Option<usize>,
    pub switches: Option<usize>,
    pub link: Vec<LinkKeys>,
}

/// `[[topology.link]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LinkKeys {
    pub ends: Vec<String>,
    pub rate: Option<Rate>,
    pub delay: Option<Time>,
}

/// `[switch]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SwitchKeys {
    pub buffer: Option<Size>,
    pub alpha: Option<f64>,
    pub ecn: EcnKeys,
    pub pfc: PfcKeys,
    pub at: BTreeMap<String, SwitchAtKeys>,
}

/// `[switch.at.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SwitchAtKeys {
    pub buffer: Option<Size>,
    pub alpha: Option<f64>,
    pub ecn: EcnKeys,
    pub pfc: PfcKeys,
}

/// `[switch.ecn]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EcnKeys {
    pub enabled: Option<bool>,
    pub classes: Option<Vec<u64>>,
    pub kmin: Option<Size>,
    pub kmax: Option<Size>,
    pub pmax: Option<Share>,
}

/// `[switch.pfc]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PfcKeys {
    pub enabled: Option<bool>,
    pub classes: Option<Vec<u64>>,
    pub xoff: Option<Size>,
    pub xon: Option<Size>,
    pub headroom: Option<Size>,
}

/// `[host]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostKeys {
    pub mtu: Option<u64>,
    pub timeout: Option<u64>,
    pub retry_cnt: Option<u64>,
    pub window: Option<u64>,
    pub ack_every: Option<u64>,
    pub burst: Option<u64>,
    pub congestion: Option<String>,
    pub loss_recovery: Option<String>,
    pub classes: BTreeMap<String, u64>,
}

/// `[[workload]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkloadKeys {
    pub kind: Option<String>,
    pub name: Option<String>,
    pub start: Option<Time>,
    pub spread: Option<Time>,
    pub size: Option<Amount>,
    pub message: Option<Size>,
    pub depth: Option<u64>,
    pub gap: Option<Time>,
    pub verb: Option<String>,
    pub dscp: Option<u64>,
    pub qps: Option<u64>,
    pub pairs: Option<Vec<Pair>>,
    pub from: Option<Hosts>,
    pub to: Option<Hosts>,
    pub senders: Option<usize>,
    pub hosts: Option<Hosts>,
    pub clients: Option<Hosts>,
    pub servers: Option<Hosts>,
    pub request: Option<Size>,
    pub response: Option<Size>,
    pub requests: Option<u64>,
    pub sizes: Option<String>,
    pub load: Option<Share>,
    pub flows: Option<usize>,
    pub until: Option<Time>,
    pub share_qp: Option<bool>,
    pub file: Option<String>,
}

/// `[[fault]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FaultKeys {
    pub rule: Option<String>,
    pub link: Option<String>,
}

/// `[plots]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PlotsKeys {
    pub ports: Vec<String>,
    pub from: Option<Time>,
    pub until: Option<Time>,
    pub width: Option<u32>,
}

/// `[sweep]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SweepKeys {
    pub seeds: Option<u64>,
    pub set: BTreeMap<String, Vec<toml::Value>>,
    pub plot: OneOrMany,
    pub against: Option<String>,
}

/// Kinds of a table, each with the keys it has beside the common ones.
pub(crate) type Kinds = &'static [(&'static str, &'static [&'static str])];

/// Whether the table at `place` has one of these kinds, and no key of another kind; `present` are
/// the keys that are there.
pub(crate) fn kind_of(
    place: &str,
    kind: Option<&str>,
    kinds: Kinds,
    common: &[&str],
    present: &[String],
) -> Result<&'static str, Problem> {
    // Names are taken with `_` too, as keys are.
    let wanted = kind.unwrap_or_default().replace('_', "-");
    let Some((name, own)) = kinds.iter().find(|(name, _)| *name == wanted) else {
        let all: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
        let what = match kind {
            None => "missing: ".to_owned(),
            Some(kind) => format!("no kind '{kind}': {}", did_you_mean(kind, &all)),
        };
        let message = format!("{what}expected one of \"{}\"", all.join("\", \""));
        return Err(Problem::new(format!("{place}.kind"), message));
    };
    let is_foreign =
        |key: &&String| !common.contains(&key.as_str()) && !own.contains(&key.as_str());
    match present.iter().find(is_foreign) {
        Some(key) => Err(Problem::new(
            format!("{place}.{key}"),
            format!(
                "kind \"{name}\" has no such key: {}expected {}",
                did_you_mean(key, own),
                own.join(", ")
            ),
        )),
        None => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde::de::value::Error;
    use serde::de::{Deserializer, Error as _, Visitor};
    use serde::forward_to_deserialize_any;

    use super::*;

    /// Learns the fields of a struct from what it asks for.
    struct Fields<'f>(&'f mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Fields<'_> {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("no struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            *self.0 = fields;
            Err(Error::custom("only looking"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn fields<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
        let mut fields: &[&str] = &[];
        assert!(T::deserialize(Fields(&mut fields)).is_err());
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        fields
    }

    /// Keys that a section of the reference describes.
    fn described(docs: &str, section: &str) -> Vec<String> {
        let title = format!("\n### {section}\n");
        let start = docs.find(&title).unwrap_or_else(|| panic!("no section {section}"));
        let text = &docs[start + title.len()..];
        let text = &text[..text.find("\n### ").unwrap_or(text.len())];
        let key = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
        let mut keys: Vec<String> = text.lines().filter_map(key).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn the_reference_describes_every_key_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sim.md");
        let docs = fs::read_to_string(path).unwrap();
        for (section, keys) in [
            ("The file", fields::<File>()),
            ("`[topology]`", fields::<TopologyKeys>()),
            ("`[[topology.link]]`", fields::<LinkKeys>()),
            ("`[switch]`", fields::<SwitchKeys>()),
            ("`[switch.at.NAME]`", fields::<SwitchAtKeys>()),
            ("`[switch.ecn]`", fields::<EcnKeys>()),
            ("`[switch.pfc]`", fields::<PfcKeys>()),
            ("`[host]`", fields::<HostKeys>()),
            ("`[[workload]]`", fields::<WorkloadKeys>()),
            ("`[[fault]]`", fields::<FaultKeys>()),
            ("`[plots]`", fields::<PlotsKeys>()),
            ("`[sweep]`", fields::<SweepKeys>()),
        ] {
            assert_eq!(described(&docs, section), keys, "{section}");
        }
    }
}
