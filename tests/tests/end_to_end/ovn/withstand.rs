//! What OVN is made of is killed, and rows are changed by hand, while somebody sends all the time what is forbidden: for a moment
//! nothing may pass, never anything that should not, and a rule that is changed meanwhile comes into force.
//!
//! In every run the parts die together, central ones and those of a chassis; in the judge each dies by itself.

use super::draw::{Draw, PORTS};
use super::endpoint;
use super::{LONG, Run};
use crate::machine::SOON;
use crate::on_site;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::site::{ORDINARY_NODE, until};

const CENTRAL: [&str; 3] = ["control-plane/ovn-nb", "control-plane/ovn-sb", "control-plane/ovn-northd"];
/// Of the chassis where the called one is. Its switch is killed under a running machine (`alone/running.rs`).
const CHASSIS: [&str; 2] = ["dpu-2/ovn-controller", "dpu-2/ovsdb-server"];
/// The name of each, its group, and its node.
const ENDS: [(&str, &str, &str); 3] =
    [("caller", "callers", "dpu-1"), ("called", "web", "dpu-2"), ("stranger", "strangers", ORDINARY_NODE)];
const CALLED: usize = 1;
const STRANGER: usize = 2;
/// Beside those of the other tests.
const FIRST_PLACE: usize = 30;
/// What callers may, what a rule opens and closes for them, and what is sent to nobody but by a stranger.
const OPEN: u16 = PORTS[0];
const TOGGLED: u16 = PORTS[1];
const FORBIDDEN: u16 = PORTS[2];
/// No question's: rounds begin at 1.
const FORBIDDEN_PAYLOAD: &str = "judge-0-0";

#[test]
fn what_ovn_is_made_of_is_killed() {
    withstands("ovn_killed", &[&CENTRAL, &CHASSIS]);
}

#[test]
fn each_part_of_ovn_is_killed_by_itself() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP ovn::each_part_of_ovn_is_killed_by_itself: `make judges JUDGE=ovn` runs it ({LONG}=1)");
        return;
    }
    let parts: Vec<&[&str]> = CENTRAL.iter().chain(&CHASSIS).map(std::slice::from_ref).collect();
    withstands("ovn_killed_each", &parts);
}

fn withstands(name: &str, killed: &[&[&str]]) {
    on_site(name, async |site, namespace| {
        let mut run = Run::new(site, namespace, Draw::new(0));
        let tested = all(&mut run, killed).await;
        let ended = run.end().await;
        tested?;
        ended?;
        ensure!(run.wrong.is_empty(), "{} of {} disagree: {}", run.wrong.len(), run.asked, run.wrong[0]);
        Ok(())
    });
}

async fn all(run: &mut Run<'_>, killed: &[&[&str]]) -> Result<()> {
    run.apply(&networks()).await?;
    for (place, (name, _, node)) in ENDS.into_iter().enumerate() {
        let mut end = endpoint::on_node(run.site, run.namespace, name, node, FIRST_PLACE + place).await?;
        end.listen(run.site).await?;
        run.endpoints.push(end);
    }
    run.ports_are_up().await?;
    run.ask("before").await?;
    let _flood = run.endpoints[STRANGER].flood(run.site, FORBIDDEN, FORBIDDEN_PAYLOAD, &addresses(CALLED)).await?;
    let mut is_open = false;
    for parts in killed {
        is_open = !is_open;
        kill(run, parts, &web(is_open, false)).await.with_context(|| format!("{parts:?} killed"))?;
    }
    by_hand(run).await.context("rows are changed by hand")?;
    // It was sent all the time, and heard by nobody; once it is let in it is heard.
    ensure!(!is_flooded(run), "what is forbidden was heard");
    run.apply(&[web(is_open, true)]).await?;
    until("what was forbidden is heard once it is allowed", SOON, async || {
        Ok(if is_flooded(run) { Ok(()) } else { Err("it is not".to_owned()) })
    })
    .await
}

