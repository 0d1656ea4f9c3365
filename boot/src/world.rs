//! What the API server last told of Hardware, Templates and Workflows, and the writes of a Workflow's status.

use anyhow::{Context, Result};
use api::HardwareReport;
use api::report::{HardwareReportSpec, HardwareReportStatus};
use api::tinkerbell::workflow::WorkflowStatus;
use api::tinkerbell::{Hardware, Template, Workflow};
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use planner::netboot::{Directory, on_record};
use runtime::{change, patience::Patience, unreadable::Unreadable};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub struct World {
    client: Client,
    pub namespace: String,
    hardware: Store<Hardware>,
    templates: Store<Template>,
    workflows: Store<Workflow>,
    directory: watch::Sender<Arc<Directory>>,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

impl World {
    /// The watches end when the set is dropped. `nonce`: differs between any two processes.
    pub fn start(client: Client, namespace: &str, nonce: u64, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let (changes, directory) = (watch::Sender::new(0), watch::Sender::<Arc<Directory>>::default());
        let ((hardware, hardware_writer), (workflows, workflow_writer)) = (reflector::store(), reflector::store());
        let bump = |changes: &watch::Sender<u64>| {
            let changes = changes.clone();
            move || changes.send_modify(|count| *count += 1)
        };
        // Two watches renew one directory: who reads the copies first must not be the last who sends.
        let turn = Arc::new(Mutex::new(()));
        let renew = || {
            let (bump, directory, turn) = (bump(&changes), directory.clone(), turn.clone());
            let (hardware, workflows): (Store<Hardware>, Store<Workflow>) = (hardware.clone(), workflows.clone());
            move || {
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                let new = Directory::new(hardware.state()).with_workflows(&workflows.state());
                new.conflicts().for_each(|why| tracing::warn!("{why}"));
                directory.send_replace(Arc::new(new));
                bump();
            }
        };
        mirror(&client, namespace, nonce, tasks, hardware_writer, renew());
        mirror(&client, namespace, nonce, tasks, workflow_writer, renew());
        let (templates, template_writer) = reflector::store();
        mirror(&client, namespace, nonce, tasks, template_writer, bump(&changes));
        Arc::new(Self { client, namespace: namespace.to_owned(), hardware, templates, workflows, directory, changes })
    }

    /// Until everything was listed once.
    pub async fn wait_ready(&self) -> Result<()> {
        self.hardware.wait_until_ready().await.context("the watch of Hardware ended")?;
        self.templates.wait_until_ready().await.context("the watch of Templates ended")?;
        self.workflows.wait_until_ready().await.context("the watch of Workflows ended")
    }

    pub fn directory(&self) -> watch::Receiver<Arc<Directory>> {
        self.directory.subscribe()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn workflows(&self) -> Vec<Arc<Workflow>> {
        self.workflows.state()
    }

    pub fn template(&self, name: &str) -> Option<Arc<Template>> {
        self.templates.get(&ObjectRef::new(name).within(&self.namespace))
    }

    pub fn hardware(&self, name: &str) -> Option<Arc<Hardware>> {
        self.hardware.get(&ObjectRef::new(name).within(&self.namespace))
    }

    fn api(&self) -> Api<Workflow> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// As the API server has it now, not as the watch told: an answer to an agent rests on it.
    pub async fn read(&self, name: &str) -> kube::Result<Option<Workflow>> {
        self.api().get_opt(name).await
    }

    /// One server as the API server has it now: its Hardware, and the Workflow that is on record there. Its other Workflows are as the watch told.
    pub async fn newest(&self, hardware: &str) -> kube::Result<Directory> {
        let api = Api::<Hardware>::namespaced(self.client.clone(), &self.namespace);
        let Some(newest) = api.get_opt(hardware).await? else { return Ok(Directory::default()) };
        let mut workflows = self.workflows();
        workflows.retain(|known| known.spec.hardware_ref.as_deref() == Some(hardware));
        if let Some(name) = on_record(&newest) {
            workflows.retain(|known| known.metadata.name.as_ref() != Some(&name));
            workflows.extend(self.read(&name).await?.map(Arc::new));
        }
        Ok(Directory::new(vec![Arc::new(newest)]).with_workflows(&workflows))
    }

    /// `false`: the Workflow is another one by now; it has to be read and decided again.
    pub async fn write(&self, before: &Workflow, status: WorkflowStatus) -> Result<bool> {
        let after = Workflow { status: Some(status), ..before.clone() };
        let Some(patch) = change::of(before, &after)? else { return Ok(true) };
        let name = before.metadata.name.as_deref().unwrap_or_default();
        match self.api().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
            Err(error) => Err(error).with_context(|| format!("write the status of Workflow '{name}'")),
        }
    }
}

impl World {
    fn report_api(&self) -> Api<HardwareReport> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn reports(&self) -> Result<Vec<HardwareReport>> {
        let all = self.report_api().list(&ListParams::default()).await;
        Ok(all.context("list HardwareReports")?.items)
    }

    /// As the API server has it now.
    pub async fn read_report(&self, name: &str) -> kube::Result<Option<HardwareReport>> {
        self.report_api().get_opt(name).await
    }

    /// One that is there already is as good.
    pub async fn make_report(&self, name: &str, owner: Option<OwnerReference>) -> Result<()> {
        let mut report = HardwareReport::new(name, HardwareReportSpec::default());
        report.metadata.owner_references = owner.map(|owner| vec![owner]);
        match self.report_api().create(&PostParams::default(), &report).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("make HardwareReport '{name}'")),
        }
    }

    /// As it is then; `None`: the report is another one by now, and has to be read and decided again.
    pub async fn write_report(
        &self,
        before: &HardwareReport,
        status: HardwareReportStatus,
    ) -> Result<Option<HardwareReport>> {
        let after = HardwareReport { status: Some(status), ..before.clone() };
        let Some(patch) = change::of(before, &after)? else { return Ok(Some(after)) };
        let name = before.metadata.name.as_deref().unwrap_or_default();
        match self.report_api().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(written) => Ok(Some(written)),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("write the status of HardwareReport '{name}'")),
        }
    }
}

fn mirror<K>(
    client: &Client,
    namespace: &str,
    nonce: u64,
    tasks: &mut JoinSet<()>,
    writer: Writer<K>,
    changed: impl Fn() + Send + 'static,
) where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let config = watcher::Config::default();
    let events = watcher(api.clone(), config.clone()).backoff(Patience::new(nonce, &K::kind(&())));
    // Who wrote which field is more than the object itself, and is not asked for here.
    let events = events.modify(|object| object.meta_mut().managed_fields = None);
    tasks.spawn(async move {
        let mut events = std::pin::pin!(events.reflect(writer));
        let mut unreadable = Unreadable::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                Ok(_) => changed(),
                Err(error) => {
                    tracing::warn!(%error, kind = %K::kind(&()), "the watch failed; it is tried again");
                    unreadable.tell(&error, &api, &config, "boot").await;
                }
            }
        }
    });
}
