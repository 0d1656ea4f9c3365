//! What users make of the network, and what goes wrong with OVN's north-bound database, under machines that run.

use super::counted::{repaired, transactions};
use super::life::{self, condition, is_clean, runs};
use super::simulation::{SYSTEM, Simulation, USER};
use super::way_out;
use planner::network::rows::{Cell, Found, KIND, PREFIX, Row, Table};
use serde_json::{Value, json};
use std::time::Duration;

const VPCS: &str = "metalplane.io/vpcs";
pub(super) const SUBNETS: &str = "metalplane.io/subnets";
pub(super) const GROUPS: &str = "metalplane.io/securitygroups";
pub(super) const VNICS: &str = "metalplane.io/vnics";

/// Long enough for whatever would be done about it.
pub(super) const LONG: Duration = Duration::from_secs(120);

pub(super) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) fn create_vpc(s: &Simulation, name: &str, groups: &[&str]) {
    s.create(VPCS, USER, object("Vpc", name, &json!({"defaultSecurityGroups": groups})));
}

pub(super) fn create_subnet(s: &Simulation, name: &str, vpc: &str, cidr: &str) {
    s.create(SUBNETS, USER, object("Subnet", name, &json!({"vpc": {"name": vpc}, "cidr": cidr})));
}

fn create_group(s: &Simulation, name: &str, vpc: &str) {
    let from = json!([{"securityGroup": {"name": name}}]);
    s.create(GROUPS, USER, object("SecurityGroup", name, &json!({"vpc": {"name": vpc}, "ingress": [{"from": from}]})));
}

fn create_machine(s: &Simulation, name: &str, subnet: &str, address: &str) {
    let mut machine = life::machine(name, 7);
    machine["spec"]["interfaces"] = json!([{"name": "eth0", "subnet": subnet, "addresses": [address]}]);
    s.create(life::MACHINES, USER, machine);
}

pub(super) fn is_there(s: &Simulation, resource: &str, name: &str) -> bool {
    s.scene.server.get(resource, USER, name).is_some()
}

fn says(s: &Simulation, resource: &str, name: &str, type_: &str, reason: &str) -> bool {
    let object = s.scene.server.get(resource, USER, name).unwrap_or_default();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|said| said["type"] == type_ && said["reason"] == reason)
}

pub(super) fn is_ready(s: &Simulation, resource: &str, name: &str) -> bool {
    condition(&s.scene.server.get(resource, USER, name).unwrap_or_default(), "Ready") == "True"
}

/// The port of a machine's `eth0`.
pub(super) fn port(s: &Simulation, machine: &str) -> Option<Row> {
    let vnic = s.scene.server.get(VNICS, USER, &format!("{machine}-eth0"))?;
    let name = format!("{PREFIX}{}", vnic["metadata"]["uid"].as_str()?);
    s.scene.north_bound.rows().into_iter().find(|row| row.id.name() == name)
}

fn is_in_group(s: &Simulation, machine: &str, group: &str) -> bool {
    let group = s.scene.server.get(GROUPS, USER, group).unwrap_or_default();
    let uid = group["metadata"]["uid"].as_str().unwrap_or_default();
    port(s, machine)
        .is_some_and(|port| port.member_of.iter().any(|set| set.table == Table::PortGroup && set.row.uid == uid))
}

fn switches(s: &Simulation) -> usize {
    s.scene.north_bound.rows().iter().filter(|row| row.table == Table::LogicalSwitch).count()
}

