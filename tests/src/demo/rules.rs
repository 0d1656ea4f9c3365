//! A rule of a SecurityGroup opens a port, and closes it again; the group says when every chassis has it.

use super::{NAMESPACE, Story};
use crate::site::Site;
use anyhow::{Context, Result};
use serde_json::json;
use std::time::Instant;

/// That of the Subnet's Vpc.
const GROUP: &str = "default";

pub(super) async fn show(story: &Story, site: &Site) -> Result<()> {
    let group = site.get(&["sg", GROUP, "-n", NAMESPACE]).await?.context("there is no SecurityGroup")?;
    let closed = group["spec"]["ingress"].clone();
    let mut open = closed.clone();
    open.as_array_mut().context("the group has no rule")?.push(json!({"ports": [{"protocol": "TCP", "port": 443}]}));
    for (what, ingress) in [("TCP 443 is open to everybody", open), ("TCP 443 is closed", closed)] {
        let (began, change) = (Instant::now(), json!({"spec": {"ingress": ingress}}).to_string());
        site.kubectl(&["patch", "sg", GROUP, "-n", NAMESPACE, "--type=merge", "-p", &change]).await?;
        let group = format!("sg/{GROUP}");
        site.kubectl(&["wait", &group, "-n", NAMESPACE, "--for=condition=InForce", "--timeout=60s"]).await?;
        story.say(&format!(
            "kubectl edit sg {GROUP}: {what}, in force on every chassis {} ms later",
            began.elapsed().as_millis()
        ));
    }
    println!("{}", site.kubectl(&["get", "sg", "-n", NAMESPACE]).await?);
    Ok(())
}
