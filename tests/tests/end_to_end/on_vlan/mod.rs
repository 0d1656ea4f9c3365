//! A Subnet on a network of the data centre: a machine and a pod are hosts of it, beside one that is none of the site's, with nothing
//! translated in between; and on a VLAN of it, by the tag.

use crate::machine::{BOOT, Machine, SOON};
use crate::on_servers;
use crate::vpc_pods::pod;
use crate::way_out::HOST;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::site::{Pod, Site, until};

const MACHINE: &str = "203.0.113.200";
const POD: [&str; 2] = ["203.0.113.201", "2001:db8:1::201"];
/// With a tag.
const VLAN: &str = "100";
const ON_VLAN: &str = "198.51.100.7";
const HOST_ON_VLAN: &str = "198.51.100.1";
const VLAN_HOST: &str = include_str!("host.py");
const SOON_TIMEOUT: &str = "--timeout=150s";
/// Tells whom it was called by.
const SERVER: &str = r#"alarm 60; $s = IO::Socket::INET->new(Listen => 1, LocalAddr => $ARGV[0], LocalPort => 8080, ReuseAddr => 1) or die $@; $c = $s->accept; print $c "called by ", $c->peerhost, "\n"; close $c"#;

/// `network`: the ProviderNetwork is the whole cluster's, and its name this test's own.
fn objects(machine: &Machine<'_>, network: &str) -> String {
    let (name, hardware) = (machine.name, machine.hardware());
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: ProviderNetwork
metadata: {{name: {network}}}
spec: {{physicalNetwork: physnet1, cidr: 203.0.113.0/24, ipv6Cidr: '2001:db8:1::/64', gateway: 203.0.113.1}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: hosts}}
spec: {{providerNetwork: {network}, routed: false, cidr: 203.0.113.0/24, ipv6Cidr: '2001:db8:1::/64'}}
---
apiVersion: metalplane.io/v1alpha1
kind: ProviderNetwork
metadata: {{name: {network}-{VLAN}}}
spec: {{physicalNetwork: physnet1, vlan: {VLAN}, cidr: 198.51.100.0/24}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: tagged}}
spec: {{providerNetwork: {network}-{VLAN}, routed: false, cidr: 198.51.100.0/24}}
---
apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {{name: web}}
spec: {{vpc: {{name: default}}}}
---
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {name}}}
spec:
  hardware: {{name: {hardware}}}
  terminationGracePeriodSeconds: 5
  disks:
  - {{name: root, bootOrder: 1, source: {{image: {{kind: ClusterMachineImage, name: tiny}}}}}}
  interfaces:
  - {{name: eth0, subnet: hosts, addresses: [{MACHINE}], securityGroups: [web]}}
"
    )
}

/// In another Vpc, and on the same network.
fn another(network: &str) -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: Vpc
metadata: {{name: other}}
spec: {{}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: others}}
spec: {{vpc: {{name: other}}, providerNetwork: {network}, routed: false, cidr: 203.0.113.0/24}}
"
    )
}

#[test]
fn a_machine_and_a_pod_are_hosts_of_the_data_centre() {
    on_servers(&[1], "on_vlan", async |site, namespace| {
        let limit = format!("--timeout={}s", SOON.as_secs());
        site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
        let machine = Machine { address: MACHINE, ..Machine::on_first(site, namespace) };
        let networks = json!([
            {"name": "net1", "subnet": "hosts", "addresses": POD, "securityGroups": ["web"]},
            {"name": "net2", "subnet": "tagged", "addresses": [ON_VLAN], "securityGroups": ["web"]},
        ]);
        let asks = format!(
            "  labels: {{metalplane.io/networks: ''}}\n  annotations: {}\n",
            json!({"metalplane.io/networks": networks.to_string()})
        );
        let all = format!("{}---\n{}", objects(&machine, namespace), pod(namespace, "host", &asks));
        site.apply_in(namespace, &all).await?;
        machine.kubectl(&["wait", "--for=jsonpath={.status.phase}=Running", "pod/host", SOON_TIMEOUT]).await?;
        machine.wait_ready().await?;
        let inside = site.pod(namespace, "host").await?;
        out(&machine, &inside).await?;
        in_from_outside(&machine, &inside).await?;
        by_the_tag(site, &inside).await?;
        one_subnet(&machine, namespace).await
    });
}

