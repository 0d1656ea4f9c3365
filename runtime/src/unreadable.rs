//! Objects that this release cannot read: the definitions may be of a later one, and allow what this one does not know.
//!
//! Nothing of their kind is taken over then, for an object that cannot be read must not be taken for one that was deleted. kube's error
//! names no object; these are looked for once more, so that somebody can act.

use kube::api::{ListParams, Request};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Of a list, at a time.
const PAGE: u32 = 500;
/// The log has so many; the others are counted.
const MOST: usize = 5;

/// What the log was told of one watch.
#[derive(Default)]
pub struct Unreadable {
    told: Vec<String>,
}

impl Unreadable {
    /// The log of `program` has each such object once, however often the watch meets it.
    pub async fn tell<K>(&mut self, error: &watcher::Error, api: &Api<K>, config: &watcher::Config, program: &str)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
    {
        if !is_cause(error) {
            return;
        }
        match named(api, config, program).await {
            Ok(found) if found == self.told => {}
            Ok(found) => {
                found.iter().for_each(|sentence| tracing::warn!("{sentence}"));
                self.told = found;
            }
            Err(error) => tracing::warn!("list objects of kind {} to name what cannot be read: {error}", K::kind(&())),
        }
    }
}

/// The API server has answered, and this release cannot read the answer.
fn is_cause(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error)) = error else { return false };
    matches!(error, kube::Error::SerdeError(_))
}

/// A sentence for each of them, for the log of `program`.
async fn named<K>(api: &Api<K>, config: &watcher::Config, program: &str) -> kube::Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let client = api.clone().into_client();
    let mut params = ListParams {
        label_selector: config.label_selector.clone(),
        field_selector: config.field_selector.clone(),
        ..ListParams::default().limit(PAGE)
    };
    let (mut told, mut more) = (Vec::new(), 0);
    loop {
        let request = Request::new(api.resource_url()).list(&params).map_err(kube::Error::BuildRequest)?;
        let mut list: Value = client.request(request).await?;
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else { break };
        for item in items {
            match unread::<K>(item, program) {
                Some(_) if told.len() == MOST => more += 1,
                Some(sentence) => told.push(sentence),
                None => {}
            }
        }
        params.continue_token = list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(Into::into);
        if params.continue_token.is_none() {
            break;
        }
    }
    if more > 0 {
        told.push(format!("{more} more objects of kind {} cannot be read", K::kind(&())));
    }
    Ok(told)
}

/// `None`: it can be read.
fn unread<K: Resource<DynamicType = ()> + DeserializeOwned>(item: Value, program: &str) -> Option<String> {
    let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let error = serde_json::from_value::<K>(item).err()?;
    let (kind, plural, version) = (K::kind(&()), K::plural(&()), version::VERSION);
    let (full, flag) = match namespace.as_str() {
        "" => (name.clone(), String::new()),
        namespace => (format!("{namespace}/{name}"), format!(" -n {namespace}")),
    };
    Some(format!(
        "{kind} '{full}': {program} {version} cannot read the object ({error}); {program} goes by what it read of the object before, and reads \
         no list of objects of kind {kind}, nor any after a restart, until the object was changed or {program} was upgraded. \
         Next: kubectl get {plural} {name}{flag} -o yaml"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    fn object(name: &str, data: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "team-a"}, "data": data})
    }

    /// An API server whose list has two pages; and which queries it was asked.
    fn server(pages: [Vec<Value>; 2]) -> (Api<ConfigMap>, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (page, token) = if query.contains("continue=two") { (&pages[1], "") } else { (&pages[0], "two") };
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": page,
                "metadata": {"resourceVersion": "7", "continue": token}});
            heard.lock().expect("no test panics here").push(query);
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        (Api::namespaced(Client::new(service, "team-a"), "team-a"), asked)
    }

    #[tokio::test]
    async fn each_object_that_cannot_be_read_is_named_on_whatever_page() {
        let good = object("good", json!({"a": "b"}));
        let (api, asked) =
            server([vec![good.clone(), object("first", json!({"a": 1}))], vec![object("second", json!([])), good]]);
        let failed = api.list(&ListParams::default()).await.expect_err("the list cannot be read");
        assert!(is_cause(&watcher::Error::InitialListFailed(failed)));
        asked.lock().expect("nobody else").clear();

        let config = watcher::Config::default().labels("team=a");
        let told = named(&api, &config, "the controller").await.expect("the API server answers");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("ConfigMap 'team-a/first': the controller "), "{}", told[0]);
        assert!(told[0].contains("invalid type: integer `1`, expected a string"), "{}", told[0]);
        assert!(told[1].ends_with("Next: kubectl get configmaps second -n team-a -o yaml"), "{}", told[1]);
        // Those that nobody watches are nobody's trouble.
        assert!(asked.lock().expect("nobody else").iter().all(|query| query.contains("labelSelector=team%3Da")));
    }

    #[tokio::test]
    async fn of_many_some_are_named_and_the_others_counted() {
        let bad = |from: usize| (from..from + 6).map(|n| object(&format!("cm-{n}"), json!({"a": n}))).collect();
        let (api, _) = server([bad(0), bad(6)]);
        let told = named(&api, &watcher::Config::default(), "the controller").await.expect("the API server answers");
        assert_eq!(told.len(), MOST + 1);
        assert_eq!(told[MOST], "7 more objects of kind ConfigMap cannot be read");
    }

    #[test]
    fn an_api_server_that_refuses_or_is_away_is_no_cause() {
        let status = serde_json::from_value(json!({"code": 403, "message": "no"})).expect("a Status");
        assert!(!is_cause(&watcher::Error::InitialListFailed(kube::Error::Api(status))));
        assert!(!is_cause(&watcher::Error::NoResourceVersion));
    }
}
