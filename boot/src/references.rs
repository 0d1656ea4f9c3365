//! The objects that templates read as `.references`: gotten one by one when a Workflow is rendered, never watched and never listed.

use futures::future::join_all;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use planner::workflow::references::{Place, References, Rules, Why, Withheld};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Every change of the inventory is a round; a Workflow that waits is tried in each.
const KEPT: Duration = Duration::from_secs(5);
/// An object has a mebibyte or two at most.
const MOST: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);

type Object = Result<Value, Withheld>;

pub struct Reader {
    client: Client,
    pub rules: Rules,
    /// Until when each counts.
    read: Mutex<BTreeMap<Place, (Instant, Object)>>,
}

impl Reader {
    pub fn new(client: Client, rules: Rules) -> Self {
        Self { client, rules, read: Mutex::default() }
    }

    pub async fn read(&self, asked: References<Place>) -> References<Value> {
        // Beside each other: what does not answer holds up all other Workflows once, not once for each.
        let objects = asked.places().map(async |(name, place)| (name.clone(), self.object(place).await));
        let objects = join_all(objects).await.into_iter().collect();
        asked.read(objects)
    }

    async fn object(&self, place: &Place) -> Object {
        if let Some((_, object)) = self.kept().get(place) {
            return object.clone();
        }
        let silent = || Withheld::new(Why::Unread, format!("no answer within {} s", PATIENCE.as_secs()));
        let object = timeout(PATIENCE, self.get(place)).await.unwrap_or_else(|_| Err(silent()));
        let mut kept = self.kept();
        if kept.len() >= MOST {
            kept.pop_first();
        }
        kept.insert(place.clone(), (Instant::now() + KEPT, object.clone()));
        object
    }

    async fn get(&self, place: &Place) -> Object {
        let dot = if place.group.is_empty() { "" } else { "/" };
        let resource = ApiResource {
            group: place.group.clone(),
            version: place.version.clone(),
            api_version: format!("{}{dot}{}", place.group, place.version),
            // Of no use to a GET.
            kind: String::new(),
            plural: place.resource.clone(),
        };
        let api: Api<DynamicObject> = match place.namespace.is_empty() {
            true => Api::all_with(self.client.clone(), &resource),
            false => Api::namespaced_with(self.client.clone(), &place.namespace, &resource),
        };
        let unread = |error: String| Withheld::new(Why::Unread, error);
        match api.get(&place.name).await {
            Ok(object) => serde_json::to_value(object).map_err(|error| unread(error.to_string())),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Withheld::new(Why::Missing, status.message)),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let advice = "boot may read what boot.references.readable of the chart names";
                Err(Withheld::new(Why::Forbidden, format!("{}: {advice}", status.message)))
            }
            Err(error) => Err(unread(error.to_string())),
        }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Place, (Instant, Object)>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        read.retain(|_, (until, _)| *until > now);
        read
    }
}
