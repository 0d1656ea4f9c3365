//! A NIC that is flooded from before its device exists: nothing that no rule allows ever comes out of the switch towards the host, for
//! its port is closed before it is there.

use super::machine::{Machine, SOON, SOON_FLAG};
use anyhow::{Result, ensure};
use serde_json::json;
use tests::guest::Guest;
use tests::site::{Perl, Place, Site, until};

pub const FLOOD: &str = include_str!("flood.pl");
const WATCH: &str = include_str!("watch.pl");
const FROM: &str = "node-1";
const PROBE: &str = "probe-flood";
/// The NIC's addresses, and what is sent to each.
const FLOODED: [(&str, &str); 2] =
    [("10.30.0.78", "mp-flood-by-ipv4-before-it-exists"), ("fd00:30::78", "mp-flood-by-ipv6-before-it-exists")];
/// Locally administered, as the field of a VNic asks.
const MAC: &str = "02:30:00:00:00:78";
/// Nobody listens there: what arrives is seen on its way.
const PORT: u16 = 9;

/// A payload that is sent to an address all the time, and seen on the way to a host.
pub struct Flood {
    to: String,
    sent: Perl,
    seen: Perl,
}

impl Flood {
    /// `start`: [`FLOOD`] with these arguments. `dpu`: the host's.
    pub async fn begun(
        site: &Site,
        dpu: &str,
        (to, payload): (&str, &str),
        start: impl AsyncFnOnce(&[&str]) -> Result<Perl>,
    ) -> Result<Self> {
        let seen = Perl::start(site.sandbox.enter(dpu), dpu, WATCH, &[payload]).await?;
        let sent = start(&[&PORT.to_string(), payload, to]).await?;
        Ok(Self { to: to.to_owned(), sent, seen })
    }

    pub async fn end(self) -> Result<()> {
        self.sent.end().await?;
        self.seen.end().await
    }
}

/// To which addresses it comes out of the switch towards the host.
pub fn arriving(floods: &[Flood]) -> Vec<&str> {
    let is_hosts = |flood: &&Flood| flood.seen.heard().iter().any(|device| device.starts_with("mp"));
    floods.iter().filter(is_hosts).map(|flood| flood.to.as_str()).collect()
}

/// Hot-plugged into a running machine.
pub async fn interface(machine: &Machine<'_>, guest: &Guest) -> Result<()> {
    let (site, namespace, dpu) = (machine.site, machine.namespace, machine.on().dpu());
    let vnic = json!({"subnet": "blue", "addresses": FLOODED.map(|(address, _)| address), "macAddress": MAC, "securityGroups": ["shut"]});
    site.apply_in(namespace, &object("SecurityGroup", "shut", &json!({"vpc": {"name": "default"}}))).await?;
    site.apply_in(namespace, &object("VNic", "flooded", &vnic)).await?;
    let place = Place { namespace, subnet: "blue", addresses: &["10.30.0.249/24", "fd00:30::249/64"] };
    let probe = site.probe(FROM, PROBE, place).await?;
    let mut floods = Vec::new();
    for (address, payload) in FLOODED {
        // On this node another test's port may be in a Subnet with the same network.
        site.enter(FROM, &["ip", "route", "replace", address, "dev", PROBE]).await?;
        // Nobody answers who has the address, yet.
        site.enter(FROM, &["ip", "neigh", "replace", address, "lladdr", MAC, "nud", "permanent", "dev", PROBE]).await?;
        let start = async |words: &[&str]| Perl::start(site.sandbox.enter(FROM), FROM, FLOOD, words).await;
        floods.push(Flood::begun(site, &dpu, (address, payload), start).await?);
    }

    let from = guest.printed().len();
    machine
        .bmctl(&["addinterface", machine.name, "shut", "--vnic", "flooded", "--wait", "--timeout", SOON_FLAG])
        .await?;
    let two = |line: &str| line.contains("MP-NIC") && line.matches('=').count() >= 2;
    guest.line("the guest sees the new interface", from, SOON, two).await?;
    probe.hears(machine.address, SOON).await?;
    let arrived = arriving(&floods);
    ensure!(arrived.is_empty(), "packets that no rule allows came to the new interface: to {arrived:?}");
    let open = json!({"spec": {"ingress": [{"ports": [{"protocol": "UDP", "port": PORT}]}]}}).to_string();
    machine.kubectl(&["patch", "sg", "shut", "--type=merge", "-p", &open]).await?;
    until("the same packets come once a rule allows them", SOON, async || {
        let arrived = arriving(&floods);
        Ok(if arrived.len() == FLOODED.len() { Ok(()) } else { Err(format!("to {arrived:?} alone")) })
    })
    .await?;

    for flood in floods {
        flood.end().await?;
    }
    site.remove_probe(FROM, PROBE).await?;
    machine.bmctl(&["removeinterface", machine.name, "shut", "--wait", "--timeout", SOON_FLAG]).await?;
    machine.kubectl(&["delete", "vnic/flooded", "sg/shut", &format!("--timeout={SOON_FLAG}")]).await.map(drop)
}

fn object(kind: &str, name: &str, spec: &serde_json::Value) -> String {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}