/// A rule is changed while they are dead.
async fn kill(run: &mut Run<'_>, parts: &[&str], changed: &Value) -> Result<()> {
    for part in parts {
        run.site.sandbox.kill_process(part).await?;
    }
    let applied = run.apply(std::slice::from_ref(changed)).await;
    // Whatever came of it: the other tests use the same OVN.
    for part in parts {
        run.site.sandbox.start_process(part).await?;
    }
    applied?;
    run.in_force(changed).await?;
    run.ask(&format!("after {} died", parts.join(", "))).await?;
    ensure!(!is_flooded(run), "what is forbidden was heard");
    Ok(())
}

/// Members and rules of the group are emptied, a note of somebody else is put beside ours, and a switch that is nobody's of ours.
async fn by_hand(run: &mut Run<'_>) -> Result<()> {
    let uid = ["get", "sg", "web", "-n", run.namespace, "-o", "jsonpath={.metadata.uid}"];
    let of = format!("external_ids:metalplane-uid={}", run.site.kubectl(&uid).await?.trim());
    let found = run.nbctl(&["--bare", "--columns=_uuid", "find", "Port_Group", &of]).await?;
    let rows: Vec<&str> = found.split_whitespace().collect();
    ensure!(!rows.is_empty(), "the group has no row: {of}");
    let seen = async |run: &Run<'_>| {
        let mut seen = Vec::new();
        for row in &rows {
            for column in ["ports", "acls"] {
                let listed = run.nbctl(&["get", "Port_Group", row, column]).await?;
                seen.push(format!("{row} {column}: {}", if listed.trim() == "[]" { "empty" } else { "filled" }));
            }
        }
        anyhow::Ok(seen)
    };
    let before = seen(run).await?;
    for row in &rows {
        let theirs = ["set", "Port_Group", row, "external_ids:somebody=else"];
        run.nbctl(&[theirs.as_slice(), &["--", "clear", "Port_Group", row, "ports", "acls"]].concat()).await?;
    }
    run.nbctl(&["ls-add", "somebody-elses"]).await?;
    until("the rows are as before", SOON, async || {
        let now = seen(run).await?;
        Ok(if now == before { Ok(()) } else { Err(now.join(", ")) })
    })
    .await?;
    run.nbctl(&["--wait=hv", "sync"]).await?;
    run.ask("after rows were changed by hand").await?;
    for row in &rows {
        let theirs = run.nbctl(&["get", "Port_Group", row, "external_ids:somebody"]).await?;
        ensure!(theirs.trim() == "else", "somebody else's note is gone");
    }
    // An error says that it is not there.
    run.nbctl(&["ls-del", "somebody-elses"]).await.map(drop)
}

fn is_flooded(run: &Run<'_>) -> bool {
    run.endpoints[CALLED].heard().iter().any(|line| *line == format!("udp {FORBIDDEN_PAYLOAD}"))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn addresses(place: usize) -> [String; 2] {
    [format!("10.60.0.{}", 50 + place), format!("fd00:60::{}", 50 + place)]
}

/// Lets callers in; strangers by one port, if `all`.
fn web(is_open: bool, all: bool) -> Value {
    let ports = |port: u16| json!([{"protocol": "TCP", "port": port}, {"protocol": "UDP", "port": port}]);
    let callers = json!([{"securityGroup": {"name": "callers"}}]);
    let mut rules = vec![json!({"from": callers, "ports": ports(OPEN)})];
    rules.extend(is_open.then(|| json!({"from": callers, "ports": ports(TOGGLED)})));
    rules.extend(all.then(|| json!({"ports": ports(FORBIDDEN)})));
    object("SecurityGroup", "web", &json!({"vpc": {"name": "killed"}, "ingress": rules}))
}

fn networks() -> Vec<Value> {
    let subnet = json!({"vpc": {"name": "killed"}, "cidr": "10.60.0.0/24", "ipv6Cidr": "fd00:60::/64"});
    let closed = |name: &str| object("SecurityGroup", name, &json!({"vpc": {"name": "killed"}}));
    let mut all = vec![object("Vpc", "killed", &json!({})), object("Subnet", "killed", &subnet)];
    all.extend([closed("callers"), closed("strangers"), web(false, false)]);
    for (place, (name, group, node)) in ENDS.into_iter().enumerate() {
        let spec =
            json!({"subnet": "killed", "addresses": addresses(place), "securityGroups": [group], "nodeName": node});
        all.push(object("VNic", name, &spec));
    }
    all
}
