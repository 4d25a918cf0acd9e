//! A port of a switch that marks: congestion experienced. It is a rule of nftables, so that the
//! packets pass the kernel's bridge with it, as they pass a switch.

use std::path::Path;
use std::process::Command;

use crate::programs::limited;

/// A port at work, as long as its network namespace is there or until another takes its place.
pub struct Marker<'a> {
    /// Makes a command that runs a program on the switch.
    switch: &'a dyn Fn(&Path) -> Command,
}

/// Bytes of the ECN-capable RoCE packets that have come into the port, as IP packets. What a sender
/// cuts late, on the same machine, comes as one packet for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Marked or not.
    pub taken: u64,
    /// Of these, marked.
    pub marked: u64,
}

impl<'a> Marker<'a> {
    /// Has the port mark what has ECT(0) and matches `condition`, in the words of nft, and nothing
    /// else on the switch mark anything.
    ///
    /// # Panics
    /// If that fails.
    pub fn start(switch: &'a dyn Fn(&Path) -> Command, port: &str, condition: &str) -> Marker<'a> {
        let marker = Marker { switch };
        let rules = ["ip", "ip6"].map(|ip| {
            format!(
                "udp dport 4791 {ip} ecn ect0 counter name taken\n\
                 udp dport 4791 {ip} ecn ect0 {condition} counter name marked {ip} ecn set ce\n"
            )
        });
        marker.nft(&format!(
            "add table netdev marker\n\
             delete table netdev marker\n\
             table netdev marker {{\n\
             counter taken {{ }}\n\
             counter marked {{ }}\n\
             chain port {{\n\
             type filter hook ingress device \"{port}\" priority 0; policy accept;\n\
             {}\
             }}\n\
             }}",
            rules.concat()
        ));
        marker
    }

    /// What it has counted.
    ///
    /// # Panics
    /// If it cannot be asked.
    pub fn counts(&self) -> Marked {
        let [taken, marked] = ["taken", "marked"].map(|name| {
            let said = self.nft(&format!("list counter netdev marker {name}"));
            let mut words = said.split_whitespace().skip_while(|word| *word != "bytes");
            let bytes = words.nth(1).and_then(|bytes| bytes.parse().ok());
            bytes.unwrap_or_else(|| panic!("no bytes in {said}"))
        });
        Marked { taken, marked }
    }

    fn nft(&self, script: &str) -> String {
        let ended = limited((self.switch)(Path::new("nft")).arg(script));
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        ended.out
    }
}
