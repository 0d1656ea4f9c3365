//! What a machine waits for is said by name, with what to do about it.

use super::machine::Machine;
use super::on_servers;
use anyhow::{Result, ensure};
use tests::site::Site;

#[test]
fn what_an_image_a_size_and_a_class_lack_is_named() {
    on_servers(&[1], "what_is_lacking_is_named", async |site, namespace| {
        awaits(site, namespace, ("name: tiny", "name: none-such"), "ImageMissing", "none-such").await?;
        let small = ("bootOrder: 1,", "bootOrder: 1, size: 1Mi,");
        awaits(site, namespace, small, "VolumeTooSmall", "size: ").await?;
        let class = ("bootOrder: 1,", "bootOrder: 1, storageClassName: none-such,");
        awaits(site, namespace, class, "ClaimPending", "none-such").await
    });
}

/// A machine with one thing in its manifest replaced waits, and explains what for.
async fn awaits(site: &Site, namespace: &str, (from, to): (&str, &str), reason: &str, names: &str) -> Result<()> {
    let machine = Machine::on_first(site, namespace);
    site.apply(&machine.manifest().replacen(from, to, 1)).await?;
    machine.says(reason).await?;
    let explained = machine.bmctl(&["explain", machine.name]).await?;
    ensure!(explained.contains(names), "bmctl explain does not say '{names}':\n{explained}");
    machine.delete().await
}
