//! A DPU's own BMC, which `spec.bmcRef` names: when its reading proves that the DPU is down (docs/design/fencing.md, *PoweredOffIsProof*).
//!
//! The BMC of another DPU would prove what is not so. So a reference counts only once that BMC was read on while this DPU's
//! agent answered (the condition BmcVerified), and where a serial number is given, with that. And a BMC looks at its DPU only
//! now and then itself: what it says counts from a while after the agent was last heard.

use crate::host::{HostObserved, PowerState};
use crate::observed::{BmcProblem, BmcSeen, DpuSeen};
use api::Dpu;
use api::conditions::{self, BMC_VERIFIED, ConditionStatus};
use api::dpu::{BmcReference, VerifiedBmc};
use jiff::SignedDuration;

/// BlueField's BMC asks its DPU every 30 seconds: what it says sooner may be of the time before the agent fell silent.
pub const LAG: SignedDuration = SignedDuration::from_secs(30);

pub(crate) const BMC_NOT_READ: &str = "BmcNotRead";
/// As the reason of a machine is called that has the server.
pub(crate) const PROTOCOL_UNSUPPORTED: &str = "BmcProtocolUnsupported";

const READ_ON: &str = "ReadOn";
const READ_OFF: &str = "ReadOff";
const MISMATCH: &str = "SerialNumberMismatch";
const NOT_NAMED: &str = "NotNamed";

/// Status, reason and message of the condition BmcVerified.
pub type Finding = (ConditionStatus, &'static str, String);

/// What the controller says of a DPU's own BMC.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub finding: Finding,
    /// What a finding of True rests on.
    pub record: Option<VerifiedBmc>,
}

pub fn name(dpu: &Dpu) -> Option<&str> {
    dpu.spec.bmc_ref.as_ref().map(|reference| reference.name.as_str())
}

/// The BMC that was found to be this DPU's own, if the reference still names that one.
fn record(dpu: &Dpu) -> Option<&VerifiedBmc> {
    let (reference, record) = (dpu.spec.bmc_ref.as_ref()?, dpu.status.as_ref()?.verified_bmc.as_ref()?);
    (record.name == reference.name && record.serial_number == reference.serial_number).then_some(record)
}

/// Where nobody looks the finding stands.
pub fn is_verified(dpu: &Dpu, seen: &BmcSeen) -> bool {
    record(dpu).is_some_and(|record| seen.identity.as_ref().is_none_or(|identity| *identity == record.identity))
}

/// Why the reading is not of this DPU.
fn other_serial(reference: &BmcReference, read: &HostObserved) -> Option<String> {
    let wanted = reference.serial_number.as_deref()?.trim();
    let reported = read.serial_number.as_deref().map(str::trim).unwrap_or_default();
    let same = reported.eq_ignore_ascii_case(wanted);
    (!same).then(|| format!("serial number '{wanted}' is expected, BMC '{}' reports '{reported}'", reference.name))
}

