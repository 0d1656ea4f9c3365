//! What befalls an installation in its middle, while the image is being written.

use super::Way;
use super::server::Server;
use super::site::{self, Folder};
use super::wire::{ApiServer, Running};
use crate::INVENTORY;
use api::tinkerbell::workflow::Action;
use api::tinkerbell::{Template, Workflow};
use kube::Api;
use kube::api::DeleteParams;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// The server's; it is switched on again, and its firmware asks the network first.
    PowerLost,
    /// Template and Workflow are deleted, and made anew under their names: the agent is in the middle of an action that there is not.
    Deleted,
}

/// Ends with whoever follows the server, who has the time limit.
pub async fn comes(
    way: &Way,
    (api, folder): (&ApiServer, &Folder),
    (server, running): (&Server, &mut Option<Running>),
    workflows: &Api<Workflow>,
) {
    if way.trouble == Trouble::None {
        return std::future::pending().await;
    }
    while !folder.is_disk_touched() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if way.trouble == Trouble::PowerLost {
        *running = None;
    }
    let image = image(workflows).await.expect("it was rendered");
    assert_eq!(
        (image.name.as_deref(), image.state.as_deref()),
        (Some("image"), Some("RUNNING")),
        "in the middle of it"
    );
    eprintln!("{:?}", way.trouble);
    match way.trouble {
        Trouble::None => {}
        Trouble::PowerLost => *running = Some(server.start(folder)),
        Trouble::Deleted => {
            let templates: Api<Template> = Api::namespaced(api.admin.clone(), INVENTORY);
            templates.delete("tiny", &DeleteParams::default()).await.expect("deleted");
            workflows.delete("install", &DeleteParams::default()).await.expect("deleted");
            site::workflow(api, folder, ("s1", server.mac), way.has_session()).await;
        }
    }
    std::future::pending().await
}

/// The first action of the Workflow, once that is rendered.
async fn image(workflows: &Api<Workflow>) -> Option<Action> {
    let status = workflows.get("install").await.ok()?.status?;
    status.tasks.into_iter().next()?.actions.into_iter().next()
}

/// At the end: how the action that was cut off has come to its success. `said`: by the boot service.
pub async fn is_over(trouble: Trouble, workflows: &Api<Workflow>, said: &str) {
    let image = image(workflows).await.expect("the Workflow is there");
    let served = said.lines().filter(|line| line.contains(" action=\"image\"")).count();
    let is_second_serving = image.id.ends_with("-2");
    match trouble {
        Trouble::None => assert!(!is_second_serving, "{image:?}"),
        // The same action, under the identifier of its second serving.
        Trouble::PowerLost => assert!(is_second_serving && served >= 2, "{served} times served: {image:?}"),
        // What the agent reported of the Workflow that was deleted is no word on its successor: the image was written anew.
        Trouble::Deleted => assert!(!is_second_serving && served >= 2, "{served} times served: {image:?}"),
    }
}
