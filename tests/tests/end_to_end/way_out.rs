//! Out of a Vpc by a NatGateway, and in by a FloatingIP: a pod's NIC, and a host on a network that is none of the site's.

use super::machine::SOON;
use super::on_servers;
use super::vpc_pods::pod;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::site::{ORDINARY_NODE as NODE, Pod, Site, tcp, until};

/// The host outside.
pub(super) const HOST: [&str; 2] = ["203.0.113.1", "2001:db8:1::1"];
const GATEWAY: [&str; 2] = ["203.0.113.10", "2001:db8:1::10"];
/// The pod's.
const INSIDE: [&str; 2] = ["10.40.0.21", "fd00:40::21"];
const FLOATING: [&str; 2] = ["203.0.113.20", "2001:db8:1::20"];
/// Of a Subnet over Geneve and IPv4, where nothing else is said.
const MTU: u32 = 1442;
fn way_out(network: &str, nodes: &str) -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: Vpc
metadata: {{name: green}}
spec: {{defaultSecurityGroups: [web]}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: green}}
spec: {{vpc: {{name: green}}, cidr: 10.40.0.0/24, ipv6Cidr: 'fd00:40::/64'}}
---
apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {{name: web}}
spec: {{vpc: {{name: green}}}}
---
apiVersion: metalplane.io/v1alpha1
kind: ProviderNetwork
metadata: {{name: {network}}}
spec:
  physicalNetwork: physnet1
  cidr: 203.0.113.0/24
  ipv6Cidr: '2001:db8:1::/64'
  gateway: 203.0.113.1
  addresses: [203.0.113.10-203.0.113.29, '2001:db8:1::10-2001:db8:1::29']
  gatewayNodes: [{nodes}]
---
apiVersion: metalplane.io/v1alpha1
kind: NatGateway
metadata: {{name: out}}
spec: {{vpc: {{name: green}}, providerNetwork: {network}}}
---
apiVersion: metalplane.io/v1alpha1
kind: FloatingIP
metadata: {{name: four}}
spec: {{providerNetwork: {network}, address: {}}}
---
apiVersion: metalplane.io/v1alpha1
kind: FloatingIP
metadata: {{name: six}}
spec: {{providerNetwork: {network}, address: '{}'}}
",
        FLOATING[0], FLOATING[1]
    )
}

pub(super) struct Way<'a> {
    pub(super) site: &'a Site,
    namespace: &'a str,
    inside: Pod,
}

impl Way<'_> {
    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let limit = format!("--timeout={}s", SOON.as_secs());
        self.site.kubectl(&[args, &["-n", self.namespace, &limit]].concat()).await
    }

    async fn get(&self, args: &[&str]) -> Result<String> {
        self.site.kubectl(&[&["get", "-n", self.namespace], args].concat()).await
    }

    async fn in_force(&self, objects: &[&str]) -> Result<()> {
        self.kubectl(&[&["wait", "--for=condition=InForce"], objects].concat()).await.map(drop)
    }

    async fn in_pod(&self, args: &[&str]) -> Result<String> {
        self.inside.enter(self.site, args).await
    }

    /// From the pod, or to it.
    pub(super) async fn passes(&self, out: bool, address: &str) -> Result<()> {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "5", address];
        until(&format!("{address} answers"), SOON, async || {
            let answered = if out { self.in_pod(&ask).await } else { self.site.enter("outside", &ask).await };
            Ok(answered.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await
    }

    async fn is_closed(&self, address: &str) -> Result<()> {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "1", address];
        ensure!(self.site.enter("outside", &ask).await.is_err(), "{address} answers although nothing allows it");
        Ok(())
    }

    /// TCP in packets of full size, out of the pod or in to it; as whom the one who listens has seen the other.
    async fn tcp(&self, out: bool, listen: &str, to: &str) -> Result<String> {
        let run = async |in_pod: bool, args: &[&str]| {
            if in_pod { self.in_pod(args).await } else { self.site.enter("outside", args).await }
        };
        tcp(async |args: &[&str]| run(!out, args).await, async |args: &[&str]| run(out, args).await, listen, to).await
    }

    async fn holds(&self) -> Result<Vec<String>> {
        let path = "jsonpath={range .items[*]}{.spec.owner.namespace} {.spec.owner.kind} {.spec.address}{'\\n'}{end}";
        let all = self.site.kubectl(&["get", "addressholds", "-o", path]).await?;
        let own = all.lines().filter(|line| line.starts_with(&format!("{} ", self.namespace)));
        let outside = own.filter(|line| line.contains(" NatGateway ") || line.contains(" FloatingIP "));
        Ok(outside.map(str::to_owned).collect())
    }
}