/// Whatever the group lets out reaches the router, and nothing that it does not let in comes in.
async fn out(machine: &Machine<'_>, inside: &Pod) -> Result<()> {
    let (site, guest) = (machine.site, machine.guest());
    let asked = guest.shell(&format!("ping -q -c 3 -W 5 {}; cat /sys/class/net/eth0/mtu", HOST[0]), BOOT).await?;
    ensure!(asked.contains("3 packets received"), "the router does not answer the machine: {asked}");
    ensure!(asked.lines().any(|line| line.trim() == "1500"), "no tunnel is in between: {asked}");
    for host in HOST {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "5", "-I", "net1", host];
        until(&format!("{host} answers the pod"), SOON, async || {
            Ok(inside.enter(site, &ask).await.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await?;
    }
    machine.kubectl(&["wait", "--for=condition=InForce", "sg/web", SOON_TIMEOUT]).await?;
    for address in [MACHINE, POD[0], POD[1]] {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "1", address];
        ensure!(site.enter("outside", &ask).await.is_err(), "{address} answers although nothing allows it");
    }
    Ok(())
}

/// By their own addresses.
async fn in_from_outside(machine: &Machine<'_>, inside: &Pod) -> Result<()> {
    let (site, guest) = (machine.site, machine.guest());
    let open = r#"{"spec": {"ingress": [{"from": [{"cidr": "203.0.113.0/24"}, {"cidr": "2001:db8:1::/64"}]}]}}"#;
    machine.kubectl(&["patch", "sg", "web", "--type=merge", "-p", open]).await?;
    for address in [MACHINE, POD[0], POD[1]] {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "5", address];
        until(&format!("{address} answers from outside"), SOON, async || {
            Ok(site.enter("outside", &ask).await.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await?;
    }
    let large = ["ping", "-q", "-M", "do", "-i", "0.2", "-c", "3", "-W", "2", "-s", "1472", MACHINE];
    site.enter("outside", &large).await.context("packets of 1500 bytes")?;
    // Two chassis, and no tunnel.
    let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "2", "-I", "net1", MACHINE];
    inside.enter(site, &ask).await.context("from the pod to the machine")?;
    let serve = ["perl", "-MIO::Socket::INET", "-e", SERVER, HOST[0]];
    let call = format!("for i in 1 2 3 4 5; do nc -w 30 {} 8080 </dev/null && break; sleep 1; done", HOST[0]);
    let (served, called) = tokio::join!(site.enter("outside", &serve), guest.shell(&call, SOON));
    served.context("the server outside")?;
    let called = called?;
    ensure!(called.contains(&format!("called by {MACHINE}")), "outside the machine was seen otherwise: {called}");
    Ok(())
}

/// There and back: the host outside hears, and sends, nothing without the tag.
async fn by_the_tag(site: &Site, inside: &Pod) -> Result<()> {
    if site.enter("outside", &["python3", "--version"]).await.is_err() {
        eprintln!("SKIP on_vlan::by_the_tag: python3 is not installed");
        return Ok(());
    }
    let host = ["python3", "-c", VLAN_HOST, "br-outside", VLAN, HOST_ON_VLAN];
    let ask = ["ping", "-q", "-c", "1", "-w", "5", "-I", "net2", HOST_ON_VLAN];
    let answered = until("the host on the VLAN answers the pod", SOON, async || {
        Ok(inside.enter(site, &ask).await.map(drop).map_err(|error| format!("{error:#}")))
    });
    let (heard, answered) = tokio::join!(site.enter("outside", &host), answered);
    answered?;
    heard.context("the host on the VLAN").map(drop)
}

/// Nobody gets an address of the network a second time: another Subnet waits while there is one.
async fn one_subnet(machine: &Machine<'_>, network: &str) -> Result<()> {
    let site = machine.site;
    site.apply_in(machine.namespace, &another(network)).await?;
    let taken = r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=ProviderNetworkTaken"#;
    machine.kubectl(&["wait", taken, "sn/others", SOON_TIMEOUT]).await?;
    site.kubectl(&["delete", "pn", network, "--wait=false"]).await?;
    let in_use = r#"--for=jsonpath={.status.conditions[?(@.type=="Deletable")].reason}=ProviderNetworkInUse"#;
    site.kubectl(&["wait", in_use, &format!("pn/{network}"), SOON_TIMEOUT]).await?;
    machine.kubectl(&["delete", "pod", "host", "--grace-period=0", SOON_TIMEOUT]).await?;
    machine.delete().await?;
    machine.kubectl(&["delete", "sn", "hosts", "tagged", SOON_TIMEOUT]).await?;
    site.kubectl(&["delete", "pn", &format!("{network}-{VLAN}"), SOON_TIMEOUT]).await?;
    let leaving = r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=ProviderNetworkBeingDeleted"#;
    machine.kubectl(&["wait", leaving, "sn/others", SOON_TIMEOUT]).await?;
    machine.kubectl(&["delete", "sn", "others", SOON_TIMEOUT]).await?;
    site.kubectl(&["wait", "--for=delete", &format!("pn/{network}"), SOON_TIMEOUT]).await.map(drop)
}
