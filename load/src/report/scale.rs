//! Maps values to positions on a plot: linear or logarithmic, with ticks at round numbers.

/// About how many ticks a linear axis has.
const TICKS: f64 = 5.0;

/// An axis over a range of values.
#[derive(Debug, Clone)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// From zero to a round number above all values.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Self { low: 0.0, high: (most / step).ceil() * step, log: false }
    }

    /// Exactly between these values.
    pub fn between(low: f64, high: f64) -> Self {
        Self { low, high: if high > low { high } else { low + 1.0 }, log: false }
    }

    /// Logarithmic, between round numbers around all values above zero.
    pub fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let low = positive.clone().fold(f64::INFINITY, f64::min);
        let high = positive.fold(0.0, f64::max);
        if high <= 0.0 {
            return Self { low: 0.1, high: 10.0, log: true };
        }
        let (low, high) = (round_down(low), round_up(high));
        Self { low, high: if high > low { high } else { low * 10.0 }, log: true }
    }

    /// The position of a value, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values with their names.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        if self.log {
            let decades = (self.high / self.low).log10();
            let parts: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let mut decade = 10f64.powf(self.low.log10().floor());
            while decade <= self.high * 1.001 {
                ticks.extend(parts.iter().map(|part| decade * part));
                decade *= 10.0;
            }
        } else {
            let step = step(self.high - self.low);
            let first = (self.low / step).ceil();
            ticks.extend((0..=20).map(|at| (first + f64::from(at)) * step));
        }
        let inside = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        ticks.into_iter().filter(inside).map(|value| (value, short(value))).collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten.
fn step(range: f64) -> f64 {
    let rough = range / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power >= rough * 0.999).unwrap_or(10.0);
    digit * power
}

fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|digit| digit * power).find(|round| *round <= value * 1.001).unwrap_or(power)
}

fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|round| *round >= value * 0.999).unwrap_or(10.0 * power)
}

/// A short form of a number: `350k`, `1.2M`, `0.05`.
pub fn short(value: f64) -> String {
    let trim = |value: f64, unit: &str| {
        let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
        format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 999_500.0 => trim(value / 1e6, "M"),
        size if size >= 1_000.0 => trim(value / 1e3, "k"),
        size if size >= 1.0 => trim(value, ""),
        size => {
            let digits = (-size.log10().floor()).clamp(1.0, 9.0) as usize;
            let text = format!("{value:.*}", digits + 1);
            text.trim_end_matches('0').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let names = |scale: Scale| scale.ticks().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(Scale::linear([0.0, 347_000.0].into_iter())), ["0", "100k", "200k", "300k", "400k"]);
        assert_eq!(names(Scale::logarithmic([0.3, 7.0].into_iter())), ["0.2", "0.5", "1", "2", "5", "10"]);
        assert_eq!(names(Scale::logarithmic([0.011, 900.0].into_iter())), ["0.01", "0.1", "1", "10", "100", "1k"]);
        assert_eq!(names(Scale::linear(std::iter::empty())).len(), 6);
    }

    #[test]
    fn every_value_has_a_place_on_its_axis() {
        for values in [vec![], vec![0.0], vec![3.0], vec![0.001, 40.0], vec![f64::NAN, 2.0]] {
            for scale in [Scale::linear(values.iter().copied()), Scale::logarithmic(values.iter().copied())] {
                assert!(
                    values.iter().filter(|v| v.is_finite()).all(|v| (0.0..=1.0).contains(&scale.place(*v))),
                    "{scale:?}"
                );
                assert!(scale.ticks().len() >= 2, "{scale:?}");
            }
        }
    }

    #[test]
    fn numbers_are_told_in_few_letters() {
        for (value, name) in
            [(0.0, "0"), (12.0, "12"), (1_500.0, "1.5k"), (288_000.0, "288k"), (1.2e6, "1.2M"), (0.05, "0.05")]
        {
            assert_eq!(short(value), name);
        }
    }
}
