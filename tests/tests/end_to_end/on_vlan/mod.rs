//! A Subnet on a network of the data centre: a machine and a pod are hosts of it, beside one that is none of the site's, with nothing
//! translated in between; and on a VLAN of it, by the tag.

use crate::machine::{BOOT, Machine, SOON};
use crate::on_servers;
use crate::vpc_pods::pod;
use crate::way_out::HOST;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::site::{Pod, Site, serve, until};

const MACHINE: [&str; 2] = ["203.0.113.200", "2001:db8:1::200"];
const POD: [&str; 2] = ["203.0.113.201", "2001:db8:1::201"];
/// With a tag.
const VLAN: &str = "100";
const ON_VLAN: [&str; 2] = ["198.51.100.7", "2001:db8:2::7"];
const HOST_ON_VLAN: [&str; 2] = ["198.51.100.1", "2001:db8:2::1"];
const VLAN_HOST: &str = include_str!("host.py");
const SOON_TIMEOUT: &str = "--timeout=150s";

/// `network`: the ProviderNetwork is the whole cluster's, and its name this test's own.
fn objects(machine: &Machine<'_>, network: &str) -> String {
    let (name, hardware, [four, six]) = (machine.name, machine.hardware(), MACHINE);
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
spec: {{physicalNetwork: physnet1, vlan: {VLAN}, cidr: 198.51.100.0/24, ipv6Cidr: '2001:db8:2::/64'}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: tagged}}
spec: {{providerNetwork: {network}-{VLAN}, routed: false, cidr: 198.51.100.0/24, ipv6Cidr: '2001:db8:2::/64'}}
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
  - {{name: eth0, subnet: hosts, addresses: [{four}, '{six}'], securityGroups: [web]}}
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
        let machine = Machine { address: MACHINE[0], ..Machine::on_first(site, namespace) };
        let networks = json!([
            {"name": "net1", "subnet": "hosts", "addresses": POD, "securityGroups": ["web"]},
            {"name": "net2", "subnet": "tagged", "addresses": ON_VLAN, "securityGroups": ["web"]},
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
    // What DHCPv6 would tell: busybox does not ask.
    let by_hand = format!(
        "ip addr add {}/64 dev eth0; while ip -6 addr show dev eth0 | grep -q tentative; do sleep 1; done; cat /sys/class/net/eth0/mtu",
        MACHINE[1]
    );
    let configured = guest.shell(&by_hand, BOOT).await?;
    ensure!(configured.lines().any(|line| line.trim() == "1500"), "no tunnel is in between: {configured}");
    for host in HOST {
        let asked = guest.shell(&format!("ping -q -c 3 -W 5 {host}"), SOON).await?;
        ensure!(asked.contains("3 packets received"), "{host} does not answer the machine: {asked}");
    }
    for host in HOST {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "5", "-I", "net1", host];
        until(&format!("{host} answers the pod"), SOON, async || {
            Ok(inside.enter(site, &ask).await.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await?;
    }
    machine.kubectl(&["wait", "--for=condition=InForce", "sg/web", SOON_TIMEOUT]).await?;
    for address in MACHINE.into_iter().chain(POD) {
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
    for address in MACHINE.into_iter().chain(POD) {
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "5", address];
        until(&format!("{address} answers from outside"), SOON, async || {
            Ok(site.enter("outside", &ask).await.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await?;
    }
    // Those of an echo request's headers are not counted by ping.
    for ((address, size), host) in MACHINE.into_iter().zip(["1472", "1452"]).zip(HOST) {
        let large = ["ping", "-q", "-M", "do", "-i", "0.2", "-c", "3", "-W", "2", "-s", size, address];
        site.enter("outside", &large).await.context("packets of 1500 bytes")?;
        // Two chassis, and no tunnel.
        let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "2", "-I", "net1", address];
        inside.enter(site, &ask).await.context("from the pod to the machine")?;
        let called = format!(
            "for i in 1 2 3 4 5; do nc -w 30 {host} 8080 </dev/null >/tmp/got && break; sleep 1; done; cut -d ' ' -f 1 /tmp/got; wc -c </tmp/got"
        );
        let server = serve(host);
        let (served, called) = tokio::join!(site.enter("outside", &server), guest.shell(&called, SOON));
        served.context("the server outside")?;
        let called = called?;
        let said = |wanted: &str| called.lines().any(|line| line.trim() == wanted);
        // Behind its address and a space.
        let all = (address.len() + 1 + 100_000).to_string();
        ensure!(
            said(address) && said(&all),
            "at {host} the machine was seen otherwise, or heard something else: {called}"
        );
    }
    Ok(())
}

/// There and back: the host outside hears, and sends, nothing without the tag.
async fn by_the_tag(site: &Site, inside: &Pod) -> Result<()> {
    if site.enter("outside", &["python3", "--version"]).await.is_err() {
        eprintln!("SKIP on_vlan::by_the_tag: python3 is not installed");
        return Ok(());
    }
    let [four, six] = HOST_ON_VLAN;
    let host = ["python3", "-c", VLAN_HOST, "br-outside", VLAN, four, six];
    let answered = async {
        for address in HOST_ON_VLAN {
            let ask = ["ping", "-q", "-c", "1", "-w", "5", "-I", "net2", address];
            until(&format!("{address} on the VLAN answers the pod"), SOON, async || {
                Ok(inside.enter(site, &ask).await.map(drop).map_err(|error| format!("{error:#}")))
            })
            .await?;
        }
        anyhow::Ok(())
    };
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
