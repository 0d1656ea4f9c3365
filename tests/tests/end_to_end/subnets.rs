//! Subnets that are full, or in the way of each other: who comes too late says so, of either family, and gets what it asks for once the
//! other no longer exists.

use super::machine::{SOON, SOON_FLAG};
use super::on_servers;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::site::{Site, until};

/// A kind, a name, and a spec.
type Object = (&'static str, &'static str, Value);

#[test]
fn a_subnet_that_is_full_or_in_the_way_says_so_until_there_is_room() {
    on_servers(&[1], "full_subnets", async |site, namespace| {
        let full = [
            ("Subnet", "small", json!({"cidr": "10.90.0.0/30"})),
            ("VNic", "first", json!({"subnet": "small"})),
            ("VNic", "late", json!({"subnet": "small"})),
        ];
        let overlaps = [
            ("Subnet", "wide", json!({"cidr": "10.91.0.0/16"})),
            ("Subnet", "inside", json!({"cidr": "10.91.7.0/24"})),
        ];
        let overlaps_by_ipv6 = [
            ("Subnet", "wide6", json!({"cidr": "fd00:91::/48"})),
            ("Subnet", "inside6", json!({"cidr": "fd00:91:0:7::/64"})),
        ];
        late(site, namespace, &full, ("AddressesAssigned", "SubnetFull")).await.context("a Subnet that is full")?;
        late(site, namespace, &overlaps, ("Ready", "CidrOverlaps")).await.context("IPv4")?;
        late(site, namespace, &overlaps_by_ipv6, ("Ready", "CidrOverlaps")).await.context("IPv6")
    });
}

/// The last one says the reason, as long as the one before it exists.
async fn late(site: &Site, namespace: &str, objects: &[Object], (type_, reason): (&str, &str)) -> Result<()> {
    let [.., (before_kind, before, _), (kind, name, _)] = objects else { bail!("two objects at least") };
    let is_so = async |kind: &str, name: &str| {
        let condition = format!("--for=condition={type_}");
        let wait = ["wait", &format!("{kind}/{name}"), "-n", namespace, &condition, "--timeout=30s"];
        site.kubectl(&wait).await.map(drop)
    };
    for (of_kind, named, spec) in objects {
        let object =
            json!({"apiVersion": "metalplane.io/v1alpha1", "kind": of_kind, "metadata": {"name": named}, "spec": spec});
        site.apply_in(namespace, &object.to_string()).await?;
        if named == before {
            is_so(of_kind, named).await?;
        }
    }
    let said = async || {
        let object = site.get(&[kind, name, "-n", namespace]).await?.context("it no longer exists")?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        anyhow::Ok(conditions.into_iter().find(|said| said["type"] == type_).unwrap_or_default())
    };
    until(&format!("{kind} {name} says {reason}"), SOON, async || {
        let said = said().await?;
        Ok(if said["reason"] == reason { Ok(()) } else { Err(said.to_string()) })
    })
    .await?;
    let told = said().await?["message"].to_string();
    ensure!(told.contains("small") || told.contains(before), "it names nobody: {told}");
    let limit = format!("--timeout={SOON_FLAG}");
    site.kubectl(&["delete", before_kind, before, "-n", namespace, &limit]).await?;
    is_so(kind, name).await
}
