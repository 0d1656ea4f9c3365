//! Virtual media on BMCs that each have them in their own way.

use super::stub::media::{CD, MANAGER, Media};
use super::stub::{Request, Script, Stub, script};
use async_trait::async_trait;
use axum::http::Method;
use planner::host::{Lack, MediaUrl, Medium, MediumChange};
use ports::conformance::Sleep;
use ports::conformance::bmc::{Abilities, Bench, virtual_media};
use ports::{Bmc, ErrorClass};
use redfish::RedfishBmc;
use serde_json::json;
use std::time::Duration;

const IMAGE: &str = "http://images.example/a.iso";
const OTHER: &str = "http://images.example/b.iso";
const SECRET: &str = "http://ann:hunter2@images.example/broken.iso?sig=c2VjcmV0";

struct Shelf(Stub);

impl Shelf {
    async fn with(media: Option<Media>) -> Self {
        Self(Stub::start(Script { media, ..script() }).await)
    }

    fn client(&self) -> RedfishBmc {
        RedfishBmc::new(self.0.config()).expect("a client")
    }

    fn media<T>(&self, change: impl FnOnce(&mut Media) -> T) -> T {
        change(self.0.script.lock().expect("the script").media.as_mut().expect("virtual media"))
    }

    fn writes(&self) -> Vec<Request> {
        [Method::POST, Method::PATCH].iter().flat_map(|method| self.0.requests(method)).collect()
    }
}

#[async_trait]
impl Sleep for Shelf {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Bench for Shelf {
    fn abilities(&self) -> Abilities {
        let has_drive = self.0.script.lock().expect("the script").media.as_ref().is_some_and(|media| media.has_drive);
        let lacks = if has_drive { Default::default() } else { [Lack::VirtualMedia].into() };
        let settles_within = Duration::from_secs(30);
        Abilities { lacks, override_ends: false, order_is_pending: false, guest_obeys: false, settles_within }
    }

    async fn connect(&self) -> Box<dyn Bmc> {
        Box::new(self.client())
    }

    async fn with_wrong_password(&self) -> Option<(Box<dyn Bmc>, String)> {
        None
    }

    async fn absent(&self) -> Option<Box<dyn Bmc>> {
        None
    }
}

fn insert(url: &str) -> MediumChange {
    MediumChange::Insert(MediaUrl::parse(url).expect("a URL"))
}

#[tokio::test]
async fn each_bmc_conforms_in_its_own_way() {
    let refuses: [&[&str]; 3] = [&["WriteProtected"], &["WriteProtected", "Inserted"], &["Inserted"]];
    let refusing = refuses.map(|refuses| Media { refuses, ..Media::new() });
    let requiring = ["TransferProtocolType", "TransferMethod", "UserName"];
    let requiring = requiring.map(|requires| Media { requires: Some(requires), ..Media::new() });
    let ways = [
        Some(Media::new()),
        Some(Media { below_system: true, ..Media::new() }),
        Some(Media { shown_after: 3, ..Media::new() }),
        Some(Media { has_actions: false, ..Media::new() }),
        Some(Media { has_actions: false, refuses: &["WriteProtected"], ..Media::new() }),
        Some(Media { nothing_to_eject: 404, ..Media::new() }),
        Some(Media { in_turn: true, ..Media::new() }),
        Some(Media { has_drive: false, ..Media::new() }),
        None,
    ];
    for media in ways.into_iter().chain(refusing.into_iter().chain(requiring).map(Some)) {
        virtual_media(&Shelf::with(media).await).await;
    }
}

/// Where the drive with the image cannot insert for now, and another one can.
#[tokio::test]
async fn a_later_session_ejects_from_the_drive_that_the_image_is_in() {
    let shelf = Shelf::with(Some(Media { in_turn: true, ..Media::new() })).await;
    shelf.client().change_medium(&insert(IMAGE)).await.expect("inserted");
    shelf.client().change_medium(&MediumChange::Eject).await.expect("ejected");
    assert_eq!(shelf.media(|media| media.inserted.clone()), None);
}

#[tokio::test]
async fn an_image_is_inserted_as_dsp0268_says_and_once() {
    let shelf = Shelf::with(Some(Media::new())).await;
    let client = shelf.client();
    for _ in 0..2 {
        client.change_medium(&insert(IMAGE)).await.expect("inserted");
    }
    let sent = shelf.writes();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].path, "/media/Cd/Insert");
    assert_eq!(sent[0].body, json!({"Image": IMAGE, "Inserted": true, "WriteProtected": true}));

    client.change_medium(&insert(OTHER)).await.expect("the other one is ejected first");
    let sent: Vec<_> = shelf.writes().into_iter().skip(1).map(|request| request.path).collect();
    assert_eq!(sent, ["/media/Cd/Eject", "/media/Cd/Insert"]);
    assert_eq!(shelf.media(|media| media.inserted.clone()).as_deref(), Some(OTHER));

    for _ in 0..2 {
        client.change_medium(&MediumChange::Eject).await.expect("ejected");
    }
    assert_eq!(shelf.writes().len(), 4, "nothing is left to eject");
    assert_eq!(shelf.writes()[3].body, json!({}));
}

