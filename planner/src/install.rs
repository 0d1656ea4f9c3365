//! What a Hardware has on record about its claim: by which strategy, and which installation was begun.
//!
//! It stands beside the claim, in the same object and under the same compare-and-swap. So no Workflow that was deleted, no status
//! that was lost and no cache that is behind can let a server be installed twice.

use crate::boot_option::discovery;
use api::labels;
use api::machine::BootStrategy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The server may boot the installer, and run this Workflow alone.
    Begun,
    /// It boots from its own disk.
    Done,
}

impl Phase {
    pub fn word(self) -> &'static str {
        match self {
            Self::Begun => "Begun",
            Self::Done => "Done",
        }
    }
}

/// `metalplane.io/install`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Counts the installations of one claim, from 1.
    pub number: u32,
    pub phase: Phase,
    /// The UID of the Workflow.
    pub workflow: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.number, self.phase.word(), self.workflow)
    }
}

impl Record {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let number = parts.next()?.parse().ok()?;
        let word = parts.next()?;
        let phase = [Phase::Begun, Phase::Done].into_iter().find(|phase| phase.word() == word)?;
        let workflow = parts.next().filter(|uid| !uid.is_empty())?.to_owned();
        parts.next().is_none().then_some(Self { number, phase, workflow })
    }

    /// Of a Hardware. One that cannot be read lets nothing begin: see [`is_recorded`].
    pub fn of(hardware: &ObjectMeta) -> Option<Self> {
        Self::parse(annotation(hardware, labels::INSTALL)?)
    }
}

/// Something is on record, whether it can be read or not.
pub fn is_recorded(hardware: &ObjectMeta) -> bool {
    annotation(hardware, labels::INSTALL).is_some()
}

/// How the machine that has claimed this Hardware boots; `None`: nobody has claimed it. A claim of before there were strategies
/// is one of cloud disks, and so is one whose strategy cannot be read: that server never boots from the network.
pub fn strategy(hardware: &ObjectMeta) -> Option<BootStrategy> {
    annotation(hardware, labels::CLAIMED_BY)?;
    Some(match annotation(hardware, labels::BOOT_STRATEGY) {
        Some("Workflow") => BootStrategy::Workflow,
        _ => BootStrategy::CloudDisk,
    })
}

/// Who has claimed this Hardware, in words.
pub fn claimer(hardware: &ObjectMeta) -> Option<String> {
    let uid = annotation(hardware, labels::CLAIMED_BY)?;
    let by = annotation(hardware, labels::CLAIMED_BY_NAME).unwrap_or(uid);
    Some(match discovery::is_under_way(hardware) {
        true => format!("{by}, whose boot option the controller looks for"),
        false => format!("BareMetalMachine '{by}'"),
    })
}

/// The value of `metalplane.io/boot-strategy`; Auto is never claimed.
pub fn word(strategy: BootStrategy) -> &'static str {
    match strategy {
        BootStrategy::Workflow => "Workflow",
        BootStrategy::CloudDisk | BootStrategy::Auto => "CloudDisk",
    }
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        for phase in [Phase::Begun, Phase::Done] {
            let record = Record { number: 3, phase, workflow: "a-b".to_owned() };
            assert_eq!(Record::parse(&record.to_string()), Some(record));
        }
        for text in ["", "1", "1/Begun", "1/Begun/", "x/Begun/a", "1/begun/a", "-1/Done/a", "1/Done/a/b"] {
            assert_eq!(Record::parse(text), None, "{text}");
        }
    }
}