/// The condition BmcVerified; `None`: no BMC is named, nor was one before. Once found true it stands until the reference, or what the
/// reference's name stands for, changes.
pub fn verify(dpu: &Dpu, silent: bool, seen: &BmcSeen) -> Option<Verdict> {
    let before = dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, BMC_VERIFIED));
    let without_record = |finding| Verdict { finding, record: None };
    let Some(reference) = &dpu.spec.bmc_ref else {
        let finding = (ConditionStatus::Unknown, NOT_NAMED, "spec.bmcRef is not set".to_owned());
        return before.map(|_| without_record(finding));
    };
    let name = &reference.name;
    let serial = reference.serial_number.as_ref().map(|serial| format!(" '{serial}'")).unwrap_or_default();
    let good = |record| Verdict {
        finding: (
            ConditionStatus::True,
            READ_ON,
            format!("BMC '{name}' reported the DPU{serial} powered on while the agent of the DPU renewed its Lease"),
        ),
        record: Some(record),
    };
    if let Some(record) = record(dpu).filter(|_| is_verified(dpu, seen)) {
        return Some(good(record.clone()));
    }
    let unknown = |message: String| (ConditionStatus::Unknown, BMC_NOT_READ, message);
    let of = |identity: &String| VerifiedBmc {
        name: name.clone(),
        serial_number: reference.serial_number.clone(),
        identity: identity.clone(),
    };
    let finding = match (&seen.problem, seen.host.last(), &seen.identity) {
        // Then it says nothing about whose BMC it is.
        _ if silent => unknown(format!(
            "BMC '{name}' has not reported the DPU powered on while the agent of the DPU renewed its Lease"
        )),
        (Some(problem), ..) => {
            let message = format!("BMC '{name}' cannot be read: {}", problem.message());
            (ConditionStatus::Unknown, unread(problem), message)
        }
        (None, Some(read), Some(identity)) => match (other_serial(reference, read), read.power) {
            (Some(message), _) => (ConditionStatus::False, MISMATCH, message),
            (None, PowerState::On) => return Some(good(of(identity))),
            (None, _) => {
                let message = format!(
                    "BMC '{name}' reports a DPU that is not powered on, while the agent of this DPU renews its Lease"
                );
                (ConditionStatus::False, READ_OFF, message)
            }
        },
        (None, ..) => unknown(format!("the controller is reading BMC '{name}'")),
    };
    Some(without_record(finding))
}

/// The reason of a condition that needs a reading there is none of.
pub(crate) fn unread(problem: &BmcProblem) -> &'static str {
    match problem {
        BmcProblem::NotSpoken { .. } => PROTOCOL_UNSUPPORTED,
        BmcProblem::Missing(_)
        | BmcProblem::Unreachable(_)
        | BmcProblem::Unauthorized(_)
        | BmcProblem::Failed(_)
        | BmcProblem::WrongServer(_) => BMC_NOT_READ,
    }
}

/// Why a reading does not prove that the DPU is powered off.
#[derive(Debug, Clone, PartialEq)]
pub enum NotOff {
    BmcNotNamed,
    /// The Machine of that name is another BMC than the one that was verified.
    BmcChanged {
        bmc: String,
    },
    /// The reason of the condition BmcVerified, if it was said.
    BmcNotVerified {
        bmc: String,
        reason: Option<String>,
    },
    BmcNotReadable(BmcProblem),
    BmcReading {
        bmc: String,
    },
    OtherSerialNumber {
        message: String,
    },
    NotPoweredOff {
        bmc: String,
    },
    /// Read so soon that it may be of the time before the agent fell silent, or not of this moment.
    TooEarly {
        bmc: String,
    },
}

impl NotOff {
    pub fn message(&self) -> String {
        match self {
            Self::BmcNotNamed => "spec.bmcRef is not set".to_owned(),
            Self::BmcChanged { bmc } => {
                format!(
                    "bmc.tinkerbell.org Machine '{bmc}' has changed since the controller verified it as the BMC of the DPU"
                )
            }
            Self::BmcNotVerified { bmc, reason } => {
                let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                format!("BMC '{bmc}' is not verified as the BMC of the DPU (condition BmcVerified{reason})")
            }
            Self::BmcNotReadable(problem) => problem.message(),
            Self::BmcReading { bmc } => format!("the controller is reading BMC '{bmc}'"),
            Self::OtherSerialNumber { message } => message.clone(),
            Self::NotPoweredOff { bmc } => format!("BMC '{bmc}' does not report the DPU powered off"),
            Self::TooEarly { bmc } => format!(
                "BMC '{bmc}' reports the DPU powered off, which counts {} s after the last renewal of the Lease",
                LAG.as_secs()
            ),
        }
    }
}