/// Two Vpcs with the same addresses, made in the order in which nothing is there that is needed; a third Subnet that overlaps;
/// then all is deleted in the order in which everything is still used. The rows before that.
pub async fn two_vpcs(s: &Simulation) -> Result<Vec<String>, String> {
    create_machine(s, "bm-01", "one-a", "10.30.0.7");
    create_machine(s, "bm-02", "two-a", "10.30.0.7");
    for (vpc, subnet) in [("one", "one-a"), ("two", "two-a")] {
        create_subnet(s, subnet, vpc, "10.30.0.0/24");
    }
    s.until("the Subnets say what is missing", |s| {
        says(s, SUBNETS, "one-a", "Ready", "VpcMissing") && says(s, SUBNETS, "two-a", "Ready", "VpcMissing")
    })
    .await?;
    create_vpc(s, "one", &["one-web"]);
    create_vpc(s, "two", &["two-web"]);
    s.until("the VNics say which group is missing", |s| {
        ["bm-01", "bm-02"]
            .iter()
            .all(|machine| says(s, VNICS, &format!("{machine}-eth0"), "Programmed", "SecurityGroupMissing"))
    })
    .await?;
    create_group(s, "one-web", "one");
    create_group(s, "two-web", "two");
    s.until("both run with one address", |s| {
        ["bm-01", "bm-02"].iter().all(|machine| runs(s, machine))
            && is_in_group(s, "bm-01", "one-web")
            && is_in_group(s, "bm-02", "two-web")
    })
    .await?;
    create_subnet(s, "inside", "one", "10.30.0.128/25");
    s.until("a Subnet that overlaps is refused", |s| says(s, SUBNETS, "inside", "Ready", "CidrOverlaps")).await?;
    s.change(life::MACHINES, USER, "bm-02", |machine| {
        machine["spec"]["interfaces"][0]["securityGroups"] = json!(["one-web"]);
    });
    s.until("a group of another Vpc is refused", |s| {
        let wrong = says(s, VNICS, "bm-02-eth0", "Programmed", "GroupOfOtherVpc");
        wrong && !is_in_group(s, "bm-02", "one-web") && !is_in_group(s, "bm-02", "two-web") && runs(s, "bm-02")
    })
    .await?;
    s.change(life::MACHINES, USER, "bm-02", |machine| {
        machine["spec"]["interfaces"][0]["securityGroups"] = Value::Null;
    });
    s.until("the Vpc's groups are in force again", |s| is_in_group(s, "bm-02", "two-web")).await?;
    tokio::time::sleep(LONG).await;
    let rows = on_any_server(s);
    tear_down(s).await?;
    Ok(rows)
}

/// As [`way_out::told`], whichever server a machine has.
fn on_any_server(s: &Simulation) -> Vec<String> {
    let chassis = |machine: &str| {
        let machine = s.machine(machine).unwrap_or_default();
        machine["status"]["interfaces"][0]["dpuName"].as_str().unwrap_or_default().to_owned()
    };
    let all =
        ["bm-01", "bm-02"].map(|machine| (format!("\"{}\"", chassis(machine)), format!("<chassis of {machine}>")));
    let named = |row: String| all.iter().fold(row, |row, (chassis, name)| row.replace(chassis, name));
    let mut rows: Vec<String> = way_out::told(s).into_iter().map(named).collect();
    rows.sort();
    rows
}

async fn tear_down(s: &Simulation) -> Result<(), String> {
    for vpc in ["one", "two"] {
        s.delete(VPCS, USER, vpc);
        s.delete(GROUPS, USER, &format!("{vpc}-web"));
        s.delete(SUBNETS, USER, &format!("{vpc}-a"));
    }
    s.until("what is used says by whom", |s| {
        says(s, VPCS, "one", "Deletable", "VpcInUse")
            && says(s, GROUPS, "one-web", "Deletable", "SecurityGroupInUse")
            && says(s, SUBNETS, "one-a", "Deletable", "SubnetInUse")
    })
    .await?;
    tokio::time::sleep(LONG).await;
    if !runs(s, "bm-01") || !is_in_group(s, "bm-01", "one-web") {
        return Err(format!("a group is out of force while it waits to be deleted\n{}", s.story()));
    }
    s.delete(SUBNETS, USER, "inside");
    s.delete(life::MACHINES, USER, "bm-01");
    s.delete(life::MACHINES, USER, "bm-02");
    s.until("nothing is left of the two Vpcs", |s| {
        let gone = |vpc: &str| {
            !is_there(s, VPCS, vpc)
                && !is_there(s, SUBNETS, &format!("{vpc}-a"))
                && !is_there(s, GROUPS, &format!("{vpc}-web"))
        };
        gone("one") && gone("two") && is_clean(s) && switches(s) == 1
    })
    .await
}

pub(super) const DEFAULT: &str = "default";

/// Of its newest generation.
pub(super) fn is_in_force(s: &Simulation, resource: &str, name: &str) -> bool {
    let object = s.scene.server.get(resource, USER, name).unwrap_or_default();
    let said = object["status"]["conditions"].as_array().into_iter().flatten().any(|said| {
        let is_newest = said["observedGeneration"] == object["metadata"]["generation"];
        said["type"] == "InForce" && said["status"] == "True" && is_newest
    });
    let number = object["status"]["programmed"]["nbCfg"].as_u64();
    said && number.is_some_and(|number| number <= s.scene.north_bound.backup().number)
}

