//! What an object of the network lacks is said at that object at once, and once it is there, the object is ready at once: no reason waits
//! for the next look of somebody who happens to come by.

use super::life::condition;
use super::simulation::{Simulation, USER};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const SAID_WITHIN: Duration = Duration::from_secs(2);
const CURED_WITHIN: Duration = Duration::from_secs(5);

/// One thing that is missing, or in the way.
#[derive(Debug)]
pub struct Case {
    /// Kind and name.
    of: (&'static str, &'static str),
    /// All that is there before it, and then the object itself.
    made: fn() -> Vec<Value>,
    /// The condition that says so, and its reason.
    says: (&'static str, &'static str),
    cure: Cure,
}

#[derive(Clone, Copy, Debug)]
enum Cure {
    Create(fn() -> Value),
    Delete(&'static str, &'static str),
    Change(&'static str, &'static str, fn(&mut Value)),
    Report(fn() -> Value),
    /// The chassis of this Dpu maps this physical network to a bridge.
    Map(&'static str, &'static str),
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn resource(kind: &str) -> String {
    format!("metalplane.io/{}s", kind.to_lowercase())
}

fn namespace(kind: &str) -> &'static str {
    if ["ProviderNetwork", "Dpu"].contains(&kind) { "" } else { USER }
}

fn vpc(name: &str) -> Value {
    object("Vpc", name, &json!({}))
}

/// It sends to a VNic.
fn routed(name: &str) -> Value {
    object("Vpc", name, &json!({"routes": [{"destination": "10.90.0.0/16", "nextHops": ["10.30.0.7"]}]}))
}

fn subnet(name: &str, vpc: &str, cidr: &str) -> Value {
    object("Subnet", name, &json!({"vpc": {"name": vpc}, "cidr": cidr}))
}

fn group(name: &str, vpc: &str) -> Value {
    let from = json!([{"from": [{"securityGroup": {"name": "peers"}}]}]);
    object("SecurityGroup", name, &json!({"vpc": {"name": vpc}, "ingress": from}))
}

fn vnic(name: &str, spec: &Value) -> Value {
    object("VNic", name, spec)
}

fn at(name: &str, address: &str) -> Value {
    vnic(name, &json!({"subnet": "blue", "addresses": [address]}))
}

/// Of three addresses.
fn outside() -> Value {
    let spec = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
        "addresses": ["203.0.113.10-203.0.113.12"], "gatewayNodes": ["dpu-1"]});
    object("ProviderNetwork", "outside", &spec)
}

/// For a Subnet alone.
fn network(name: &str, physical_network: &str) -> Value {
    let spec = json!({"physicalNetwork": physical_network, "cidr": "203.0.113.0/24", "gateway": "203.0.113.1"});
    object("ProviderNetwork", name, &spec)
}

/// On the ProviderNetwork `outside`.
fn hosts(name: &str, vpc: &str) -> Value {
    let spec = json!({"vpc": {"name": vpc}, "providerNetwork": "outside", "routed": false, "cidr": "203.0.113.0/24"});
    object("Subnet", name, &spec)
}

/// A node that was made from a copy of dpu-1's disk says so.
fn copy_of_dpu_1(chassis: &str) -> Value {
    let mut dpu = object("Dpu", "copy", &json!({"type": "NIC"}));
    dpu["status"] = json!({"network": {"chassis": chassis}});
    dpu
}

/// No chassis is on its gateway node.
fn elsewhere() -> Value {
    let mut outside = outside();
    outside["spec"]["gatewayNodes"] = json!(["nowhere"]);
    outside
}

fn way_out(name: &str) -> Value {
    object("NatGateway", name, &json!({"vpc": {"name": "default"}, "providerNetwork": "outside"}))
}

fn floating(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["providerNetwork"] = json!("outside");
    object("FloatingIP", name, &spec)
}