/// Why this silent DPU is not proven down by a reading of this moment; `None`: it is.
pub fn not_off(dpu: &DpuSeen) -> Option<NotOff> {
    judge(dpu, dpu.bmc.host.fresh())
}

/// It is known to present nothing any more: it went off with its host, its own BMC shows it off, or an administrator says so.
pub fn is_down(dpu: &DpuSeen) -> bool {
    let parked = dpu.dpu.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, conditions::PARKED));
    parked || dpu.is_confirmed_down() || (dpu.silent && not_off(dpu).is_none())
}

/// It was read off since its agent fell silent, be it a while ago: what may be planned on, and not what moves a volume.
pub fn was_off(dpu: &DpuSeen) -> bool {
    dpu.silent && judge(dpu, dpu.bmc.host.last()).is_none()
}

fn judge(dpu: &DpuSeen, read: Option<&HostObserved>) -> Option<NotOff> {
    let Some(reference) = &dpu.dpu.spec.bmc_ref else { return Some(NotOff::BmcNotNamed) };
    let bmc = reference.name.clone();
    if record(&dpu.dpu).is_none() {
        let said = dpu.dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, BMC_VERIFIED));
        return Some(NotOff::BmcNotVerified { bmc, reason: said.map(|said| said.reason.clone()) });
    }
    if !is_verified(&dpu.dpu, &dpu.bmc) {
        return Some(NotOff::BmcChanged { bmc });
    }
    if let Some(problem) = &dpu.bmc.problem {
        return Some(NotOff::BmcNotReadable(problem.clone()));
    }
    let Some(last) = dpu.bmc.host.last() else { return Some(NotOff::BmcReading { bmc }) };
    if let Some(message) = other_serial(reference, last) {
        return Some(NotOff::OtherSerialNumber { message });
    }
    if last.power != PowerState::Off {
        return Some(NotOff::NotPoweredOff { bmc });
    }
    let counts = dpu.heard_at.is_some_and(|heard| dpu.bmc.read_at >= Some(heard + LAG));
    (!counts || read.is_none()).then_some(NotOff::TooEarly { bmc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use crate::seen::Seen;
    use api::dpu::{DpuSpec, DpuStatus};
    use jiff::Timestamp;
    use std::sync::Arc;

    fn read(power: PowerState, serial: Option<&str>) -> HostObserved {
        HostObserved { serial_number: serial.map(str::to_owned), ..HostObserved::with_power(power) }
    }

    fn seen(power: PowerState, serial: Option<&str>) -> BmcSeen {
        let identity = Some("one".to_owned());
        BmcSeen { host: Seen::Fresh(read(power, serial)), identity, ..BmcSeen::default() }
    }

    fn dpu(serial: Option<&str>) -> Dpu {
        let reference = BmcReference { name: "dpu-1-bmc".into(), serial_number: serial.map(str::to_owned) };
        Dpu::new("dpu-1", DpuSpec { bmc_ref: Some(reference), ..DpuSpec::default() })
    }

    fn told(mut dpu: Dpu, Verdict { finding: (status, reason, message), record }: Verdict) -> Dpu {
        let mut said = DpuStatus { verified_bmc: record, ..DpuStatus::default() };
        conditions::set(&mut said.conditions, BMC_VERIFIED, status, reason, &message, None, Timestamp::UNIX_EPOCH);
        dpu.status = Some(said);
        dpu
    }

    fn word(verdict: Option<Verdict>) -> String {
        let word = |(status, reason, _): Finding| format!("{} {reason}", status.as_str());
        verdict.map_or_else(|| "none".to_owned(), |verdict| word(verdict.finding))
    }

    #[test]
    fn a_bmc_is_verified_only_by_an_agent_that_answers_and_a_reading_that_fits() {
        let (on, off) = (seen(PowerState::On, Some("MT1")), seen(PowerState::Off, Some("MT1")));
        let down = BmcSeen { problem: Some(BmcProblem::Unreachable("no answer".into())), ..BmcSeen::default() };
        let asks = BmcProblem::NotSpoken { machine: "dpu-1-bmc".into(), protocol: Protocol::Ipmi };
        let by_ipmi = BmcSeen { problem: Some(asks), ..BmcSeen::default() };
        for (dpu, silent, seen, wanted) in [
            (dpu(None), false, &on, "True ReadOn"),
            (dpu(None), true, &on, "Unknown BmcNotRead"),
            (dpu(None), false, &off, "False ReadOff"),
            (dpu(Some("mt1")), false, &on, "True ReadOn"),
            (dpu(Some("MT2")), false, &on, "False SerialNumberMismatch"),
            (dpu(None), false, &down, "Unknown BmcNotRead"),
            (dpu(None), false, &by_ipmi, "Unknown BmcProtocolUnsupported"),
            (dpu(None), false, &BmcSeen::default(), "Unknown BmcNotRead"),
            (Dpu::default(), false, &on, "none"),
        ] {
            assert_eq!(word(verify(&dpu, silent, seen)), wanted);
        }
    }

    #[test]
    fn the_finding_stands_until_the_reference_changes() {
        let good = verify(&dpu(None), false, &seen(PowerState::On, None)).expect("one is named");
        let mut dpu = told(dpu(None), good);
        assert_eq!(word(verify(&dpu, true, &seen(PowerState::Off, None))), "True ReadOn");
        assert_eq!(word(verify(&dpu, true, &BmcSeen::default())), "True ReadOn", "nobody looks");
        let elsewhere = BmcSeen { identity: Some("two".into()), ..seen(PowerState::Off, None) };
        assert_eq!(word(verify(&dpu, true, &elsewhere)), "Unknown BmcNotRead", "the Machine has another address");
        dpu.spec.bmc_ref.as_mut().expect("set").name = "another".into();
        assert!(!is_verified(&dpu, &BmcSeen::default()), "what was found of one BMC is said of another");
        dpu.spec.bmc_ref = None;
        assert_eq!(word(verify(&dpu, false, &BmcSeen::default())), "Unknown NotNamed");
    }

    #[test]
    fn off_counts_when_it_is_verified_fresh_and_read_late_enough() {
        let good = verify(&dpu(None), false, &seen(PowerState::On, None)).expect("one is named");
        let heard = Timestamp::UNIX_EPOCH;
        let proven = DpuSeen {
            dpu: Arc::new(told(dpu(None), good)),
            silent: true,
            heard_at: Some(heard),
            bmc: BmcSeen { read_at: Some(heard + LAG), ..seen(PowerState::Off, None) },
            ..DpuSeen::default()
        };
        assert_eq!(not_off(&proven), None);
        type Change = fn(&mut DpuSeen);
        let changes: [(&str, Change); 7] = [
            ("another BMC by the same name", |it| it.bmc.identity = Some("two".to_owned())),
            ("not verified", |it| it.dpu = Arc::new(dpu(None))),
            ("on", |it| it.bmc.host = Seen::Fresh(read(PowerState::On, None))),
            ("going off", |it| it.bmc.host = Seen::Fresh(read(PowerState::PoweringOff, None))),
            ("too early", |it| it.bmc.read_at = it.heard_at.map(|heard| heard + LAG / 2)),
            ("never heard", |it| it.heard_at = None),
            ("not readable", |it| it.bmc.problem = Some(BmcProblem::Unreachable("no answer".into()))),
        ];
        for (what, change) in changes {
            let mut dpu = proven.clone();
            change(&mut dpu);
            assert!(not_off(&dpu).is_some(), "{what}");
            assert!(!was_off(&dpu), "{what}");
        }
        let mut old = proven.clone();
        old.bmc.host = Seen::Stale { value: read(PowerState::Off, None), since: heard + LAG };
        assert!(not_off(&old).is_some() && was_off(&old), "an old reading moves nothing");
    }
}
