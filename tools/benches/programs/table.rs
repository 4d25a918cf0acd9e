//! Which figures are compared to which.

use crate::metric::Metric;
use crate::metric::names::{self, sized};
use crate::shared::table::{Row, Sample, Target};
use crate::{RING_SIZES, SIZES};

/// The line of the process that waits.
pub const IDLE: &str = "idle process, CPU time";

/// What is compared to what.
fn comparisons() -> Vec<(String, String, Target)> {
    let mut all = Vec::new();
    for size in RING_SIZES {
        for what in ["RC WRITE, own", "ib_write_bw"] {
            all.push((sized(what, size), sized("two-core ring", size), Target::AtLeast(0.5)));
        }
    }
    for what in [names::WRITE_LAT, names::SEND_LAT] {
        let references = [
            (names::PING_PONG, Target::None),
            (names::UCX_SHM, Target::AtMost(2.0)),
            (names::FI_SHM, Target::AtMost(2.0)),
            (names::FI_TCP, Target::AtMost(0.2)),
        ];
        all.extend(references.map(|(name, target)| (what.into(), name.into(), target)));
    }
    for what in ["ib_write_bw", "ib_send_bw"] {
        let row = |size| (sized(what, size), sized("UCX tag_bw, tcp", size), Target::AtLeast(1.0));
        all.extend(SIZES.map(row));
    }
    all
}

/// The table: of each metric its samples, one a round. Without what is not installed.
pub fn rows(metrics: &[Metric], samples: &[Vec<Sample>], idle: Option<f64>) -> Vec<Row> {
    let find = |name: &str| metrics.iter().position(|metric| metric.name == name);
    let compare = |(name, reference, target): (String, String, Target)| {
        let (at, of) = (find(&name)?, find(&reference)?);
        let (names, unit) = ([&*name, &*reference], metrics[at].unit.name());
        Some(Row::of(names, unit, [&samples[at], &samples[of]], target))
    };
    let idle = idle.map(|idle| Row {
        name: IDLE.into(),
        distance: None,
        value: 100.0 * idle,
        unit: "%",
        reference_name: "one core".into(),
        reference: 100.0,
        ratio: idle,
        ratio_low: idle,
        ratio_high: idle,
        target: Target::AtMost(0.01),
        met: idle <= 0.01,
        disturbed: false,
    });
    comparisons().into_iter().filter_map(compare).flatten().chain(idle).collect()
}