/// One of each.
pub const CASES: [Case; 29] = [
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "one", "10.30.0.0/24")],
        says: ("Ready", "VpcMissing"),
        cure: Cure::Create(|| vpc("one")),
    },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("wide", "default", "10.30.0.0/16"), subnet("green", "default", "10.30.1.0/24")],
        says: ("Ready", "CidrOverlaps"),
        cure: Cure::Delete("Subnet", "wide"),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![group("peers", "one"), group("web", "one")],
        says: ("Ready", "VpcMissing"),
        cure: Cure::Create(|| vpc("one")),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![group("web", "default")],
        says: ("Ready", "SecurityGroupMissing"),
        cure: Cure::Create(|| group("peers", "default")),
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![subnet("green", "one", "10.30.0.0/24"), routed("one")],
        says: ("Ready", "NextHopMissing"),
        cure: Cure::Create(|| vnic("hop", &json!({"subnet": "green", "addresses": ["10.30.0.7"]}))),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![vnic("nic", &json!({"subnet": "green"}))],
        says: ("AddressesAssigned", "SubnetMissing"),
        cure: Cure::Create(|| subnet("green", "default", "10.30.0.0/24")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![subnet("green", "one", "10.30.0.0/24"), vnic("nic", &json!({"subnet": "green"}))],
        says: ("AddressesAssigned", "SubnetNotReady"),
        cure: Cure::Create(|| vpc("one")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![vnic("nic", &json!({"subnet": "blue", "securityGroups": ["peers"]}))],
        says: ("Programmed", "SecurityGroupMissing"),
        cure: Cure::Create(|| group("peers", "default")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = vnic("nic", &json!({"subnet": "blue", "securityGroups": ["peers"]}));
            vec![vpc("one"), group("peers", "one"), nic]
        },
        says: ("Programmed", "GroupOfOtherVpc"),
        cure: Cure::Change("VNic", "nic", |nic| nic["spec"]["securityGroups"] = json!([])),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("first", "10.20.0.200"), at("nic", "10.20.0.200")],
        says: ("AddressesAssigned", "AddressTaken"),
        cure: Cure::Delete("VNic", "first"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let mac = json!({"subnet": "blue", "macAddress": "02:00:00:00:00:07"});
            vec![vnic("first", &mac), vnic("nic", &mac)]
        },
        says: ("AddressesAssigned", "MacTaken"),
        cure: Cure::Delete("VNic", "first"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let small = |name| vnic(name, &json!({"subnet": "small"}));
            vec![subnet("small", "default", "10.30.0.0/30"), small("first"), small("nic")]
        },
        says: ("AddressesAssigned", "SubnetFull"),
        cure: Cure::Delete("VNic", "first"),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![way_out("out")],
        says: ("Ready", "ProviderNetworkMissing"),
        cure: Cure::Create(outside),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), way_out("first"), way_out("out")],
        says: ("Ready", "VpcHasNatGateway"),
        cure: Cure::Delete("NatGateway", "first"),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![elsewhere(), way_out("out")],
        says: ("Ready", "ProviderNetworkNotReady"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| network["spec"]["gatewayNodes"] = json!(["dpu-1"])),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![elsewhere()],
        says: ("Ready", "NoGatewayNode"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| network["spec"]["gatewayNodes"] = json!(["dpu-1"])),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || {
            let mut two = outside();
            two["spec"]["gatewayNodes"] = json!(["dpu-1", "copy"]);
            vec![copy_of_dpu_1("dpu-1"), two]
        },
        says: ("GatewayNodesUsed", "GatewayNodeUnused"),
        cure: Cure::Report(|| copy_of_dpu_1("another")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), way_out("out"), floating("in", &json!({"vnic": "nic"}))],
        says: ("Ready", "VNicMissing"),
        cure: Cure::Create(|| at("nic", "10.20.0.200")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))],
        says: ("Ready", "NatGatewayMissing"),
        cure: Cure::Create(|| way_out("out")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let mut narrow = outside();
            narrow["spec"]["addresses"] = json!(["203.0.113.10"]);
            vec![narrow, way_out("out"), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))]
        },
        says: ("Ready", "ProviderNetworkFull"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| {
            network["spec"]["addresses"] = json!(["203.0.113.10-203.0.113.12"]);
        }),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let same = json!({"vnic": "nic", "address": "203.0.113.11"});
            let first = floating("first", &json!({"vnic": "other", "address": "203.0.113.11"}));
            let nics = [at("nic", "10.20.0.200"), at("other", "10.20.0.201")];
            [vec![outside(), way_out("out")], nics.to_vec(), vec![first, floating("in", &same)]].concat()
        },
        says: ("Ready", "ExternalAddressTaken"),
        cure: Cure::Delete("FloatingIP", "first"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "green", "addresses": ["10.30.1.7"]});
            let subnets = [subnet("wide", "default", "10.30.0.0/16"), subnet("green", "default", "10.30.1.0/24")];
            [subnets.to_vec(), vec![vnic("nic", &nic)]].concat()
        },
        says: ("AddressesAssigned", "SubnetNotReady"),
        cure: Cure::Delete("Subnet", "wide"),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || vec![hosts("hosts", "default")],
        says: ("Ready", "ProviderNetworkMissing"),
        cure: Cure::Create(|| network("outside", "physnet1")),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || vec![network("outside", "physnet1"), vpc("one"), hosts("first", "one"), hosts("hosts", "default")],
        says: ("Ready", "ProviderNetworkTaken"),
        cure: Cure::Delete("Subnet", "first"),
    },
    Case {
        of: ("ProviderNetwork", "second"),
        made: || vec![network("outside", "physnet1"), network("second", "physnet1")],
        says: ("Ready", "ProviderNetworkOverlaps"),
        cure: Cure::Delete("ProviderNetwork", "outside"),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || {
            let mut hosts = hosts("hosts", "default");
            hosts["spec"]["providerNetwork"] = json!("second");
            vec![network("outside", "physnet1"), hosts, network("second", "physnet1")]
        },
        says: ("Ready", "ProviderNetworkOverlaps"),
        cure: Cure::Delete("ProviderNetwork", "outside"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "hosts", "addresses": ["203.0.113.7"], "nodeName": "dpu-1"});
            vec![network("outside", "physnet2"), hosts("hosts", "default"), vnic("nic", &nic)]
        },
        says: ("Programmed", "PhysicalNetworkUnmapped"),
        cure: Cure::Map("dpu-1", "physnet2"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "blue", "addresses": ["10.20.0.200"], "nodeName": "copy"});
            vec![copy_of_dpu_1("dpu-1"), vnic("nic", &nic)]
        },
        says: ("Programmed", "ChassisTaken"),
        cure: Cure::Report(|| copy_of_dpu_1("another")),
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![vnic("hop", &json!({"subnet": "green", "addresses": ["10.30.0.7"]})), routed("one")],
        says: ("Ready", "NextHopUnreachable"),
        cure: Cure::Create(|| subnet("green", "one", "10.30.0.0/24")),
    },
];

