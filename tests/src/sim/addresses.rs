//! One address has one VNic: two machines that ask for one, what releases it, and Subnets that are deleted under a machine.

use super::api::store::Numbers;
use super::host::Host;
use super::life::{self, condition, runs};
use super::simulation::{Simulation, USER};
use planner::exposure::Exposure;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const VNICS: &str = "metalplane.io/vnics";
const SUBNETS: &str = "metalplane.io/subnets";
const HOLDS: &str = "metalplane.io/addressholds";
const NICS: &str = "metalplane.io/nicattachments";

/// Long enough for whatever would be done about it.
const LONG: Duration = Duration::from_secs(120);

fn vnic(s: &Simulation, name: &str) -> Arc<Value> {
    s.scene.server.get(VNICS, USER, name).unwrap_or_default()
}

fn assigned(s: &Simulation, name: &str) -> bool {
    condition(&vnic(s, name), "AddressesAssigned") == "True"
}

/// A VNic, a machine or a Subnet says this in one of its conditions.
fn says(object: &Value, reason: &str) -> bool {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|c| c["reason"] == reason || c["message"].as_str().is_some_and(|text| text.contains(reason)))
}

/// The VNics that have a hold of this address.
fn owners(s: &Simulation, address: &str) -> Vec<String> {
    let all = s.scene.server.list(HOLDS);
    let of_it = all.iter().filter(|hold| hold["spec"]["address"] == address);
    of_it.filter_map(|hold| hold["spec"]["owner"]["name"].as_str().map(str::to_owned)).collect()
}

/// A VNic that asks for no address.
fn any_nic(name: &str) -> Value {
    let mut vnic = own_nic(name, Value::Null, None);
    vnic["spec"].as_object_mut().map(|spec| spec.remove("addresses"));
    vnic
}

fn address(s: &Simulation, name: &str) -> String {
    vnic(s, name)["status"]["addresses"][0].as_str().unwrap_or_default().to_owned()
}

fn own_nic(name: &str, addresses: Value, mac: Option<&str>) -> Value {
    let mut vnic = json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "VNic", "metadata": {"name": name},
        "spec": {"subnet": "blue", "addresses": addresses}});
    if let Some(mac) = mac {
        vnic["spec"]["macAddress"] = json!(mac);
    }
    vnic
}

/// At no time two NICs with one address on hosts, and nothing granted without a hold.
fn check(s: &Simulation) -> Result<(), String> {
    let nics = s.scene.server.list(NICS);
    let granted = || nics.iter().filter(|nic| !nic["spec"]["grant"].is_null());
    for nic in granted() {
        for address in nic["spec"]["addresses"].as_array().into_iter().flatten() {
            let same = granted().filter(|other| {
                other["spec"]["addresses"].as_array().is_some_and(|addresses| addresses.contains(address))
            });
            if same.count() > 1 {
                return Err(format!("{address} is granted twice\n{}", s.story()));
            }
            let held = s.scene.server.list(HOLDS).iter().any(|hold| {
                hold["spec"]["address"] == *address && hold["spec"]["owner"]["uid"] == nic["spec"]["vnicUID"]
            });
            if !held {
                return Err(format!(
                    "{address} of {} is granted without a hold\n{}",
                    nic["metadata"]["name"],
                    s.story()
                ));
            }
        }
    }
    Ok(())
}

/// [`Simulation::until`], and [`check`] at every change on the way.
async fn until(s: &Simulation, what: &str, is_so: impl Fn(&Simulation) -> bool) -> Result<(), String> {
    let wrong = std::cell::RefCell::new(None);
    s.until(what, |s| {
        if let Err(message) = check(s) {
            wrong.borrow_mut().get_or_insert(message);
        }
        wrong.borrow().is_some() || is_so(s)
    })
    .await?;
    wrong.into_inner().map_or(Ok(()), |message| Err(format!("{what}: {message}")))
}

