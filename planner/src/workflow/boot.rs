//! A Workflow's boot options: `allowPXE` of its Hardware, and the Jobs that bring its server to boot the agent and, after the last
//! action, put back what they changed. Names, order and conditions are upstream's.
//!
//! ```text
//! PREPARING: claimed by a machine? -> allowPXE true -> Job netboot-W | iso-mount-W | customboot-preparing-W -> PENDING
//! POST:                               allowPXE false -> Job iso-eject-W | customboot-post-W                 -> SUCCESS
//! FAILED, TIMEOUT, after Job iso-mount-W:               Job iso-eject-W
//! ```
//!
//! A Job that was there under the name is deleted before the Workflow's own is made. A Job that fails is the end: FAILED. Upstream leaves the
//! medium of a run that does not succeed in its drive; a server that is restarted may boot it again.

use super::references::References;
use super::status::{QUEUED, begins, set};
use super::{data, is_terminal, render, state, state_of};
use crate::boot_option::discovery::is_under_way;
use crate::install;
use crate::job::{self, is};
use crate::meta::{Target, name, target, uid};
use api::tinkerbell::Hardware;
use api::tinkerbell::action::{BmcAction, OneTimeBootDeviceAction, PowerAction, VirtualMediaAction};
use api::tinkerbell::job::{Job, JobSpec, MachineReference};
use api::tinkerbell::workflow::{BootMode, BootOptions, JobStatus, Workflow, WorkflowStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Upstream's mark on the Jobs of a Workflow, label and annotation.
const AUTO_CREATED: &str = "tink-controller-auto-created";
pub(super) const SETUP_FAILED: &str = "BootJobSetupFailed";
const SETUP_COMPLETE: &str = "BootJobSetupComplete";
const JOB_RUNNING: &str = "BootJobRunning";
pub(super) const JOB_FAILED: &str = "BootJobFailed";
const JOB_COMPLETE: &str = "BootJobComplete";
/// Before the name of the Workflow, in the names of its Jobs.
const MOUNT: &str = "iso-mount";
const EJECT: &str = "iso-eject";

/// What becomes of a Workflow now: a status to be written first, then an action.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Preparation {
    pub status: Option<WorkflowStatus>,
    pub action: Option<Prepare>,
    /// When what is awaited has been awaited for long enough.
    pub wake_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Prepare {
    /// `allowPXE` of every interface, in the version of the Hardware that was seen.
    AllowNetboot(bool),
    DeleteJob(Target),
    CreateJob(Box<Job>),
}

/// The boot options are at work: the controller's turn.
pub fn is_prepared(workflow: &Workflow) -> bool {
    let at_work = matches!(state_of(workflow), state::PREPARING | state::POST) || ejects(workflow);
    at_work && workflow.metadata.deletion_timestamp.is_none() && workflow.spec.disabled != Some(true)
}

/// A run that did not succeed ejects what it has inserted.
pub(super) fn ejects(workflow: &Workflow) -> bool {
    let options = workflow.status.as_ref().and_then(|status| status.boot_options.as_ref());
    let job = options.and_then(|options| options.jobs.get(&eject_job(workflow)));
    is_terminal(workflow) && state_of(workflow) != state::SUCCESS && job.is_some_and(|job| job.complete != Some(true))
}

fn eject_job(workflow: &Workflow) -> String {
    format!("{EJECT}-{}", name(&workflow.metadata))
}

/// A Job of its own was made: what it was to wait for it has not waited for.
pub(super) fn has_begun(workflow: &Workflow) -> bool {
    let options = workflow.status.as_ref().and_then(|status| status.boot_options.as_ref());
    options.is_some_and(|options| options.jobs.values().any(|job| job.uid.is_some()))
}

/// What could not be asked for at the end is not asked for later: the medium of another Workflow may be in the drive by then.
fn eject_no_more(workflow: &Workflow, status: &mut WorkflowStatus) {
    let eject = eject_job(workflow);
    if let Some(options) = &mut status.boot_options {
        options.jobs.retain(|job, record| *job != eject || record.uid.is_some());
    }
}

/// The end of a run that did not succeed: its medium is still to be ejected. What ended before anybody wrote so has its drive in peace:
/// another one's medium may be in it by now.
pub(super) fn eject_at_the_end(status: &mut WorkflowStatus) {
    let Some(options) = &mut status.boot_options else { return };
    let mut made = options.jobs.iter().filter(|(_, job)| job.uid.is_some());
    let mounted = made.find_map(|(job, _)| job.strip_prefix(MOUNT).map(str::to_owned));
    if let Some(workflow) = mounted {
        options.jobs.entry(format!("{EJECT}{workflow}")).or_default();
    }
}

/// The name of the Job that is at work now, if the boot options ask for one.
pub fn job_name(workflow: &Workflow) -> Option<String> {
    let options = workflow.spec.boot_options.as_ref()?;
    let (preparing, post) = custom(options);
    let word = match (state_of(workflow), options.boot_mode?) {
        (state::PREPARING, BootMode::Netboot) => "netboot",
        (state::PREPARING, BootMode::Isoboot | BootMode::Iso) => MOUNT,
        (state::PREPARING, BootMode::Customboot) if !preparing.is_empty() => "customboot-preparing",
        (state::POST, BootMode::Isoboot | BootMode::Iso) => EJECT,
        (_, BootMode::Isoboot | BootMode::Iso) if ejects(workflow) => EJECT,
        (state::POST, BootMode::Customboot) if !post.is_empty() => "customboot-post",
        _ => return None,
    };
    Some(format!("{word}-{}", name(&workflow.metadata)))
}

/// What is asked of the BMC before the first action, and after the last one; with `bootMode: customboot`.
fn custom(options: &BootOptions) -> (&[BmcAction], &[BmcAction]) {
    let config = options.customboot_config.as_ref();
    config.map(|config| (config.preparing_actions.as_slice(), config.post_actions.as_slice())).unwrap_or_default()
}

/// Another Workflow, which has the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    pub workflow: String,
    /// It is given up then, if nothing changes before.
    pub until: Option<Timestamp>,
}

