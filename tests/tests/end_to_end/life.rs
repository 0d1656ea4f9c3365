//! A machine's whole life, as its user sees it.

use super::machine::{BOTH_FAMILIES, IPV4_ALONE, Machine, SOON, SOON_FLAG};
use super::{flooded, on_servers, shown};
use anyhow::{Context, Result, ensure};
use api::labels;
use planner::dpu::boot_disk::BootDiskReads;
use planner::vnic::logical_port;
use serde_json::{Value, json};
use tests::guest::Guest;
use tests::site::{Place, Site, until};

/// Its volumes are made once a node is selected for them.
const LATE: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: csi.metalplane.io
parameters: {pool: default}
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
";

/// The first address behind the gateway's.
const FIRST: &str = "10.30.0.2";
const OTHER_NODE: &str = "node-1";
const PROBE: &str = "probe-life";
/// For how long a connection is held open while its rule goes: seconds, more than a rule takes to be in force.
const OPEN: u32 = 10;

const LIMITED: &str = "apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: limited}
driverName: csi.metalplane.io
parameters: {iops: '20000', readMiBps: '100'}
";

#[test]
fn a_machine_boots_is_changed_while_it_runs_and_leaves_nothing() {
    on_servers(&[1], "a_machine_boots", async |site, namespace| {
        let machine = Machine { name: "bm-01", address: FIRST, ..Machine::on_first(site, namespace) };
        let guest = machine.guest();
        let from = guest.printed().len();
        site.apply(&asking_for_no_address(&machine)).await?;
        machine.wait_ready().await?;
        let six = addresses(&machine, &guest, from).await?;
        boot_disk_is_read(&machine).await?;
        shown::all(&machine).await?;
        let seen = machine.object().await?["status"].clone();
        ensure!(seen["state"] == "Running", "state is {}", seen["state"]);
        ensure!(seen["addresses"][0]["address"] == machine.address, "addresses are {}", seen["addresses"]);
        guest.line("the guest read its name from the seed", from, SOON, |line| line.contains("bm-01")).await?;
        disks(&machine, &guest).await?;
        interfaces(&machine, &guest).await?;
        flooded::interface(&machine, &guest).await?;
        groups(&machine, &six).await?;
        restart(&machine, &guest).await?;
        machine.delete().await?;
        nothing_is_left(&machine).await
    });
}

/// Its manifest without an address, in a Subnet of both families.
fn asking_for_no_address(machine: &Machine<'_>) -> String {
    machine.manifest().replace(&format!(", addresses: [{}]", machine.address), "").replace(IPV4_ALONE, BOTH_FAMILIES)
}

/// The guest has what was chosen: by DHCP, and what the router advertises is what was chosen too; gives the latter.
async fn addresses(machine: &Machine<'_>, guest: &Guest, from: usize) -> Result<String> {
    let vnic = machine.kubectl(&["get", "vnic", &format!("{}-eth0", machine.name), "-o", "json"]).await?;
    let chosen = serde_json::from_str::<Value>(&vnic)?["status"]["addresses"].clone();
    let six = chosen[1].as_str().unwrap_or_default().to_owned();
    ensure!(chosen[0] == FIRST && six.starts_with("fd00:30::") && chosen[2].is_null(), "chosen were {chosen}");
    for address in [FIRST, &six] {
        let has = |line: &str| line.contains("MP-ADDRESS") && line.contains(&format!("={address}/"));
        guest.line(&format!("the guest has {address}"), from, SOON, has).await?;
    }
    Ok(six)
}

/// The agent tells that the host reads its boot disk; a host that did not would have been started from something else.
async fn boot_disk_is_read(machine: &Machine<'_>) -> Result<()> {
    let of =
        format!("{}={}", labels::MACHINE_UID, machine.object().await?["metadata"]["uid"].as_str().unwrap_or_default());
    let attachments = machine.site.get(&["diskattachments", "-A", "-l", &of]).await?.unwrap_or_default();
    let all = attachments["items"].as_array().cloned().unwrap_or_default();
    let boot = all.iter().find(|attachment| attachment["spec"]["slot"] == "Boot").context("a disk in the boot slot")?;
    let text = |field: &str| boot["metadata"][field].as_str().context("a name");
    let (uid, namespace) = (text("uid")?, text("namespace")?);
    until("reads of the boot disk are told", SOON, async || {
        let lease = machine.site.get(&["lease", "agent", "-n", namespace]).await?.unwrap_or_default();
        let told = &lease["metadata"]["annotations"][labels::BOOT_DISK_READS];
        let reads = told.as_str().and_then(BootDiskReads::parse);
        let is_read = reads.is_some_and(|reads| reads.disk.starts_with(uid) && reads.count > 0);
        Ok(if is_read { Ok(()) } else { Err(format!("{told}, of {uid}")) })
    })
    .await
}

