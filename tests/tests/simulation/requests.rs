//! What machines cost the API server: requests of the controller, counted and held. And what many disks at once cost.

use super::{looks, seed, simulate};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::sim::faults::Plan;
use tests::sim::netboot::Servers;
use tests::sim::simulation::USER;
use tests::sim::{Simulation, bare, life, workers};

const CONTROLLER: &str = "controller-1";
const MACHINES: usize = 50;
/// Of all kinds, for one machine from its creation until it is ready. docs/benchmarks.md counts them on a real API server.
const MOST: f64 = 44.0;
/// Of each kind, so that one that grows is named.
const HELD: [(&str, f64); 25] = [
    ("GET metalplane.io/baremetalmachines", 1.1),
    ("GET metalplane.io/subnets", 1.1),
    ("GET persistentvolumes", 1.1),
    ("GET pods", 1.1),
    ("GET tinkerbell.org/hardware", 2.1),
    ("PATCH bmc.tinkerbell.org/machines status", 1.1),
    ("PATCH coordination.k8s.io/leases", 0.1),
    ("PATCH metalplane.io/baremetalmachines", 1.1),
    ("PATCH metalplane.io/baremetalmachines status", 8.8),
    ("PATCH metalplane.io/diskattachments", 2.1),
    ("PATCH metalplane.io/nicattachments", 1.1),
    ("PATCH metalplane.io/securitygroups status", 0.1),
    ("PATCH metalplane.io/subnets status", 0.1),
    ("PATCH metalplane.io/vnics status", 4.1),
    ("PATCH persistentvolumeclaims", 1.1),
    ("PATCH tinkerbell.org/hardware", 3.1),
    ("POST events.k8s.io/events", 7.1),
    ("POST metalplane.io/addressholds", 1.1),
    ("POST metalplane.io/diskattachments", 2.1),
    ("POST metalplane.io/nicattachments", 1.1),
    ("POST metalplane.io/vnics", 1.1),
    ("POST metalplane.io/volumeholds", 1.1),
    ("POST persistentvolumeclaims", 1.1),
    ("POST secrets", 1.1),
    ("POST storage.k8s.io/volumeattachments", 1.1),
];
/// Looks of the controller at one object, for one machine.
const MOST_LOOKS: f64 = 40.0;
/// Of each kind.
const HELD_LOOKS: [(&str, f64); 8] = [
    ("contact", 3.2),
    ("dpu", 6.2),
    ("hold", 1.1),
    ("machine", 13.5),
    ("securitygroup", 0.5),
    ("subnet", 3.0),
    ("vnic", 14.0),
    ("vpc", 0.5),
];
/// In a minute in which nothing happens, whatever the number of machines is.
const MOST_IDLE: usize = 100;

/// Until what is written late is written.
const CALM: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

type Counts = BTreeMap<String, usize>;

fn counted(s: &Simulation, by: &str) -> Counts {
    let requests = s.scene.server.requests().into_iter();
    requests
        .filter(|((process, _), _)| process.split(' ').next() == Some(by))
        .map(|((_, what), count)| (what, count))
        .collect()
}

fn since(now: Counts, before: &Counts) -> Counts {
    let more = now.into_iter().map(|(what, count)| {
        let more = count - before.get(&what).copied().unwrap_or_default();
        (what, more)
    });
    more.filter(|(_, count)| *count > 0).collect()
}

fn table(counts: &Counts, of: usize) -> String {
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let row = |(what, count): (&String, &usize)| format!("    (\"{what}\", {:.2}),\n", *count as f64 / of as f64);
    rows.into_iter().map(row).collect()
}

/// For one machine: all together, and of each kind.
fn held(what: &str, made: &Counts, most: f64, each: &[(&str, f64)]) {
    let total = made.values().sum::<usize>() as f64 / MACHINES as f64;
    let said = format!("{total:.1} {what} per machine:\n{}", table(made, MACHINES));
    assert!(total <= most, "{said}");
    for (kind, count) in made {
        let held = each.iter().find(|(held, _)| held == kind).map_or(0.0, |(_, most)| *most);
        assert!(*count as f64 / MACHINES as f64 <= held, "{kind}: more than {held}; {said}");
    }
}

