//! A second disk and a second NIC while the guest runs, seen from inside it; the disk grows under I/O; both leave.

use super::machine::MACHINE;
use super::{Story, second_nic};
use crate::guest::Guest;
use crate::site::{Site, until};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const GIB: u64 = 1 << 30;

/// `dpu`: that of the machine.
pub(super) async fn show(story: &Story, site: &Site, guest: &Guest, dpu: &str) -> Result<()> {
    story.say(&format!("bmctl adddisk {MACHINE} data --size 1Gi --bus VirtioBlk"));
    site.bmctl(&["adddisk", MACHINE, "data", "--size", "1Gi", "--bus", "VirtioBlk", "--wait", "--timeout", "180s"])
        .await?;
    disk_has(story, guest, GIB).await?;

    let nic = second_nic::plug(story, site, guest, dpu).await?;
    expand_under_io(story, site, guest).await?;

    story.say(&format!("bmctl removedisk {MACHINE} data"));
    site.bmctl(&["removedisk", MACHINE, "data", "--wait", "--timeout", "180s"]).await?;
    until("the guest no longer has the disk", LIMIT, async || {
        let seen = guest.shell("ls /sys/block", LIMIT).await?;
        Ok(if seen.lines().any(|line| line.split_whitespace().any(|w| w == "vda")) { Err(seen) } else { Ok(()) })
    })
    .await?;
    second_nic::unplug(story, site, guest, &nic).await?;
    second_nic::waits(story, site).await?;
    story.say("disk and NIC no longer exist in the guest");
    // A disk taken out of the machine is kept; the demo has no further use for its claim.
    site.kubectl(&["delete", "pvc", &format!("{MACHINE}-data"), "--timeout=180s"]).await?;
    Ok(())
}

async fn disk_has(story: &Story, guest: &Guest, bytes: u64) -> Result<()> {
    let sectors = (bytes / 512).to_string();
    until(&format!("the guest sees /dev/vda with {bytes} bytes"), LIMIT, async || {
        let seen = guest.shell("cat /sys/block/vda/size", LIMIT).await?;
        Ok(if seen.lines().any(|line| line.trim() == sectors) { Ok(()) } else { Err(seen) })
    })
    .await?;
    story.say(&format!("the guest has /dev/vda, {} GiB", bytes / GIB));
    Ok(())
}

/// A writer runs in the guest while the claim grows; it must not see one error.
async fn expand_under_io(story: &Story, site: &Site, guest: &Guest) -> Result<()> {
    let writer = "(for i in $(seq 1 400); do dd if=/dev/zero of=/dev/vda bs=64k count=16 seek=$i conv=fsync,notrunc \
                  2>/dev/null || { echo bad >/tmp/io; break; }; [ -e /tmp/stop ] && break; done; echo end >>/tmp/io) &";
    guest.shell(&format!("rm -f /tmp/io /tmp/stop; {writer} true"), LIMIT).await?;
    story.say(&format!("kubectl patch bmm {MACHINE}: disk data 1Gi -> 2Gi, while the guest writes to it"));
    let machine = site.get(&["bmm", MACHINE]).await?.unwrap_or_default();
    let disks = machine["spec"]["disks"].as_array().cloned().unwrap_or_default();
    let index = disks.iter().position(|disk| disk["name"] == "data").unwrap_or_default();
    let patch = format!(r#"[{{"op":"replace","path":"/spec/disks/{index}/size","value":"2Gi"}}]"#);
    site.kubectl(&["patch", "bmm", MACHINE, "--type=json", "-p", &patch]).await?;
    disk_has(story, guest, 2 * GIB).await?;
    let seen = guest.shell("touch /tmp/stop; wait; cat /tmp/io", LIMIT).await?;
    ensure!(seen.lines().any(|line| line.trim() == "end"), "the writer in the guest did not end: {seen}");
    ensure!(!seen.lines().any(|line| line.trim() == "bad"), "the writer in the guest met an error: {seen}");
    story.say("the writer in the guest met no error");
    Ok(())
}