/// `hardware`: the one that the Workflow names. `found`: the Job with the name [`job_name`]. `before`: what has the server, by [`super::before()`].
pub fn prepare(
    workflow: &Workflow,
    hardware: Option<&Hardware>,
    found: Option<&Arc<Job>>,
    before: Option<&Before>,
    now: Timestamp,
) -> Preparation {
    if !is_prepared(workflow) {
        return Preparation::default();
    }
    let old = workflow.status.clone().unwrap_or_default();
    let mut status = old.clone();
    let action = match next(workflow, hardware, (found, before), &mut status, now) {
        Ok(action) => action,
        Err((type_, why)) => {
            let (is_over, is_told) = (is_terminal(workflow), status.conditions.iter().any(|c| c.type_ == type_));
            // What a run has ended by stays told.
            if !is_over || !is_told {
                set(&mut status, type_, "True", "Error", &why, now);
            }
            if is_over {
                eject_no_more(workflow, &mut status);
            } else {
                status.state = Some(state::FAILED.to_owned());
                eject_at_the_end(&mut status);
            }
            None
        }
    };
    let gone_by = found.and_then(|job| gone_by(job));
    let wake_at = before.map_or(gone_by, |before| before.until).filter(|_| status.state == old.state);
    Preparation { status: (status != old).then_some(status), action, wake_at }
}

/// By when a Job that is being deleted has to be gone.
fn gone_by(job: &Job) -> Option<Timestamp> {
    job.metadata.deletion_timestamp.as_ref().map(|time| time.0 + job::LIMIT)
}