#[test]
fn a_vpc_reaches_what_is_outside_and_is_reached() {
    on_servers(&[1], "way_out", async |site, namespace| {
        let way = begun(site, namespace, "dpu-1").await?;
        routed(&way).await?;
        let tested = both_ways(&way).await;
        let gone = nothing_is_left(&way).await;
        tested.and(gone)
    });
}

/// A pod in a Vpc with a way out, by these nodes.
pub(super) async fn begun<'a>(site: &'a Site, namespace: &'a str, nodes: &str) -> Result<Way<'a>> {
    let limit = format!("--timeout={}s", SOON.as_secs());
    site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
    let networks = json!([{"name": "net1", "subnet": "green", "addresses": INSIDE}]);
    let asks =
        format!("  labels: {{metalplane.io/networks: ''}}\n  annotations: {{metalplane.io/networks: '{networks}'}}\n");
    // The provider network is the whole cluster's: its name is this test's own.
    site.apply_in(namespace, &format!("{}---\n{}", way_out(namespace, nodes), pod(namespace, "inner", &asks))).await?;
    site.kubectl(&["wait", "--for=jsonpath={.status.phase}=Running", "pod/inner", "-n", namespace, &limit]).await?;
    Ok(Way { site, namespace, inside: site.pod(namespace, "inner").await? })
}

/// The pod's own way to what is outside; in force.
pub(super) async fn routed(way: &Way<'_>) -> Result<()> {
    way.in_pod(&["ip", "route", "replace", "203.0.113.0/24", "via", "10.40.0.1", "dev", "net1"]).await?;
    way.in_pod(&["ip", "route", "replace", "2001:db8:1::/64", "via", "fd00:40::1", "dev", "net1"]).await?;
    way.in_force(&["ngw/out", "fip/four", "fip/six"]).await
}

