//! Frames with no transport: what a link itself can do. Written without any of the product's code,
//! and for nothing but speed.

mod bpf;
mod drive;
mod frame;
mod packet;
#[allow(unsafe_code)]
mod sys;
mod udp;
mod xdp;

pub use drive::be;