/// Two machines that ask for one address are applied at once: one is served, the other says who has it, and is served once the
/// first is deleted.
pub async fn two_machines(s: &Simulation) -> Result<(), String> {
    for machine in ["bm-01", "bm-02"] {
        s.create(MACHINES, USER, life::machine(machine, 7));
    }
    until(s, "one machine runs, and the other knows why it does not", |s| {
        let served = ["bm-01", "bm-02"].map(|machine| runs(s, machine));
        let told = |machine: &str| says(&s.machine(machine).unwrap_or_default(), "AddressTaken");
        (served[0] && told("bm-02")) || (served[1] && told("bm-01"))
    })
    .await?;
    let (first, second) = if runs(s, "bm-01") { ("bm-01", "bm-02") } else { ("bm-02", "bm-01") };
    if !says(&vnic(s, &format!("{second}-eth0")), &format!("kubectl delete vnic {first}-eth0")) {
        return Err(format!("the VNic does not say what to do: {}\n{}", vnic(s, &format!("{second}-eth0")), s.story()));
    }
    if owners(s, "10.20.0.7") != [format!("{first}-eth0")] {
        return Err(format!("the address is held by {:?}", owners(s, "10.20.0.7")));
    }
    let before = s.scene.server.store().log.len();
    s.delete(MACHINES, USER, first);
    until(s, "the other machine runs", |s| runs(s, second)).await?;
    released_in_order(s, before, &format!("{first}-eth0"))?;
    s.delete(MACHINES, USER, second);
    until(s, "nothing is left", life::is_clean).await
}

/// Attachment, then hold, then VNic, in what was written since.
fn released_in_order(s: &Simulation, since: usize, vnic: &str) -> Result<(), String> {
    use super::api::store::Change;
    let store = s.scene.server.store();
    let at = |resource: &str, is_it: &dyn Fn(&Value) -> bool| {
        store.log[since..]
            .iter()
            .position(|event| event.change == Change::Deleted && event.id.resource == resource && is_it(&event.object))
    };
    let order = [
        at(NICS, &|nic| nic["spec"]["vnicName"] == vnic),
        at(HOLDS, &|hold| hold["spec"]["owner"]["name"] == vnic),
        at(VNICS, &|there| there["metadata"]["name"] == vnic),
    ];
    match order {
        [Some(nic), Some(hold), Some(vnic)] if nic < hold && hold < vnic => Ok(()),
        other => Err(format!("attachment, hold and VNic were deleted in another order: {other:?}")),
    }
}

/// VNics of the user's own: addresses and MAC addresses, and what cannot be had.
pub async fn own_vnics(s: &Simulation) -> Result<(), String> {
    const MAC: &str = "02:00:00:00:00:07";
    s.create(VNICS, USER, own_nic("a", json!(["10.20.0.7"]), Some(MAC)));
    until(s, "the first has its addresses before it was ever in a machine", |s| assigned(s, "a")).await?;
    let refused = [
        ("b", own_nic("b", json!(["10.20.0.7"]), None), "AddressTaken"),
        ("c", own_nic("c", json!(["10.20.0.8"]), Some(MAC)), "MacTaken"),
        ("d", own_nic("d", json!(["10.20.1.7"]), None), "AddressOutsideSubnet"),
        ("e", own_nic("e", json!(["10.20.0.1"]), None), "AddressReserved"),
        ("f", own_nic("f", json!(["10.20.0.255"]), None), "AddressReserved"),
    ];
    for (name, object, reason) in refused {
        s.create(VNICS, USER, object);
        until(s, &format!("VNic '{name}' says {reason}"), |s| says(&vnic(s, name), reason)).await?;
    }
    s.delete(VNICS, USER, "a");
    until(s, "the others have what it had", |s| assigned(s, "b") && assigned(s, "c")).await?;
    for name in ["b", "c", "d", "e", "f"] {
        s.delete(VNICS, USER, name);
    }
    until(s, "nothing is left", life::is_clean).await
}

