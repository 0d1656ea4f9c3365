//! What is wrong is refused at apply, with the path of the field and what to write; what is immutable names the way round.

use super::session::Session;

const MACHINE: &str = "apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {name: bad}
spec:
  disks:
  - {name: root, bootOrder: 1, source: {image: {kind: ClusterMachineImage, name: tiny}}}
  interfaces:
  - {name: eth0, subnet: blue, addresses: [10.20.0.70]}
";
const IMAGE: &str = "apiVersion: metalplane.io/v1alpha1
kind: MachineImage
metadata: {name: bad}
spec:
  size: 1Gi
  source: {http: {url: https://images.example.com/a.raw, checksum: sha256:SUM}}
";
const VPC: &str = "apiVersion: metalplane.io/v1alpha1
kind: Vpc
metadata: {name: bad}
spec: {defaultSecurityGroups: [bad]}
";
const GROUP: &str = "apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {name: bad}
spec:
  vpc: {name: bad}
  ingress:
  - {from: [{cidr: 10.50.0.0/24}], ports: [{protocol: TCP, port: 443}]}
";
const SUBNET: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: bad}
spec: {cidr: 10.40.0.0/24, gateway: 10.40.0.1}
";
const VNIC: &str = "apiVersion: metalplane.io/v1alpha1
kind: VNic
metadata: {name: bad}
spec: {subnet: blue, addresses: [10.20.0.71]}
";
const PROVIDER: &str = "apiVersion: metalplane.io/v1alpha1
kind: ProviderNetwork
metadata: {name: bad}
spec:
  physicalNetwork: physnet1
  cidr: 203.0.113.0/24
  gateway: 203.0.113.1
  addresses: [203.0.113.10-203.0.113.99]
  gatewayNodes: [node-1]
";
const NAT: &str = "apiVersion: metalplane.io/v1alpha1
kind: NatGateway
metadata: {name: bad}
spec: {vpc: {name: bad}, providerNetwork: bad, addresses: [203.0.113.10]}
";
const FLOATING: &str = "apiVersion: metalplane.io/v1alpha1
kind: FloatingIP
metadata: {name: bad}
spec: {providerNetwork: bad, address: 203.0.113.20}
";
const POLICY: &str = "apiVersion: metalplane.io/v1alpha1
kind: HardwarePolicy
metadata: {name: bad}
spec: {releasePolicy: {localDisks: Keep}}
";
const DPU: &str = "apiVersion: metalplane.io/v1alpha1
kind: Dpu
metadata: {name: bad}
spec: {powerDomain: Standby}
";
const BMC: &str = "apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Machine
metadata: {name: bad}
spec: {connection: {host: 10.0.0.1, insecureTLS: true}}
";

const SNAPSHOT: &str = "apiVersion: metalplane.io/v1alpha1
kind: MachineSnapshot
metadata: {name: bad}
spec: {machineName: bm-01}
";

const RESTORE: &str = "apiVersion: metalplane.io/v1alpha1
kind: MachineRestore
metadata: {name: bad}
spec: {machineName: bm-01, snapshotName: before-upgrade}
";

const MIGRATION: &str = "apiVersion: metalplane.io/v1alpha1
kind: MachineMigration
metadata: {name: bad}
spec: {machineName: bm-01, target: {name: rack1-u08}}
";

/// A good object, what is replaced in it, by what, and what the refusal says: where, and what to write.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (MACHINE, "  disks:", "  dsks: []\n  disks:", "spec.dsks", "unknown field"),
    (
        MACHINE,
        "  disks:",
        "  runStrategy: Sometimes\n  disks:",
        "spec.runStrategy",
        "\"Always\", \"Halted\", \"Manual\"",
    ),
    (MACHINE, "  disks:", "  boot: {strategy: Auto}\n  disks:", "spec.boot", "boot.workflow must be given"),
    (MACHINE, "  disks:", "  boot: {workflow: {templateName: t}}\n  disks:", "spec.boot", "must be left out"),
    (MACHINE, "  disks:", "  firmware: {secureBoot: Enabled}\n  disks:", "spec.firmware", "write Unmanaged"),
    (MACHINE, "  disks:", "  hardware: {}\n  disks:", "spec.hardware", "exactly one of name and selector"),
    (
        MACHINE,
        "  disks:",
        "  terminationGracePeriodSeconds: -1\n  disks:",
        "spec.terminationGracePeriodSeconds",
        "greater than or equal to 0",
    ),
    (
        MACHINE,
        "  disks:",
        "  maintenancePolicy: LiveMigrate\n  disks:",
        "spec.maintenancePolicy",
        "\"Stop\", \"Wait\", \"ColdMigrate\"",
    ),
    (MACHINE, "  disks:", "  readinessProbe: {tcpSocket: {port: 22}}\n  disks:", "spec.readinessProbe", "write icmp"),
    (MACHINE, "  disks:", "  readinessProbe: {}\n  disks:", "spec.readinessProbe", "write icmp"),
    (
        MACHINE,
        "  disks:",
        "  cloudInit: {userData: x, userDataSecretRef: {name: secret}}\n  disks:",
        "spec.cloudInit",
        "at most one",
    ),
    (MACHINE, "bootOrder: 1", "bootOrder: 2", "spec.disks", "must have bootOrder: 1"),
    (
        MACHINE,
        "  disks:",
        "  disks:\n  - {name: second, bootOrder: 2, size: 1Gi, source: {blank: {}}}",
        "spec.disks[0]",
        "above 1 is not served yet: leave it out",
    ),
    (MACHINE, "bootOrder: 1", "bus: SATA, bootOrder: 1", "spec.disks[0].bus", "\"NVMe\", \"VirtioBlk\""),
    (MACHINE, "bootOrder: 1", "bus: VirtioBlk, bootOrder: 1", "spec.disks", "must have bus: NVMe"),
    (MACHINE, "bootOrder: 1", "size: much, bootOrder: 1", "spec.disks[0].size", "quantity"),
    (
        MACHINE,
        "bootOrder: 1",
        "volumeAttributesClassName: \"\", bootOrder: 1",
        "spec.disks[0].volumeAttributesClassName",
        "at least 1 chars long",
    ),
    (MACHINE, "bootOrder: 1", "deletionPolicy: Maybe, bootOrder: 1", "spec.disks[0].deletionPolicy", "\"Retain\""),
    (MACHINE, "name: root", "name: Root", "spec.disks[0].name", "should match"),
    (MACHINE, "{image: {kind: ClusterMachineImage, name: tiny}}", "{}", "spec.disks[0].source", "exactly one of"),
    (
        MACHINE,
        "{image: {kind: ClusterMachineImage, name: tiny}}",
        "{blank: {}}",
        "spec.disks[0]",
        "for example size: 10Gi",
    ),
    (
        MACHINE,
        "{image: {kind: ClusterMachineImage, name: tiny}}",
        "{image: {kind: Picture, name: a}}",
        "spec.disks[0].source.image.kind",
        "\"MachineImage\"",
    ),
    (MACHINE, "subnet: blue, ", "", "spec.interfaces[0]", "exactly one of subnet and vnic"),
    (MACHINE, "[10.20.0.70]", "[]", "spec.interfaces[0].addresses", "at least 1 items"),
    (MACHINE, "[10.20.0.70]", "[10.20.0.70/24]", "spec.interfaces[0].addresses", "without a prefix length"),
    (
        MACHINE,
        "[10.20.0.70]",
        "[10.20.0.70], macAddress: '03:00:00:00:00:01'",
        "spec.interfaces[0].macAddress",
        "should match",
    ),
    (
        MACHINE,
        "[10.20.0.70]",
        "[10.20.0.70], securityGroups: ['']",
        "spec.interfaces[0].securityGroups[0]",
        "at least 1 chars",
    ),
    (MACHINE, "{name: bad}", "{name: bad.host}", "metadata.name", "DNS label"),
    (
        MACHINE,
        "  interfaces:",
        "  - {name: root, size: 1Gi, source: {blank: {}}}\n  interfaces:",
        "spec.disks[1]",
        "Duplicate value",
    ),
    (IMAGE, "  size: 1Gi\n", "", "spec", "size must be given with source.http"),
    (IMAGE, "https://", "ftp://", "spec.source.http.url", "should match"),
    (IMAGE, "sha256:SUM", "md5:abc", "spec.source.http.checksum", "should match"),
    (IMAGE, "checksum:", "format: Vmdk, checksum:", "spec.source.http.format", "\"Qcow2\""),
    (IMAGE, "checksum:", "caBundle: none, checksum:", "spec.source.http", "in PEM"),
    (
        IMAGE,
        "checksum:",
        "caBundle: '-----BEGIN CERTIFICATE----- PRIVATE KEY', checksum:",
        "spec.source.http",
        "no private key",
    ),
    (
        IMAGE,
        "https://images.example.com/a.raw,",
        "http://x/a.raw, caBundle: '-----BEGIN CERTIFICATE-----',",
        "spec.source.http",
        "by https alone",
    ),
    (
        IMAGE,
        "{http: {url: https://images.example.com/a.raw, checksum: sha256:SUM}}",
        "{upload: {}}",
        "spec.source",
        "write http",
    ),
    (
        IMAGE,
        "{http: {url: https://images.example.com/a.raw, checksum: sha256:SUM}}",
        "{}",
        "spec.source",
        "exactly one of",
    ),
    (
        IMAGE,
        "kind: MachineImage\nmetadata: {name: bad}\nspec:\n  size: 1Gi\n  source: {http: {url: https://images.example.com/a.raw, checksum: sha256:SUM}}",
        "kind: ClusterMachineImage\nmetadata: {name: bad}\nspec: {source: {snapshot: {name: a}}}",
        "spec",
        "must have source.http",
    ),
    (SUBNET, "10.40.0.0/24", "10.40.0.7/24", "spec.cidr", "such as 10.20.0.0/24"),
    (SUBNET, "10.40.0.0/24, gateway: 10.40.0.1", "169.254.0.0/24", "spec.cidr", "neither link-local"),
    (SUBNET, "10.40.0.0/24, gateway: 10.40.0.1", "10.40.0.0/31", "spec.cidr", "up to /30"),
    (SUBNET, "10.40.0.0/24", "ten", "spec.cidr", "such as 10.20.0.0/24"),
    (SUBNET, "10.40.0.1", "10.41.0.1", "spec", "gateway must be an address inside cidr"),
    (SUBNET, "10.40.0.1", "first", "spec.gateway", "such as 10.20.0.1"),
    (SUBNET, "gateway: 10.40.0.1", "gateway: 10.40.0.1, routed: false", "spec", "there is no router"),
    (SUBNET, "gateway: 10.40.0.1", "providerNetwork: bad", "spec", "routed must be false with providerNetwork"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, ipv6Cidr: 'fd00::1/64'}", "spec.ipv6Cidr", "such as fd00:20::/64"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, ipv6Cidr: 'fe80::/64'}", "spec.ipv6Cidr", "such as fd00:20::/64"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, ipv6Cidr: 'fd00::/112', ipv6Mode: SLAAC}", "spec", "the length /64"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, ipv6Mode: SLAAC}", "spec", "ipv6Mode must be left out"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, mtu: 500}", "spec.mtu", "greater than or equal to 1280"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, dhcp: {ntpServers: ['fd00::1']}}", "spec.dhcp.ntpServers", "IPv4 addresses"),
    (VPC, "[bad]", "[bad], dns: {servers: [ten]}", "spec.dns.servers", "such as 10.20.0.53"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, metadata: Sometimes}", "spec.metadata", "\"Enabled\", \"Disabled\""),
    (SUBNET, "10.40.0.1}", "10.40.0.1, reserved: [ten]}", "spec.reserved", "ranges such as 10.20.0.100-10.20.0.199"),
    (SUBNET, "10.40.0.1}", "10.40.0.1, reserved: [10.41.0.1-10.41.0.9]}", "spec", "reserved must be addresses inside"),
    (PROVIDER, "physnet1", "'phys net'", "spec.physicalNetwork", "should match"),
    (PROVIDER, "  cidr:", "  vlan: 4095\n  cidr:", "spec.vlan", "less than or equal to 4094"),
    (PROVIDER, "0/24", "1/24", "spec.cidr", "no host bits set"),
    (PROVIDER, "gateway: 203.0.113.1", "gateway: 198.51.100.1", "spec", "gateway must be an address inside cidr"),
    (PROVIDER, "113.99", "114.99", "spec", "addresses must be inside cidr"),
    (PROVIDER, "[node-1]", "[node-1, node-1]", "spec.gatewayNodes", "name each node once"),
    (NAT, "[203.0.113.10]", "[203.0.113.10, 203.0.113.11]", "spec.addresses", "at most one of each family"),
    (NAT, "[203.0.113.10]", "[outside]", "spec.addresses", "must be IP addresses"),
    (FLOATING, "203.0.113.20", "203.0.113.20/24", "spec.address", "must be an IP address"),
    (VNIC, "[10.20.0.71]", "[]", "spec.addresses", "at least 1 items"),
    (VNIC, "[10.20.0.71]", "[10.20.0.71/24]", "spec.addresses", "without a prefix length"),
    (VNIC, "[10.20.0.71]", "[10.20.0.71], macAddress: 'x'", "spec.macAddress", "should match"),
    (VNIC, "[10.20.0.71]", "[10.20.0.71], securityGroups: ['']", "spec.securityGroups[0]", "at least 1 chars"),
    (GROUP, "cidr: 10.50.0.0/24", "cidr: 10.50.0.7/24", "spec.ingress[0].from[0].cidr", "with no host bits set"),
    (
        GROUP,
        "cidr: 10.50.0.0/24",
        "securityGroup: {name: a}, cidr: 10.50.0.0/24",
        "spec.ingress[0].from[0]",
        "exactly one of",
    ),
    (
        GROUP,
        "cidr: 10.50.0.0/24",
        "securityGroup: {name: a}, except: [10.0.0.0/8]",
        "spec.ingress[0].from[0]",
        "needs a cidr",
    ),
    (GROUP, "port: 443", "port: 443, endPort: 80", "spec.ingress[0].ports[0]", "must not be less"),
    (GROUP, "protocol: TCP", "protocol: GRE", "spec.ingress[0].ports[0].protocol", "\"TCP\", \"UDP\", \"SCTP\""),
    (GROUP, "ports:", "icmp: {family: IPv4}, ports:", "spec.ingress[0]", "either ports or icmp"),
    (SNAPSHOT, "bm-01", "''", "spec.machineName", "at least 1 chars"),
    (SNAPSHOT, "bm-01", "bm-01, consistency: Some", "spec.consistency", "\"Machine\", \"PerDisk\""),
    (
        SNAPSHOT,
        "bm-01",
        "bm-01, consistency: PerDisk, volumeGroupSnapshotClassName: fast",
        "spec",
        "take volumeGroupSnapshotClassName away",
    ),
    (SNAPSHOT, "bm-01", "bm-01, deletionPolicy: Maybe", "spec.deletionPolicy", "\"Retain\""),
    (RESTORE, ", snapshotName: before-upgrade", "", "spec.snapshotName", "Required value"),
    (RESTORE, "bm-01", "''", "spec.machineName", "at least 1 chars"),
    (MIGRATION, "{name: rack1-u08}", "{}", "spec.target", "exactly one of name and selector"),
    (MIGRATION, "machineName: bm-01, ", "", "spec.machineName", "Required value"),
    (POLICY, "Keep", "Shred", "spec.releasePolicy.localDisks", "\"Keep\", \"Erase\""),
    (DPU, "Standby", "Sometimes", "spec.powerDomain", "\"Standby\", \"Host\""),
    (DPU, "Standby", "Standby, maintenance: Soon", "spec.maintenance", "\"Drain\", \"OutOfService\""),
    (BMC, "10.0.0.1", "''", "spec.connection.host", "at least 1 chars"),
];