#[tokio::test]
async fn without_actions_the_drive_is_changed_itself() {
    let shelf = Shelf::with(Some(Media { has_actions: false, ..Media::new() })).await;
    let client = shelf.client();
    client.change_medium(&insert(IMAGE)).await.expect("inserted");
    client.change_medium(&MediumChange::Eject).await.expect("ejected");
    let sent = shelf.0.requests(&Method::PATCH);
    assert!(sent.iter().all(|request| request.path == CD), "{sent:?}");
    assert_eq!(sent[0].body, json!({"Image": IMAGE, "Inserted": true, "WriteProtected": true}));
    assert_eq!(sent[1].body, json!({"Image": null, "Inserted": false}));
    assert_eq!(sent[1].header("if-match"), Some("\"cd\""));
}

#[tokio::test]
async fn a_bmc_gets_the_parameters_that_it_wants() {
    for (refuses, requires, sent) in [
        (&["WriteProtected"][..], None, json!({"Image": IMAGE, "Inserted": true})),
        (&["WriteProtected", "Inserted"], None, json!({"Image": IMAGE})),
        (
            &[],
            Some("TransferMethod"),
            json!({"Image": IMAGE, "Inserted": true, "WriteProtected": true, "TransferMethod": "Stream"}),
        ),
        (
            &["WriteProtected", "Inserted"],
            Some("TransferProtocolType"),
            json!({"Image": IMAGE, "TransferProtocolType": "HTTP"}),
        ),
    ] {
        let shelf = Shelf::with(Some(Media { refuses, requires, ..Media::new() })).await;
        shelf.client().change_medium(&insert(IMAGE)).await.expect("inserted");
        assert_eq!(shelf.writes().last().map(|request| request.body.clone()), Some(sent));
    }
}

#[tokio::test]
async fn what_a_url_keeps_secret_is_in_no_message() {
    let shelf = Shelf::with(Some(Media::new())).await;
    let client = shelf.client();
    let e = client.change_medium(&insert(SECRET)).await.expect_err("refused");
    assert_eq!(e.class, ErrorClass::Invalid, "{e}");
    assert!(e.message.contains("insert http://images.example/broken.iso: HTTP 400: The value http://images"), "{e}");
    assert!(!e.message.contains("hunter2") && !e.message.contains("c2VjcmV0"), "{e}");
    assert_eq!(shelf.writes()[0].body["Image"], SECRET, "the BMC gets all of it");

    shelf.media(|media| media.inserted = Some(SECRET.to_owned()));
    let seen = format!("{:?}", client.observe().await.expect("observe"));
    assert!(seen.contains("images.example/broken.iso") && !seen.contains("hunter2"), "{seen}");
}