/// More VNics than the Subnet has addresses, created at once: each address is given once and stays, who has none is told, and gets
/// what is released; a machine that asks for no address gets one.
pub async fn chosen(s: &Simulation) -> Result<(), String> {
    const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    // Of six that could be given one is reserved, and one is the gateway.
    let spec = json!({"cidr": "10.40.0.0/29", "gateway": "10.40.0.1", "reserved": ["10.40.0.5"]});
    s.create(
        SUBNETS,
        USER,
        json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "Subnet", "metadata": {"name": "small"}, "spec": spec}),
    );
    let small = |name: &str| {
        let mut nic = any_nic(name);
        nic["spec"]["subnet"] = json!("small");
        nic
    };
    NAMES.iter().for_each(|name| s.create(VNICS, USER, small(name)));
    let served = |s: &Simulation| NAMES.iter().filter(|name| assigned(s, name)).count();
    let told = |s: &Simulation| NAMES.iter().filter(|name| says(&vnic(s, name), "SubnetFull")).count();
    until(s, "all that the Subnet has is given", |s| served(s) == 4 && told(s) == 3).await?;
    let given: Vec<(&str, String)> =
        NAMES.iter().filter(|name| assigned(s, name)).map(|name| (*name, address(s, name))).collect();
    let mut all: Vec<&str> = given.iter().map(|(_, address)| address.as_str()).collect();
    all.sort_unstable();
    if all != ["10.40.0.2", "10.40.0.3", "10.40.0.4", "10.40.0.6"] {
        return Err(format!("given were {all:?}\n{}", s.story()));
    }
    s.create(VNICS, USER, {
        let mut nic = small("asks");
        nic["spec"]["addresses"] = json!(["10.40.0.5"]);
        nic
    });
    until(s, "a reserved address is given to who asks for it", |s| assigned(s, "asks")).await?;
    let (first, released) = &given[0];
    s.delete(VNICS, USER, first);
    until(s, "somebody has what was released", |s| served(s) == 4 && vnic(s, first).is_null()).await?;
    let next = NAMES.iter().find(|name| address(s, name) == *released);
    if next.is_none() || given[1..].iter().any(|(name, address_before)| address(s, name) != *address_before) {
        return Err(format!("somebody has another address than before\n{}", s.story()));
    }
    for name in NAMES.iter().chain(&["asks"]).filter(|name| *name != first) {
        s.delete(VNICS, USER, name);
    }
    s.delete(SUBNETS, USER, "small");
    until(s, "the small Subnet is gone", |s| s.scene.server.get(SUBNETS, USER, "small").is_none()).await?;
    let mut machine = life::machine("bm-01", 7);
    machine["spec"]["interfaces"] = json!([{"name": "eth0", "subnet": "blue"}]);
    s.create(MACHINES, USER, machine);
    until(s, "a machine runs with an address that it did not ask for", |s| runs(s, "bm-01")).await?;
    let nic = s.scene.server.list(NICS).first().map(|nic| nic["spec"]["addresses"].clone()).unwrap_or_default();
    let shown = s.machine("bm-01").unwrap_or_default()["status"]["addresses"][0]["address"].clone();
    if nic != json!([address(s, "bm-01-eth0")]) || shown != nic[0] {
        return Err(format!("the host was given {nic}\n{}", s.story()));
    }
    s.delete(MACHINES, USER, "bm-01");
    until(s, "nothing is left", life::is_clean).await
}

/// A hold that a deposed leader created too late: its VNic no longer exists.
pub async fn held_too_late(s: &Simulation) -> Result<(), String> {
    s.create(VNICS, USER, own_nic("a", json!(["10.20.0.7"]), None));
    until(s, "it has its address", |s| assigned(s, "a")).await?;
    let of_it = |hold: &Arc<Value>| hold["spec"]["address"] == "10.20.0.7";
    let hold = s.scene.server.list(HOLDS).into_iter().find(of_it).ok_or("no hold")?;
    s.delete(VNICS, USER, "a");
    until(s, "nothing is left", life::is_clean).await?;
    let mut again = json!({"apiVersion": hold["apiVersion"], "kind": hold["kind"], "spec": hold["spec"]});
    again["metadata"] = json!({"name": hold["metadata"]["name"]});
    s.create(HOLDS, "", again);
    s.create(VNICS, USER, own_nic("b", json!(["10.20.0.7"]), None));
    until(s, "the hold is collected, and the next VNic has the address", |s| assigned(s, "b")).await?;
    s.delete(VNICS, USER, "b");
    until(s, "nothing is left", life::is_clean).await
}

