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

    #[test]
    fn fairness_is_1_for_equal_shares() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }
}
