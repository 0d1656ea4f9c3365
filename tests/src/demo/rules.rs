//! A rule of a SecurityGroup opens a port, and closes it again under a connection that is open. Who connects is a VNic in no group of the
//! machine, on the other DPU; nothing but the group's word is waited for.

use super::machine::{ADDRESS, MACHINE};
use super::{NAMESPACE, Story, report};
use crate::guest::Guest;
use crate::site::{Netns, Site, addresses, by_first_address};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: &str = "443";
const STRANGER: &str = "stranger";
/// Everybody may ping: that shows that packets pass while the port is closed.
const GROUPS: &str = "apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {name: web}
spec: {vpc: {name: default}, ingress: [{icmp: {family: IPv4}}]}
---
apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {name: strangers}
spec: {vpc: {name: default}}
";
/// In the guest: tells the console what it hears, and says it back. The mark is split, so that the console's echo of it is none.
const SERVER: &str = r#"$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => 443, ReuseAddr => 1) or die $@; print "\nMP-", "WEB ready\n"; while ($c = $s->accept) { while (<$c>) { print "\nMP-", "WEB heard $_"; print $c $_ } }"#;

fn stranger(node: &str) -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: VNic
metadata: {{name: {STRANGER}}}
spec: {{subnet: blue, securityGroups: [strangers], nodeName: {node}}}
"
    )
}

/// `dpu`: that of the machine.
pub(super) async fn show(story: &Story, site: &Site, guest: &Guest, dpu: &str) -> Result<()> {
    let node = site.another_dpu(dpu)?;
    site.apply(GROUPS).await?;
    let (vnic, began) = (stranger(node), Instant::now());
    site.apply(&vnic).await?;
    let wait = ["wait", &format!("vnic/{STRANGER}"), "-n", NAMESPACE, "--for=condition=InForce", "--timeout=60s"];
    site.kubectl(&wait).await?;
    let took = report::network("VNic apply → in force", began.elapsed())?;
    story.say(&format!("kubectl apply: the VNic {STRANGER} on {node}, in force {took} ms later"));
    let there = site.assigned_vnic(NAMESPACE, STRANGER).await?;
    let mut from = site.netns_of_vnic(&there, node, STRANGER, by_first_address).await?;
    let shown = open_and_closed(story, site, guest, &there, &from).await;
    shown.and(from.remove(site).await)?;
    println!("{}", site.kubectl(&["get", "sg", "-n", NAMESPACE]).await?);
    site.regroup(NAMESPACE, MACHINE, &Value::Null).await?;
    site.delete(&format!("{vnic}---\n{GROUPS}")).await.map(drop)
}

async fn open_and_closed(story: &Story, site: &Site, guest: &Guest, vnic: &Value, from: &Netns) -> Result<()> {
    let printed = guest.printed().len();
    guest.order(&format!("perl -MIO::Socket::INET -e '{SERVER}' >/dev/console &"), LIMIT).await?;
    let says = async |what: &str| {
        let mark = format!("MP-WEB {what}");
        guest.line(&format!("the server in the guest says: {what}"), printed, LIMIT, |l| l.contains(&mark)).await
    };
    says("ready").await?;
    site.regroup(NAMESPACE, MACHINE, &json!(["default", "web"])).await?;
    site.ports_are_up(&[vnic["metadata"]["uid"].as_str().context("the VNic has a UID")?]).await?;
    pings(site, from).await?;
    ensure!(!connects(site, from).await, "TCP {PORT} of {MACHINE} is open before a rule opens it");

    let icmp = json!({"icmp": {"family": "IPv4"}});
    let open = json!([icmp, {"ports": [{"protocol": "TCP", "port": 443}]}]);
    edit(story, site, "rule opens → in force", "TCP 443 is open to everybody", &open).await?;
    ensure!(connects(site, from).await, "TCP {PORT} of {MACHINE} is closed although its rule is in force");
    let own = addresses(vnic).first().copied().context("the VNic has an address")?;
    let connection = tokio::time::timeout(LIMIT, from.talk(site, &[own, ADDRESS, PORT])).await;
    let connection = connection.context("no connection to the open port")??;
    connection.says("tcp", "before").await?;
    says("heard before").await?;
    connection.hears("tcp", "before").await?;
    story.say(&format!("{STRANGER} has an open connection to {MACHINE}, and both ends hear each other"));

    edit(story, site, "rule closes → in force", "TCP 443 is closed", &json!([icmp])).await?;
    connection.says("tcp", "after").await?;
    pings(site, from).await?;
    let heard = guest.printed().get(printed..).unwrap_or_default().contains("MP-WEB heard after");
    ensure!(!heard && !connection.has_heard("tcp", "after"), "the open connection outlived its rule");
    ensure!(!connects(site, from).await, "TCP {PORT} of {MACHINE} is open after its rule was closed");
    story.say(
        "what is said on the open connection is no longer heard, and nobody connects anew; pings pass all the time",
    );
    guest.shell("kill $!", LIMIT).await.map(drop)
}

async fn edit(story: &Story, site: &Site, figure: &str, what: &str, ingress: &Value) -> Result<()> {
    let took = report::network(figure, site.edit_ingress(NAMESPACE, "web", ingress).await?)?;
    story.say(&format!("kubectl edit sg web: {what}, in force on every chassis {took} ms later"));
    Ok(())
}

async fn connects(site: &Site, from: &Netns) -> bool {
    let connect = format!("exec 3<>/dev/tcp/{ADDRESS}/{PORT}");
    from.run(site, &["timeout", "2", "bash", "-c", &connect]).await.is_ok()
}

async fn pings(site: &Site, from: &Netns) -> Result<()> {
    from.run(site, &["ping", "-q", "-i", "0.2", "-c", "5", "-W", "2", ADDRESS]).await.map(drop)
}
