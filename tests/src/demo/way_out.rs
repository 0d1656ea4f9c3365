//! Out of the machine's Vpc by a NatGateway, and in to it by a FloatingIP: a host on a network that is none of the site's.

use super::{NAMESPACE, Story};
use crate::guest::Guest;
use crate::site::{Site, until};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

const MANIFEST: &str = include_str!("../../../examples/way-out.yaml");
/// The network namespace of the host outside, and its address.
const OUTSIDE: (&str, &str) = ("outside", "203.0.113.1");
const FLOATING: &str = "203.0.113.20";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn show(story: &Story, site: &Site, guest: &Guest) -> Result<()> {
    story.say("kubectl apply -f examples/way-out.yaml: a NatGateway and a FloatingIP");
    let began = Instant::now();
    site.apply(MANIFEST).await?;
    let wait = ["wait", "--for=condition=InForce", "ngw/out", "fip/bm-01", "-n", NAMESPACE, "--timeout=60s"];
    site.kubectl(&wait).await?;
    story.say(&format!("the way out is in force {} ms later", began.elapsed().as_millis()));
    let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "1", FLOATING];
    ensure!(site.enter(OUTSIDE.0, &ask).await.is_err(), "{FLOATING} answers although no SecurityGroup allows it");
    story.say(&format!("from outside {FLOATING} does not answer: no SecurityGroup allows it"));
    allow(site, true).await?;
    until(&format!("{FLOATING} answers"), LIMIT, async || {
        Ok(site.enter(OUTSIDE.0, &ask).await.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    story.say(&format!("kubectl patch sg default: 203.0.113.0/24 is let in, and {FLOATING} answers from outside"));
    let seen = guest.shell(&format!("ping -q -c 1 -W 5 {} && echo MP-''OUT", OUTSIDE.1), LIMIT).await?;
    ensure!(seen.contains("MP-OUT"), "the guest does not reach {}: {seen}", OUTSIDE.1);
    story.say(&format!("the guest reaches {} outside", OUTSIDE.1));
    println!("{}", site.kubectl(&["get", "pn,ngw,fip", "-n", NAMESPACE]).await?);
    allow(site, false).await
}

/// Who comes in from outside; members of the group always reach each other.
async fn allow(site: &Site, is_open: bool) -> Result<()> {
    let outside = if is_open { r#", {"from": [{"cidr": "203.0.113.0/24"}]}"# } else { "" };
    let members = r#"{"from": [{"securityGroup": {"name": "default"}}]}"#;
    let change = format!(r#"{{"spec": {{"ingress": [{members}{outside}]}}}}"#);
    site.kubectl(&["patch", "sg", "default", "-n", NAMESPACE, "--type=merge", "-p", &change]).await.map(drop)
}

pub(super) async fn remove(site: &Site) -> Result<()> {
    site.delete(MANIFEST).await.map(drop)
}
