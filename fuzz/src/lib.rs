//! Fuzz targets, as plain functions of bytes: libFuzzer feeds them, and so does an ordinary test
//! that replays the corpus.
//!
//! Each panics if what it checks does not hold. What they have in common: an input is read byte by
//! byte (`input`), so that small changes of it are small changes of what happens, and every run
//! of the same input is the same.

#![forbid(unsafe_code)]

mod checksum;
mod choices;
mod cm;
mod frame;
mod input;
mod ledger;
mod pair;
mod pcap;
mod responder;

pub use cm::cm;
pub use frame::frame;
pub use pair::pair;
pub use pcap::pcap;
pub use responder::responder;

/// Runs `target` on every file named on the command line.
///
/// # Panics
///
/// If a file cannot be read, or `target` fails.
pub fn replay(target: fn(&[u8])) {
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(&path);
        let data = data.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        println!("{}: {} bytes", path.display(), data.len());
        target(&data);
    }
}

/// The body of a target's binary: libFuzzer's entry point, or a `main` that replays files.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::$name(data));

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::replay($crate::$name);
        }
    };
}
