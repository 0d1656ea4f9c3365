//! Carries a plan's actions out: one `match`.

use crate::{Error, Shell, Verbs, get, known, put, writes};
use crate::{claims, disks, fences, holder_pods, hosts, install, nics};
use api::machine::BootStrategy;
use api::{BareMetalMachine, MachineMigration, labels, names};
use futures::future::join_all;
use planner::machine::{Action, Observed, asks_for, needs_fresh_machine};
use planner::meta::Target;
use serde_json::{Value, json};

/// All at the same time: actions of one plan do not depend on each other. The first error that is not mere staleness is
/// what is reported.
pub async fn all(c: &impl Shell, o: &Observed, actions: &[Action]) -> Result<(), Error> {
    let mut first: Option<Error> = None;
    // A machine that is gone asks for nothing: what is made for it erases the disks of its server.
    let fresh = match !o.gone && actions.iter().any(needs_fresh_machine) {
        true => Some(fresh(c, &o.machine).await?),
        false => None,
    };
    let acted = actions.iter().map(async |action| {
        let result = match asked(c, o, fresh.as_ref(), action) {
            Ok(()) => act(c, o, action).await,
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

async fn act(c: &impl Shell, o: &Observed, action: &Action) -> Result<(), Error> {
    let machine = o.machine.as_ref();
    let own = || disks::own_labels(machine);
    match action {
        Action::AddMachineFinalizer | Action::RemoveMachineFinalizer => {
            let shall_be = matches!(action, Action::AddMachineFinalizer);
            writes::finalize::<BareMetalMachine>(c, &machine.metadata, labels::FINALIZER_MACHINE, shall_be).await
        }
        Action::ClearLock => patch(c, machine, json!({"metadata": {"annotations": {labels::OPERATION: null}}})).await,
        Action::CreateMigration(migration) => {
            let ours = |there: &MachineMigration| there.spec == migration.spec;
            writes::create::<MachineMigration>(c, migration, ours).await.map(drop)
        }
        Action::DeleteMigration { target } => delete_migration(c, target).await,
        Action::ClearPowerRequest => {
            patch(c, machine, json!({"metadata": {"annotations": {labels::POWER_REQUESTED: null}}})).await
        }
        Action::ClaimHardware { name, uid, resource_version, strategy, local_disks } => {
            if *strategy == BootStrategy::Workflow {
                install::confirm_bare(c, machine, name).await?;
            }
            hosts::claim(c, machine, name, uid, resource_version, (*strategy, *local_disks)).await
        }
        Action::CreateTemplate(template) => install::create_template(c, template).await,
        Action::CreateWorkflow(workflow) => install::create_workflow(c, workflow).await,
        Action::RecordInstall { name, uid, resource_version, record, request } => {
            let workflow = names::install(o.uid(), record.number);
            let seen = hosts::version(c, name, uid, resource_version);
            install::record(c, &seen, &workflow, record, request.as_deref()).await
        }
        Action::RecordDisks { name, uid, resource_version, disks } => {
            install::record_disks(c, &hosts::version(c, name, uid, resource_version), disks).await
        }
        Action::RecordErase { name, uid, resource_version, record, report } => {
            let workflow = names::erase(o.uid(), record.number);
            let seen = hosts::version(c, name, uid, resource_version);
            install::record_erase(c, &seen, &workflow, record, report.as_deref()).await
        }
        Action::DeleteTemplate { target } => install::delete_template(c, target).await,
        Action::DeleteWorkflow { target } => install::delete_workflow(c, target).await,
        Action::RememberBootOrder { name, order } => hosts::remember_boot_order(c, name, order).await,
        Action::RememberBootPath { name, path } => hosts::remember_boot_path(c, name, path.as_deref()).await,
        Action::UnclaimHardware { name } => hosts::unclaim(c, machine, name).await,
        Action::MoveOn { from, to } => hosts::move_on(c, machine, from, to).await,
        Action::CreateClaim(claim) => claims::create(c, claim, labels::MACHINE_UID).await,
        Action::ImportSnapshot(import) => claims::import(c, import).await,
        Action::ExpandClaim { target, size } => claims::expand(c, target, size).await,
        Action::ModifyClaim { target, class } => claims::modify(c, target, class).await,
        Action::SelectNode(select) => claims::select_node(c, select).await,
        Action::CompleteExpansion { target, size } => claims::complete_expansion(c, target, size).await,
        Action::ProtectClaim { target } => claims::protect(c, o.uid(), target).await,
        Action::UnprotectClaim { target, hold } => {
            claims::unprotect(c, o.uid(), labels::MACHINE_UID, target, hold.as_deref()).await
        }
        Action::DeleteClaim { target } => claims::delete(c, target).await,
        Action::CreateDiskAttachment(attachment) => disks::create(c, attachment).await,
        Action::TakeHold(take) => disks::take_hold(c, own(), take).await,
        Action::CreateVolumeAttachment(create) => disks::create_volume_attachment(c, own(), create).await,
        Action::CreateHolderPod(pod) => holder_pods::create(c, pod).await,
        Action::DeleteHolderPod { target, node_is_down } => holder_pods::delete(c, target, *node_is_down).await,
        Action::GrantDisk { target, epoch, seed, holder_pod_uid } => {
            disks::grant(c, target, *epoch, seed.as_ref(), holder_pod_uid.as_deref()).await
        }
        Action::ResizeDisk { target, size } => disks::resize(c, target, size).await,
        Action::LimitDisk { target, limits } => disks::limit(c, target, limits).await,
        Action::ReleaseDisk { target } => {
            confirm_spec(c, o).await?;
            disks::release(c, target).await
        }
        Action::AbandonDisk { target, hold, fence } => disks::abandon(c, target, hold.as_deref(), fence.as_ref()).await,
        Action::FenceDisk { target, hold, order } => fences::fence(c, target, hold, order).await,
        Action::FreeVolume { hold, holder, volume_attachment, holder_pod, fence } => {
            disks::free(c, hold, holder, volume_attachment, holder_pod.as_deref(), fence.as_ref()).await
        }
        Action::DeleteVolumeAttachment { name } => {
            disks::drop_volume_attachment(c, name, labels::MACHINE_UID, o.uid()).await
        }
        Action::CreateVNic(vnic) => nics::create_vnic(c, vnic).await,
        Action::SetSecurityGroups { target, groups } => nics::set_groups(c, target, groups.as_deref()).await,
        Action::ProtectVNic { target, interface } => nics::protect(c, o.uid(), target, interface).await,
        Action::CreateNicAttachment(attachment) => nics::create(c, attachment).await,
        Action::TakeVNic { target, holder, mac_address } => nics::take(c, target, holder, mac_address).await,
        Action::GrantNic { target, epoch, metadata } => nics::grant(c, target, *epoch, metadata.as_ref()).await,
        Action::ReleaseNic { target } => {
            confirm_spec(c, o).await?;
            nics::release(c, target).await
        }
        Action::AbandonNic { target } => nics::abandon(c, target).await,
        Action::FreeVNic { target, holder } => nics::free(c, target, holder).await,
        Action::UnprotectVNic { target } => {
            confirm_spec(c, o).await?;
            nics::unprotect(c, o.uid(), target).await
        }
        Action::DeleteVNic { target } => {
            confirm_spec(c, o).await?;
            nics::delete_vnic(c, target).await
        }
    }
}

async fn delete_migration(c: &impl Shell, target: &Target) -> Result<(), Error> {
    let there = known::<MachineMigration>(c, &target.namespace, &target.name);
    match there.filter(|there| there.metadata.uid.as_deref() == Some(&target.uid)) {
        Some(there) => writes::delete::<MachineMigration>(c, &there.metadata, false).await,
        None => Ok(()),
    }
}

/// From quorum: what the machine asks for is what the plan rests on. A cache of machines that is behind that of attachments
/// or VNics must not take away what was just added. One that is gone asks for nothing, ever.
async fn confirm_spec(c: &impl Shell, o: &Observed) -> Result<(), Error> {
    if o.gone {
        return Ok(());
    }
    let meta = &o.machine.metadata;
    let there = fresh(c, &o.machine).await?;
    let now = &there.metadata;
    let same = now.uid == meta.uid
        && now.generation == meta.generation
        && now.deletion_timestamp.is_some() == meta.deletion_timestamp.is_some();
    if same {
        return Ok(());
    }
    put(c, there);
    let what = format!("get BareMetalMachine '{}'", o.name());
    Err(Error::NotConfirmed { what, message: "it asks for something else by now".to_owned() })
}

/// From quorum, once for all actions of a plan.
async fn fresh(c: &impl Shell, machine: &BareMetalMachine) -> Result<BareMetalMachine, Error> {
    let (namespace, name) = crate::verbs::names(&machine.metadata);
    get(c, namespace, name).await
}

/// The machine asks for what is about to be made or granted. A cache of machines that is behind that of claims or VNics must
/// not create anew what a user has just deleted.
fn asked(c: &impl Shell, o: &Observed, fresh: Option<&BareMetalMachine>, action: &Action) -> Result<(), Error> {
    let Some(fresh) = fresh.filter(|_| needs_fresh_machine(action)) else { return Ok(()) };
    asks_for(&o.machine, fresh, action).map_err(|message| {
        put(c, fresh.clone());
        Error::NotConfirmed { what: format!("get BareMetalMachine '{}'", o.name()), message }
    })
}

async fn patch(c: &impl Verbs<BareMetalMachine>, machine: &BareMetalMachine, change: Value) -> Result<(), Error> {
    writes::patch(c, &machine.metadata, change).await.map(drop)
}
