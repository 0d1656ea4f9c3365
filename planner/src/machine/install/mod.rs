//! The installation of a machine by a workflow: prepared, begun, followed, and done.
//!
//! While it is prepared the host is not touched: the Template is copied into the inventory namespace, and a Workflow of that copy is
//! made there. Then the beginning goes on record at the Hardware; from that write on, and no earlier, the server may boot the
//! installer ([`crate::netboot::verdict`]). What is on record stays: a run whose Workflow is missing is nobody's to repeat but the
//! user's, by a request.

pub(super) mod bare;
pub(super) mod disk;
mod seed;

pub use seed::is_read;

use super::claim::strategy;
use super::draft::Draft;
use super::observed::{Belongings, Observed};
use super::plan::{Action, Seed};
use super::situation::{Owned, Owner, Situation, Want, is_bare};
use crate::about::About;
use crate::erase;
use crate::install::{self, Phase, Record};
use crate::meta::{annotation, name, target, uid};
use crate::netboot::session::names_its_system;
use crate::reason::{Blocked, Failed, Reason, Waiting};
use crate::workflow::{self, state, word};
use api::image::HttpSource;
use api::machine::{BootWorkflow, InstallStatus};
use api::tinkerbell::template::TemplateSpec;
use api::tinkerbell::workflow::{Task, WorkflowSpec, WorkflowStatus};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, labels, names};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By the last word of an action's image: after these the server no longer runs the installer.
const RESTARTS: [&str; 3] = ["reboot", "kexec", "waitdaemon"];
/// The action by which cloud-init data comes onto a server's disk.
const SEED: &str = "seed";

/// How far the installation is.
pub(super) enum Stage<'a> {
    Installed,
    Not(Reason),
    /// Begun: the server has to run this Workflow.
    Runs(&'a Workflow),
}

pub(super) fn stage<'a>(o: &'a Situation<'_>, hardware: &Hardware, draft: &mut Draft) -> Stage<'a> {
    let meta = &hardware.metadata;
    let record = Record::of(meta);
    if record.is_none() && install::is_recorded(meta) {
        return Stage::Not(lost(0, "its record cannot be read"));
    }
    let next = |number: u32, draft: &mut Draft| Stage::Not(prepare(o, hardware, number + 1, draft));
    // Nothing begins while the machine shall not run.
    let asked = is_asked(&o.machine, meta) && o.want == Want::On;
    match record {
        Some(record) if record.phase == Phase::Done && asked => next(record.number, draft),
        Some(record) if record.phase == Phase::Done => {
            remember(o, hardware, draft);
            Stage::Installed
        }
        Some(record) => {
            let run = o.workflows.iter().find(|workflow| uid(&workflow.metadata) == record.workflow);
            let Some(run) = run else {
                return match asked {
                    true => next(record.number, draft),
                    false => Stage::Not(lost(record.number, "its Workflow no longer exists")),
                };
            };
            let remembers = remember(o, hardware, draft);
            match ended(run) {
                // Both are written on what the Hardware is now.
                Some(Ok(())) if remembers => Stage::Not(creating(About::DisksRecord)),
                Some(Ok(())) => {
                    let number = record.number;
                    draft.act(write(hardware, Record { phase: Phase::Done, ..record }, None, None));
                    Stage::Not(creating(About::InstallRecord(number)))
                }
                Some(Err(_)) if asked => next(record.number, draft),
                Some(Err(reason)) => Stage::Not(reason),
                None if o.want == Want::On => Stage::Runs(run),
                None => Stage::Not(Waiting::StartFirst {}.into()),
            }
        }
        None => match o.machine.status.as_ref().and_then(|status| status.install.as_ref()) {
            Some(before) if asked => next(before.number, draft),
            // The Hardware was deleted, and is there again: what this machine has on it stays.
            Some(before) if before.phase == Phase::Done.word() => {
                let record =
                    Record { number: before.number, phase: Phase::Done, workflow: before.workflow_uid.clone() };
                draft.act(write(hardware, record, before.request.as_deref(), None));
                Stage::Not(creating(About::InstallRecord(before.number)))
            }
            Some(before) => Stage::Not(lost(before.number, "its record on the Hardware no longer exists")),
            None if o.want == Want::On => next(0, draft),
            None => Stage::Not(Waiting::StartFirst {}.into()),
        },
    }
}

