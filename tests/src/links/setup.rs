//! A gateway on a guest's wire, with all that its fabric sends and receives recorded.

use std::path::PathBuf;
use std::process::Command;

use super::{Gateway, Lab, has_lost};
use crate::programs::limited;

/// Two sides of a wire: a guest, and a fabric of this machine behind a gateway.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The guest.
    pub lab: &'a Lab,
    /// The guest's address, of the family of `host`.
    pub guest: &'static str,
    /// The fabric's address.
    pub host: &'static str,
    link: &'a str,
    gateway: Gateway,
    capture: PathBuf,
}

impl<'a> Setup<'a> {
    /// Starts a gateway with this link; `host` is [`Lab::HOST`] or [`Lab::HOST_IPV6`].
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(lab: &'a Lab, link: &'a str, host: &'static str) -> Setup<'a> {
        let gateway = Gateway::start(&mut lab.ferroce(), link, &["--addr", host]);
        let is_ipv6 = host.contains(':');
        let guest = if is_ipv6 { Lab::GUEST_IPV6 } else { Lab::GUEST };
        let name = format!("{link}-{host}.pcapng").replace([':', '/'], "-");
        let capture = lab.home().join(name);
        Setup { lab, guest, host, link, gateway, capture }
    }

    /// Index of the GID that is the guest's address.
    pub fn guest_gid(&self) -> &'static str {
        if self.guest.contains(':') { "2" } else { "1" }
    }

    /// A program of the fabric, recorded.
    pub fn here(&self, program: &str) -> Command {
        let mut command = self.lab.ferroce();
        command.args(["run", "--pcap"]).arg(&self.capture).args(["--", program]);
        command
    }

    /// Ends the gateway, and looks at everything that has passed. `failed` says what went wrong
    /// before.
    ///
    /// # Panics
    /// If anything did, frames were lost or damaged, or one of them broke the protocol.
    pub fn end(self, failed: &[String]) {
        let ended = self.gateway.end();
        let (link, host) = (self.link, self.host);
        eprintln!("{link} {host}: {}", ended.out.lines().last().unwrap_or_default());
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        assert!(!has_lost(&ended), "{ended}");
        let decoded = limited(self.lab.ferroce().args(["decode", "--verify"]).arg(&self.capture));
        assert!(decoded.out.contains("no violation"), "{}", tail(&decoded.out));
    }
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(4000);
    let at = text.char_indices().map(|(at, _)| at).find(|at| *at >= start);
    &text[at.unwrap_or_default()..]
}