async fn disks(machine: &Machine<'_>, guest: &Guest) -> Result<()> {
    let from = guest.printed().len();
    machine.site.apply(LATE).await?;
    let add = ["adddisk", machine.name, "data", "--storage-class", "late", "--size", "64Mi", "--bus", "VirtioBlk"];
    machine.bmctl(&[add.as_slice(), &["--wait", "--timeout", SOON_FLAG]].concat()).await?;
    guest.line("the guest sees the new disk", from, SOON, |line| line.contains("vda=131072")).await?;
    let from = guest.printed().len();
    let grow = r#"[{"op":"replace","path":"/spec/disks/1/size","value":"128Mi"}]"#;
    machine.kubectl(&["patch", "bmm", machine.name, "--type=json", "-p", grow]).await?;
    guest.line("the guest sees the new size", from, SOON, |line| line.contains("vda=262144")).await?;
    limits(machine).await?;
    let from = guest.printed().len();
    machine.bmctl(&["removedisk", machine.name, "data", "--wait", "--timeout", SOON_FLAG]).await?;
    let gone = |line: &str| line.contains("MP-BLOCK") && !line.contains("vda");
    guest.line("the guest lost the disk", from, SOON, gone).await.map(drop)
}

/// external-resizer asks the driver, and the running guest's disk is held to what the driver accepted.
async fn limits(machine: &Machine<'_>) -> Result<()> {
    machine.site.apply(LIMITED).await?;
    let class = r#"[{"op":"add","path":"/spec/disks/1/volumeAttributesClassName","value":"limited"}]"#;
    machine.kubectl(&["patch", "bmm", machine.name, "--type=json", "-p", class]).await?;
    until("the disk is held to its class", SOON, async || {
        let status = machine.object().await?["status"].clone();
        let all = |list: &str| status[list].as_array().cloned().unwrap_or_default();
        let held =
            all("disks").iter().any(|d| d["name"] == "data" && d["qos"] == json!({"iops": 20000, "readMiBps": 100}));
        let told = all("conditions").iter().any(|c| c["type"] == "DisksLimited" && c["status"] == "True");
        Ok(if held && told { Ok(()) } else { Err(status.to_string()) })
    })
    .await
}

async fn interfaces(machine: &Machine<'_>, guest: &Guest) -> Result<()> {
    let from = guest.printed().len();
    let add = ["addinterface", machine.name, "eth1", "--subnet", "blue", "--address", "10.30.0.77"];
    machine.bmctl(&[add.as_slice(), &["--wait", "--timeout", SOON_FLAG]].concat()).await?;
    let two = |line: &str| line.contains("MP-NIC") && line.matches('=').count() >= 2;
    guest.line("the guest sees the new interface", from, SOON, two).await?;
    tap_is_deleted(machine).await.context("the tap of a NIC is deleted by hand")?;
    machine.bmctl(&["removeinterface", machine.name, "eth1", "--wait", "--timeout", SOON_FLAG]).await.map(drop)
}

/// The agent says what Open vSwitch says of the port; the NIC can be removed from the machine all the same.
async fn tap_is_deleted(machine: &Machine<'_>) -> Result<()> {
    let (site, dpu) = (machine.site, machine.on().dpu());
    let vnic = ["get", "vnic", &format!("{}-eth1", machine.name), "-o", "jsonpath={.metadata.uid}"];
    let port = format!("external_ids:iface-id={}", logical_port(machine.kubectl(&vnic).await?.trim()));
    let tap = site.enter(&dpu, &["ovs-vsctl", "--bare", "--columns=name", "find", "Interface", &port]).await?;
    site.enter(&dpu, &["ip", "link", "delete", tap.trim()]).await?;
    let namespace = format!("metalplane-dpu-{dpu}");
    until("the attachment names the port that does not forward", SOON, async || {
        let all = site.get(&["nicattachments", "-n", &namespace]).await?.unwrap_or_default();
        let conditions =
            all["items"].as_array().into_iter().flatten().filter_map(|one| one["status"]["conditions"].as_array());
        let told = conditions.flatten().any(|said| {
            said["reason"] == "PortNotForwarding" && said["message"].as_str().is_some_and(|m| m.contains(tap.trim()))
        });
        Ok(if told { Ok(()) } else { Err(all.to_string()) })
    })
    .await
}