/// Disks that this machine's Workflows have told of go on record as soon as they do: what was seen once has to be erased, and a Workflow
/// may be deleted by anybody. Whether there are any that are not on record yet.
pub(super) fn remember(o: &Belongings, hardware: &Hardware, draft: &mut Draft) -> bool {
    let meta = &hardware.metadata;
    let Ok(recorded) = erase::seen(meta) else { return false };
    let messages = o.workflows.iter().flat_map(|run| run.status.iter().flat_map(actions));
    let told = messages.filter_map(|action| action.message.as_deref()).flat_map(erase::disks);
    let disks = erase::seen_with(&recorded, told);
    let is_new = disks.len() > recorded.len();
    if is_new {
        draft.act(Action::RecordDisks {
            name: name(meta).to_owned(),
            uid: uid(meta).to_owned(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            disks,
        });
    }
    is_new
}

/// Something was begun there for this machine: by what is on record, by its status, or by a Workflow of it that has run.
pub(super) fn was_begun(o: &Owned<'_>, hardware: &Hardware) -> bool {
    let meta = &hardware.metadata;
    let on_record = install::is_recorded(meta) || erase::is_recorded(meta);
    is_bare(hardware) && (on_record || o.was_installed())
}

/// A request that no installation has carried out.
fn is_asked(machine: &BareMetalMachine, hardware: &ObjectMeta) -> bool {
    let request = annotation(&machine.metadata, labels::REINSTALL_REQUESTED_AT);
    let before = machine.status.as_ref().and_then(|status| status.install.as_ref());
    let carried_out = match install::is_recorded(hardware) {
        true => annotation(hardware, labels::INSTALL_REQUEST),
        false => before.and_then(|before| before.request.as_deref()),
    };
    request.is_some() && request != carried_out
}

fn lost(number: u32, what: &str) -> Reason {
    Blocked::InstallRecordLost { number, what: what.to_owned() }.into()
}

pub(super) fn creating(what: About) -> Reason {
    Waiting::Creating { what }.into()
}

fn deleting(what: About) -> Reason {
    Waiting::Deleting { what }.into()
}

/// `None`: it may still run. `Err`: it ended without having installed anything, or can never begin.
pub(super) fn ended(workflow: &Workflow) -> Option<Result<(), Reason>> {
    let workflow_name = || name(&workflow.metadata).to_owned();
    let status = workflow.status.as_ref()?;
    match status.state.as_deref().unwrap_or_default() {
        state::SUCCESS => Some(Ok(())),
        state::FAILED | state::TIMEOUT => {
            Some(Err(Failed::InstallFailed { workflow: workflow_name(), message: failure(status) }.into()))
        }
        "" if status.template_rendering.as_deref() == Some("failed") => {
            let said = status.conditions.iter().find(|condition| condition.status == "False");
            let message = said.and_then(|said| said.message.clone()).unwrap_or_default();
            Some(Err(Blocked::TemplateNotRendered { template: workflow_name(), message }.into()))
        }
        _ => None,
    }
}

pub(super) fn failure(status: &WorkflowStatus) -> String {
    let failed = |state: &Option<String>| matches!(state.as_deref(), Some(state::FAILED | state::TIMEOUT));
    let action = actions(status).find(|action| failed(&action.state));
    let Some(action) = action else { return status.state.clone().unwrap_or_default() };
    let (name, state) = (action.name.as_deref().unwrap_or_default(), action.state.as_deref().unwrap_or_default());
    match action.message.as_deref().filter(|message| !message.is_empty()) {
        Some(message) => format!("action '{name}' is {state}: {message}"),
        None => format!("action '{name}' is {state}"),
    }
}

pub(super) fn actions(status: &WorkflowStatus) -> impl Iterator<Item = &api::tinkerbell::workflow::Action> {
    status.tasks.iter().flat_map(|task: &Task| &task.actions)
}

/// Makes all that installation `number` needs, and puts its beginning on record last.
fn prepare(o: &Situation<'_>, hardware: &Hardware, number: u32, draft: &mut Draft) -> Reason {
    let Some(boot) = &o.machine.spec.boot.workflow else {
        // A spec that the API server does not accept.
        return Blocked::TemplateMissing { template: String::new() }.into();
    };
    let Some(template) = &o.template else {
        return Blocked::TemplateMissing { template: boot.template_name.clone() }.into();
    };
    let text = template.spec.data.clone().unwrap_or_default();
    let made = names::install(o.uid(), number);
    let meta = own_meta(o.owned.owner, hardware, &made);
    let run = Workflow { metadata: meta.clone(), spec: spec(o, hardware, boot, &made), status: None };
    if let Err(message) = check(&text, &run, hardware, seed::by_action(o)) {
        return Blocked::TemplateNotRendered { template: boot.template_name.clone(), message }.into();
    }
    let seed = match seed::of(o, hardware, &made) {
        Ok(seed) => seed,
        Err(reason) => return reason,
    };
    let there = o.workflows.iter().find(|workflow| name(&workflow.metadata) == made);
    if there.is_some_and(|there| workflow::has_run(there)) {
        return lost(number, &format!("Workflow '{made}' has run already"));
    }
    let copy = o.templates.iter().find(|copy| name(&copy.metadata) == made);
    let Some(copy) = copy.filter(|copy| copy.metadata.deletion_timestamp.is_none()) else {
        let spec = TemplateSpec { data: Some(text) };
        draft.act(Action::CreateTemplate(Box::new(Template { metadata: meta, spec, status: None })));
        return creating(About::Template(made.clone()));
    };
    // Prepared from another text, or for another server; nothing of it has begun.
    let old_copy = copy.spec.data.as_deref() != Some(&text);
    if old_copy || there.is_some_and(|there| there.spec != run.spec) {
        there.into_iter().for_each(|there| draft.act(Action::DeleteWorkflow { target: target(&there.metadata) }));
        if old_copy {
            draft.act(Action::DeleteTemplate { target: target(&copy.metadata) });
        }
        return creating(About::Workflow(made.clone()));
    }
    let Some(there) = there.filter(|there| there.metadata.deletion_timestamp.is_none()) else {
        draft.act(Action::CreateWorkflow(Box::new(run)));
        return creating(About::Workflow(made.clone()));
    };
    let record = Record { number, phase: Phase::Begun, workflow: uid(&there.metadata).to_owned() };
    let request = annotation(&o.machine.metadata, labels::REINSTALL_REQUESTED_AT);
    draft.act(write(hardware, record, request, Some(seed)));
    creating(About::InstallRecord(number))
}

fn write(hardware: &Hardware, record: Record, request: Option<&str>, seed: Option<Seed>) -> Action {
    let meta = &hardware.metadata;
    Action::RecordInstall {
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        record,
        request: request.map(str::to_owned),
        seed,
    }
}

pub(super) fn own_meta(owner: Owner<'_>, hardware: &Hardware, made: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(made.to_owned()),
        namespace: hardware.metadata.namespace.clone(),
        labels: Some(owner.labels()),
        ..ObjectMeta::default()
    }
}