/// A VNic's finalizers are taken away by force under a running machine: its address is in use until the attachment is deleted.
pub async fn vnic_taken_by_force(s: &Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    s.change(VNICS, USER, "bm-01-eth0", |vnic| vnic["metadata"]["finalizers"] = json!([]));
    s.delete(VNICS, USER, "bm-01-eth0");
    s.create(VNICS, USER, own_nic("a", json!(["10.20.0.7"]), None));
    s.until("the address is in use", |s| says(&vnic(s, "a"), "AddressReleasing")).await?;
    tokio::time::sleep(LONG).await;
    if assigned(s, "a") || owners(s, "10.20.0.7").is_empty() {
        return Err(format!("an address that a host has was given away\n{}", s.story()));
    }
    s.delete(MACHINES, USER, "bm-01");
    s.until("it is free with the machine", |s| assigned(s, "a")).await?;
    s.delete(VNICS, USER, "a");
    s.until("nothing is left", life::is_clean).await
}

/// A Subnet is deleted under a running machine: it stays, names who uses it, lets nobody in, and goes after the machine.
pub async fn subnet_deleted(s: &Simulation) -> Result<(), String> {
    let subnet = |s: &Simulation| s.scene.server.get(SUBNETS, USER, "blue").unwrap_or_default();
    life::create(s, "bm-01", 7).await?;
    s.delete(SUBNETS, USER, "blue");
    s.create(VNICS, USER, own_nic("late", json!(["10.20.0.9"]), None));
    until(s, "the Subnet names who uses it", |s| {
        let subnet = subnet(s);
        let named = ["SubnetInUse", "bm-01-eth0", "BareMetalMachine 'bm-01'"];
        named.iter().all(|word| says(&subnet, word)) && says(&vnic(s, "late"), "SubnetBeingDeleted")
    })
    .await?;
    s.create(MACHINES, USER, life::machine("bm-02", 8));
    until(s, "a new machine is told", |s| says(&s.machine("bm-02").unwrap_or_default(), "SubnetBeingDeleted")).await?;
    tokio::time::sleep(LONG).await;
    if !runs(s, "bm-01") || subnet(s).is_null() {
        return Err(format!("the Subnet went, or the machine with it\n{}", s.story()));
    }
    s.delete(MACHINES, USER, "bm-02");
    s.delete(MACHINES, USER, "bm-01");
    until(s, "the Subnet is gone, and the VNic that has nothing of it says so", |s| {
        subnet(s).is_null() && says(&vnic(s, "late"), "SubnetMissing")
    })
    .await?;
    s.delete(VNICS, USER, "late");
    until(s, "nothing is left", life::is_clean).await
}

fn shown(host: &Host) -> Vec<Exposure> {
    let mut all = host.dpu().exposures();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

/// etcd is restored to a time before a machine that runs: its NIC's address and MAC address count as taken until the host is off.
pub async fn orphan_keeps_its_address(s: &mut Simulation) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    let dpu = |s: &Simulation| s.scene.server.get("metalplane.io/dpus", "", &host.dpu_name).unwrap_or_default();
    s.until("the Dpu is ready", |s| condition(&dpu(s), "Ready") == "True").await?;
    let before = s.scene.server.store().backup();
    life::create(s, "bm-01", 7).await?;
    let running = shown(&host);
    let mac = vnic(s, "bm-01-eth0")["status"]["macAddress"].as_str().unwrap_or_default().to_owned();
    s.scene.server.write(|store| store.restore(before, Numbers::Later));
    s.stop_agent(&host);
    s.start_agent(&host);
    let orphans = |s: &Simulation| dpu(s)["status"]["orphans"].as_array().map_or(0, Vec::len);
    s.until("the agent reports all of it", |s| orphans(s) == running.len()).await?;
    s.create(VNICS, USER, own_nic("a", json!(["10.20.0.7"]), None));
    s.create(VNICS, USER, own_nic("b", json!(["10.20.0.8"]), Some(&mac)));
    s.until("both are told", |s| ["a", "b"].iter().all(|name| says(&vnic(s, name), "AddressShownElsewhere"))).await?;
    host.goes_off();
    s.until("both have what the orphan had", |s| orphans(s) == 0 && assigned(s, "a") && assigned(s, "b")).await
}