#[tokio::test]
async fn what_is_gone_already_counts_as_ejected() {
    for status in [400, 404, 409, 500] {
        let stale = Some(IMAGE.to_owned());
        let shelf = Shelf::with(Some(Media { nothing_to_eject: status, stale, ..Media::new() })).await;
        shelf.client().change_medium(&MediumChange::Eject).await.unwrap_or_else(|e| panic!("{status}: {e}"));
        assert_eq!(shelf.writes().len(), 1, "{status}: the BMC showed a medium");
    }
}

#[tokio::test]
async fn an_image_that_is_still_being_ejected_is_waited_for() {
    let inserted = Some(OTHER.to_owned());
    let shelf = Shelf::with(Some(Media { shown_after: 2, inserted, ..Media::new() })).await;
    let client = shelf.client();
    let e = client.change_medium(&insert(IMAGE)).await.expect_err("not yet");
    assert_eq!(e.class, ErrorClass::Busy, "{e}");
    assert_eq!(shelf.writes().iter().map(|request| request.path.as_str()).collect::<Vec<_>>(), ["/media/Cd/Eject"]);
}

#[tokio::test]
async fn a_medium_of_which_the_image_is_not_told_is_one_all_the_same() {
    let shelf = Shelf::with(Some(Media { untold: true, inserted: Some(IMAGE.to_owned()), ..Media::new() })).await;
    let seen = shelf.client().observe().await.expect("observe");
    assert_eq!((seen.medium, seen.lacks.contains(&Lack::VirtualMedia)), (Medium::Inserted(None), false));
}

#[tokio::test]
async fn a_bmc_that_cannot_show_its_drive_is_read_all_the_same() {
    // Its manager names virtual media, and the BMC asks for another login when they are read.
    let shelf = Shelf::with(Some(Media::new())).await;
    shelf.0.script.lock().expect("the script").refused = Some((MANAGER, 403));
    let client = shelf.client();
    for _ in 0..3 {
        let seen = client.observe().await.expect("observe");
        assert_eq!((seen.medium, seen.lacks.contains(&Lack::VirtualMedia)), (Medium::Unknown, false));
    }
    let asked = || shelf.0.requests(&Method::GET).iter().filter(|request| request.path == MANAGER).count();
    assert_eq!(asked(), 1, "it is not asked with every reading");
    let e = client.change_medium(&MediumChange::Eject).await.expect_err("refused");
    assert_eq!(e.class, ErrorClass::Unauthorized, "{e}");

    // Not now: it is asked with the next reading.
    shelf.0.script.lock().expect("the script").refused = Some((MANAGER, 503));
    let client = shelf.client();
    assert_eq!(client.observe().await.expect("observe").medium, Medium::Unknown);
    shelf.0.script.lock().expect("the script").refused = None;
    assert_eq!(client.observe().await.expect("observe").medium, Medium::Ejected);
}

#[tokio::test]
async fn a_drive_is_looked_for_once_and_read_once_somebody_has_used_it() {
    let shelf = Shelf::with(Some(Media::new())).await;
    let client = shelf.client();
    let asked = || {
        let requests = shelf.0.requests(&Method::GET);
        let count = |path: &str| requests.iter().filter(|request| request.path == path).count();
        (count(MANAGER), count(CD))
    };
    for _ in 0..3 {
        assert!(!client.observe().await.expect("observe").lacks.contains(&Lack::VirtualMedia));
    }
    assert_eq!(asked(), (1, 1), "no reading costs more");
    client.change_medium(&MediumChange::Eject).await.expect("nothing is in it");
    for _ in 0..2 {
        assert_eq!(client.observe().await.expect("observe").medium, Medium::Ejected);
    }
    assert_eq!(asked(), (1, 4));
}
