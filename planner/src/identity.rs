//! Whether a DPU sits in the server that its `spec.hardwareRef` names.
//!
//! A wrong reference shows one machine's disks to another machine's host, and powers a server that has nothing to do with
//! it. So the serial number that the Hardware's BMC reports is compared with what is expected: an administrator's word
//! (`hardwareRef.serialNumber`), or else what the DPU itself knows of its server (`status.hostSerialNumber`). Where both
//! are given they must agree. Where neither is, there is nothing to compare.

use crate::host::HostObserved;
use api::Dpu;

/// What the comparison came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Nobody says which serial number to expect.
    NotAsked,
    /// The BMC reports what is expected.
    Matches,
    /// The BMC has not been read yet.
    Unread,
    /// The BMC reports no serial number; nobody but the agent says which one to expect.
    NotReported,
    /// Why it is another server, in words; or why an administrator's word cannot be checked.
    Differs(String),
}

/// The serial number that the host's BMC has to report.
pub fn expected(dpu: &Dpu) -> Option<&str> {
    by_administrator(dpu).or(by_agent(dpu))
}

fn by_administrator(dpu: &Dpu) -> Option<&str> {
    given(dpu.spec.hardware_ref.as_ref()?.serial_number.as_deref())
}

fn by_agent(dpu: &Dpu) -> Option<&str> {
    given(dpu.status.as_ref()?.host_serial_number.as_deref())
}

/// BMCs pad, and some say nothing in so many blanks.
fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// `read`: what the BMC reported of the server last; `None`: it has not been read.
pub fn check(dpu: &Dpu, read: Option<&HostObserved>) -> Identity {
    let (administrator, agent) = (by_administrator(dpu), by_agent(dpu));
    if let (Some(wanted), Some(agent)) = (administrator, agent)
        && !same(wanted, agent)
    {
        return Identity::Differs(format!("serial number '{wanted}' is expected, its agent reports '{agent}'"));
    }
    let Some(wanted) = administrator.or(agent) else { return Identity::NotAsked };
    let Some(read) = read else { return Identity::Unread };
    match given(read.serial_number.as_deref()) {
        Some(serial) if same(serial, wanted) => Identity::Matches,
        Some(serial) => Identity::Differs(format!("serial number '{wanted}' is expected, the BMC reports '{serial}'")),
        None if administrator.is_some() => {
            Identity::Differs(format!("serial number '{wanted}' is expected, the BMC reports none to compare it with"))
        }
        None => Identity::NotReported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::PowerState;
    use api::dpu::{DpuSpec, DpuStatus, HardwareReference};

    fn dpu(administrator: Option<&str>, agent: Option<&str>) -> Dpu {
        let reference = HardwareReference { name: "rack1-u07".into(), serial_number: administrator.map(str::to_owned) };
        let mut dpu = Dpu::new("dpu-1", DpuSpec { hardware_ref: Some(reference), ..DpuSpec::default() });
        dpu.status = Some(DpuStatus { host_serial_number: agent.map(str::to_owned), ..DpuStatus::default() });
        dpu
    }

    fn read(serial: Option<&str>) -> HostObserved {
        HostObserved { serial_number: serial.map(str::to_owned), ..HostObserved::with_power(PowerState::Off) }
    }

    fn differs(identity: &Identity) -> bool {
        matches!(identity, Identity::Differs(_))
    }

    #[test]
    fn nothing_is_compared_where_nothing_is_expected() {
        assert_eq!(check(&dpu(None, None), Some(&read(Some("A1")))), Identity::NotAsked);
        assert_eq!(check(&dpu(Some("  "), Some("")), Some(&read(Some("A1")))), Identity::NotAsked);
    }

    #[test]
    fn the_administrators_word_comes_first_and_the_agents_counts_alone() {
        assert_eq!(check(&dpu(Some("A1"), None), Some(&read(Some(" a1 ")))), Identity::Matches);
        assert_eq!(check(&dpu(None, Some("A1")), Some(&read(Some("A1")))), Identity::Matches);
        assert!(differs(&check(&dpu(Some("A1"), None), Some(&read(Some("B2"))))));
        assert!(differs(&check(&dpu(None, Some("A1")), Some(&read(Some("B2"))))));
        assert_eq!(expected(&dpu(Some("A1"), Some("A1"))), Some("A1"));
    }

    #[test]
    fn two_words_that_disagree_need_no_bmc() {
        assert!(differs(&check(&dpu(Some("A1"), Some("B2")), None)));
        assert!(differs(&check(&dpu(Some("A1"), Some("B2")), Some(&read(Some("A1"))))));
    }

    #[test]
    fn what_cannot_be_compared_is_no_match() {
        assert_eq!(check(&dpu(Some("A1"), None), None), Identity::Unread);
        assert!(differs(&check(&dpu(Some("A1"), None), Some(&read(None)))), "an administrator asked for it");
        assert_eq!(check(&dpu(None, Some("A1")), Some(&read(Some("   ")))), Identity::NotReported);
    }
}
