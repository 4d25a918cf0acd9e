//! Distributions of flow sizes.
//!
//! A distribution is a list of sizes with the share of flows that are not larger; between two of
//! them it is linear, as in the public traffic generators that go by the same names.

use ferroce::rand::Rng;

/// "web-search": flows of a cluster that serves web search, measured in M. Alizadeh et al., "Data
/// Center TCP (DCTCP)", SIGCOMM 2010; the points that traffic generators use since.
const WEB_SEARCH: &[(u64, f64)] = &[
    (0, 0.0),
    (10_000, 0.15),
    (20_000, 0.2),
    (30_000, 0.3),
    (50_000, 0.4),
    (80_000, 0.53),
    (200_000, 0.6),
    (1_000_000, 0.7),
    (2_000_000, 0.8),
    (5_000_000, 0.9),
    (10_000_000, 0.97),
    (30_000_000, 1.0),
];

/// "data-mining": flows of a cluster for data mining, measured in A. Greenberg et al., "VL2: A
/// Scalable and Flexible Data Center Network", SIGCOMM 2009; points as above.
const DATA_MINING: &[(u64, f64)] = &[
    (0, 0.0),
    (180, 0.1),
    (216, 0.2),
    (560, 0.3),
    (900, 0.4),
    (1_100, 0.5),
    (1_870, 0.6),
    (3_160, 0.7),
    (10_000, 0.8),
    (400_000, 0.9),
    (3_160_000, 0.95),
    (100_000_000, 0.98),
    (1_000_000_000, 1.0),
];

/// The names of the distributions that are built in.
pub const NAMES: [&str; 2] = ["web-search", "data-mining"];

/// A distribution of flow sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// A size in bytes and the share of flows that are not larger; ascending, up to a share of 1.
    points: Vec<(u64, f64)>,
}

impl Sizes {
    /// One of [`NAMES`].
    pub fn named(name: &str) -> Option<Sizes> {
        let points = match name {
            "web-search" => WEB_SEARCH,
            "data-mining" => DATA_MINING,
            _ => return None,
        };
        Some(Sizes { points: points.to_vec() })
    }

    /// All flows have this size.
    pub fn fixed(size: u64) -> Sizes {
        Sizes { points: vec![(size, 1.0)] }
    }

    /// Lines of `SIZE,SHARE`; the share may be one of 1 or of 100. A line that begins with `#` or
    /// a letter is a comment or title.
    ///
    /// # Errors
    /// Says in which line something else stands.
    pub fn from_csv(text: &str) -> Result<Sizes, String> {
        let mut points = Vec::<(u64, f64)>::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(|c: char| c == '#' || c.is_alphabetic()) {
                continue;
            }
            let wrong = || format!("line {}, '{line}': expected SIZE,SHARE", index + 1);
            let (size, share) = line.split_once(',').ok_or_else(wrong)?;
            let size = size.trim().parse().map_err(|_| wrong())?;
            let share: f64 = share.trim().parse().map_err(|_| wrong())?;
            if size > ferroce_stack::MAX_MESSAGE || !(0.0..=100.0).contains(&share) {
                return Err(wrong());
            }
            if points.last().is_some_and(|last| last.0 > size || last.1 > share) {
                return Err(format!("line {}, '{line}': expected rising numbers", index + 1));
            }
            points.push((size, share));
        }
        match points.last() {
            Some((_, 100.0)) => points.iter_mut().for_each(|point| point.1 /= 100.0),
            Some((_, 1.0)) => {}
            _ => return Err("expected a last line with a share of 1, or 100".to_owned()),
        }
        Ok(Sizes { points })
    }

    /// A size by chance, at least 1 byte.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let share = uniform(rng);
        let after = self.points.partition_point(|point| point.1 < share);
        let Some(&(size, top)) = self.points.get(after) else { return 1 };
        let Some(&(low, bottom)) = after.checked_sub(1).map(|before| &self.points[before]) else {
            return size.max(1);
        };
        let part = (share - bottom) / (top - bottom);
        (low + ((size - low) as f64 * part) as u64).max(1)
    }

    /// The mean, in bytes.
    pub fn mean(&self) -> f64 {
        let mut mean = self.points.first().map_or(0.0, |(size, share)| *size as f64 * share);
        for pair in self.points.windows(2) {
            let middle = (pair[0].0 as f64 + pair[1].0 as f64) / 2.0;
            mean += middle * (pair[1].1 - pair[0].1);
        }
        mean
    }
}

/// A number from 0 to 1, without 1.
pub(super) fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number of the exponential distribution of mean 1, by von Neumann's method: it compares
/// uniform numbers and nothing else, so that it is the same on every machine, as logarithms are
/// not.
pub(super) fn exponential(rng: &mut Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = uniform(rng);
        let mut last = first;
        let mut falling = 1;
        loop {
            let next = uniform(rng);
            if next >= last {
                break;
            }
            last = next;
            falling += 1;
        }
        if falling % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled_mean(mut draw: impl FnMut(&mut Rng) -> f64) -> f64 {
        let mut rng = Rng::new(1);
        (0..200_000).map(|_| draw(&mut rng)).sum::<f64>() / 200_000.0
    }

    #[test]
    fn drawn_sizes_have_the_mean_of_the_distribution() {
        for name in NAMES {
            let sizes = Sizes::named(name).unwrap();
            let ratio = sampled_mean(|rng| sizes.draw(rng) as f64) / sizes.mean();
            assert!((0.95..1.05).contains(&ratio), "{name}: {ratio}");
        }
        assert_eq!(Sizes::fixed(7).mean(), 7.0);
        assert_eq!(Sizes::fixed(7).draw(&mut Rng::new(1)), 7);
    }

    #[test]
    fn exponential_numbers_have_mean_and_deviation_1() {
        let mean = sampled_mean(exponential);
        let square = sampled_mean(|rng| exponential(rng).powi(2));
        assert!((0.99..1.01).contains(&mean), "{mean}");
        assert!((1.96..2.04).contains(&square), "{square}");
    }

    #[test]
    fn a_file_may_count_in_percent() {
        let sizes = Sizes::from_csv("size,percent\n# small\n100,50\n200,100\n").unwrap();
        assert_eq!(sizes, Sizes { points: vec![(100, 0.5), (200, 1.0)] });
        assert_eq!(sizes.mean(), 125.0);
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let error = |text| Sizes::from_csv(text).unwrap_err();
        assert_eq!(error("100,0.5\n200"), "line 2, '200': expected SIZE,SHARE");
        assert_eq!(error("100,0.5\n90,1"), "line 2, '90,1': expected rising numbers");
        assert_eq!(error("100,0.5\n"), "expected a last line with a share of 1, or 100");
        assert_eq!(error("-1,1\n"), "line 1, '-1,1': expected SIZE,SHARE");
    }
}
