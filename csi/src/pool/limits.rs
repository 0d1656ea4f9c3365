//! What a VolumeAttributesClass may say of a volume: bounds on its I/O, in SPDK's own words and units
//! (`bdev_set_qos_limit`). They stand in the volume's record and in what a node is told when the volume is published to it;
//! whoever presents the volume keeps them. Pure.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The parameters, and the step that SPDK counts each in.
const KNOWN: [(&str, u64); 4] = [("iops", 1000), ("bandwidthMiBps", 1), ("readMiBps", 1), ("writeMiBps", 1)];

/// A limit that is not there is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limits(BTreeMap<String, u64>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("mutable parameter {key} is unknown; this driver knows: {}", known())]
    Unknown { key: String },
    #[error("mutable parameter {key} is {value}: write a whole number, 0 for no limit")]
    NoNumber { key: String, value: String },
    #[error("mutable parameter {key} is {value}: write a multiple of {step}, 0 for no limit")]
    Step { key: String, value: u64, step: u64 },
}

fn known() -> String {
    KNOWN.map(|(key, _)| key).join(", ")
}

impl Limits {
    /// All of it is understood, or it is an error. A limit of 0 is kept: it takes one away.
    pub fn parse<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Limits, LimitError> {
        let limit = |(key, value): (&str, &str)| {
            let key = key.to_owned();
            let Some((_, step)) = KNOWN.iter().find(|(known, _)| *known == key) else {
                return Err(LimitError::Unknown { key });
            };
            match value.parse::<u64>() {
                Err(_) => Err(LimitError::NoNumber { key, value: value.to_owned() }),
                Ok(value) if value % step != 0 => Err(LimitError::Step { key, value, step: *step }),
                Ok(value) => Ok((key, value)),
            }
        };
        Ok(Limits(parameters.into_iter().map(limit).collect::<Result<_, _>>()?))
    }

    /// With what is named changed, and the rest as it is.
    pub fn with(&self, change: &Limits) -> Limits {
        let mut all = self.0.clone();
        all.extend(change.0.clone());
        all.retain(|_, limit| *limit != 0);
        Limits(all)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(key, limit)| (key.as_str(), *limit))
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitError, Limits};

    fn limits(parameters: &[(&str, &str)]) -> Result<Limits, LimitError> {
        Limits::parse(parameters.iter().copied())
    }

    #[test]
    fn what_is_named_changes_and_the_rest_stays() {
        let before = limits(&[("iops", "5000"), ("readMiBps", "100")]).expect("understood");
        let change = limits(&[("readMiBps", "0"), ("writeMiBps", "7")]).expect("understood");
        let after = before.with(&change);
        assert_eq!(after.iter().collect::<Vec<_>>(), [("iops", 5000), ("writeMiBps", 7)]);
        assert_eq!(after.with(&Limits::default()), after);
        assert_eq!(after.with(&change), after, "again is the same");
        assert!(Limits::default().with(&limits(&[("iops", "0")]).expect("understood")).is_empty());
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        let said = |key: &str, value: &str| limits(&[(key, value)]).expect_err("refused").to_string();
        assert!(said("IOPS", "1000").contains("IOPS is unknown") && said("IOPS", "1").contains("bandwidthMiBps"));
        for value in ["", "-1", "1.5", "fast", "1k", "18446744073709551616"] {
            assert!(said("iops", value).contains("whole number"), "{value}");
        }
        assert!(said("iops", "1500").contains("multiple of 1000"));
    }
}