/// What a template reads of an image.
fn words_of_image(image: HttpSource) -> [(String, String); 3] {
    let HttpSource { url, checksum, ca_bundle, format: _ } = image;
    // One line, whatever a template puts it into.
    let authorities = STANDARD.encode(ca_bundle.unwrap_or_default());
    [("image_url", url), ("image_checksum", checksum), ("image_ca_bundle", authorities)]
        .map(|(key, value)| (key.to_owned(), value))
}

fn spec(o: &Observed, hardware: &Hardware, boot: &BootWorkflow, made: &str) -> WorkflowSpec {
    let mut map: BTreeMap<String, String> = boot.parameters.clone();
    map.extend(strategy::agent(hardware).map(|agent| ("device_1".to_owned(), agent)));
    map.insert("machine_name".to_owned(), o.name().to_owned());
    let image = o.machine.spec.disks.first().and_then(|disk| disk.source.image.as_ref());
    let image = image.and_then(|image| o.images.get(&(image.kind, image.name.clone()))?.http.clone());
    map.extend(image.map(words_of_image).into_iter().flatten());
    WorkflowSpec {
        template_ref: Some(made.to_owned()),
        hardware_ref: Some(name(&hardware.metadata).to_owned()),
        hardware_map: map,
        ..WorkflowSpec::default()
    }
}

