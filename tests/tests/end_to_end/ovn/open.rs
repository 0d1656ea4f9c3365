//! A rule that goes under an open TCP connection and under UDP: from when the group is in force nothing passes, in neither direction.

use super::endpoint::{self, Endpoint};
use super::{LONG, Run, draw::Draw};
use crate::on_site;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::site::Site;

/// The caller and the called, on two chassis.
const ENDS: [(&str, &str); 2] = [("caller", "dpu-1"), ("called", "dpu-2")];
/// Beside those of the questions.
const FIRST_PLACE: usize = 20;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Pings always pass: they show that packets do.
fn group(ingress: bool, egress: bool) -> Value {
    let icmp = [json!({"icmp": {"family": "IPv4"}}), json!({"icmp": {"family": "IPv6"}})];
    let ports = json!({"ports": [{"protocol": "TCP", "port": 7000}, {"protocol": "UDP", "port": 7000}]});
    let rules = |open: bool| icmp.iter().cloned().chain(open.then(|| ports.clone())).collect::<Vec<_>>();
    let spec = json!({"vpc": {"name": "open"}, "ingress": rules(ingress), "egress": rules(egress)});
    object("SecurityGroup", "open", &spec)
}

fn networks() -> Vec<Value> {
    let subnet = json!({"vpc": {"name": "open"}, "cidr": "10.60.0.0/24", "ipv6Cidr": "fd00:60::/64"});
    let vnic = |place: usize| {
        let (name, node) = ENDS[place];
        let addresses = [format!("10.60.0.{}", 40 + place), format!("fd00:60::{}", 40 + place)];
        let spec = json!({"subnet": "open", "addresses": addresses, "securityGroups": ["open"], "nodeName": node});
        object("VNic", name, &spec)
    };
    vec![object("Vpc", "open", &json!({})), object("Subnet", "open", &subnet), group(true, true), vnic(0), vnic(1)]
}

#[test]
fn open_connections_end_with_their_rule() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP ovn::open_connections_end_with_their_rule: `make judges JUDGE=ovn` runs it ({LONG}=1)");
        return;
    }
    on_site("judge_ovn_open", async |site, namespace| {
        let mut run = Run::new(site, namespace, Draw::new(0));
        let tested = both(&mut run).await;
        let ended = run.end().await;
        tested.and(ended)
    });
}

async fn both(run: &mut Run<'_>) -> Result<()> {
    run.apply(&networks()).await?;
    for (place, (name, node)) in ENDS.into_iter().enumerate() {
        let end = endpoint::on_node(run.site, run.namespace, name, node, FIRST_PLACE + place).await?;
        run.endpoints.push(end);
    }
    run.ports_are_up().await?;
    for (closed, without) in
        [("the caller's egress rule", group(true, false)), ("the called one's ingress rule", group(false, true))]
    {
        for family in [4, 6] {
            connection(run, family, &without).await.with_context(|| format!("IPv{family}, without {closed}"))?;
        }
    }
    Ok(())
}

async fn set(run: &mut Run<'_>, group: &Value) -> Result<()> {
    run.apply(std::slice::from_ref(group)).await?;
    run.in_force(group).await
}

/// `without`: the group that lets the connection pass no more.
async fn connection(run: &mut Run<'_>, family: u8, without: &Value) -> Result<()> {
    set(run, &group(true, true)).await?;
    let address = |place: usize| match family {
        4 => format!("10.60.0.{}", 40 + place),
        _ => format!("fd00:60::{}", 40 + place),
    };
    let (site, own, peer) = (run.site, address(0), address(1));
    let called = run.endpoints[1].talk(site, &[&peer]).await?;
    let caller = run.endpoints[0].talk(site, &[&own, &peer]).await?;
    for protocol in ["tcp", "udp"] {
        caller.says(protocol, "call").await?;
        called.hears(protocol, "call").await?;
        called.says(protocol, "answer").await?;
        caller.hears(protocol, "answer").await?;
    }
    set(run, without).await?;
    for (from, to, text) in [(&caller, &called, "more"), (&called, &caller, "back")] {
        for protocol in ["tcp", "udp"] {
            from.says(protocol, text).await?;
        }
        pings(site, &run.endpoints[0], &peer).await?;
        for protocol in ["tcp", "udp"] {
            ensure!(!to.has_heard(protocol, text), "'{text}' by {protocol} was heard after the rule was gone");
        }
    }
    Ok(())
}

/// Meanwhile others pass.
async fn pings(site: &Site, from: &Endpoint, to: &str) -> Result<()> {
    from.run(site, &["ping", "-q", "-i", "0.2", "-c", "5", "-W", "2", to]).await.map(drop)
}
