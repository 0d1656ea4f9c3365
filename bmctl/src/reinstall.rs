//! `bmctl reinstall`: asks for one more installation of a machine that a workflow installs.

use crate::args::Reinstall;
use crate::change;
use crate::cluster::Cluster;
use crate::dpus::confirm;
use crate::failure::Failure;
use crate::wait;
use api::labels::REINSTALL_REQUESTED_AT;
use api::machine::BootStrategy;
use kube::ResourceExt;

pub async fn run(cluster: &Cluster, args: &Reinstall) -> Result<String, Failure> {
    let name = &args.machine;
    let machine = cluster.machine(name).await?;
    let claimed = machine.status.as_ref().and_then(|status| status.boot_strategy);
    if claimed.unwrap_or(machine.spec.boot.strategy) != BootStrategy::Workflow {
        return Err(Failure::Told {
            object: format!("machine '{name}'"),
            cause: "no workflow installs it: it boots from cloud disks".to_owned(),
            next: format!("{} explain {name}", cluster.program),
        });
    }
    if !args.yes {
        confirm(
            name,
            &format!(
                "Machine {name} is stopped, and the disks that its Template names are written again. Type {name} to confirm: "
            ),
        )?;
    }
    let at = jiff::Timestamp::now().to_string();
    let changed = change::machine(cluster, name, &args.change, |machine| {
        machine.annotations_mut().insert(REINSTALL_REQUESTED_AT.to_owned(), at.clone());
        Ok(())
    });
    let text = change::report(&changed.await?, &args.change, "reinstall submitted")?;
    wait::after(cluster, name, &args.change, &wait::Goal::Reinstalled(at)).await?;
    Ok(text)
}
