//! How frames travel: the in-memory link ([`wire`]), what goes wrong on it ([`fault`], where frames
//! pass by `striker`), and the record of it all ([`pcap`]; several processes share one by `tap`).

pub mod fault;
pub mod pcap;
pub mod rule;
pub mod striker;
pub(crate) mod tap;
pub mod wire;
