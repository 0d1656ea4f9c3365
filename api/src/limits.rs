//! How much a disk may do: the parameters of a VolumeAttributesClass of `csi.metalplane.io`, `spec.qos` of a DiskAttachment, and
//! what is said to be enforced. Units and steps are those of SPDK's `bdev_set_qos_limit`.
//!
//! A class is the whole of it: what it does not name is not limited.

use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

/// SPDK counts operations in thousands.
const IOPS_STEP: u64 = 1000;
/// More than any disk does, and less than any emulation's numbers hold.
const MOST: u64 = 100_000_000;

/// Bounds on a disk's I/O. One that is left out does not bound it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default, Hash, KubeSchema)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.iops) || self.iops % 1000 == 0").message("iops must be a multiple of 1000")
)]
pub struct Limits {
    /// Operations in a second, reading and writing together; a multiple of 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000, max = 100_000_000))]
    pub iops: Option<u64>,
    /// MiB in a second, reading and writing together.
    #[serde(rename = "bandwidthMiBps", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000_000))]
    pub bandwidth_mib: Option<u64>,
    /// MiB read in a second.
    #[serde(rename = "readMiBps", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000_000))]
    pub read_mib: Option<u64>,
    /// MiB written in a second.
    #[serde(rename = "writeMiBps", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000_000))]
    pub write_mib: Option<u64>,
}

/// Why parameters are not limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("mutable parameter {key} is unknown; this driver knows: iops, bandwidthMiBps, readMiBps, writeMiBps")]
    Unknown { key: String },
    #[error("mutable parameter {key} is {value}: write a whole number up to {MOST}, 0 for no limit")]
    NoNumber { key: String, value: String },
    #[error("mutable parameter {key} is {value}: write a multiple of {step}, 0 for no limit")]
    Step { key: String, value: u64, step: u64 },
}

impl Limits {
    /// What the parameters of a class say. All of it is understood, or it is an error.
    pub fn parse<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, LimitError> {
        let mut limits = Self::default();
        for (key, value) in parameters {
            let (limit, step) = match key {
                "iops" => (&mut limits.iops, IOPS_STEP),
                "bandwidthMiBps" => (&mut limits.bandwidth_mib, 1),
                "readMiBps" => (&mut limits.read_mib, 1),
                "writeMiBps" => (&mut limits.write_mib, 1),
                _ => return Err(LimitError::Unknown { key: key.to_owned() }),
            };
            let number = value.parse::<u64>().ok().filter(|number| *number <= MOST);
            let number = number.ok_or_else(|| LimitError::NoNumber { key: key.to_owned(), value: value.to_owned() })?;
            if number % step != 0 {
                return Err(LimitError::Step { key: key.to_owned(), value: number, step });
            }
            *limit = (number > 0).then_some(number);
        }
        Ok(limits)
    }

    /// Both are kept.
    pub fn and(self, other: Self) -> Self {
        let smaller = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self {
            iops: smaller(self.iops, other.iops),
            bandwidth_mib: smaller(self.bandwidth_mib, other.bandwidth_mib),
            read_mib: smaller(self.read_mib, other.read_mib),
            write_mib: smaller(self.write_mib, other.write_mib),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each limit by its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("iops", self.iops),
            ("bandwidthMiBps", self.bandwidth_mib),
            ("readMiBps", self.read_mib),
            ("writeMiBps", self.write_mib),
        ];
        all.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return formatter.write_str("no limits");
        }
        let all: Vec<_> = self.iter().map(|(name, limit)| format!("{name} {limit}")).collect();
        formatter.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitError, Limits};

    fn limits(parameters: &[(&str, &str)]) -> Result<Limits, LimitError> {
        Limits::parse(parameters.iter().copied())
    }

    #[test]
    fn a_class_is_understood_and_written_in_the_same_words() {
        let gold = limits(&[("iops", "20000"), ("readMiBps", "100"), ("writeMiBps", "0")]).expect("understood");
        assert_eq!(gold, Limits { iops: Some(20_000), read_mib: Some(100), ..Limits::default() });
        assert_eq!(gold.iter().collect::<Vec<_>>(), [("iops", 20_000), ("readMiBps", 100)]);
        assert_eq!(gold.to_string(), "iops 20000, readMiBps 100");
        let written = serde_json::to_value(gold).expect("written");
        assert_eq!(written, serde_json::json!({"iops": 20_000, "readMiBps": 100}));
        assert_eq!(serde_json::from_value::<Limits>(written).expect("read"), gold);
        assert!(limits(&[("iops", "0")]).expect("understood").is_empty());
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        let said = |key: &str, value: &str| limits(&[(key, value)]).expect_err("refused").to_string();
        assert!(said("IOPS", "1000").contains("IOPS is unknown") && said("IOPS", "1").contains("bandwidthMiBps"));
        for value in ["", "-1", "1.5", "fast", "1k", "18446744073709551616", "100001000"] {
            assert!(said("iops", value).contains("whole number up to 100000000"), "{value}");
        }
        assert!(said("iops", "1500").contains("multiple of 1000"));
    }

    #[test]
    fn of_two_bounds_the_smaller_counts() {
        let dpu = Limits { iops: Some(10_000), bandwidth_mib: Some(500), ..Limits::default() };
        let class = Limits { iops: Some(20_000), bandwidth_mib: Some(100), read_mib: Some(50), write_mib: None };
        let both = Limits { iops: Some(10_000), bandwidth_mib: Some(100), read_mib: Some(50), write_mib: None };
        assert_eq!((dpu.and(class), class.and(dpu)), (both, both));
        assert_eq!(class.and(Limits::default()), class);
    }
}