type Failed = (&'static str, String);

fn next(
    workflow: &Workflow,
    hardware: Option<&Hardware>,
    (found, before): (Option<&Arc<Job>>, Option<&Before>),
    status: &mut WorkflowStatus,
    now: Timestamp,
) -> Result<Option<Prepare>, Failed> {
    let called = name(&workflow.metadata);
    let options = workflow.spec.boot_options.clone().unwrap_or_default();
    let setup = |why: String| (SETUP_FAILED, format!("Workflow '{called}': {why}"));
    let hardware = hardware.ok_or_else(|| {
        let named = workflow.spec.hardware_ref.as_deref().unwrap_or_default();
        setup(format!("spec.bootOptions needs a Hardware, and spec.hardwareRef '{named}' names none that exists"))
    })?;
    // A server whose boot option is looked for is free in a few minutes: the Job waits for that, and says so.
    let claimed_by = install::claimer(&hardware.metadata).filter(|_| !is_under_way(&hardware.metadata));
    if let Some(by) = claimed_by {
        let hardware = name(&hardware.metadata);
        return Err(setup(format!(
            "Hardware '{hardware}' is claimed by {by}: no Workflow but a machine's own touches its server"
        )));
    }
    // One that was made is under way, whether that is on record or not.
    if let Some(Before { workflow: other, .. }) = before.filter(|_| !is_its(found, workflow)) {
        let hardware = name(&hardware.metadata);
        let message = format!(
            "Hardware '{hardware}' has Workflow '{other}': the controller asks the BMC for what spec.bootOptions say when Workflow '{other}' has ended"
        );
        set(status, QUEUED, "True", "ServerBusy", &message, now);
        return Ok(None);
    }
    begins(status);
    let toggled = if is_terminal(workflow) { None } else { toggle(&options, hardware, status, now) };
    if toggled.is_some() {
        return Ok(toggled);
    }
    let Some(job) = job_name(workflow) else {
        done(workflow, status);
        return Ok(None);
    };
    let wanted = wanted_job(workflow, hardware, &options, &job).map_err(setup)?;
    follow(workflow, wanted, found, status, now)
}

fn done(workflow: &Workflow, status: &mut WorkflowStatus) {
    match state_of(workflow) {
        state::PREPARING => status.state = Some(state::PENDING.to_owned()),
        state::POST => status.state = Some(state::SUCCESS.to_owned()),
        // What has ended stays so.
        _ => {}
    }
}

/// `allowPXE`, and that it was set.
fn toggle(options: &BootOptions, hardware: &Hardware, status: &mut WorkflowStatus, now: Timestamp) -> Option<Prepare> {
    if options.toggle_allow_netboot != Some(true) {
        return None;
    }
    let allowed = status.state.as_deref() == Some(state::PREPARING);
    let toggled = status.boot_options.get_or_insert_default().allow_netboot.get_or_insert_default();
    let (field, type_) = match allowed {
        true => (&mut toggled.toggled_true, "AllowNetbootTrue"),
        false => (&mut toggled.toggled_false, "AllowNetbootFalse"),
    };
    if *field == Some(true) {
        return None;
    }
    let is_so = |interface: &api::tinkerbell::hardware::Interface| {
        interface.netboot.as_ref().and_then(|netboot| netboot.allow_pxe) == Some(allowed)
    };
    if !hardware.spec.interfaces.iter().all(is_so) {
        return Some(Prepare::AllowNetboot(allowed));
    }
    *field = Some(true);
    set(status, type_, "True", "Complete", &format!("set allowPXE to {allowed}"), now);
    None
}

/// The Job from what was there under its name to its end.
fn follow(
    workflow: &Workflow,
    wanted: Job,
    found: Option<&Arc<Job>>,
    status: &mut WorkflowStatus,
    now: Timestamp,
) -> Result<Option<Prepare>, Failed> {
    let job = name(&wanted.metadata).to_owned();
    let jobs = &mut status.boot_options.get_or_insert_default().jobs;
    let record = jobs.entry(job.clone()).or_default();
    if record.complete == Some(true) {
        done(workflow, status);
        return Ok(None);
    }
    if record.existing_job_deleted != Some(true) {
        let Some(there) = found else {
            *record = JobStatus { existing_job_deleted: Some(true), ..JobStatus::default() };
            return Ok(None);
        };
        let Some(limit) = gone_by(there) else { return Ok(Some(Prepare::DeleteJob(target(&there.metadata)))) };
        let keepers = match there.metadata.finalizers.as_deref().unwrap_or_default() {
            [] => String::new(),
            keepers => format!("; its finalizers: {}", keepers.join(", ")),
        };
        let waits = format!("an earlier Job '{job}' is being deleted{keepers}");
        if now >= limit {
            let next = "Next: remove what keeps that Job, then create the Workflow again";
            return Err((SETUP_FAILED, format!("{waits}: {} minutes have passed. {next}", job::LIMIT.as_mins())));
        }
        set(status, JOB_RUNNING, "False", "Waiting", &waits, now);
        return Ok(None);
    }
    let is_ours = is_its(found, workflow);
    let failed = |why: String| (JOB_FAILED, format!("Job '{job}': {why}"));
    match (&record.uid, found) {
        (None, None) => Ok(Some(Prepare::CreateJob(Box::new(wanted)))),
        (None, Some(there)) if is_ours => {
            record.uid = Some(uid(&there.metadata).to_owned());
            set(status, SETUP_COMPLETE, "True", "Created", "job created", now);
            Ok(None)
        }
        (None, Some(_)) => Err((SETUP_FAILED, format!("Job '{job}' is not this Workflow's"))),
        (Some(known), Some(there)) if uid(&there.metadata) == known => {
            let conditions = there.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            if is(conditions, job::FAILED) {
                return Err(failed(job::message(conditions, job::FAILED).to_owned()));
            }
            if is(conditions, job::COMPLETED) {
                record.complete = Some(true);
                status.conditions.retain(|condition| condition.type_ != JOB_RUNNING);
                set(status, JOB_COMPLETE, "True", "Complete", "job completed", now);
                done(workflow, status);
                return Ok(None);
            }
            if there.metadata.deletion_timestamp.is_some() {
                return Err(failed("it was deleted while it ran".to_owned()));
            }
            let waits = job::message(conditions, job::RUNNING);
            let message = if waits.is_empty() { "job running".to_owned() } else { format!("job running: {waits}") };
            set(status, JOB_RUNNING, "True", "Running", &message, now);
            Ok(None)
        }
        (Some(_), _) => Err(failed("it was deleted while it ran".to_owned())),
    }
}

fn is_its(job: Option<&Arc<Job>>, workflow: &Workflow) -> bool {
    let mut owners = job.iter().flat_map(|job| job.metadata.owner_references.iter().flatten());
    owners.any(|owner| owner.uid == uid(&workflow.metadata))
}

fn wanted_job(workflow: &Workflow, hardware: &Hardware, options: &BootOptions, called: &str) -> Result<Job, String> {
    let bmc = hardware.spec.bmc_ref.as_ref().map(|reference| reference.name.clone());
    let bmc = bmc.ok_or_else(|| format!("Hardware '{}' has no spec.bmcRef", name(&hardware.metadata)))?;
    let namespace = workflow.metadata.namespace.clone().unwrap_or_default();
    let mark = || Some(BTreeMap::from([(AUTO_CREATED.to_owned(), "true".to_owned())]));
    let owner = OwnerReference {
        api_version: "tinkerbell.org/v1alpha1".to_owned(),
        kind: "Workflow".to_owned(),
        name: name(&workflow.metadata).to_owned(),
        uid: uid(&workflow.metadata).to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    Ok(Job {
        metadata: ObjectMeta {
            name: Some(called.to_owned()),
            namespace: Some(namespace.clone()),
            labels: mark(),
            annotations: mark(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: JobSpec {
            machine_ref: MachineReference { name: bmc, namespace },
            tasks: requests(workflow, hardware, options)?,
        },
        status: None,
    })
}

fn requests(workflow: &Workflow, hardware: &Hardware, options: &BootOptions) -> Result<Vec<BmcAction>, String> {
    let power = |action| BmcAction { power_action: Some(action), ..BmcAction::default() };
    let uefi =
        hardware.spec.interfaces.iter().flat_map(|interface| &interface.dhcp).any(|dhcp| dhcp.uefi == Some(true));
    let once = |device: &str| BmcAction {
        one_time_boot_device_action: Some(OneTimeBootDeviceAction {
            device: vec![device.to_owned()],
            efi_boot: uefi.then_some(true),
        }),
        ..BmcAction::default()
    };
    let medium = |url: Option<&str>| BmcAction {
        virtual_media_action: Some(VirtualMediaAction { media_url: url.map(str::to_owned), kind: "CD".to_owned() }),
        ..BmcAction::default()
    };
    let iso = || {
        let url = options.iso_url.as_deref().filter(|url| !url.is_empty());
        url.ok_or_else(|| "spec.bootOptions.isoURL is empty: write the URL of the image to boot".to_owned())
    };
    let before = state_of(workflow) == state::PREPARING;
    let (preparing, post) = custom(options);
    Ok(match options.boot_mode {
        Some(BootMode::Netboot) => vec![power(PowerAction::Off), once("pxe"), power(PowerAction::On)],
        Some(BootMode::Isoboot | BootMode::Iso) if before => {
            let url = iso()?;
            vec![power(PowerAction::Off), medium(None), medium(Some(url)), once("cdrom"), power(PowerAction::On)]
        }
        Some(BootMode::Isoboot | BootMode::Iso) => vec![medium(None)],
        Some(BootMode::Customboot) => rendered(if before { preparing } else { post }, workflow, hardware)?,
        None => Vec::new(),
    })
}

/// The URL of a medium is a template, as upstream.
fn rendered(actions: &[BmcAction], workflow: &Workflow, hardware: &Hardware) -> Result<Vec<BmcAction>, String> {
    let data = data::of(workflow, Some(hardware), &References::default());
    let mut actions = actions.to_vec();
    for url in
        actions.iter_mut().flat_map(|action| &mut action.virtual_media_action).flat_map(|media| &mut media.media_url)
    {
        *url = render::text_of(url, &data)
            .map_err(|error| format!("spec.bootOptions.custombootConfig: mediaURL: {error}"))?;
    }
    Ok(actions)
}
