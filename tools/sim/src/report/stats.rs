//! Figures that describe many numbers.

use serde::Serialize;

/// How numbers are spread; percentiles by nearest rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 95 % are not larger.
    pub p95: f64,
    /// 99 % are not larger.
    pub p99: f64,
    /// 99.9 % are not larger.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of `numbers`, which are finite; `None` if there are none.
    pub fn of(mut numbers: Vec<f64>) -> Option<Spread> {
        numbers.sort_by(f64::total_cmp);
        let (min, max) = (*numbers.first()?, *numbers.last()?);
        let rank = |per_mille: usize| {
            numbers[(numbers.len() * per_mille).div_ceil(1000).clamp(1, numbers.len()) - 1]
        };
        Some(Spread {
            count: numbers.len(),
            mean: numbers.iter().sum::<f64>() / numbers.len() as f64,
            min,
            p50: rank(500),
            p95: rank(950),
            p99: rank(990),
            p999: rank(999),
            max,
        })
    }
}

/// How long things took, some of which may not have ended when the clock stopped.
///
/// What had not ended is known to take longer than it had had by then, and no more: it counts among
/// those that took longer (the estimate of Kaplan and Meier, which is the nearest rank if all have
/// ended). Where so many had not ended that a figure lies among them, it is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How many ended.
    pub count: usize,
    /// How many had not, or failed.
    pub unfinished: usize,
    /// The mean; not known if the longest is one that had not ended. Of the others likewise.
    pub mean: Option<f64>,
    /// The shortest.
    pub min: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// 95 % are not longer.
    pub p95: Option<f64>,
    /// 99 % are not longer.
    pub p99: Option<f64>,
    /// 99.9 % are not longer.
    #[serde(rename = "p99.9")]
    pub p999: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// What each is at least, if one is not known: as if all had ended when the clock stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Spread>,
}

impl Times {
    /// Of times that ended, those that had not and may have, and those that never will; all are
    /// finite. `None` if there are none.
    pub fn of(ended: Vec<f64>, so_far: &[f64], never: &[f64]) -> Option<Times> {
        let count = ended.len();
        let unfinished = so_far.len() + never.len();
        let all = ended.iter().chain(so_far).chain(never).copied().collect();
        let as_if_ended = Spread::of(all)?;
        let steps = survivals(ended, so_far, never.len());
        let total = (count + unfinished) as f64;
        // Shares of weights that are no whole numbers miss by a rounding.
        let rank = |share: f64| {
            let wanted = share * total * (1.0 - 1e-9);
            steps.iter().find(|step| step.1 >= wanted).map(|step| step.0)
        };
        let of = |part: fn(&Spread) -> f64, share: f64| match unfinished {
            0 => Some(part(&as_if_ended)),
            _ => rank(share),
        };
        let mean = rank(1.0).map(|_| {
            let before = [0.0].into_iter().chain(steps.iter().map(|step| step.1));
            steps.iter().zip(before).map(|(step, before)| step.0 * (step.1 - before)).sum::<f64>()
                / total
        });
        let times = Times {
            count,
            unfinished,
            mean: if unfinished == 0 { Some(as_if_ended.mean) } else { mean },
            min: steps.first().map(|step| step.0),
            p50: of(|spread| spread.p50, 0.5),
            p95: of(|spread| spread.p95, 0.95),
            p99: of(|spread| spread.p99, 0.99),
            p999: of(|spread| spread.p999, 0.999),
            max: of(|spread| spread.max, 1.0),
            at_least: None,
        };
        // The longest is known last.
        let at_least = times.max.is_none().then_some(as_if_ended);
        Some(Times { at_least, ..times })
    }
}