fn open_port(s: &Simulation, port: u16) {
    s.change(GROUPS, USER, DEFAULT, |group| {
        let rule = json!({"ports": [{"protocol": "TCP", "port": port}]});
        group["spec"]["ingress"].as_array_mut().expect("rules").push(rule);
    });
}

/// On how many chassis its rules are in force.
fn tells_chassis(s: &Simulation, chassis: &str) -> bool {
    let group = s.scene.server.get(GROUPS, USER, DEFAULT).unwrap_or_default();
    group["status"]["chassis"] == chassis
}

/// A chassis does not answer while a group changes; then the database is put back to a time before the change.
pub async fn chassis_dead(s: &Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    life::create(s, "bm-02", 8).await?;
    s.until("the group has its members, and is in force", |s| {
        let group = s.scene.server.get(GROUPS, USER, DEFAULT).unwrap_or_default();
        let counted = group["status"]["members"] == 2 && group["status"]["acls"] == 4 && is_ready(s, GROUPS, DEFAULT);
        let told = counted && tells_chassis(s, "2/2") && is_in_force(s, GROUPS, DEFAULT);
        told && is_in_force(s, SUBNETS, "blue")
    })
    .await?;
    let backup = s.scene.north_bound.backup();
    let dead = s.scene.hosts[1].dpu_name.clone();
    s.scene.north_bound.stop_chassis(&dead, true);
    open_port(s, 443);
    let names = format!("1 of 2 chassis; chassis '{dead}' is unresponsive");
    s.until("the chassis is named", |s| {
        let group = s.scene.server.get(GROUPS, USER, DEFAULT).unwrap_or_default();
        let told = says(s, GROUPS, DEFAULT, "InForce", "ChassisUnresponsive") && tells_chassis(s, "1/2");
        told && group.to_string().contains(&names)
    })
    .await?;
    if condition(&s.scene.server.get(GROUPS, USER, DEFAULT).unwrap_or_default(), "Programmed") != "True" {
        return Err(format!("its rows are there\n{}", s.story()));
    }
    tokio::time::sleep(LONG).await;
    if is_in_force(s, GROUPS, DEFAULT) {
        return Err(format!("a dead chassis has it in force\n{}", s.story()));
    }
    s.scene.north_bound.stop_chassis(&dead, false);
    s.until("the chassis has it", |s| is_in_force(s, GROUPS, DEFAULT) && tells_chassis(s, "2/2")).await?;
    let acls = |s: &Simulation| s.scene.north_bound.rows().iter().filter(|row| row.table == Table::Acl).count();
    let before = acls(s);
    s.scene.north_bound.restore(backup);
    s.until("the rules are there again, and in force by a number of the database as it is", |s| {
        acls(s) == before && is_in_force(s, GROUPS, DEFAULT) && is_in_force(s, SUBNETS, "blue")
    })
    .await?;
    s.delete(life::MACHINES, USER, "bm-01");
    s.delete(life::MACHINES, USER, "bm-02");
    s.until("nothing is left", is_clean).await
}

/// A controller that starts where everything is right writes nothing but its token, however long a large database takes to be copied.
pub async fn idle_restart(s: &mut Simulation, copying: Duration) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    s.until("all is in force", |s| is_in_force(s, GROUPS, DEFAULT) && is_in_force(s, SUBNETS, "blue")).await?;
    tokio::time::sleep(LONG).await;
    s.stop_controllers();
    s.scene.copies_north_bound_for(copying);
    let before = s.scene.journal().len();
    s.start_controller("controller-1", SYSTEM);
    tokio::time::sleep(LONG).await;
    let journal = s.scene.journal();
    let wrote = journal[before..].iter().filter(|effect| effect.process.starts_with("controller"));
    // Of the network: what an agent may do is applied anew by each controller that starts, and what a BMC says is read anew.
    let of_network = ["OVN", "/vpcs", "/subnets", "/securitygroups", "/vnics", "/addressholds", "/nicattachments"];
    let wrote = wrote.map(|effect| effect.what.as_str());
    let wrote: Vec<&str> = wrote.filter(|what| of_network.iter().any(|word| what.contains(word))).collect();
    if wrote != ["take the token of OVN"] {
        return Err(format!("{wrote:?}\n{}", s.story()));
    }
    let counted = ["token", "rows", "nb_cfg"].map(|what| transactions(s, what, "success"));
    if counted != [1.0, 0.0, 0.0] || repaired(s) != 0.0 {
        return Err(format!("counted are {counted:?} transactions, {} rows put right", repaired(s)));
    }
    Ok(())
}