/// Another group, whose members receive nothing, closes the guest to a member of the Subnet's own group on another chassis. A rule
/// of it opens the guest to the rule's family, and closes it under an open connection; InForce is waited for, and nothing else.
/// `six`: the guest's second address.
async fn groups(machine: &Machine<'_>, six: &str) -> Result<()> {
    let addresses = &["10.30.0.250/24", "fd00:30::250/64"];
    let place = Place { namespace: machine.namespace, subnet: "blue", addresses };
    let probe = machine.site.probe(OTHER_NODE, PROBE, place).await?;
    let both = [machine.address, six];
    for address in both {
        probe.hears(address, SOON).await?;
    }
    let closed = format!(
        "apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {{name: web, namespace: {}}}
spec: {{vpc: {{name: default}}}}
",
        machine.namespace
    );
    machine.site.apply(&closed).await?;
    machine.site.regroup(machine.namespace, machine.name, &json!(["web"])).await?;
    for address in both {
        probe.hears_nothing(address).await?;
    }
    in_force(machine, &json!([{"icmp": {"family": "IPv4"}}])).await?;
    probe.hears_at_once(machine.address).await?;
    probe.hears_nothing(six).await.context("the rule is IPv4's")?;
    in_force(machine, &json!([{"icmp": {"family": "IPv4"}}, {"icmp": {"family": "IPv6"}}])).await?;
    let closes = async {
        // By then the other two have asked many times.
        for address in both {
            probe.hears_at_once(address).await?;
        }
        in_force(machine, &json!([])).await?;
        anyhow::Ok(jiff::Timestamp::now())
    };
    let (of_four, of_six, closed) =
        tokio::try_join!(probe.answers(machine.address, OPEN), probe.answers(six, OPEN), closes)?;
    for (address, answers) in both.into_iter().zip([of_four, of_six]) {
        ensure!(!answers.is_empty(), "the connection to {address} was never open");
        let late = answers.iter().find(|at| **at > closed);
        ensure!(late.is_none(), "{address} answered at {late:?}; the rule was deleted, and that in force, at {closed}");
    }
    machine.site.regroup(machine.namespace, machine.name, &Value::Null).await?;
    for address in both {
        probe.hears(address, SOON).await?;
    }
    machine.site.remove_probe(OTHER_NODE, PROBE).await?;
    machine.kubectl(&["delete", "securitygroup", "web", &format!("--timeout={SOON_FLAG}")]).await.map(drop)
}

/// The group `web`, whose one member the machine is, lets this in.
async fn in_force(machine: &Machine<'_>, ingress: &Value) -> Result<()> {
    machine.site.edit_ingress(machine.namespace, "web", ingress).await?;
    let members = machine.kubectl(&["get", "sg", "web", "-o", "jsonpath={.status.members}"]).await?;
    ensure!(members == "1", "the group has {members} members");
    Ok(())
}

/// A warm reset: the host keeps its power, and the guest is seen to answer anew.
async fn restart(machine: &Machine<'_>, guest: &Guest) -> Result<()> {
    let (from, host, actions) = (guest.printed().len(), machine.on().host()?, machine.power_actions()?.len());
    machine.bmctl(&["restart", machine.name, "--wait", "--timeout", "300s"]).await?;
    machine.wait_ready().await?;
    guest.line("the guest boots again", from, SOON, |line| line.contains("boots=2")).await?;
    let sent = machine.power_actions()?.split_off(actions);
    ensure!(sent == ["ForceRestart"] && machine.on().host()? == host, "a restart led to {sent:?}");
    Ok(())
}

/// No attachment, no volume, no switch port, no guest, and the hardware is free.
async fn nothing_is_left(machine: &Machine<'_>) -> Result<()> {
    let (site, dpu): (&Site, String) = (machine.site, machine.on().dpu());
    until("nothing is left of the machine", SOON, async || {
        let mut left = Vec::new();
        let namespace = format!("metalplane-dpu-{dpu}");
        let attached = site.kubectl(&["get", "diskattachments,nicattachments", "-n", &namespace, "-o", "name"]).await?;
        left.extend(attached.lines().map(str::to_owned));
        let made = machine.kubectl(&["get", "pvc,vnics", "-o", "name"]).await?;
        // The claim of the disk that was taken out of the list is the user's now.
        left.extend(made.lines().filter(|name| !name.ends_with("bm-01-data")).map(str::to_owned));
        let hardware = site.get(&["hardware", &machine.hardware(), "-n", "metalplane-inventory"]).await?;
        if hardware.unwrap_or_default().to_string().contains("metalplane.io/claimed-by\"") {
            left.push("the claim of the Hardware".to_owned());
        }
        let ports = site.enter(&dpu, &["ovs-vsctl", "list-ports", "br-int"]).await?;
        left.extend(ports.lines().filter(|port| port.starts_with("mp")).map(|port| format!("port {port}")));
        left.extend(machine.on().host()?.map(|pid| format!("QEMU {pid}")));
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .await
}
