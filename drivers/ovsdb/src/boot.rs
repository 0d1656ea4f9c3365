//! The database of Open vSwitch outlives a reboot of its node, as ports in it do. Which boot they are of stands beside them, in the bridge's external
//! ids (`metalplane-boot`): a new boot takes out every port of ours and says so, in one transaction. Nobody else's port is touched, in
//! whichever bridge; ports of ours are taken out of any.

use crate::cache::Cache;
use crate::metadata_plugs;
use crate::switch::{DATABASE, holders, plugged, remove_from_bridge};
use crate::transact::{Condition, Mutation, Transaction};
use crate::value::Value;
use planner::exposure::ExposureId;
use uuid::Uuid;

const BOOT: &str = "metalplane-boot";
const SECURE: &str = "secure";

/// With the devices that it takes out; `None`: the switch knows this boot.
pub(crate) fn begin(
    cache: &Cache,
    bridge: Uuid,
    boot_id: &str,
    known: &[ExposureId],
) -> Option<(Transaction, Vec<String>)> {
    let ids = cache.row("Bridge", bridge).and_then(|row| row.get("external_ids"));
    let before = ids.and_then(|ids| ids.get(BOOT));
    if before == Some(boot_id) {
        return None;
    }
    let stays = |id: &ExposureId| before.is_none() && known.contains(id);
    let nics = plugged(cache).filter(|(_, port)| !stays(&port.id)).map(|(interface, port)| (interface, port.device));
    let stale: Vec<(Uuid, String)> =
        nics.chain(metadata_plugs::plugged(cache).map(|(interface, plug)| (interface, plug.device))).collect();
    let mut transaction = Transaction::new(DATABASE);
    let mut names = Vec::new();
    for (interface, device) in stale {
        remove_from_bridge(&mut transaction, &holders(cache, interface));
        names.push(device);
    }
    let column = || "external_ids".to_owned();
    let mut changes: Vec<Mutation> =
        before.map(|old| Mutation::Delete(column(), Value::map([(BOOT, old)]))).into_iter().collect();
    changes.push(Mutation::Insert(column(), Value::map([(BOOT, boot_id)])));
    transaction.mutate("Bridge", &[Condition::row(bridge)], &changes);
    transaction.comment(&format!("metalplane: boot {boot_id}: {} ports of an earlier one removed", names.len()));
    if !names.is_empty() {
        tracing::warn!(boot_id, ports = ?names, "ports of an earlier boot are removed from the switch");
    }
    Some((transaction, names))
}

/// ovs-vswitchd.conf.db(5), "fail_mode": what is not secure forwards by itself while nobody has told the switch what passes.
pub(crate) fn not_secure(cache: &Cache, bridge: &str) -> Option<String> {
    let Some((_, row)) = cache.find("Bridge", "name", bridge) else {
        return Some(format!(
            "there is no bridge {bridge}. Next: ovs-vsctl add-br {bridge} -- set-fail-mode {bridge} secure"
        ));
    };
    let mode = row.get("fail_mode").and_then(Value::as_str).unwrap_or("standalone");
    (mode != SECURE).then(|| {
        format!(
            "bridge {bridge} has fail mode {mode}: without OVN's flows the bridge forwards everything. Next: ovs-vsctl \
             set-fail-mode {bridge} secure"
        )
    })
}
