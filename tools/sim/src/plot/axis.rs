//! An axis: from numbers to places, and the numbers that are written beside it.

/// How numbers are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are. What is not above 0 has no place.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How.
    pub scale: Scale,
    /// It goes at least up to here.
    pub reach: f64,
    /// Texts in place of the numbers 0, 1, …: what it shows has no numbers.
    pub names: Vec<String>,
}

impl Axis {
    /// An axis of numbers.
    pub fn new(label: &str, scale: Scale) -> Axis {
        Axis { label: label.to_owned(), scale, reach: 0.0, names: Vec::new() }
    }
}

/// An axis with its ends and the numbers beside it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    /// Numbers and their texts.
    pub ticks: Vec<(f64, String)>,
}

impl Ruler {
    /// For `values`; about `wanted` ticks. A linear one begins at 0 if nothing is below, or else if
    /// the values take the larger part of it.
    pub fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        wanted: f64,
        from_zero: bool,
    ) -> Ruler {
        let is_log = axis.scale == Scale::Log;
        let values = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if !axis.names.is_empty() {
            let ticks = axis.names.iter().enumerate();
            return Ruler {
                scale: Scale::Linear,
                low: -0.5,
                high: axis.names.len() as f64 - 0.5,
                ticks: ticks.map(|(place, name)| (place as f64, name.clone())).collect(),
            };
        }
        match (low <= high, is_log) {
            (false, true) => Ruler::log(1.0, 10.0, wanted),
            (false, false) => Ruler::linear(0.0, 1.0, wanted),
            (true, true) => Ruler::log(low, high, wanted),
            (true, false) if !from_zero && high > low && low > high - low => {
                Ruler::linear(low, high, wanted)
            }
            (true, false) => Ruler::linear(low.min(0.0), high, wanted),
        }
    }

    fn linear(low: f64, high: f64, wanted: f64) -> Ruler {
        let high = if high > low { high } else { low + 1.0 };
        let rough = (high - low) / wanted;
        let power = 10_f64.powi(rough.log10().floor() as i32);
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let (first, last) = ((low / step).floor() as i64, (high / step - 1e-9).ceil() as i64);
        let ticks = (first..=last).map(|tick| tick as f64 * step);
        Ruler {
            scale: Scale::Linear,
            low: first as f64 * step,
            high: last as f64 * step,
            ticks: ticks.map(|tick| (tick, thousands(&format!("{tick:.decimals$}")))).collect(),
        }
    }

    /// From the last of 1, 2, 5, 10, 20, … that is not above to the first that is not below; if
    /// these are too few, the numbers of a linear one.
    fn log(low: f64, high: f64, wanted: f64) -> Ruler {
        if low < high && high < 5.0 * low {
            let even = Ruler::linear(low, high, wanted);
            if even.low > 0.0 {
                return Ruler { scale: Scale::Log, ..even };
            }
        }
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let all = (first - 1..=last + 1)
            .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| (digit, digit * 10_f64.powi(power))));
        let below = all.clone().rev().find(|tick| tick.1 <= low * (1.0 + 1e-9));
        let low = below.map_or(low, |tick| tick.1);
        let above = |tick: &(f64, f64)| tick.1 >= high * (1.0 - 1e-9) && tick.1 > low;
        let high = all.clone().find(above).map_or(high, |tick| tick.1);
        let is_wide = high / low > 1_000.0;
        let ticks = all.filter(|tick| (low..=high).contains(&tick.1));
        let ticks = ticks.filter(|tick| !is_wide || tick.0 == 1.0);
        Ruler {
            scale: Scale::Log,
            low,
            high,
            ticks: ticks.map(|(_, tick)| (tick, power_text(tick))).collect(),
        }
    }

    /// Where a number is: 0 at the lower end, 1 at the upper one.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => {
                let value = value.max(self.low);
                (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
            }
        }
    }

    /// Whether a number is on it.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// "1 200 000": thin spaces between groups of three digits, from five digits on.
fn thousands(text: &str) -> String {
    let digits = text.trim_start_matches('-');
    let whole = digits.find('.').unwrap_or(digits.len());
    if whole < 5 {
        return text.to_owned();
    }
    let mut grouped = text[..text.len() - digits.len()].to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number of one digit and zeros.
fn power_text(value: f64) -> String {
    match value {
        value if value >= 1e15 => format!("{value:e}"),
        value if value >= 1.0 => thousands(&format!("{value:.0}")),
        value => {
            let decimals = (-value.log10() - 1e-9).ceil().clamp(0.0, 12.0) as usize;
            format!("{value:.decimals$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, low: f64, high: f64) -> Vec<String> {
        let ruler = Ruler::new(&Axis::new("", scale), [low, high].into_iter(), 5.0, true);
        ruler.ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_around_the_values() {
        assert_eq!(texts(Scale::Linear, 3.0, 97.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(texts(Scale::Linear, 0.0, 0.3), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(texts(Scale::Linear, 0.0, 40_000.0)[4], "40\u{2009}000");
        assert_eq!(texts(Scale::Log, 2.0, 40_000.0), ["10", "100", "1000", "10\u{2009}000"]);
        assert_eq!(texts(Scale::Log, 1.0, 14.0), ["1", "2", "5", "10", "20"]);
        assert_eq!(texts(Scale::Log, 0.0001, 0.0005), ["0.0001", "0.0002", "0.0005"]);
    }

    #[test]
    fn a_logarithmic_axis_of_close_values_has_more_than_two_numbers() {
        assert_eq!(texts(Scale::Log, 5_400.0, 9_900.0)[0], "5000");
        assert!(texts(Scale::Log, 5_400.0, 9_900.0).len() >= 5);
        assert!(texts(Scale::Log, 4_310.0, 4_390.0).len() >= 5);
    }

    #[test]
    fn time_that_begins_late_does_not_leave_the_most_of_its_axis_empty() {
        let first = |low, high, from_zero| {
            let axis = Axis::new("", Scale::Linear);
            Ruler::new(&axis, [low, high].into_iter(), 5.0, from_zero).low
        };
        assert_eq!(first(20.0, 25.0, false), 20.0);
        assert_eq!(first(20.0, 25.0, true), 0.0);
        assert_eq!(first(2.0, 25.0, false), 0.0);
    }

    #[test]
    fn no_value_makes_an_axis_that_cannot_be_drawn() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [vec![], vec![0.0], vec![5.0], vec![f64::NAN], vec![1e-300, 1e300]] {
                let axis = Axis::new("", scale);
                let ruler = Ruler::new(&axis, values.iter().copied(), 5.0, true);
                assert!(ruler.low < ruler.high, "{scale:?} {values:?}");
                assert!(ruler.ticks.len() >= 2 && ruler.ticks.len() < 1000);
                assert!(ruler.place(5.0).is_finite());
            }
        }
    }
}