/// A figure of [`Times`] by its name.
type Figure = (&'static str, fn(&Times) -> Option<f64>, fn(&Spread) -> f64);

/// Those that metrics are made of.
pub const FIGURES: [Figure; 6] = [
    ("mean", |times| times.mean, |least| least.mean),
    ("p50", |times| times.p50, |least| least.p50),
    ("p95", |times| times.p95, |least| least.p95),
    ("p99", |times| times.p99, |least| least.p99),
    ("p99.9", |times| times.p999, |least| least.p999),
    ("max", |times| times.max, |least| least.max),
];

/// The times that ended, by length, each with how many of all have ended by then: what had not
/// ended hands its part on to all that were longer, in equal shares.
pub fn survivals(mut ended: Vec<f64>, so_far: &[f64], never: usize) -> Vec<(f64, f64)> {
    ended.sort_by(f64::total_cmp);
    let mut so_far = so_far.to_vec();
    so_far.sort_by(f64::total_cmp);
    let mut left = ended.len() + so_far.len() + never;
    let (mut weight, mut over) = (1.0, 0.0);
    let mut so_far = so_far.into_iter().peekable();
    let mut steps = Vec::with_capacity(ended.len());
    for time in ended {
        while so_far.next_if(|shorter| *shorter < time).is_some() {
            weight *= left as f64 / (left - 1) as f64;
            left -= 1;
        }
        left -= 1;
        over += weight;
        steps.push((time, over));
    }
    steps
}

/// Jain's fairness index: 1 if all are equal, 1/n if one has everything; `None` without numbers.
pub fn jain(numbers: &[f64]) -> Option<f64> {
    let sum: f64 = numbers.iter().sum();
    let squares: f64 = numbers.iter().map(|number| number * number).sum();
    (squares > 0.0).then(|| sum * sum / (numbers.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_numbers_that_occur() {
        let spread = Spread::of((1..=1000).rev().map(f64::from).collect()).unwrap();
        assert_eq!((spread.p50, spread.p95, spread.p99, spread.p999), (500.0, 950.0, 990.0, 999.0));
        assert_eq!((spread.min, spread.max, spread.mean), (1.0, 1000.0, 500.5));
        let one = Spread::of(vec![7.0]).unwrap();
        assert_eq!((one.p50, one.p999), (7.0, 7.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    /// Percentiles of times that all ended, and the same of which some had not.
    #[test]
    fn times_that_had_not_ended_are_not_left_out_of_percentiles() {
        let all = Times::of((1..=1000).map(f64::from).collect(), &[], &[]).unwrap();
        assert_eq!((all.p50, all.p99, all.p999), (Some(500.0), Some(990.0), Some(999.0)));
        assert_eq!((all.mean, all.max, all.at_least), (Some(500.5), Some(1000.0), None));

        // Two of eight hung from the beginning: the longest of the rest is no 99th percentile.
        let ended: Vec<f64> = (1..=6).map(f64::from).collect();
        for (so_far, never) in [(&[20.0, 20.0][..], &[][..]), (&[], &[20.0, 20.0])] {
            let cut = Times::of(ended.clone(), so_far, never).unwrap();
            assert_eq!((cut.count, cut.unfinished), (6, 2));
            assert_eq!((cut.min, cut.p50), (Some(1.0), Some(4.0)));
            assert_eq!((cut.p95, cut.p99, cut.max, cut.mean), (None, None, None, None));
            let least = cut.at_least.unwrap();
            assert_eq!((least.p99, least.mean), (20.0, 61.0 / 8.0));
        }
        let none = Times::of(vec![], &[3.0], &[]).unwrap();
        assert_eq!((none.min, none.p50, none.at_least.unwrap().p50), (None, None, 3.0));
        assert_eq!(Times::of(vec![], &[], &[]), None);
    }

    #[test]
    fn what_began_shortly_before_the_end_says_nothing_of_the_tail() {
        let ended: Vec<f64> = (1..=100).map(f64::from).collect();
        let late = Times::of(ended.clone(), &[0.5; 50], &[]).unwrap();
        assert_eq!((late.p50, late.p99, late.max), (Some(50.0), Some(99.0), Some(100.0)));
        assert!((late.mean.unwrap() - 50.5).abs() < 1e-9);
        // One of 50 counts as one of those from 51 on.
        let cut = Times::of(ended, &[50.0], &[]).unwrap();
        assert_eq!((cut.p50, cut.max), (Some(51.0), Some(100.0)));
        // What failed took no time that is known, however early it was.
        assert_eq!(Times::of(vec![5.0, 6.0], &[], &[1.0]).unwrap().max, None);
    }

    #[test]
    fn fairness_is_1_for_equal_shares() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }
}
