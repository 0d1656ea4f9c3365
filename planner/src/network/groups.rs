//! Which SecurityGroups a VNic is in.

use crate::machine::observed::uid;
use crate::reason::{Blocked, Reason};
use api::{SecurityGroup, VNic, Vpc};
use std::sync::Arc;

/// Those that it names, else those of its Vpc.
pub fn named<'a>(vnic: &'a VNic, vpc: &'a Vpc) -> &'a [String] {
    vnic.spec.security_groups.as_deref().unwrap_or(&vpc.spec.default_security_groups)
}

/// The UIDs of those that are there and of its Vpc, and why one is not. A VNic is in no other instead.
pub(super) fn of(
    vnic: &VNic,
    vpc: &Vpc,
    group: impl Fn(&str) -> Option<Arc<SecurityGroup>>,
) -> (Vec<String>, Option<Reason>) {
    let (mut uids, mut reason) = (Vec::new(), None);
    for name in named(vnic, vpc) {
        match group(name) {
            Some(group) if Some(&group.spec.vpc.name) == vpc.metadata.name.as_ref() => {
                uids.push(uid(&group.metadata).to_owned());
            }
            Some(_) => {
                let vpc = vpc.metadata.name.clone().unwrap_or_default();
                reason.get_or_insert_with(|| Blocked::GroupOfOtherVpc { group: name.clone(), vpc }.into());
            }
            None => {
                reason.get_or_insert_with(|| Blocked::SecurityGroupMissing { group: name.clone() }.into());
            }
        }
    }
    (uids, reason)
}