fn get(s: &Simulation, (kind, name): (&str, &str)) -> Value {
    s.scene.server.get(&resource(kind), namespace(kind), name).map(|found| Value::clone(&found)).unwrap_or_default()
}

fn said(s: &Simulation, case: &Case) -> Value {
    let object = get(s, case.of);
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|said| said["type"] == case.says.0).unwrap_or_default()
}

fn says(s: &Simulation, case: &Case) -> bool {
    let said = said(s, case);
    let message = said["message"].as_str().unwrap_or_default();
    said["status"] == "False" && said["reason"] == case.says.1 && !message.is_empty()
}

/// Of a VNic that nobody has, nothing more can be said than that.
fn is_cured(s: &Simulation, case: &Case) -> bool {
    let said = said(s, case);
    said["status"] == "True" || said["reason"] == "NotHeld"
}

fn settle(s: &Simulation, case: &Case) {
    match case.cure {
        Cure::Create(made) => create(s, made()),
        Cure::Delete(kind, name) => s.delete(&resource(kind), namespace(kind), name),
        Cure::Change(kind, name, change) => s.change(&resource(kind), namespace(kind), name, change),
        Cure::Report(said) => report(s, said()),
        Cure::Map(dpu, physical_network) => {
            let chassis = &get(s, ("Dpu", dpu))["status"]["network"]["chassis"];
            s.scene.north_bound.map(chassis.as_str().unwrap_or_default(), physical_network);
        }
    }
}

fn create(s: &Simulation, object: Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    s.create(&resource(&kind), namespace(&kind), object.clone());
    if object.get("status").is_some() {
        report(s, object);
    }
}

fn report(s: &Simulation, object: Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    s.report(&resource(&kind), namespace(&kind), object);
}

/// How long it took.
async fn until(s: &Simulation, what: &str, limit: Duration, is_so: impl Fn(&Simulation) -> bool) -> Result<(), String> {
    let began = Instant::now();
    s.until(what, is_so).await?;
    let took = began.elapsed();
    if took > limit { Err(format!("{what}: after {took:?}, later than {limit:?}\n{}", s.story())) } else { Ok(()) }
}

pub async fn one(s: &Simulation, case: &Case) -> Result<(), String> {
    let (kind, name) = case.of;
    s.until("the site is there", |s| condition(&get(s, ("Subnet", "blue")), "Ready") == "True").await?;
    let mut made = (case.made)();
    let last = made.pop();
    made.into_iter().for_each(|object| create(s, object));
    // What is there before has its time.
    tokio::time::sleep(Duration::from_secs(30)).await;
    last.into_iter().for_each(|object| create(s, object));
    until(s, &format!("{kind} {name} says {}", case.says.1), SAID_WITHIN, |s| says(s, case)).await?;
    settle(s, case);
    until(s, &format!("{kind} {name} is cured of {}", case.says.1), CURED_WITHIN, |s| is_cured(s, case)).await
}