/// The text renders, for this server's agent alone, writes the machine's cloud-init data where it has any, and ends with the server out of
/// the installer.
fn check(text: &str, run: &Workflow, hardware: &Hardware, wants_seed: bool) -> Result<(), String> {
    if text.is_empty() {
        return Err("spec.data is empty".to_owned());
    }
    let rendered = workflow::render(text, run, Some(hardware))?;
    let agent = strategy::agent(hardware).unwrap_or_default();
    if let Some(task) = rendered.tasks.iter().find(|task| task.agent_id != agent) {
        return Err(format!(
            "task '{}' is for agent '{}', and this server's is '{agent}'; write worker: \"{{{{.device_1}}}}\"",
            task.name, task.agent_id
        ));
    }
    if !names_its_system(hardware)
        && let Some(((task, action), message)) = workflow::lacking(&rendered.tasks, &agent)
    {
        let task = &rendered.tasks[task];
        let action = task.actions[action].name.as_deref().unwrap_or_default();
        return Err(format!("action '{action}' of task '{}': {message}", task.name));
    }
    let mut images = rendered.tasks.iter().flat_map(|task| &task.actions).filter_map(|action| action.image.as_deref());
    if wants_seed && names_its_system(hardware) {
        return Err("spec.cloudInit of the machine is read from a disk, which Metalplane's installer alone writes, and the Hardware names another \
                    system (netboot.osie); make the machine with cloudInit.source: Metadata"
            .to_owned());
    }
    if wants_seed && !images.any(|image| word(image) == SEED) {
        return Err(format!(
            "spec.cloudInit of the machine is read from a disk, and no action has the image '{SEED}', which writes it there; add one behind \
             the image's, or write cloudInit.source: Metadata"
        ));
    }
    let image = rendered.last_action().and_then(|action| action.image.as_deref()).unwrap_or_default();
    match RESTARTS.contains(&word(image)) {
        true => Ok(()),
        false => Err(format!(
            "the last action has image '{image}', and the server would stay in the installer; write reboot or kexec"
        )),
    }
}

/// What status says of it: as it is on record, else as it last was.
pub(super) fn status(o: &Situation<'_>, before: Option<&InstallStatus>) -> Option<InstallStatus> {
    let bare = o.owned.bare();
    let record = bare.and_then(|hardware| Record::of(&hardware.metadata));
    let request = bare.and_then(|hardware| annotation(&hardware.metadata, labels::INSTALL_REQUEST));
    let made = |record: Record| InstallStatus {
        request: request.map(str::to_owned),
        number: record.number,
        phase: record.phase.word().to_owned(),
        workflow_name: names::install(o.uid(), record.number),
        disk: disk::of(o, &record, before),
        workflow_uid: record.workflow,
    };
    record.map(made).or_else(|| before.cloned())
}

