//! Nothing may be left of a deleted machine: no object, no process, no switch port, no volume.

use super::Story;
use crate::site::{Site, until};
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Things that a machine brings, by kind. What was there before it may stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Count(BTreeMap<String, Vec<String>>);

const OBJECTS: [&str; 6] =
    ["baremetalmachines", "diskattachments", "nicattachments", "vnics", "persistentvolumeclaims", "volumeattachments"];

pub(super) async fn count(site: &Site) -> Result<Count> {
    let mut found = BTreeMap::new();
    for kind in OBJECTS {
        found.insert(kind.to_owned(), lines(&site.kubectl(&["get", kind, "-A", "-o", "name"]).await?));
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
    until("nothing is left of the machine", Duration::from_secs(60), async || {
        let now = count(site).await?;
        let left: Vec<String> = now.0.iter().flat_map(|(kind, names)| new_ones(kind, names, before)).collect();
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join("; ")) })
    })
    .await?;
    let now = count(site).await?;
    for (kind, names) in &now.0 {
        story.say(&format!("    left of the machine: 0 {kind} (others: {})", names.len()));
    }
    site.kubectl(&["get", "hardware", "-A"]).await.map(|text| print!("{text}"))?;
    Ok(())
}

/// Without a count from before, the golden image's volume is the only thing that may be there.
fn new_ones(kind: &str, names: &[String], before: Option<&Count>) -> Vec<String> {
    let old = before.and_then(|b| b.0.get(kind));
    let ours = |name: &&String| match old {
        Some(old) => !old.contains(name),
        None => name.contains(super::MACHINE) || kind.starts_with("switch") || kind.starts_with("QEMU"),
    };
    names.iter().filter(ours).map(|name| format!("{kind}: {name}")).collect()
}
