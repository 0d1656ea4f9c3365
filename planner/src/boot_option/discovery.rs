//! What a Hardware has on record of the discovery of its DPU's boot option (`metalplane.io/boot-discovery`): whose, since when, and how it ended.
//!
//! The beginning is written with the claim by which nobody else gets the server meanwhile, in the same compare-and-swap.

use crate::meta::annotation;
use api::labels;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// The UID of the Dpu, by which the server is claimed meanwhile.
    pub dpu: String,
    /// The serial number of its boot controller: another one is looked for anew.
    pub controller: String,
    pub since: Timestamp,
    /// `None`: it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The firmware lists the disk.
    Listed,
    /// It does not, or nobody can tell which one it is.
    NotListed,
    /// The host was on: whatever runs there is left alone.
    HostOn,
    /// It could not be carried out.
    Failed,
}

impl Record {
    pub fn of(hardware: &ObjectMeta) -> Option<Self> {
        serde_json::from_str(annotation(hardware, labels::BOOT_DISCOVERY)?).ok()
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The server is claimed to find the boot option of its DPU, whoever does so.
pub fn is_under_way(hardware: &ObjectMeta) -> bool {
    annotation(hardware, labels::BOOT_STRATEGY) == Some(labels::DISCOVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        let hardware = |text: &str| ObjectMeta {
            annotations: Some([(labels::BOOT_DISCOVERY.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let begun = Record {
            dpu: "uid-1".to_owned(),
            controller: "MP0123456789abcdef".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            outcome: None,
            message: String::new(),
        };
        assert!(!begun.text().contains("outcome"), "{}", begun.text());
        let over = Record { outcome: Some(Outcome::NotListed), message: "none".to_owned(), ..begun.clone() };
        for record in [begun, over] {
            assert_eq!(Record::of(&hardware(&record.text())), Some(record));
        }
        assert_eq!(Record::of(&hardware("Listed")), None);
        assert_eq!(Record::of(&ObjectMeta::default()), None);
    }
}