/// The machine goes: so do its Workflows, the copies that they ran and what they wrote for cloud-init; `None`: none of them is left.
pub(super) fn remove(o: &Belongings, draft: &mut Draft) -> Option<Reason> {
    let mut pending = None;
    for Workflow { metadata: meta, .. } in o.workflows.iter().map(|workflow| &**workflow) {
        if meta.deletion_timestamp.is_none() {
            draft.act(Action::DeleteWorkflow { target: target(meta) });
        }
        pending.get_or_insert_with(|| deleting(About::Workflow(name(meta).to_owned())));
    }
    for Template { metadata: meta, .. } in o.templates.iter().map(|template| &**template) {
        if meta.deletion_timestamp.is_none() {
            draft.act(Action::DeleteTemplate { target: target(meta) });
        }
        pending.get_or_insert_with(|| deleting(About::Template(name(meta).to_owned())));
    }
    for meta in &o.install_seeds {
        if meta.deletion_timestamp.is_none() {
            draft.act(Action::DeleteInstallSeed { target: target(meta) });
        }
        pending.get_or_insert_with(|| deleting(About::InstallSeed(name(meta).to_owned())));
    }
    pending
}

/// The Workflow of the installation that is on record.
pub(super) fn run<'a>(o: &'a Situation<'_>) -> Option<&'a Workflow> {
    let record = Record::of(&o.owned.bare()?.metadata)?;
    let run = o.workflows.iter().find(|workflow| uid(&workflow.metadata) == record.workflow);
    run.map(AsRef::as_ref)
}

/// Which action the agent is at, of how many; `None`: it has asked for none yet.
pub(super) fn at(workflow: &Workflow) -> Option<(String, usize, usize)> {
    let status = workflow.status.as_ref()?;
    let current = status.current_state.as_ref()?;
    let all: Vec<_> = actions(status).collect();
    let at = all.iter().position(|action| Some(&action.id) == current.action_id.as_ref())?;
    Some((all[at].name.clone().unwrap_or_default(), at + 1, all.len()))
}

/// An action is running, as its agent reported: then its own time bounds it.
pub(super) fn is_running(workflow: &Workflow) -> bool {
    let status = workflow.status.as_ref();
    status.is_some_and(|status| actions(status).any(|action| action.state.as_deref() == Some(state::RUNNING)))
}

/// When an action ended last.
pub(super) fn last_report(workflow: &Workflow) -> Option<jiff::Timestamp> {
    let status = workflow.status.as_ref()?;
    actions(status).filter_map(|action| action.execution_stop.as_ref()).map(|at| at.0).max()
}

/// Of the Workflows of one Hardware the one that runs, or has its BMC's Jobs to run, and is no machine's.
pub fn foreign<'a>(workflows: impl IntoIterator<Item = &'a Arc<Workflow>>) -> Option<String> {
    let runs = |workflow: &&Arc<Workflow>| {
        let of_machine = workflow.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::MACHINE_UID));
        let state = workflow.status.as_ref().and_then(|status| status.state.as_deref());
        let runs = matches!(state, Some(state::PREPARING | state::RUNNING | state::POST));
        !of_machine && runs && workflow.metadata.deletion_timestamp.is_none()
    };
    workflows.into_iter().filter(runs).map(|workflow| name(&workflow.metadata).to_owned()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::image::ImageFormat;

    #[test]
    fn a_template_reads_the_authorities_in_one_line_or_nothing() {
        let words = |ca_bundle: Option<&str>| {
            let (url, checksum) = ("https://images/a".to_owned(), "sha256:0".to_owned());
            words_of_image(HttpSource {
                url,
                checksum,
                ca_bundle: ca_bundle.map(str::to_owned),
                format: ImageFormat::Raw,
            })
        };
        assert_eq!(words(None)[2], ("image_ca_bundle".to_owned(), String::new()));
        let [url, _, (_, encoded)] = words(Some("-----BEGIN CERTIFICATE-----\nAA\n"));
        assert_eq!(url.1, "https://images/a");
        assert_eq!(STANDARD.decode(encoded).expect("base64"), b"-----BEGIN CERTIFICATE-----\nAA\n");
    }
}
