//! `start`, `stop`, `restart`: write what the controller then makes true.

use crate::args::Power;
use crate::change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::wait;
use api::BareMetalMachine;
use api::labels::{POWER_REQUESTED, RESTART_REQUESTED_AT};
use api::machine::{MachineState, RunStrategy};
use kube::ResourceExt;
use std::cell::RefCell;

pub async fn start(cluster: &Cluster, args: &Power) -> Result<String, Failure> {
    each(cluster, args, "start submitted", wait::Goal::Ready, |machine| {
        match machine.spec.run_strategy {
            RunStrategy::Manual => drop(machine.annotations_mut().insert(POWER_REQUESTED.to_owned(), "On".to_owned())),
            RunStrategy::Always | RunStrategy::Halted => machine.spec.run_strategy = RunStrategy::Always,
        }
        Ok(())
    })
    .await
}

pub async fn stop(cluster: &Cluster, args: &Power) -> Result<String, Failure> {
    let was_always = RefCell::new(Vec::new());
    let text = each(cluster, args, "stop submitted", wait::Goal::Stopped, |machine| {
        match machine.spec.run_strategy {
            RunStrategy::Manual => drop(machine.annotations_mut().insert(POWER_REQUESTED.to_owned(), "Off".to_owned())),
            RunStrategy::Always => {
                was_always.borrow_mut().push(machine.name_any());
                machine.spec.run_strategy = RunStrategy::Halted;
            }
            RunStrategy::Halted => {}
        }
        Ok(())
    });
    // Also when the waiting fails: the change was made.
    let text = text.await;
    let mut told = was_always.take();
    told.dedup();
    for name in told.iter().filter(|_| !args.change.dry_run) {
        let back = format!("{} start {name}", cluster.program);
        eprintln!("machine '{name}': runStrategy was Always and is Halted now; to set it back: {back}");
    }
    text
}

pub async fn restart(cluster: &Cluster, args: &Power) -> Result<String, Failure> {
    let at = jiff::Timestamp::now();
    each(cluster, args, "restart submitted", wait::Goal::RestartedSince(at), |machine| {
        // A host that is off for another reason than its user's wish may wait for this very request.
        if machine.status.as_ref().and_then(|s| s.state) == Some(MachineState::Stopped) {
            return Err(Failure::Told {
                object: format!("machine '{}'", machine.name_any()),
                cause: "it is stopped, so there is nothing to restart".to_owned(),
                next: format!("{} start {}", cluster.program, machine.name_any()),
            });
        }
        machine.annotations_mut().insert(RESTART_REQUESTED_AT.to_owned(), at.to_string());
        Ok(())
    })
    .await
}

async fn each(
    cluster: &Cluster,
    args: &Power,
    done: &str,
    goal: wait::Goal,
    edit: impl Fn(&mut BareMetalMachine) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut text = String::new();
    for name in &args.machines {
        let machine = change::machine(cluster, name, &args.change, &edit).await?;
        text.push_str(&change::report(&machine, &args.change, done)?);
    }
    for name in &args.machines {
        wait::after(cluster, name, &args.change, &goal).await?;
    }
    Ok(text)
}