/// The database does not answer while a machine is made; and again while one runs.
pub async fn away(s: &Simulation) -> Result<(), String> {
    s.until("the Subnet is there", |s| is_ready(s, SUBNETS, "blue")).await?;
    s.scene.north_bound.set_down(true);
    s.create(life::MACHINES, USER, life::machine("bm-01", 7));
    s.until("the VNic says what it waits for", |s| {
        let vnic = s.scene.server.get(VNICS, USER, "bm-01-eth0").unwrap_or_default();
        let waits = condition(&vnic, "Programmed") == "False";
        waits && vnic["status"]["conditions"].to_string().contains("the north-bound database does not answer")
    })
    .await?;
    s.scene.north_bound.set_down(false);
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    let before = s.scene.hosts[0].actions();
    s.scene.north_bound.set_down(true);
    s.delete(life::MACHINES, USER, "bm-01");
    tokio::time::sleep(LONG).await;
    let holds = s.scene.server.list("metalplane.io/addressholds");
    if !holds.iter().any(|hold| hold["spec"]["owner"]["name"] == "bm-01-eth0") {
        return Err(format!("its addresses are free while OVN may have its port\n{}", s.story()));
    }
    s.scene.north_bound.set_down(false);
    s.until("nothing is left", is_clean).await?;
    if s.scene.hosts[0].actions().len() > before.len() + 2 {
        return Err(format!("{:?}", s.scene.hosts[0].actions()));
    }
    Ok(())
}

/// What somebody does to the rows under a machine that runs is put right, and the host sees nothing of it.
pub async fn by_hand(s: &Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    let (before, actions) = (s.scene.north_bound.rows(), s.scene.hosts[0].actions());
    let shown = s.scene.hosts[0].dpu().exposures();
    let nb = &s.scene.north_bound;
    let is_right = |s: &Simulation| {
        let (mut now, mut then) = (s.scene.north_bound.rows(), before.clone());
        let key = |row: &Row| (row.table, row.id.clone());
        now.sort_by_key(key);
        then.sort_by_key(key);
        now == then
    };
    let mut changed = 0.0;
    for found in nb.found() {
        let Found { uuid, row } = &found;
        match row.table {
            Table::Acl => nb.set_by_hand(uuid, "action", Cell::Text("allow".to_owned())),
            Table::LogicalSwitchPort => nb.set_by_hand(uuid, "addresses", Cell::Text("unknown".to_owned())),
            _ => continue,
        }
        changed += 1.0;
        s.until(&format!("{} {} is as it was", row.table.name(), row.id.name()), is_right).await?;
    }
    if changed == 0.0 || repaired(s) != changed {
        return Err(format!("{changed} rows were changed by hand, and {} are counted", repaired(s)));
    }
    let (written, mut deleted) = (transactions(s, "rows", "success"), 0.0);
    for found in nb.found() {
        let what = format!("{} {} is there again", found.row.table.name(), found.row.id.name());
        // What was made anew with another row is no longer there.
        deleted += f64::from(u8::from(nb.found().iter().any(|now| now.uuid == found.uuid)));
        nb.delete_by_hand(&found.uuid);
        s.until(&what, is_right).await?;
    }
    if repaired(s) < changed + deleted || transactions(s, "rows", "success") < written + deleted {
        return Err(format!("{deleted} rows were deleted by hand, and {} are counted", repaired(s) - changed));
    }
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    if s.scene.hosts[0].actions() != actions || s.scene.hosts[0].dpu().exposures() != shown {
        return Err(format!("the host has seen it: {:?}\n{}", s.scene.hosts[0].dpu().exposures(), s.story()));
    }
    if nb.rows().iter().filter(|row| row.external_ids[KIND] == "VNic").count() != 1 {
        return Err(format!("{:#?}", nb.rows()));
    }
    s.delete(life::MACHINES, USER, "bm-01");
    s.until("nothing is left", is_clean).await
}
