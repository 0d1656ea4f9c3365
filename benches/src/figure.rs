//! Many samples as one figure.
//!
//! Percentiles are by the nearest rank: each is a value that was measured. With fewer than 100 samples the 99th is the
//! greatest, and `n` says so.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MiB")]
    Mebibytes,
    /// Of one core.
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "")]
    Count,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Milliseconds => " ms",
            Self::Mebibytes => " MiB",
            Self::Percent => " %",
            Self::Count => "",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub unit: Unit,
    /// How many samples.
    pub n: usize,
    pub p50: f64,
    pub p99: f64,
    pub min: f64,
    pub max: f64,
}

impl Figure {
    /// `None`: nothing was measured.
    pub fn of(unit: Unit, samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().map(rounded).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { unit, n: sorted.len(), p50: percentile(&sorted, 50), p99: percentile(&sorted, 99), min, max })
    }

    /// What is measured once.
    pub fn one(unit: Unit, value: f64) -> Self {
        let value = rounded(value);
        Self { unit, n: 1, p50: value, p99: value, min: value, max: value }
    }
}

/// Three digits behind the point are more than any of these clocks can tell.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The smallest value that at least `percent` of them do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

/// As a person reads it: three digits that count.
pub fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let figure = Figure::of(Unit::Milliseconds, &samples).expect("there are samples");
        assert_eq!((figure.n, figure.min, figure.max), (200, 1.0, 200.0));
        assert_eq!((figure.p50, figure.p99), (100.0, 198.0));
    }

    #[test]
    fn of_few_samples_the_99th_percentile_is_the_greatest() {
        let figure = Figure::of(Unit::Milliseconds, &[3.0, 1.0, 2.0]).expect("there are samples");
        assert_eq!((figure.p50, figure.p99), (2.0, 3.0));
        let one = Figure::of(Unit::Percent, &[0.12349]).expect("there is one");
        assert_eq!(one, Figure::one(Unit::Percent, 0.123));
        assert_eq!(Figure::of(Unit::Count, &[]), None);
    }

    #[test]
    fn a_person_reads_three_digits() {
        let all: Vec<String> = [0.0, 0.1234, 3.456, 25.44, 4321.9].into_iter().map(shown).collect();
        assert_eq!(all, ["0", "0.12", "3.46", "25.4", "4322"]);
    }
}
