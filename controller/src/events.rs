//! Events tell the story of an object. They are sent in the background: no reconcile waits for one, and one that cannot be
//! sent is lost with a line in the log.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use planner::event;
use planner::machine::plan::Told;
use planner::reason::Reason;
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::mpsc;

/// The API server refuses longer notes (1 KiB) and reasons (128 bytes): kube's recorder does not cut them.
const NOTE: usize = 1000;
const REASON: usize = 128;
/// So many are sent at a time; those of one object one after the other.
const SENDERS: usize = 8;
/// By one sender.
const WAITING: usize = 1024;

pub struct Events {
    senders: Vec<mpsc::Sender<(Event, ObjectReference)>>,
}

impl Events {
    /// Sends until they are dropped.
    pub fn start(client: &Client, instance: &str) -> Self {
        Self { senders: (0..SENDERS).map(|_| Self::sender(client.clone(), instance)).collect() }
    }

    fn sender(client: Client, instance: &str) -> mpsc::Sender<(Event, ObjectReference)> {
        let (sender, mut receiver) = mpsc::channel::<(Event, ObjectReference)>(WAITING);
        let reporter = Reporter { controller: api::labels::CONTROLLER.to_owned(), instance: Some(instance.to_owned()) };
        // Each looks through the series of its own objects only.
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            while let Some((event, object)) = receiver.recv().await {
                let reason = event.reason.clone();
                if let Err(error) = recorder.publish(&event, &object).await {
                    tracing::warn!(reason, object = object.name, "an Event was not written: {error}");
                }
            }
        });
        sender
    }

    /// Something became so that was asked for.
    pub fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, reason: &str, note: &str) {
        self.send(object, EventType::Normal, reason, note);
    }

    pub fn told<K: Resource<DynamicType = ()>>(&self, object: &K, told: &Told) {
        let type_ = if told.is_warning() { EventType::Warning } else { EventType::Normal };
        self.send(object, type_, told.name(), &told.message());
    }

    /// Of Tinkerbell's kinds.
    pub fn became<K: Resource<DynamicType = ()>>(&self, object: &K, told: &event::Told) {
        let type_ = if told.event.is_warning() { EventType::Warning } else { EventType::Normal };
        self.send(object, type_, told.event.reason(), &told.message);
    }

    /// Somebody may have to do something.
    pub fn warn<K: Resource<DynamicType = ()>>(&self, object: &K, reason: &str, note: &str) {
        self.send(object, EventType::Warning, reason, note);
    }

    /// Why the object is not as it was asked to be: the reason of its condition, and what `bmctl explain` says.
    pub fn warn_why<K: Resource<DynamicType = ()>>(&self, object: &K, reason: &Reason) {
        self.warn(object, reason.name(), &reason.told());
    }

    fn send<K: Resource<DynamicType = ()>>(&self, object: &K, type_: EventType, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: cut(reason, REASON),
            note: Some(cut(note, NOTE)),
            // Events that differ in their action are not counted as one: each note is seen.
            action: format!("{}-{}", cut(reason, REASON / 2), api::names::short(note, 8)),
            secondary: None,
        };
        let reference = object.object_ref(&());
        let mut hasher = DefaultHasher::new();
        reference.uid.hash(&mut hasher);
        let sender = &self.senders[hasher.finish() as usize % SENDERS];
        if sender.try_send((event, reference)).is_err() {
            tracing::warn!(reason, "an Event was dropped: too many are waiting");
        }
    }
}

/// At most `bytes` long, and still text.
fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut("short", 10), "short");
        let long = "ä".repeat(1000);
        let cut = cut(&long, 1000);
        assert!(cut.len() <= 1000 && cut.ends_with('…'), "{}", cut.len());
    }
}
