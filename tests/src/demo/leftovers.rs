//! Nothing may be left of deleted machines: no object, no process, no switch port, no volume.

use super::Story;
use crate::site::{Site, until};
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Things that a machine brings, by kind. What was there before it may stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Count(BTreeMap<String, Vec<String>>);

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
    for node in site.sandbox.ready().nodes.iter().filter(|node| node.dpu) {
        let ports = site.enter(&node.name, &["ovs-vsctl", "list-ports", "br-int"]).await?;
        let ports = lines(&ports).into_iter().filter(|port| port.starts_with("mp")).collect();
        found.insert(format!("switch ports of {}", node.name), ports);
        let files = site
            .enter(
                &node.name,
                &["find", "/run/metalplane", "-type", "f", "-not", "-name", "boot-id", "-not", "-name", ".lock"],
            )
            .await?;
        let files = lines(&files)
            .into_iter()
            .filter(|file| file.contains("record") || file.contains("seeds") || file.contains("connections"));
        found.insert(format!("files of the agent on {}", node.name), files.collect());
    }
    let pool = site.sandbox.ready().pool.join("volumes");
    let volumes = std::fs::read_dir(pool)
        .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect());
    found.insert("volumes in the pool".to_owned(), volumes.unwrap_or_default());
    let running = crate::site::running_guests(site)?;
    found.insert("QEMU processes".to_owned(), running);
    Ok(Count(found))
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
    // What it says of whose it is may change.
    let same = |name: &str, other: &str| name.split_whitespace().next() == other.split_whitespace().next();
    let ours = |name: &&String| match old {
        Some(old) => !old.iter().any(|other| same(name, other)),
        None => name.contains("bm-0") || kind.starts_with("switch") || kind.starts_with("QEMU"),
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
    fn a_volume_is_known_by_its_claim_when_nobody_counted_before() {
        let now = names(&["pvc-1   bm-01-root", "pvc-2   metalplane-import-debian-12"]);
        assert_eq!(new_ones("persistentvolumes", &now, None), ["persistentvolumes: pvc-1   bm-01-root"]);
    }
}
