//! What is wrong is refused at apply, with the path of the field and what to write.

use super::on_servers;
use anyhow::{Result, bail};
use tests::site::Site;

const GOOD: &str = "apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {name: bad}
spec:
  disks:
  - {name: root, bootOrder: 1, source: {image: {kind: ClusterMachineImage, name: tiny}}}
  interfaces:
  - {name: eth0, subnet: blue, addresses: [10.30.0.7]}
";

/// What is replaced in a good machine, by what, and two things that the refusal must say: where, and what to write.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("  disks:\n", "  runStrategy: Sometimes\n  disks:\n", "spec.runStrategy", "Always"),
    ("  disks:\n", "  boot: {strategy: Auto}\n  disks:\n", "spec.boot", "boot.workflow must be given"),
    (
        "  disks:\n",
        "  boot: {workflow: {templateName: t}}\n  disks:\n",
        "spec.boot",
        "boot.workflow must be left out with boot.strategy: CloudDisk",
    ),
    (
        "  disks:\n",
        "  boot: {strategy: Workflow, workflow: {templateName: t}}\n  disks:\n",
        "spec",
        "spec.disks must be left out with boot.strategy: Workflow",
    ),
    (
        "  disks:\n",
        "  boot: {strategy: Auto, workflow: {templateName: t, parameters: {device_1: x}}}\n  disks:\n",
        "spec.boot.workflow",
        "write another name",
    ),
    ("  disks:\n", "  firmware: {secureBoot: Enabled}\n  disks:\n", "spec.firmware", "write Unmanaged"),
    (
        "  disks:\n",
        "  hardware: {name: a, selector: {}}\n  disks:\n",
        "spec.hardware",
        "exactly one of name and selector",
    ),
    ("  disks:\n", "  hardware: {}\n  disks:\n", "spec.hardware", "exactly one of name and selector"),
    (
        "  disks:\n",
        "  terminationGracePeriodSeconds: -1\n  disks:\n",
        "spec.terminationGracePeriodSeconds",
        "greater than or equal to 0",
    ),
    ("  disks:\n", "  maintenancePolicy: LiveMigrate\n  disks:\n", "spec.maintenancePolicy", "Stop"),
    ("  disks:\n", "  readinessProbe: {tcpSocket: {port: 22}}\n  disks:\n", "spec.readinessProbe", "write icmp"),
    ("  disks:\n", "  readinessProbe: {}\n  disks:\n", "spec.readinessProbe", "write icmp"),
    (
        "  disks:\n",
        "  cloudInit: {userData: x, userDataSecretRef: {name: secret}}\n  disks:\n",
        "spec.cloudInit",
        "at most one",
    ),
    ("bootOrder: 1", "bootOrder: 2", "spec", "must have bootOrder: 1"),
    (
        "  disks:\n",
        "  disks:\n  - {name: second, bootOrder: 2, size: 1Gi, source: {blank: {}}}\n",
        "spec.disks[0]",
        "above 1 is not served yet: leave it out",
    ),
    ("bootOrder: 1", "bootOrder: 0", "spec.disks[0].bootOrder", "greater than or equal to 1"),
    ("bootOrder: 1", "bus: SATA, bootOrder: 1", "spec.disks[0].bus", "NVMe"),
    ("bootOrder: 1", "bus: VirtioBlk, bootOrder: 1", "spec", "must have bus: NVMe"),
    ("bootOrder: 1", "size: nonsense, bootOrder: 1", "spec.disks[0].size", "quantity"),
    ("bootOrder: 1", "size: \"-1Gi\", bootOrder: 1", "spec.disks[0].size", "positive quantity"),
    (
        "source: {image: {kind: ClusterMachineImage, name: tiny}}",
        "volumeAttributesClassName: gold, source: {persistentVolumeClaim: {claimName: mine}}",
        "spec.disks[0]",
        "volumeAttributesClassName must be left out with source.persistentVolumeClaim",
    ),
    ("bootOrder: 1", "deletionPolicy: Maybe, bootOrder: 1", "spec.disks[0].deletionPolicy", "Retain"),
    ("name: root", "name: Root", "spec.disks[0].name", "should match"),
    ("{image: {kind: ClusterMachineImage, name: tiny}}", "{}", "spec.disks[0].source", "exactly one of"),
    (
        "{image: {kind: ClusterMachineImage, name: tiny}}",
        "{image: {name: a}, blank: {}}",
        "spec.disks[0].source",
        "exactly one of",
    ),
    ("{image: {kind: ClusterMachineImage, name: tiny}}", "{blank: {}}", "spec.disks[0]", "size must be given"),
    (
        "{image: {kind: ClusterMachineImage, name: tiny}}",
        "{image: {kind: Picture, name: a}}",
        "spec.disks[0].source.image.kind",
        "MachineImage",
    ),
    ("subnet: blue, ", "", "spec.interfaces[0]", "exactly one of subnet and vnic"),
    ("subnet: blue", "subnet: blue, vnic: {name: nic0}", "spec.interfaces[0]", "exactly one of subnet and vnic"),
    ("[10.30.0.7]", "[]", "spec.interfaces[0].addresses", "at least 1 items"),
    ("[10.30.0.7]", "[10.30.0.7/24]", "spec.interfaces[0].addresses", "without a prefix length"),
    ("[10.30.0.7]", "[10.30.0.7], macAddress: \"03:00:00:00:00:01\"", "spec.interfaces[0].macAddress", "should match"),
    ("[10.30.0.7]", "[10.30.0.7], securityGroups: ['']", "spec.interfaces[0].securityGroups[0]", "at least 1 chars"),
    ("name: eth0", "name: an-interface-name", "spec.interfaces[0].name", "15"),
    ("{name: bad}", "{name: bad.host}", "metadata.name", "DNS label"),
];

