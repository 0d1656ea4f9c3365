//! Nothing may be left of deleted machines, pods and networks: no object, no process, no switch port, no row in OVN, no volume.

use super::Story;
use crate::site::{Site, until};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Things that a machine brings, by kind. What was there before it may stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Count(BTreeMap<String, Vec<String>>);

/// Kinds of which nothing may be there, whoever asks.
const NETWORK: &str = "ports and devices";
const ROWS: &str = "rows in OVN of what no longer exists";
/// What has rows in OVN's north-bound database.
const HAVE_ROWS: &str = "vpc,sn,sg,vnic,pn,ngw,fip";

/// An empty hold goes after its PersistentVolume, which is looked for with back-off.
const GONE_WITHIN: Duration = Duration::from_secs(180);

/// Kinds, and where beside its name an object may say whose it is.
const OBJECTS: [(&str, &str); 14] = [
    ("baremetalmachines", ".metadata.labels"),
    ("diskattachments", ".metadata.labels"),
    ("nicattachments", ".metadata.labels"),
    ("vnics", ".metadata.labels"),
    ("addressholds", ".spec.owner.name,KIND:.spec.owner.kind"),
    ("persistentvolumeclaims", ".metadata.labels"),
    ("persistentvolumes", ".spec.claimRef.name"),
    ("volumeattachments", ".metadata.labels"),
    ("volumeholds", ".metadata.labels"),
    ("volumesnapshots", ".spec.source.persistentVolumeClaimName"),
    ("volumesnapshotcontents", ".spec.volumeSnapshotRef.name"),
    ("secrets", ".metadata.labels"),
    ("workflows.tinkerbell.org", ".metadata.labels"),
    ("templates.tinkerbell.org", ".metadata.labels"),
];

pub(super) async fn count(site: &Site) -> Result<Count> {
    let mut found = BTreeMap::new();
    for (kind, whose) in OBJECTS {
        let columns = format!("-o=custom-columns=NAME:.metadata.name,WHOSE:{whose}");
        let there = lines(&site.kubectl(&["get", kind, "-A", "--no-headers", &columns]).await?);
        // A Subnet stays, and the holds of its router's addresses with it.
        let of_machines = there.into_iter().filter(|line| !line.trim_end().ends_with(" Subnet"));
        found.insert(kind.to_owned(), of_machines.collect());
    }
    for node in &site.sandbox.ready().nodes {
        let name = &node.name;
        found.insert(format!("{NETWORK} of {name}"), site.network_devices(name).await?);
        found.insert(format!("files of the agent on {name}"), agent_files(site, name).await?);
    }
    found.insert(ROWS.to_owned(), rows_of_nothing(site).await?);
    let pool = site.sandbox.ready().pool.join("volumes");
    let volumes = std::fs::read_dir(pool)
        .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect());
    found.insert("volumes in the pool".to_owned(), volumes.unwrap_or_default());
    let running = crate::site::running_guests(site)?;
    found.insert("QEMU processes".to_owned(), running);
    Ok(Count(found))
}

/// Records, seeds, connections, and what the CNI plugin has noted of pods.
async fn agent_files(site: &Site, node: &str) -> Result<Vec<String>> {
    // Where no agent runs there is no folder.
    let find = "[ ! -d /run/metalplane ] || find /run/metalplane -type f -not -name boot-id -not -name .lock";
    let files = site.enter(node, &["sh", "-c", find]).await?;
    let is_one = |file: &String| {
        let of_agent = ["record", "seeds", "connections"].iter().any(|part| file.contains(part));
        of_agent || file.contains("/cni/") && file.ends_with(".json")
    };
    Ok(lines(&files).into_iter().filter(is_one).collect())
}

/// Rows that the controller wrote for what no longer exists.
async fn rows_of_nothing(site: &Site) -> Result<Vec<String>> {
    let rows = site.north_bound_rows().await?;
    let uids = site.kubectl(&["get", HAVE_ROWS, "-A", "-o", "jsonpath={.items[*].metadata.uid}"]).await?;
    let uids: BTreeSet<&str> = uids.split_whitespace().collect();
    let of_nothing = rows.into_iter().filter(|row| !uids.contains(row.uid.as_str()));
    Ok(of_nothing.map(|row| format!("{} of {} {}", row.table, row.kind, row.uid)).collect())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// Waits until everything that was not there `before` is gone, and says so kind by kind.
pub(super) async fn none(story: &Story, site: &Site, before: &Count) -> Result<()> {
    let kept = Count::default();
    let before = if *before == kept { None } else { Some(before) };
    until("nothing is left of the machines", GONE_WITHIN, async || {
        let now = count(site).await?;
        let left: Vec<String> = now.0.iter().flat_map(|(kind, names)| new_ones(kind, names, before)).collect();
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join("; ")) })
    })
    .await?;
    let now = count(site).await?;
    for (kind, names) in &now.0 {
        story.say(&format!("    left of the machines: 0 {kind} (others: {})", names.len()));
    }
    site.kubectl(&["get", "hardware", "-A"]).await.map(|text| print!("{text}"))?;
    Ok(())
}

/// Without a count from before, the golden image's volume is the only thing that may be there.
fn new_ones(kind: &str, names: &[String], before: Option<&Count>) -> Vec<String> {
    let old = before.and_then(|b| b.0.get(kind));
    // What an object says of whose it is may change; anything else is what it is called.
    let is_object = OBJECTS.iter().any(|(known, _)| *known == kind);
    let first = |name: &str| name.split_whitespace().next().map(str::to_owned);
    let same = |name: &str, other: &str| name == other || is_object && first(name) == first(other);
    let ours = |name: &&String| match old {
        Some(old) => !old.iter().any(|other| same(name, other)),
        None => name.contains("bm-0") || [NETWORK, ROWS, "QEMU"].iter().any(|all_of| kind.starts_with(all_of)),
    };
    names.iter().filter(ours).map(|name| format!("{kind}: {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_was_there_before_may_stay_whatever_it_says_by_now() {
        let before = Count([("volumeholds".to_owned(), names(&["vol-1   map[a:b]"]))].into());
        let now = names(&["vol-1   <none>", "vol-2   <none>"]);
        assert_eq!(new_ones("volumeholds", &now, Some(&before)), ["volumeholds: vol-2   <none>"]);
    }

    #[test]
    fn a_port_is_another_than_the_one_that_was_there_before() {
        let kind = format!("{NETWORK} of dpu-1");
        let before = Count([(kind.clone(), names(&["port mp1"]))].into());
        assert_eq!(new_ones(&kind, &names(&["port mp1", "port mp2"]), Some(&before)).len(), 1);
        assert_eq!(new_ones(&kind, &names(&["port mp1"]), None).len(), 1, "nobody counted before");
        assert_eq!(new_ones(ROWS, &names(&["ACL of VNic u"]), None).len(), 1);
    }

    #[test]
    fn a_volume_is_known_by_its_claim_when_nobody_counted_before() {
        let now = names(&["pvc-1   bm-01-root", "pvc-2   metalplane-import-debian-12"]);
        assert_eq!(new_ones("persistentvolumes", &now, None), ["persistentvolumes: pvc-1   bm-01-root"]);
    }
}
