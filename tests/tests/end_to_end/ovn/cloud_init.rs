//! The real cloud-init, in a Debian without a cloud-init disk: by EC2's metadata, then by NoCloud's from the same address.

use super::LONG;
use crate::machine::{BOOT, Machine, SOON};
use crate::on_site;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::guest::Guest;
use tests::site::{GuestKind, Site};

const IMAGE: &str = "debian-12";
const TOLD: &str = "only-this-guest-knows-51ab";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm9tbGV0J3Mta2V5LW9mLWEtdGVzdC1vbmx5MTI= somebody@somewhere";
/// What the second boot asks: an image says so in a file like this.
const NO_CLOUD: &str = "datasource_list: [NoCloud, None]
datasource: {NoCloud: {seedfrom: 'http://169.254.169.254/nocloud/'}}
";

fn objects() -> Value {
    let user_data = format!("#cloud-config\nwrite_files:\n- {{path: /root/told, content: {TOLD}}}\n");
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "metalplane.io/v1alpha1",
            "kind": "Subnet",
            "metadata": {"name": "blue"},
            "spec": {"cidr": "10.30.0.0/24", "ipv6Cidr": "fd00:30::/64"},
        },
        {
            "apiVersion": "metalplane.io/v1alpha1",
            "kind": "BareMetalMachine",
            "metadata": {"name": "bm"},
            "spec": {
                "hardware": {"name": "rack1-u01"},
                "terminationGracePeriodSeconds": 5,
                "disks": [{"name": "root", "bootOrder": 1, "source": {"image": {"kind": "MachineImage", "name": IMAGE}}}],
                "interfaces": [{"name": "eth0", "subnet": "blue"}],
                "cloudInit": {"source": "Metadata", "userData": user_data, "sshPublicKeys": [KEY]},
            },
        },
    ]})
}

#[test]
fn a_debian_without_a_cloud_init_disk_is_told_by_ec2_and_by_no_cloud() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP ovn::cloud_init: `make judges JUDGE=ovn` runs it ({LONG}=1)");
        return;
    }
    on_site("judge_ovn_cloud_init", async |site, namespace| {
        site.golden_image(GuestKind::Debian, Some(namespace), IMAGE).await?;
        both(site, &Machine::on_first(site, namespace)).await
    });
}

async fn both(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let guest = machine.guest();
    let from = guest.printed().len();
    site.apply_in(machine.namespace, &objects().to_string()).await?;
    is_told(machine, &guest, from, "DataSourceEc2").await.context("by EC2's metadata")?;
    guest.fed("cat >/etc/cloud/cloud.cfg.d/99-no-cloud.cfg", NO_CLOUD, SOON).await?;
    guest.shell("rm -f /root/told /home/*/.ssh/authorized_keys; cloud-init clean --logs", SOON).await?;
    let from = guest.printed().len();
    guest.order("reboot", SOON).await?;
    is_told(machine, &guest, from, "DataSourceNoCloudNet").await.context("by NoCloud's")
}

/// From `from` on its console: cloud-init has found all that the machine says, by this data source, and has no error to tell.
async fn is_told(machine: &Machine<'_>, guest: &Guest, from: usize, source: &str) -> Result<()> {
    let booted = guest.line("the guest has booted", from, BOOT, |line| line.contains("MP-BOOT ")).await?;
    let uid = machine.object().await?["metadata"]["uid"].as_str().context("a UID")?.to_owned();
    ensure!(booted.trim().ends_with(&format!("{uid} {}", machine.name)), "who it is: {booted}");
    let ended = guest.shell("cloud-init status --wait; cat /run/cloud-init/result.json", BOOT).await?;
    ensure!(ended.contains(source) && ended.contains("\"errors\": []"), "cloud-init: {ended}");
    let files = guest.shell("cat /root/told /home/*/.ssh/authorized_keys", SOON).await?;
    ensure!(files.contains(TOLD) && files.contains(KEY), "user data and key: {files}");
    let vnic = machine.kubectl(&["get", "vnic", "bm-eth0", "-o", "jsonpath={.status.addresses}"]).await?;
    let addresses: Vec<String> = serde_json::from_str(&vnic).context("the VNic's addresses")?;
    ensure!(addresses.len() == 2, "of both families: {vnic}");
    let shown = guest.shell("ip -brief address show scope global", SOON).await?;
    for address in addresses {
        ensure!(shown.contains(&format!("{address}/")), "{address} is not among the guest's: {shown}");
    }
    Ok(())
}