#[test]
fn a_machine_that_is_wrong_in_one_field_is_refused_with_the_field_and_what_to_write() {
    on_servers(&[1], "a_wrong_machine_is_refused", async |site, namespace| {
        let mut wrong = Vec::new();
        for (good, bad, place, hint) in CASES {
            let manifest = GOOD.replacen(good, bad, 1);
            assert_ne!(manifest, GOOD, "the case replaces nothing: {good}");
            if let Err(error) = refused(site, namespace, &manifest, place, hint).await {
                wrong.push(format!("{bad}: {error:#}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { bail!("{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n")) }
    });
}

#[test]
fn what_is_immutable_says_so_and_names_the_way_round() {
    on_servers(&[1], "what_is_immutable_says_so", async |site, namespace| {
        let halted = GOOD.replacen("  disks:\n", "  runStrategy: Halted\n  hardware: {name: none-such}\n  disks:\n", 1);
        site.apply(&halted.replace("{name: bad}", &format!("{{name: bad, namespace: {namespace}}}"))).await?;
        let changes = [
            ("none-such", "other", "spec.hardware is immutable"),
            ("name: tiny", "name: other", "disks[].source is immutable"),
            ("bootOrder: 1", "storageClassName: x, bootOrder: 1", "disks[].storageClassName is immutable"),
            ("10.30.0.7", "10.30.0.8", "are immutable while the interface is in the list"),
        ];
        for (from, to, hint) in changes {
            refused(site, namespace, &halted.replace(from, to), "spec", hint).await?;
        }
        Ok(())
    });
}

async fn refused(site: &Site, namespace: &str, manifest: &str, place: &str, hint: &str) -> Result<()> {
    let manifest = manifest.replace("metadata: {", &format!("metadata: {{namespace: {namespace}, "));
    match site.apply(&manifest).await {
        Ok(_) => {
            site.kubectl(&["delete", "bmm", "--all", "-n", namespace, "--timeout=240s"]).await?;
            bail!("was accepted")
        }
        Err(error) => {
            let said = format!("{error:#}");
            if !said.contains(place) || !said.contains(hint) {
                bail!("the refusal must name '{place}' and say '{hint}', but says: {said}");
            }
            Ok(())
        }
    }
}
