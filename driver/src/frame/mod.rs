//! How frames travel: the in-memory link ([`wire`]), what goes wrong on it ([`fault`]), and the
//! record of it all ([`pcap`]).

pub mod fault;
pub mod pcap;
pub mod rule;
pub mod wire;
