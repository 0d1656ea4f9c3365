//! What the host may do to its DPU, as NVIDIA's `mlxprivhost -d DEVICE query` prints it on the DPU: whoever installs the DPU writes
//! that into a file. The agent itself has no way to the device that is asked.

use api::conditions::ConditionStatus;
use std::collections::BTreeMap;

const RESTRICTED: &str = "Restricted";
const PRIVILEGED: &str = "HostPrivileged";
const NOT_REPORTED: &str = "NotReported";
/// What a restricted host may still be left: each is to be TRUE.
const DISABLED: [&str; 4] = ["disable_rshim", "disable_tracer", "disable_port_owner", "disable_counter_rd"];

/// The condition HostRestricted; `printed`: what the file has, if there is one.
pub fn condition(printed: Option<&str>) -> (ConditionStatus, &'static str, String) {
    let unknown = |message: &str| (ConditionStatus::Unknown, NOT_REPORTED, message.to_owned());
    let Some(printed) = printed else {
        return unknown("nothing on this DPU tells what its host may do to it: see docs/security.md");
    };
    let said: BTreeMap<&str, &str> = printed
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let Some(level) = said.get("level") else {
        return unknown("the file with the host's privileges is not what `mlxprivhost query` prints: it has no level");
    };
    let open: Vec<&str> = DISABLED.into_iter().filter(|key| said.get(key) != Some(&"TRUE")).collect();
    match (*level, open.as_slice()) {
        ("RESTRICTED", []) => (ConditionStatus::True, RESTRICTED, String::new()),
        ("RESTRICTED", _) => (ConditionStatus::False, PRIVILEGED, format!("not TRUE: {}", open.join(", "))),
        _ => (ConditionStatus::False, PRIVILEGED, "the host's level is not RESTRICTED".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form that the tool prints on a DPU.
    fn printed(level: &str, rshim: &str) -> String {
        format!(
            "Host configurations\n-------------------\nlevel                         : {level}\n\nPort functions \
             status:\n-----------------------\ndisable_rshim                 : {rshim}\ndisable_tracer                : \
             TRUE\ndisable_port_owner            : TRUE\ndisable_counter_rd            : TRUE\n\n"
        )
    }

    fn word(printed: Option<&str>) -> String {
        let (status, reason, message) = condition(printed);
        format!("{} {reason} {message}", status.as_str()).trim().to_owned()
    }

    #[test]
    fn only_a_host_that_is_restricted_in_everything_is() {
        assert_eq!(word(Some(&printed("RESTRICTED", "TRUE"))), "True Restricted");
        assert_eq!(word(Some(&printed("RESTRICTED", "FALSE"))), "False HostPrivileged not TRUE: disable_rshim");
        assert!(word(Some(&printed("PRIVILEGED", "FALSE"))).starts_with("False HostPrivileged"));
        assert!(word(Some("level : RESTRICTED\n")).starts_with("False HostPrivileged not TRUE: disable_rshim, "));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert!(word(None).starts_with("Unknown NotReported nothing on this DPU"));
        assert!(word(Some("")).starts_with("Unknown NotReported the file"));
        assert!(word(Some("-E- Failed to query device")).starts_with("Unknown NotReported the file"));
    }
}
