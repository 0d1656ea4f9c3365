use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use runtime::patience::Patience;
use serde_json::json;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn unlisted(code: u16) -> watcher::Error {
    let status = serde_json::from_value(serde_json::json!({"code": code, "message": code.to_string()}));
    watcher::Error::InitialListFailed(kube::Error::Api(status.expect("a Status")))
}

#[test]
fn a_kind_that_is_not_there_is_told_once_and_asked_for_less_and_less() {
    let (mut failures, missing) = (Failures::default(), unlisted(404));
    let told: Vec<bool> = (0..8).map(|_| failures.is_news(&missing)).collect();
    assert_eq!(told.iter().filter(|told| **told).count(), 1);
    let waits: Vec<u64> = (0..8).map(|_| failures.more_patience(&missing).as_secs()).collect();
    assert_eq!(waits, [0, 2, 6, 14, 30, 62, 62, 62]);
    assert!(failures.is_news(&unlisted(403)), "another reason");
    assert_eq!(failures.more_patience(&unlisted(500)), Duration::ZERO);
}

fn cache() -> Arc<Cache<ConfigMap>> {
    Cache::new(|object| object.metadata.uid.iter().map(|uid| IndexKey::uid(uid)).collect())
}

fn seen(cache: &Cache<ConfigMap>, name: &str) -> Option<u64> {
    cache.get("", name).map(|object| version(&object.metadata))
}

#[test]
fn an_older_event_does_not_undo_a_write() {
    let cache = cache();
    cache.put(object("a", "1", 7));
    cache.event(Event::Apply(object("a", "1", 5)), &|_| {});
    assert_eq!(seen(&cache, "a"), Some(7));
    cache.event(Event::Apply(object("a", "1", 9)), &|_| {});
    assert_eq!(seen(&cache, "a"), Some(9));
}

#[test]
fn an_older_event_does_not_bring_back_what_was_deleted() {
    let cache = cache();
    cache.put(object("a", "1", 7));
    cache.forget(&object("a", "1", 7).metadata);
    cache.event(Event::Apply(object("a", "1", 7)), &|_| {});
    assert_eq!(seen(&cache, "a"), None);
    cache.event(Event::Apply(object("a", "2", 8)), &|_| {});
    cache.event(Event::Delete(object("a", "1", 7)), &|_| {});
    assert_eq!(seen(&cache, "a"), Some(8), "the successor stays");
    assert_eq!(cache.by(&IndexKey::uid("2")).len(), 1);
    assert!(cache.by(&IndexKey::uid("1")).is_empty());
}

/// Our write took the last finalizer away; the watch is quicker than the answer.
#[test]
fn an_answer_does_not_bring_back_what_the_watch_saw_the_end_of() {
    let cache = cache();
    cache.event(Event::Apply(object("a", "1", 5)), &|_| {});
    cache.event(Event::Delete(object("a", "1", 7)), &|_| {});
    cache.put(object("a", "1", 7));
    assert_eq!(seen(&cache, "a"), None);
    cache.put(object("a", "2", 8));
    assert_eq!(seen(&cache, "a"), Some(8), "one that the watch has not told of yet");
}

/// etcd was restored: a list that began later is right, whatever its versions.
#[test]
fn a_listing_takes_back_what_is_newer_than_it_unless_it_was_written_meanwhile() {
    let cache = cache();
    for name in ["a", "b", "c"] {
        cache.put(object(name, name, 9));
    }
    cache.forget(&object("c", "c", 9).metadata);
    cache.event(Event::Init, &|_| {});
    cache.put(object("b", "b", 10));
    for name in ["a", "b", "c"] {
        cache.event(Event::InitApply(object(name, name, 5)), &|_| {});
    }
    cache.event(Event::InitDone, &|_| {});
    assert_eq!((seen(&cache, "a"), seen(&cache, "b"), seen(&cache, "c")), (Some(5), Some(10), Some(5)));
    cache.put(object("a", "a", 6));
    cache.put(object("d", "d", 6));
    assert_eq!((seen(&cache, "a"), seen(&cache, "d")), (Some(6), Some(6)), "versions go on from there");
}

#[test]
fn a_listing_removes_what_it_does_not_name() {
    let cache = cache();
    cache.put(object("a", "1", 7));
    cache.put(object("b", "2", 7));
    cache.event(Event::Init, &|_| {});
    cache.event(Event::InitApply(object("b", "2", 9)), &|_| {});
    assert!(!cache.is_ready());
    let touched = std::cell::RefCell::new(Vec::new());
    cache.event(Event::InitDone, &|object: &ConfigMap| {
        touched.borrow_mut().extend(object.metadata.name.clone());
    });
    assert!(cache.is_ready());
    assert_eq!(touched.into_inner(), ["a", "b"]);
    assert_eq!((seen(&cache, "a"), seen(&cache, "b")), (None, Some(9)));
}

/// An API server whose watches end at once because what they go on from is too old; what a list has is in `lists`, the last one for ever.
/// Who asks is told which list it was.
fn server(lists: Vec<Vec<serde_json::Value>>) -> (Api<ConfigMap>, mpsc::UnboundedReceiver<usize>) {
    let ((told, asked), lists) = (mpsc::unbounded_channel(), Arc::new(lists));
    let number = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let answer = if is_watch {
            json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": ""}})
        } else {
            let number = number.fetch_add(1, Ordering::SeqCst);
            // Nobody may listen any more.
            let _ = told.send(number);
            let items = lists.get(number).or(lists.last());
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "5"}, "items": items})
        };
        async move { Ok::<_, Infallible>(http::Response::new(Body::from(format!("{answer}\n").into_bytes()))) }
    });
    (Api::all(Client::new(service, "default")), asked)
}

/// Definitions of a later release allow what this one cannot read: whoever has such an object has not deleted it.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_in_a_list_is_not_taken_for_deleted() {
    let item = |version: u64, data: serde_json::Value| json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": version.to_string()}, "data": data});
    let (good, bad) = (item(5, json!({"x": "y"})), item(7, json!({"x": 1})));
    // A list that fails is asked for again, and once more to name the object.
    let lists = [vec![good], vec![bad.clone()], vec![bad.clone()], vec![bad], vec![item(9, json!({"x": "z"}))]].into();
    let (api, mut asked) = server(lists);
    let (changes, mut changed) = mpsc::unbounded_channel();
    let cache = cache();
    let follower = tokio::spawn(cache.clone().watch(
        api,
        watcher::Config::default(),
        Patience::at_most(Duration::from_millis(5), 1, "ConfigMap"),
        move |object: &ConfigMap| {
            let _ = changes.send(version(&object.metadata));
        },
    ));
    cache.wait_ready().await;
    assert_eq!(changed.recv().await, Some(5));
    while asked.recv().await.expect("the watch goes on") < 3 {
        assert_eq!(seen(&cache, "a"), Some(5), "as it was read before");
    }
    assert_eq!(changed.recv().await, Some(9), "nobody was told of an end");
    assert_eq!((seen(&cache, "a"), cache.ends()), (Some(9), 0));
    follower.abort();
}
