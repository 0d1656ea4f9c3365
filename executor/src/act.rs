//! Carries a plan's actions out: one `match`.

use crate::{Confirmed, Error, Shell, Verbs, get, known, put, writes};
use crate::{claims, disks, fences, holder_pods, hosts, install, nics};
use api::machine::BootStrategy;
use api::{BareMetalMachine, MachineMigration, labels, names};
use futures::future::join_all;
use planner::machine::{Action, Gone, asks_for, needs_fresh_machine, needs_machine_of_this_moment};
use planner::meta::{Target, name, uid};
use serde_json::{Value, json};
use std::borrow::Cow;

/// For whom actions are carried out.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    Machine(&'a BareMetalMachine),
    /// One that no longer exists: what it has left is given back, and nothing else is done for it.
    Gone(&'a Gone),
}

impl<'a> Owner<'a> {
    fn uid(self) -> &'a str {
        match self {
            Self::Machine(machine) => uid(&machine.metadata),
            Self::Gone(gone) => &gone.uid,
        }
    }

    fn machine(self) -> Result<&'a BareMetalMachine, Error> {
        match self {
            Self::Machine(machine) => Ok(machine),
            Self::Gone(gone) => {
                let what = format!("get the BareMetalMachine with UID {}", gone.uid);
                Err(Error::NotConfirmed { what, message: "it no longer exists, and asks for nothing".to_owned() })
            }
        }
    }
}

/// All at the same time: actions of one plan do not depend on each other. The first error that is not mere staleness is
/// what is reported.
pub async fn all(c: &impl Shell, owner: Owner<'_>, actions: &[Action]) -> Result<(), Error> {
    let mut first: Option<Error> = None;
    let asks = match owner {
        Owner::Machine(machine) if actions.iter().any(needs_fresh_machine) => {
            Some((machine, confirmed(c, machine, actions).await?))
        }
        // What is made for a machine that no longer exists erases the disks of its server.
        Owner::Machine(_) | Owner::Gone(_) => None,
    };
    let acted = actions.iter().map(async |action| {
        let asked = asks.as_ref().map_or(Ok(()), |(planned, fresh)| asked(c, planned, fresh, action));
        let result = match asked {
            Ok(()) => act(c, owner, action).await,
            Err(error) => Err(error),
        };
        c.acted(action, result.as_ref().err());
        result
    });
    for result in join_all(acted).await {
        if let Err(error) = result
            && first.as_ref().is_none_or(|first| first.is_stale() && !error.is_stale())
        {
            first = Some(error);
        }
    }
    first.map_or(Ok(()), Err)
}

