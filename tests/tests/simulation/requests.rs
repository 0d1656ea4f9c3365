//! What machines cost the API server: requests of the controller, counted and held.

use super::{seed, simulate};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::sim::faults::Plan;
use tests::sim::simulation::USER;
use tests::sim::{Simulation, life};

const MACHINES: usize = 50;
/// Of all kinds, for one machine from its creation until it is ready. docs/benchmarks.md counts them on a real API server.
const MOST: f64 = 46.0;
/// Of each kind, so that one that grows is named.
const HELD: [(&str, f64); 25] = [
    ("GET metalplane.io/baremetalmachines", 1.5),
    ("GET metalplane.io/subnets", 1.5),
    ("GET persistentvolumes", 1.5),
    ("GET pods", 1.5),
    ("GET tinkerbell.org/hardware", 2.5),
    ("PATCH bmc.tinkerbell.org/machines status", 1.5),
    ("PATCH coordination.k8s.io/leases", 0.1),
    ("PATCH metalplane.io/baremetalmachines", 1.5),
    ("PATCH metalplane.io/baremetalmachines status", 9.5),
    ("PATCH metalplane.io/diskattachments", 2.5),
    ("PATCH metalplane.io/nicattachments", 1.5),
    ("PATCH metalplane.io/securitygroups status", 0.1),
    ("PATCH metalplane.io/subnets status", 0.1),
    ("PATCH metalplane.io/vnics status", 5.5),
    ("PATCH persistentvolumeclaims", 1.5),
    ("PATCH tinkerbell.org/hardware", 3.5),
    ("POST events.k8s.io/events", 6.5),
    ("POST metalplane.io/addressholds", 1.5),
    ("POST metalplane.io/diskattachments", 2.5),
    ("POST metalplane.io/nicattachments", 1.5),
    ("POST metalplane.io/vnics", 1.5),
    ("POST metalplane.io/volumeholds", 1.5),
    ("POST persistentvolumeclaims", 1.5),
    ("POST secrets", 1.5),
    ("POST storage.k8s.io/volumeattachments", 1.5),
];
/// In a minute in which nothing happens, whatever the number of machines is.
const MOST_IDLE: usize = 100;

/// Until what is written late is written.
const CALM: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

type Counts = BTreeMap<String, usize>;

fn counted(s: &Simulation) -> Counts {
    let requests = s.scene.server.requests().into_iter();
    requests
        .filter(|((process, _), _)| process.starts_with("controller-1 "))
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

fn table(counts: &Counts) -> String {
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let row = |(what, count): (&String, &usize)| format!("    (\"{what}\", {:.2}),\n", *count as f64 / MACHINES as f64);
    rows.into_iter().map(row).collect()
}

#[test]
fn a_machine_costs_no_more_requests_than_are_written_down() {
    let (made, idle) = simulate(async {
        let s = Simulation::start(MACHINES, seed(), Plan::None);
        s.until("the DPUs are ready", |s| {
            s.scene.server.list("metalplane.io/dpus").iter().all(|dpu| life::condition(dpu, "Ready") == "True")
        })
        .await?;
        tokio::time::sleep(CALM).await;
        let before = counted(&s);
        let name = |number: usize| format!("bm-{number:02}");
        for number in 0..MACHINES {
            let mut machine = life::machine(&name(number), 0);
            machine["spec"]["interfaces"][0].as_object_mut().expect("an interface").remove("addresses");
            s.create("metalplane.io/baremetalmachines", USER, machine);
        }
        s.until("all machines are ready", |s| (0..MACHINES).all(|number| life::runs(s, &name(number)))).await?;
        let made = since(counted(&s), &before);
        // What is sent late: Events, and statuses that follow.
        tokio::time::sleep(CALM).await;
        let before = counted(&s);
        tokio::time::sleep(MINUTE).await;
        Ok::<_, String>((made, since(counted(&s), &before)))
    })
    .unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
    let total = made.values().sum::<usize>() as f64 / MACHINES as f64;
    let said = format!("{total:.1} requests per machine:\n{}", table(&made));
    assert!(total <= MOST, "{said}");
    for (what, count) in &made {
        let held = HELD.iter().find(|(held, _)| held == what).map_or(0.0, |(_, most)| *most);
        assert!(*count as f64 / MACHINES as f64 <= held, "{what}: more than {held}; {said}");
    }
    let idle_total: usize = idle.values().sum();
    assert!(idle_total <= MOST_IDLE, "{idle_total} requests in an idle minute: {idle:?}");
}