/// A kind and name, a JSON patch, and what the refusal says.
const FIXED: &[(&str, &str, &str, &str)] = &[
    (
        "bmm",
        "bm-01",
        r#"[{"op":"add","path":"/spec/hardware","value":{"name":"a"}}]"#,
        "spec.hardware is immutable: delete the machine",
    ),
    (
        "bmm",
        "bm-01",
        r#"[{"op":"replace","path":"/spec/disks/0/source","value":{"image":{"name":"b"}}}]"#,
        "disks[].source is immutable: take the disk out",
    ),
    (
        "bmm",
        "bm-01",
        r#"[{"op":"add","path":"/spec/disks/0/storageClassName","value":"b"}]"#,
        "disks[].storageClassName is immutable: add a disk",
    ),
    (
        "bmm",
        "bm-01",
        r#"[{"op":"replace","path":"/spec/disks/0/bus","value":"VirtioBlk"}]"#,
        "take it out, then add it again",
    ),
    (
        "bmm",
        "bm-01",
        r#"[{"op":"replace","path":"/spec/interfaces/0/addresses","value":["10.20.0.99"]}]"#,
        "are immutable while the interface is in the list",
    ),
    (
        "bmm",
        "bm-01",
        r#"[{"op":"add","path":"/spec/interfaces/0/macAddress","value":"02:00:00:00:00:01"}]"#,
        "are immutable while the interface is in the list",
    ),
    ("mi", "debian-12", r#"[{"op":"replace","path":"/spec/size","value":"5Gi"}]"#, "create one with another name"),
    ("subnet", "blue", r#"[{"op":"replace","path":"/spec/vpc/name","value":"red"}]"#, "make another Subnet"),
    (
        "subnet",
        "blue",
        r#"[{"op":"add","path":"/spec/providerNetwork","value":"bad"}]"#,
        "providerNetwork is immutable",
    ),
    ("subnet", "blue", r#"[{"op":"add","path":"/spec/metadata","value":"Disabled"}]"#, "metadata is immutable"),
    ("subnet", "blue", r#"[{"op":"replace","path":"/spec/cidr","value":"10.21.0.0/16"}]"#, "make another Subnet"),
    (
        "vnic",
        "shared-nic",
        r#"[{"op":"replace","path":"/spec/addresses","value":["10.20.0.10"]}]"#,
        "make another VNic",
    ),
    (
        "msnap",
        "before-upgrade",
        r#"[{"op":"replace","path":"/spec/machineName","value":"b"}]"#,
        "create another MachineSnapshot",
    ),
    (
        "mrestore",
        "back",
        r#"[{"op":"replace","path":"/spec/snapshotName","value":"b"}]"#,
        "create another MachineRestore",
    ),
    ("mmig", "away", r#"[{"op":"remove","path":"/spec/target"}]"#, "delete the migration, which cancels it"),
    ("dpu", "dpu-1", r#"[{"op":"remove","path":"/spec/hardwareRef"}]"#, "delete the Dpu to take the DPU out"),
];

/// Of what only the controller writes: spec changes that nobody may make.
const TOLD: &[(&str, &str, &str, &str)] = &[
    ("da", "replace", r#"{"path":"/spec/uuid","value":"x"}"#, "spec is immutable but for size"),
    ("da", "replace", r#"{"path":"/spec/diskName","value":"x"}"#, "spec is immutable but for size"),
    ("da", "replace", r#"{"path":"/spec/grant/epoch","value":9}"#, "grant is set once"),
    ("da", "replace", r#"{"path":"/spec/size","value":"1Gi"}"#, "size only grows"),
    (
        "na",
        "replace",
        r#"{"path":"/spec/macAddress","value":"02:00:00:00:00:01"}"#,
        "spec is immutable but for grant and release",
    ),
    ("na", "replace", r#"{"path":"/spec/mtu","value":9000}"#, "spec is immutable but for grant and release"),
    ("vh", "replace", r#"{"path":"/spec/epoch","value":1}"#, "epoch only grows"),
    ("vh", "replace", r#"{"path":"/spec/volumeHandle","value":"x"}"#, "the volume of a hold is immutable"),
    ("vh", "replace", r#"{"path":"/spec/holder/dpuName","value":"dpu-2"}"#, "only through an empty hold"),
    ("ah", "replace", r#"{"path":"/spec/owner/uid","value":"x"}"#, "spec is immutable"),
];

pub(super) fn run(session: &mut Session) {
    let sum = "0".repeat(64);
    for good in [
        MACHINE, IMAGE, SUBNET, VNIC, VPC, GROUP, PROVIDER, NAT, FLOATING, SNAPSHOT, RESTORE, MIGRATION, POLICY, DPU,
        BMC,
    ] {
        let kind = good.lines().nth(1).unwrap_or_default();
        // What is refused below is refused for what was changed.
        let dry = ["apply", "--dry-run=server", "-f", "-"];
        session.works(&format!("good, {kind}"), &dry, Some(&good.replace("SUM", &sum)), &["created"]);
    }
    for (good, from, to, place, hint) in CASES {
        let manifest = good.replacen(from, to, 1);
        let what = format!("refused: {}", to.trim().replace('\n', " "));
        if manifest == *good {
            session.step(&what, Err("the case replaces nothing".to_owned()));
            continue;
        }
        let manifest = manifest.replace("SUM", &sum);
        let dry = ["apply", "--dry-run=server", "-f", "-"];
        session.refused(&what, &dry, Some(&manifest), &[place, hint]);
    }
    for (kind, name, patch, hint) in FIXED {
        let words = ["patch", kind, name, "--type=json", "-p", patch];
        session.refused(&format!("immutable: {kind} {patch}"), &words, None, &[hint]);
    }
    for (kind, op, change, hint) in TOLD {
        let place = if ["vh", "ah"].contains(kind) { "default" } else { super::tables::DPU_NAMESPACE };
        let name = session.say(&["get", kind, "-n", place, "-o", "name"], None).out.trim().to_owned();
        let patch = format!("[{}]", change.replacen('{', &format!("{{\"op\":\"{op}\","), 1));
        let words = ["patch", &name, "-n", place, "--type=json", "-p", &patch];
        session.refused(&format!("immutable: {kind} {change}"), &words, None, &[hint]);
    }
}
