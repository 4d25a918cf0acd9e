//! One device, and a peer and an application the input makes up: packets with right ICRCs and
//! any content for QPs of every service, between verbs of every kind.
//!
//! Whatever they do: no panic; memory changes only where somebody may write; every completion
//! belongs to a work request and comes once; every frame sent is right; nothing grows without
//! bound, and all comes to an end.

mod calls;
mod packets;
mod plots;
mod rig;

use crate::input::Input;
use rig::Rig;

/// Steps an input may take; a longer one is cut.
const STEPS_MAX: usize = 400;

/// Runs the input.
///
/// # Panics
///
/// If the device does what it must not.
pub fn responder(data: &[u8]) {
    let mut input = Input::new(data);
    let mut rig = Rig::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        step(&mut rig, &mut input);
        rig.check();
    }
    rig.finish();
}

fn step(rig: &mut Rig, input: &mut Input) {
    match input.below(32) {
        0..=11 => packets::send(rig, input),
        12 | 13 => packets::send_again(rig, input),
        14..=16 => calls::post_recv(rig, input),
        17..=20 => calls::post_send(rig, input),
        21..=23 => {
            let count = usize::from(input.byte());
            rig.transmit(count);
        }
        24 => rig.poll_cqs(),
        25 => {
            let shift = input.below(24);
            rig.advance(1 << shift);
        }
        26 | 27 => calls::change_qp(rig, input),
        28 => calls::change_region(rig, input),
        29 => calls::change_window(rig, input),
        _ => calls::change_object(rig, input),
    }
}