async fn act(c: &impl Shell, owner: Owner<'_>, action: &Action) -> Result<(), Error> {
    let own = owner.uid();
    match action {
        Action::AddMachineFinalizer => finalize(c, owner.machine()?, true).await,
        Action::RemoveMachineFinalizer => finalize(c, owner.machine()?, false).await,
        Action::ClearLock => clear(c, owner.machine()?, labels::OPERATION).await,
        Action::CreateMigration(migration) => {
            let ours = |there: &MachineMigration| there.spec == migration.spec;
            writes::create::<MachineMigration>(c, migration, ours).await.map(drop)
        }
        Action::DeleteMigration { target } => delete_migration(c, target).await,
        Action::ClearPowerRequest => clear(c, owner.machine()?, labels::POWER_REQUESTED).await,
        Action::ClaimHardware { name, uid, resource_version, strategy, local_disks } => {
            let machine = owner.machine()?;
            if *strategy == BootStrategy::Workflow {
                install::confirm_bare(c, machine, name).await?;
            }
            hosts::claim(c, machine, name, uid, resource_version, (*strategy, *local_disks)).await
        }
        Action::CreateTemplate(template) => install::create_template(c, template).await,
        Action::CreateWorkflow(workflow) => install::create_workflow(c, workflow).await,
        Action::RecordInstall { name, uid, resource_version, record, request, seed } => {
            let seen = hosts::version(c, name, uid, resource_version);
            install::record(c, &seen, own, record, (request.as_deref(), seed.as_ref())).await
        }
        Action::RecordDisks { name, uid, resource_version, disks } => {
            install::record_disks(c, &hosts::version(c, name, uid, resource_version), disks).await
        }
        Action::RecordErase { name, uid, resource_version, record, eraser, report } => {
            let workflow = names::erase(own, record.number);
            let seen = hosts::version(c, name, uid, resource_version);
            install::record_erase(c, &seen, (&workflow, eraser.as_ref()), record, report.as_deref()).await
        }
        Action::DeleteTemplate { target } => install::delete_template(c, target).await,
        Action::DeleteWorkflow { target } => install::delete_workflow(c, target).await,
        Action::DeleteInstallSeed { target } => install::delete_seed(c, target).await,
        Action::RememberBootOrder { name, order } => hosts::remember_boot_order(c, name, order).await,
        Action::RememberBootPath { name, path } => hosts::remember_boot_path(c, name, path.as_deref()).await,
        Action::RecordDiscovery { name, record } => hosts::record_discovery(c, own, name, record).await,
        Action::RememberNetboot { name, by } => hosts::remember_netboot(c, name, by.as_deref()).await,
        Action::RememberSystemUuid { name, uuid } => hosts::remember_system_uuid(c, name, uuid.as_deref()).await,
        Action::UnclaimHardware { name } => hosts::unclaim(c, own, name).await,
        Action::MoveOn { from, to } => hosts::move_on(c, own, from, to).await,
        Action::CreateClaim(claim) => claims::create(c, claim, labels::MACHINE_UID).await,
        Action::ImportSnapshot(import) => claims::import(c, import).await,
        Action::ExpandClaim { target, size } => claims::expand(c, target, size).await,
        Action::ModifyClaim { target, class } => claims::modify(c, target, class).await,
        Action::SelectNode(select) => claims::select_node(c, select).await,
        Action::CompleteExpansion { target, size } => claims::complete_expansion(c, target, size).await,
        Action::ProtectClaim { target } => claims::protect(c, own, target).await,
        Action::UnprotectClaim { target, hold } => {
            claims::unprotect(c, own, labels::MACHINE_UID, target, hold.as_deref()).await
        }
        Action::DeleteClaim { target } => claims::delete(c, target).await,
        Action::CreateDiskAttachment(attachment) => disks::create(c, attachment).await,
        Action::TakeHold(take) => disks::take_hold(c, disks::own_labels(owner.machine()?), take).await,
        Action::CreateVolumeAttachment(create) => {
            disks::create_volume_attachment(c, disks::own_labels(owner.machine()?), create).await
        }
        Action::CreateHolderPod(pod) => holder_pods::create(c, pod).await,
        Action::DeleteHolderPod { target, node_is_down } => holder_pods::delete(c, target, *node_is_down).await,
        Action::GrantDisk { target, epoch, seed, holder_pod_uid } => {
            disks::grant(c, target, *epoch, seed.as_ref(), holder_pod_uid.as_deref()).await
        }
        Action::ResizeDisk { target, size } => disks::resize(c, target, size).await,
        Action::LimitDisk { target, limits } => disks::limit(c, target, limits).await,
        Action::ReleaseDisk { target } => {
            confirm_spec(c, owner).await?;
            disks::release(c, target).await
        }
        Action::AbandonDisk { target, hold, fence } => disks::abandon(c, target, hold.as_deref(), fence.as_ref()).await,
        Action::FenceDisk { target, hold, order } => fences::fence(c, target, hold, order).await,
        Action::FreeVolume { hold, holder, volume_attachment, holder_pod, fence } => {
            disks::free(c, hold, holder, volume_attachment, holder_pod.as_deref(), fence.as_ref()).await
        }
        Action::DeleteVolumeAttachment { name } => {
            disks::drop_volume_attachment(c, name, labels::MACHINE_UID, own).await
        }
        Action::CreateVNic(vnic) => nics::create_vnic(c, vnic).await,
        Action::SetSecurityGroups { target, groups } => nics::set_groups(c, target, groups.as_deref()).await,
        Action::ProtectVNic { target, interface } => nics::protect(c, own, target, interface).await,
        Action::CreateNicAttachment(attachment) => nics::create(c, attachment).await,
        Action::TakeVNic { target, holder, mac_address } => nics::take(c, target, holder, mac_address).await,
        Action::GrantNic { target, epoch, metadata } => nics::grant(c, target, *epoch, metadata.as_ref()).await,
        Action::ReleaseNic { target } => {
            confirm_spec(c, owner).await?;
            nics::release(c, target).await
        }
        Action::AbandonNic { target } => nics::abandon(c, target).await,
        Action::FreeVNic { target, holder } => nics::free(c, target, holder).await,
        Action::UnprotectVNic { target } => {
            confirm_spec(c, owner).await?;
            nics::unprotect(c, own, target).await
        }
        Action::DeleteVNic { target } => {
            confirm_spec(c, owner).await?;
            nics::delete_vnic(c, target).await
        }
    }
}