#[test]
fn a_machine_costs_no_more_requests_than_are_written_down() {
    let (made, looks, idle) = simulate(async {
        let s = Simulation::start(MACHINES, seed(), Plan::None);
        s.until("the DPUs are ready", |s| {
            s.scene.server.list("metalplane.io/dpus").iter().all(|dpu| life::condition(dpu, "Ready") == "True")
        })
        .await?;
        tokio::time::sleep(CALM).await;
        let (before, looked) = (counted(&s, CONTROLLER), looks::counted());
        let name = |number: usize| format!("bm-{number:02}");
        for number in 0..MACHINES {
            let mut machine = life::machine(&name(number), 0);
            machine["spec"]["interfaces"][0].as_object_mut().expect("an interface").remove("addresses");
            s.create("metalplane.io/baremetalmachines", USER, machine);
        }
        s.until("all machines are ready", |s| (0..MACHINES).all(|number| life::runs(s, &name(number)))).await?;
        let (made, looks) = (since(counted(&s, CONTROLLER), &before), since(looks::counted(), &looked));
        // What is sent late: Events, and statuses that follow.
        tokio::time::sleep(CALM).await;
        let before = counted(&s, CONTROLLER);
        tokio::time::sleep(MINUTE).await;
        Ok::<_, String>((made, looks, since(counted(&s, CONTROLLER), &before)))
    })
    .unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
    held("requests", &made, MOST, &HELD);
    held("looks", &looks, MOST_LOOKS, &HELD_LOOKS);
    let idle_total: usize = idle.values().sum();
    assert!(idle_total <= MOST_IDLE, "{idle_total} requests in an idle minute: {idle:?}");
}

/// Writes of controller and boot service for one installation, from the machine's creation until the machine is ready; 4 are Events.
const MOST_WRITES: f64 = 45.0;
/// An agent that may work is not left without work for longer.
const MOST_WAIT: Duration = Duration::from_secs(3);

#[test]
fn fifty_servers_are_installed_at_once() {
    let (made, waited, idle) = simulate(async {
        let s = Simulation::start(MACHINES, seed(), Plan::None);
        let servers = Servers::start(&s.scene, MACHINES);
        bare::furnish(&s, MACHINES);
        tokio::time::sleep(CALM).await;
        let all = |s: &Simulation| {
            let mut all = Counts::new();
            for (what, count) in
                ["controller-1", "boot-10.88.0.1", "boot-10.88.0.2"].iter().flat_map(|by| counted(s, by))
            {
                *all.entry(what).or_default() += count;
            }
            all.retain(|what, _| !what.starts_with("GET ") && !what.contains("leases"));
            all
        };
        let before = all(&s);
        let name = |number: usize| format!("bm-{number:02}");
        for number in 0..MACHINES {
            s.create("metalplane.io/baremetalmachines", USER, bare::machine(&name(number)));
        }
        s.until("all machines are ready", |s| (0..MACHINES).all(|number| life::runs(s, &name(number)))).await?;
        let waited = servers.disks.iter().map(|disk| disk.longest_wait()).max();
        let made = since(all(&s), &before);
        // What is sent late: Events, and statuses that follow.
        tokio::time::sleep(2 * CALM).await;
        let before = all(&s);
        tokio::time::sleep(MINUTE).await;
        Ok::<_, String>((made, waited.unwrap_or_default(), since(all(&s), &before)))
    })
    .unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
    let writes = made.values().sum::<usize>() as f64 / MACHINES as f64;
    let said =
        format!("{writes:.1} writes per installation, {waited:?} at most without work:\n{}", table(&made, MACHINES));
    eprintln!("{said}");
    assert!(writes <= MOST_WRITES && waited <= MOST_WAIT, "{said}");
    assert!(idle.is_empty(), "writes in a minute in which nothing happens: {idle:?}");
}

/// With the boot disk and its cloud-init disk these are 64.
const DISKS: usize = 62;
/// For one disk of many that are hot-plugged at once, by controller and agent: each of its writes is one that the protocol needs.
const HELD_BY_DISK: [(&str, f64); 9] = [
    ("GET metalplane.io/diskattachments", 1.0),
    ("GET persistentvolumes", 1.0),
    ("PATCH metalplane.io/diskattachments", 1.0),
    ("PATCH metalplane.io/diskattachments status", 2.0),
    ("PATCH persistentvolumeclaims", 1.0),
    ("POST events.k8s.io/events", 0.5),
    ("POST metalplane.io/diskattachments", 1.0),
    ("POST metalplane.io/volumeholds", 1.0),
    ("POST storage.k8s.io/volumeattachments", 1.0),
];
/// Of other kinds, all together.
const MOST_BESIDE: usize = 20;
/// A request and its answer are under way for 4.4 ms at most. One disk needs some twenty after each other; 62 of them need not many more.
const MOST_TIME: Duration = Duration::from_millis(120);

fn claim(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "fast",
            "resources": {"requests": {"storage": "16Mi"}}}})
}