/// A version without AddressHolds let two machines run with one address. The one that comes first gets the hold, the other keeps
/// running and says so, and has the address when the first is gone.
pub async fn upgraded(s: &mut Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await?;
    // What is older by a second is older.
    tokio::time::sleep(Duration::from_secs(2)).await;
    life::create(s, "bm-02", 8).await?;
    s.stop_controllers();
    s.scene.server.write(before_holds);
    let running: Vec<_> = s.scene.hosts.iter().map(|host| shown(host)).collect();
    s.start_controller("controller-1", super::simulation::SYSTEM);
    s.until("the younger says who has the address", |s| says(&vnic(s, "bm-02-eth0"), "AddressTaken")).await?;
    tokio::time::sleep(LONG).await;
    let now: Vec<_> = s.scene.hosts.iter().map(|host| shown(host)).collect();
    if now != running || !runs(s, "bm-01") || !runs(s, "bm-02") {
        return Err(format!("a running machine lost something by the upgrade\n{}", s.story()));
    }
    if owners(s, "10.20.0.7") != ["bm-01-eth0"] || !assigned(s, "bm-01-eth0") {
        return Err(format!("the elder does not have the address: {:?}\n{}", owners(s, "10.20.0.7"), s.story()));
    }
    s.delete(MACHINES, USER, "bm-01");
    s.until("the younger has the address", |s| assigned(s, "bm-02-eth0")).await?;
    if !runs(s, "bm-02") {
        return Err(format!("it does not run any more\n{}", s.story()));
    }
    s.delete(MACHINES, USER, "bm-02");
    s.until("nothing is left", life::is_clean).await
}

/// Two VNics that no machine holds were created with one address while no controller ran: the older has it, whatever its name.
pub async fn upgraded_idle(s: &mut Simulation) -> Result<(), String> {
    s.stop_controllers();
    for name in ["z", "m", "a"] {
        s.create(VNICS, USER, own_nic(name, json!(["10.20.0.7"]), None));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    s.start_controller("controller-1", super::simulation::SYSTEM);
    until(s, "the oldest has it, and the others say so", |s| {
        let told = |name: &str| says(&vnic(s, name), "belongs to VNic 'z'");
        assigned(s, "z") && told("m") && told("a")
    })
    .await?;
    for name in ["a", "m", "z"] {
        s.delete(VNICS, USER, name);
    }
    until(s, "nothing is left", life::is_clean).await
}

/// As the objects were: no holds, nothing said of addresses, and the second machine with the address of the first.
fn before_holds(store: &mut super::api::store::Store) {
    use super::api::store::Part;
    let all: Vec<_> = store.all().map(|(id, object)| (id.clone(), Value::clone(object))).collect();
    for (id, mut object) in all {
        let address = json!(["10.20.0.7"]);
        let second = object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("bm-02"));
        match id.resource.as_str() {
            HOLDS => drop(store.delete(&id, &Value::Null)),
            SUBNETS => {
                object["metadata"]["finalizers"] = json!([]);
                drop(store.update(&id, Part::Main, object));
            }
            VNICS => {
                for key in ["addresses", "conditions"] {
                    object["status"].as_object_mut().and_then(|status| status.remove(key));
                }
                if second {
                    object["spec"]["addresses"] = address;
                }
                object["metadata"].as_object_mut().and_then(|meta| meta.remove("resourceVersion"));
                drop(store.update(&id, Part::Status, object.clone()));
                drop(store.update(&id, Part::Main, object));
            }
            MACHINES if second => {
                object["spec"]["interfaces"][0]["addresses"] = address;
                drop(store.update(&id, Part::Main, object));
            }
            NICS if second => {
                object["spec"]["addresses"] = address;
                drop(store.update(&id, Part::Main, object));
            }
            _ => {}
        }
    }
}