/// From quorum: what the machine asks for is what the plan rests on. A cache of machines that is behind that of attachments
/// or VNics must not take away what was just added. One that no longer exists asks for nothing, ever.
async fn confirm_spec(c: &impl Shell, owner: Owner<'_>) -> Result<(), Error> {
    let Owner::Machine(machine) = owner else { return Ok(()) };
    let meta = &machine.metadata;
    let there = fresh(c, machine).await?;
    let now = &there.metadata;
    let same = now.uid == meta.uid
        && now.generation == meta.generation
        && now.deletion_timestamp.is_some() == meta.deletion_timestamp.is_some();
    if same {
        return Ok(());
    }
    put(c, there);
    let what = format!("get BareMetalMachine '{}'", name(meta));
    Err(Error::NotConfirmed { what, message: "it asks for something else by now".to_owned() })
}

/// The machine as it is read from quorum, once for all actions of a plan, and for those of the plans after it; or the one that is
/// planned for, where such a reading holds.
async fn confirmed<'a>(
    c: &impl Shell,
    planned: &'a BareMetalMachine,
    actions: &[Action],
) -> Result<Cow<'a, BareMetalMachine>, Error> {
    let holds = |(confirmed, ended): (&Confirmed, u64)| confirmed.holds(&planned.metadata, ended);
    if !actions.iter().any(needs_machine_of_this_moment) && c.confirmed().is_some_and(holds) {
        return Ok(Cow::Borrowed(planned));
    }
    let before = c.confirmed().map(|(_, ended)| ended);
    let there = fresh(c, planned).await?;
    if let Some(((confirmed, _), ended)) = c.confirmed().zip(before) {
        confirmed.note(&there.metadata, ended);
    }
    Ok(Cow::Owned(there))
}

async fn fresh(c: &impl Shell, machine: &BareMetalMachine) -> Result<BareMetalMachine, Error> {
    let (namespace, name) = crate::verbs::names(&machine.metadata);
    get(c, namespace, name).await
}

/// The machine asks for what is about to be made or granted. A cache of machines that is behind that of claims or VNics must
/// not create anew what a user has just deleted.
fn asked(c: &impl Shell, planned: &BareMetalMachine, fresh: &BareMetalMachine, action: &Action) -> Result<(), Error> {
    if !needs_fresh_machine(action) {
        return Ok(());
    }
    asks_for(planned, fresh, action).map_err(|message| {
        put(c, fresh.clone());
        Error::NotConfirmed { what: format!("get BareMetalMachine '{}'", name(&planned.metadata)), message }
    })
}

async fn finalize(c: &impl Shell, machine: &BareMetalMachine, present: bool) -> Result<(), Error> {
    writes::finalize::<BareMetalMachine>(c, &machine.metadata, labels::FINALIZER_MACHINE, present).await
}

/// Takes an annotation off.
async fn clear(c: &impl Verbs<BareMetalMachine>, machine: &BareMetalMachine, key: &str) -> Result<(), Error> {
    let change = json!({"metadata": {"annotations": {key: Value::Null}}});
    writes::patch(c, &machine.metadata, change).await.map(drop)
}

async fn delete_migration(c: &impl Shell, target: &Target) -> Result<(), Error> {
    let there = known::<MachineMigration>(c, &target.namespace, &target.name);
    match there.filter(|there| there.metadata.uid.as_deref() == Some(&target.uid)) {
        Some(there) => writes::delete::<MachineMigration>(c, &there.metadata, false).await,
        None => Ok(()),
    }
}
