//! Connection management: messages of arbitrary bytes, and two hosts between whom the input decides
//! what is lost, repeated, forged, and asked for.

use ferroce_stack::mad::message::{AnyMessage, DATA_LEN};
use ferroce_stack::mad::{IpHeader, ServiceId};
use ferroce_stack::wire::CmMessage;
use ferroce_tests::cm_simulation;

/// Runs the input.
///
/// # Panics
///
/// If a message does not come out as it was read, an owner is told what must not be, or something
/// never ends.
pub fn cm(data: &[u8]) {
    codec(data);
    let mut bytes = data.iter().copied();
    cm_simulation::run(&mut || bytes.next());
}

fn codec(data: &[u8]) {
    let mut padded = [0; DATA_LEN];
    let len = data.len().min(DATA_LEN);
    padded[..len].copy_from_slice(&data[..len]);
    for &kind in CmMessage::ALL {
        let Some(message) = AnyMessage::parse(kind, &padded) else { continue };
        let mut out = [0xa5; DATA_LEN];
        message.emit(&mut out);
        assert_eq!(AnyMessage::parse(kind, &out), Some(message));
        assert!(out[message.private_data_at()..].iter().all(|&byte| byte == 0xa5));
    }
    if let Some(header) = IpHeader::parse(data) {
        let mut out = [0; IpHeader::LEN];
        header.emit(&mut out);
        assert_eq!(IpHeader::parse(&out), Some(header));
    }
    if let Some(&bytes) = data.first_chunk() {
        let service = ServiceId(u64::from_be_bytes(bytes));
        assert_eq!(service.space().is_some(), service.port().is_some());
    }
}
