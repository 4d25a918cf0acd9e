//! Peers that depart from the standard in a way that has to be declared: nothing in what they send
//! says so beforehand.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// What a peer does in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// `rxe-flush=ADDR`: it computes the ICRC of FLUSH as Linux rxe does
    /// ([`ferroce_stack::icrc::rxe_flush`]), and takes no other.
    RxeFlush(IpAddr),
}

/// The name of the only one.
const RXE_FLUSH: &str = "rxe-flush";

impl FromStr for Quirk {
    type Err = &'static str;

    /// The error is what would be right.
    fn from_str(text: &str) -> Result<Quirk, &'static str> {
        let peer = text.trim().split_once('=').filter(|(name, _)| *name == RXE_FLUSH);
        let address = peer.and_then(|(_, address)| address.parse::<IpAddr>().ok());
        address
            .map(|address| Quirk::RxeFlush(address.to_canonical()))
            .ok_or("rxe-flush= and the address of a peer, with commas between them")
    }
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quirk::RxeFlush(address) = self;
        write!(f, "{RXE_FLUSH}={address}")
    }
}
