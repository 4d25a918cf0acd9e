//! Where things stand on the way down.

use std::time::Duration;

use crate::Axis;
use crate::label::short_time;
use crate::scene::Arrow;

/// From one packet sent to the next.
pub(crate) const ROW: i64 = 28;
/// From what was before to an arrival.
const ARRIVAL: i64 = 14;
/// Height of a silence that is cut out.
const GAP: i64 = 56;
/// Longer steps of the time axis are cut out.
const STEP_MAX: i64 = 6 * ROW;

/// A point in time on the way down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spot {
    pub y: i64,
    /// What the picture would be shorter without it.
    pub room: i64,
}

/// A silence cut out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// Its middle.
    pub y: i64,
    pub silence: Duration,
}

/// All of a picture's places.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Of each arrow its beginning.
    pub sent: Vec<Spot>,
    /// Of each arrow its end, if that is later.
    pub arrived: Vec<Option<Spot>>,
    pub gaps: Vec<Gap>,
    /// Below all.
    pub end: i64,
    /// What a step of the time axis means, in words.
    pub scale: Option<String>,
}

/// Something happens.
struct Moment {
    at: Duration,
    arrow: usize,
    arrives: bool,
}

/// Places arrows below `top`. `extra` is what each needs below itself beyond [`ROW`].
pub(crate) fn place(arrows: &[Arrow], extra: &[i64], axis: Axis, top: i64) -> Places {
    let moments = moments(arrows);
    let row_ns = match axis {
        Axis::Order => None,
        Axis::Time => row_ns(&moments),
    };
    let mut places = Places {
        sent: vec![Spot::default(); arrows.len()],
        arrived: vec![None; arrows.len()],
        scale: row_ns.map(|ns| {
            let row = short_time(Duration::from_nanos(ns));
            format!("time axis: one step is {row}, closer packets are drawn apart")
        }),
        ..Places::default()
    };
    let (mut y, mut before, mut below) = (top, None, 0);
    for moment in &moments {
        let own = if moment.arrives { ARRIVAL } else { ROW };
        let least = own + below;
        let silence = moment.at.saturating_sub(before.unwrap_or(moment.at));
        let step = row_ns.map_or(0, |row_ns| steps(silence, row_ns));
        let step = if step > STEP_MAX {
            places.gaps.push(Gap { y: y + below + (GAP + ROW - 14) / 2, silence });
            GAP + below + ROW
        } else {
            step.max(least)
        };
        y += step;
        below = if moment.arrives { 0 } else { extra[moment.arrow] };
        let spot = Spot { y, room: own + below };
        match moment.arrives {
            true => places.arrived[moment.arrow] = Some(spot),
            false => places.sent[moment.arrow] = spot,
        }
        before = Some(moment.at);
    }
    places.end = y + below + ROW;
    places
}

/// All beginnings and ends in the order of time. Beginnings keep theirs, even if a clock went back;
/// an arrival comes before what is sent at that time.
fn moments(arrows: &[Arrow]) -> Vec<Moment> {
    let mut latest = Duration::ZERO;
    let mut moments = Vec::new();
    for (arrow, one) in arrows.iter().enumerate() {
        latest = latest.max(one.at);
        moments.push(Moment { at: latest, arrow, arrives: false });
        if let Some(at) = one.arrives.filter(|&at| at > latest) {
            moments.push(Moment { at, arrow, arrives: true });
        }
    }
    moments.sort_by_key(|moment| (moment.at, !moment.arrives));
    moments
}

/// Nanoseconds a row of the time axis stands for: the usual time from one moment to the next.
fn row_ns(moments: &[Moment]) -> Option<u64> {
    let mut steps: Vec<Duration> = moments
        .windows(2)
        .map(|two| two[1].at.saturating_sub(two[0].at))
        .filter(|step| !step.is_zero())
        .collect();
    steps.sort_unstable();
    let usual = steps.get(steps.len() / 2)?;
    u64::try_from(usual.as_nanos()).ok()
}

/// The height of a time; one that is too long is anything above [`STEP_MAX`].
fn steps(time: Duration, row_ns: u64) -> i64 {
    let height = time.as_nanos().saturating_mul(ROW as u128) / u128::from(row_ns.max(1));
    i64::try_from(height).unwrap_or(i64::MAX).min(STEP_MAX + 1)
}