async fn both_ways(way: &Way<'_>) -> Result<()> {
    let chosen = way.get(&["ngw", "out", "-o", "jsonpath={.status.addresses[*]}"]).await?;
    ensure!(chosen.trim() == GATEWAY.join(" "), "the first ones of the ranges are chosen, not {chosen}");
    for host in HOST {
        way.passes(true, host).await.context("out by the NatGateway")?;
    }
    for (host, gateway) in HOST.into_iter().zip(GATEWAY) {
        let seen = way.tcp(true, host, host).await?;
        ensure!(seen == gateway, "outside, at {host}, it was seen as {seen}");
    }

    let vnic = way.get(&["vnic", "-l", "metalplane.io/pod", "-o", "jsonpath={.items[0].metadata.name}"]).await?;
    let to = format!(r#"{{"spec": {{"vnic": "{}"}}}}"#, vnic.trim());
    for floating in ["four", "six"] {
        way.site.kubectl(&["patch", "fip", floating, "-n", way.namespace, "--type=merge", "-p", &to]).await?;
        let named = format!("fip/{floating}");
        way.kubectl(&["wait", "--for=jsonpath={.status.vnicUID}", &named]).await?;
    }
    way.in_force(&["fip/four", "fip/six"]).await?;
    for floating in FLOATING {
        way.is_closed(floating).await.context("the group allows nothing yet")?;
    }
    let open = r#"{"spec": {"ingress": [{"from": [{"cidr": "203.0.113.0/24"}, {"cidr": "2001:db8:1::/64"}]}]}}"#;
    way.site.kubectl(&["patch", "sg", "web", "-n", way.namespace, "--type=merge", "-p", open]).await?;
    // First by another node's gateway; then the pod's own node carries it, and translates itself.
    for node in ["dpu-1", NODE] {
        let nodes = format!(r#"{{"spec": {{"gatewayNodes": ["{node}"]}}}}"#);
        way.site.kubectl(&["patch", "pn", way.namespace, "--type=merge", "-p", &nodes]).await?;
        for floating in FLOATING {
            way.passes(false, floating).await.with_context(|| format!("in by {node}"))?;
        }
        for host in HOST {
            way.passes(true, host).await.with_context(|| format!("out by {node}"))?;
        }
        sizes(way).await.with_context(|| format!("the MTU, in by {node}"))?;
        for ((own, floating), host) in INSIDE.into_iter().zip(FLOATING).zip(HOST) {
            let seen = way.tcp(false, own, floating).await?;
            ensure!(seen == host, "inside, at {own}, by {node}, {host} was seen as {seen}");
            let seen = way.tcp(true, host, host).await?;
            ensure!(seen == floating, "by {node} {own} is seen by its own address, not {seen}");
        }
    }
    Ok(())
}

/// From outside, where packets are larger: one of the Subnet's size arrives, the next larger one is told so by the router (RFC 792 and
/// 1191, RFC 4443 section 3.2), in both families.
async fn sizes(way: &Way<'_>) -> Result<()> {
    // Those of an echo request's headers are not counted by ping.
    for (floating, headers) in FLOATING.into_iter().zip([28, 48]) {
        let ask = async |size: u32| {
            let ask = "ping -n -M do -i 0.2 -c 3 -W 2 -s \"$1\" \"$2\" 2>&1 || true";
            way.site.enter("outside", &["sh", "-c", ask, "sh", &(size - headers).to_string(), floating]).await
        };
        // What the kernel has learnt of the path is forgotten: it would tell itself.
        for family in ["-4", "-6"] {
            way.site.enter("outside", &["ip", family, "route", "flush", "cache"]).await?;
        }
        // The nodes have just changed: until the new one carries it, some are lost.
        until(&format!("{MTU} bytes reach {floating}"), SOON, async || {
            let fits = ask(MTU).await?;
            Ok(if fits.contains(" 0% packet loss") { Ok(()) } else { Err(fits) })
        })
        .await?;
        let larger = ask(MTU + 1).await?;
        let is_told = ["mtu = ", "mtu=", "mtu: "].iter().any(|word| larger.contains(&format!("{word}{MTU}")));
        ensure!(is_told && larger.contains("100% packet loss"), "{} bytes to {floating}: {larger}", MTU + 1);
    }
    Ok(())
}

pub(super) async fn is_removed(way: &Way<'_>) -> Result<()> {
    way.kubectl(&["delete", "pod", "inner", "--grace-period=0"]).await?;
    way.kubectl(&["delete", "fip,ngw", "--all"]).await?;
    way.kubectl(&["delete", "sn,sg", "--all"]).await?;
    way.kubectl(&["delete", "vpc", "--all"]).await?;
    way.kubectl(&["delete", "pn", way.namespace, "--ignore-not-found"]).await.map(drop)
}

/// In the order in which everything is still used.
pub(super) async fn nothing_is_left(way: &Way<'_>) -> Result<()> {
    let (site, namespace) = (way.site, way.namespace);
    for used in [["pn", namespace], ["ngw", "out"], ["vpc", "green"]] {
        site.kubectl(&["delete", used[0], used[1], "-n", namespace, "--wait=false"]).await?;
        let waits = [used[0], used[1]].join("/");
        way.kubectl(&["wait", "--for=condition=Deletable=false", &waits]).await.context("whom it waits for")?;
    }
    is_removed(way).await?;
    let left = way.holds().await?;
    ensure!(left.is_empty(), "{left:?}");
    for table in ["NAT", "Logical_Router_Static_Route", "Gateway_Chassis"] {
        let rows = site.enter("cp", &["ovn-nbctl", "--timeout=30", "--bare", "--columns=_uuid", "list", table]).await?;
        ensure!(rows.trim().is_empty(), "{table} has rows: {rows}");
    }
    Ok(())
}