#[test]
fn many_disks_at_once_take_little_longer_than_one() {
    let (made, took) = simulate(async {
        let s = Simulation::start(1, seed(), Plan::None);
        life::create(&s, "bm-01", 7).await?;
        let names: Vec<String> = (0..DISKS).map(|number| format!("many-{number:02}")).collect();
        names.iter().for_each(|name| s.create("persistentvolumeclaims", USER, claim(name)));
        let is_bound = |claim: &serde_json::Value| claim["status"]["phase"] == "Bound";
        s.until("the claims are bound", |s| {
            s.scene.server.list("persistentvolumeclaims").iter().all(|claim| is_bound(claim))
        })
        .await?;
        tokio::time::sleep(CALM).await;
        let all = |s: &Simulation| {
            let mut all = counted(s, CONTROLLER);
            counted(s, "dpu-1").into_iter().for_each(|(what, count)| *all.entry(what).or_default() += count);
            all
        };
        let (before, began) = (all(&s), tokio::time::Instant::now());
        s.change(life::MACHINES, USER, "bm-01", |machine| {
            let disk = |name: &String| {
                json!({"name": name, "bus": "NVMe", "source": {"persistentVolumeClaim": {"claimName": name}}})
            };
            machine["spec"]["disks"].as_array_mut().expect("a list").extend(names.iter().map(disk));
        });
        s.until("the host has all disks", |s| {
            let all = s.scene.server.list("metalplane.io/diskattachments");
            all.len() == DISKS + 2 && all.iter().all(|one| life::condition(one, "Exposed") == "True")
        })
        .await?;
        Ok::<_, String>((since(all(&s), &before), began.elapsed()))
    })
    .unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
    let said = format!("{took:?}; requests per disk:\n{}", table(&made, DISKS));
    let (held, beside): (Vec<_>, Vec<_>) =
        made.iter().partition(|(what, _)| HELD_BY_DISK.iter().any(|(held, _)| held == what));
    for (what, count) in held {
        let most = HELD_BY_DISK.iter().find(|(held, _)| held == what).map_or(0.0, |(_, most)| *most);
        assert!(*count as f64 / DISKS as f64 <= most, "{what}: more than {most}; {said}");
    }
    assert!(beside.iter().map(|(_, count)| **count).sum::<usize>() <= MOST_BESIDE, "{said}");
    assert!(took <= MOST_TIME, "{said}");
}

/// Writes of controller and agent for a pod's NIC at a machine that is the pod's node, Events apart. docs/design/network.md says what each is for;
/// the pod's annotation, its Dpu's places and the guest that answers are of such a pod alone.
const HELD_BY_START: [(&str, usize); 10] = [
    ("PATCH metalplane.io/dpus status", 1),
    ("PATCH metalplane.io/nicattachments", 1),
    ("PATCH metalplane.io/nicattachments status", 3),
    ("PATCH metalplane.io/securitygroups status", 1),
    ("PATCH metalplane.io/subnets status", 1),
    ("PATCH metalplane.io/vnics status", 3),
    ("PATCH pods status", 2),
    ("POST metalplane.io/addressholds", 1),
    ("POST metalplane.io/nicattachments", 1),
    ("POST metalplane.io/vnics", 1),
];
/// The status is of a host that has not released the NIC within a moment.
const HELD_BY_END: [(&str, usize); 9] = [
    ("DELETE metalplane.io/addressholds", 1),
    ("DELETE metalplane.io/nicattachments", 1),
    ("DELETE metalplane.io/vnics", 1),
    ("PATCH metalplane.io/dpus status", 1),
    ("PATCH metalplane.io/nicattachments", 2),
    ("PATCH metalplane.io/nicattachments status", 1),
    ("PATCH metalplane.io/securitygroups status", 1),
    ("PATCH metalplane.io/subnets status", 1),
    ("PATCH metalplane.io/vnics", 1),
];

fn written(made: &Counts, held: &[(&str, usize)], when: &str) {
    for (what, count) in made {
        let most = held.iter().find(|(held, _)| held == what).map_or(0, |(_, most)| *most);
        assert!(*count <= most, "a pod's {when}: {count} of {what}, more than {most}: {made:?}");
    }
}

#[test]
fn a_pods_nic_costs_no_more_writes_than_are_written_down() {
    let (start, end) = simulate(async {
        let s = Simulation::start(1, seed(), Plan::None);
        workers::create_worker(&s);
        s.until("the machine is ready", |s| life::runs(s, "bm-01")).await?;
        let all = |s: &Simulation| {
            let mut all = counted(s, CONTROLLER);
            counted(s, "dpu-1").into_iter().for_each(|(what, count)| *all.entry(what).or_default() += count);
            all.retain(|what, _| !what.starts_with("GET ") && !what.contains("leases") && !what.contains("events"));
            all
        };
        tokio::time::sleep(CALM).await;
        let before = all(&s);
        workers::create_pod(&s);
        workers::works(&s).await?;
        // What is written late too.
        tokio::time::sleep(CALM).await;
        let started = all(&s);
        workers::pod_ends(&s).await?;
        tokio::time::sleep(CALM).await;
        Ok::<_, String>((since(started.clone(), &before), since(all(&s), &started)))
    })
    .unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
    eprintln!("start {start:?}; end {end:?}");
    written(&start, &HELD_BY_START, "start");
    written(&end, &HELD_BY_END, "end");
}
