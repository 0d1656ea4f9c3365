//! What a path is. It is taken as it is, but for the colons of its MAC address: no redirect, no decoding, no folder above.

use super::Boots;
use crate::files::{Program, mac_of_path};
use crate::origin;
use crate::script;
use crate::world::World;
use api::report::NetbootStage;
use http::StatusCode;
use planner::netboot::report::Sight;
use planner::netboot::{Directory, Subject, Verdict, verdict};
use std::path::PathBuf;
use std::time::Duration;

/// A firmware that waits for its script longer gives the network up.
const NEWEST: Duration = Duration::from_secs(2);

#[derive(Clone, PartialEq)]
pub enum Reply {
    Text(String),
    /// Of a server, to it; it may hold credentials.
    Told(Vec<u8>),
    Program(Program),
    File(PathBuf),
    /// A file with a place for the kernel's arguments.
    Image {
        path: PathBuf,
        arguments: String,
    },
    /// The same, of another server.
    Remote {
        url: String,
        arguments: String,
    },
    /// With what its reader is told.
    Refused(StatusCode, String),
}

/// As [`route`], and a script by what the API server has now: by an old copy a server whose installation has just ended would boot the installer
/// once more, and one whose installation has just begun its disk. Where that cannot be read, the copy is all that is known.
pub async fn asked(world: &World, server: &Boots, path: &str) -> Reply {
    let directory = world.directory().borrow().clone();
    let mac = path.strip_prefix("/ipxe/script/").and_then(|rest| rest.split('/').next()).map(mac_of_path);
    let subject = mac.as_ref().and_then(|mac| directory.by_mac(mac).ok());
    let name = subject.and_then(|subject| subject.hardware.metadata.name.clone());
    let newest = match name {
        Some(name) => newest(world, &name).await,
        None => None,
    };
    route(newest.as_ref().unwrap_or(&directory), server, path)
}

async fn newest(world: &World, hardware: &str) -> Option<Directory> {
    let read = tokio::time::timeout(NEWEST, world.newest(hardware)).await;
    match read.map_err(anyhow::Error::from).and_then(|read| Ok(read?)) {
        Ok(newest) => Some(newest),
        Err(error) => {
            tracing::warn!(
                hardware,
                "the API server does not tell which script its server is to have; the copy says it: {error:#}"
            );
            None
        }
    }
}

/// `/ipxe/script/<MAC>/auto.ipxe`, `/ipxe/binary/<MAC>/<program>`, `/osie/<MAC>/<file>`, `/iso/<MAC>/<file>.iso`, `/healthz`.
pub fn route(directory: &Directory, server: &Boots, path: &str) -> Reply {
    let missing = |what: String| Reply::Refused(StatusCode::NOT_FOUND, what);
    let parts: Vec<_> = path.trim_start_matches('/').split('/').filter(|part| !part.is_empty()).collect();
    let (route, mac, name) = match parts.as_slice() {
        ["healthz"] => return Reply::Text("ok\n".to_owned()),
        ["ipxe", "script", mac, "auto.ipxe"] => ("script", *mac, "auto.ipxe"),
        ["ipxe", "binary", mac, name] => ("binary", *mac, *name),
        ["osie", mac, name] => ("osie", *mac, *name),
        ["iso", mac, name] if name.ends_with(".iso") => ("iso", *mac, *name),
        _ => return missing("no such path\n".to_owned()),
    };
    let mac = mac_of_path(mac);
    let subject = match directory.by_mac_or_stranger(&mac, server.strangers) {
        Ok(subject) => subject,
        Err(why) => return missing(format!("{why}\n")),
    };
    match verdict(&subject) {
        Verdict::Boot => {}
        Verdict::LocalDisk(why) if route == "script" => {
            let why = why.to_string();
            let text = script::local_disk(&why);
            server.eyes.saw(&subject, Sight::Turned { stage: NetbootStage::LocalDisk, why, client: None, uuid: None });
            return Reply::Text(text);
        }
        Verdict::LocalDisk(why) | Verdict::AddressOnly(why) | Verdict::Nothing(why) => {
            return missing(format!("{why}\n"));
        }
    }
    let wrong = |why: String| Reply::Refused(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n"));
    let file = || server.files.in_folder(name).ok_or_else(|| missing(format!("there is no file '{name}'\n")));
    let reply = match route {
        "script" => script::ipxe(&server.script, &subject).map_or_else(wrong, Reply::Text),
        "binary" => match server.files.program(name, || script::of_image(&server.script, &subject)) {
            Ok(program) => Reply::Program(program),
            Err(why) => missing(format!("{why}\n")),
        },
        "iso" => script::of_image(&server.script, &subject)
            .and_then(|arguments| image(server, &subject, name, arguments))
            .map_or_else(wrong, |found| found.unwrap_or_else(|| missing(format!("there is no file '{name}'\n")))),
        _ => file().map_or_else(|reply| reply, Reply::File),
    };
    if !matches!(reply, Reply::Refused(..)) {
        server.eyes.saw(&subject, Sight::Came(stage(route)));
    }
    reply
}

/// The Hardware's own image; a file of that name; the one that is configured: the first that there is.
fn image(server: &Boots, subject: &Subject<'_>, name: &str, arguments: String) -> Result<Option<Reply>, String> {
    let own = subject.interface.isoboot.as_ref().and_then(|isoboot| isoboot.source_iso.as_deref());
    let remote = |url: &str| url.to_owned();
    if let Some(url) = own.filter(|url| !url.is_empty()).map(remote) {
        origin::check(&url).map_err(|why| format!("isoboot.sourceISO: {why}"))?;
        return Ok(Some(Reply::Remote { url, arguments }));
    }
    if let Some(path) = server.files.in_folder(name) {
        return Ok(Some(Reply::Image { path, arguments }));
    }
    Ok(server.origins.default_url().map(remote).map(|url| Reply::Remote { url, arguments }))
}

fn stage(route: &str) -> NetbootStage {
    match route {
        "script" => NetbootStage::Script,
        "binary" => NetbootStage::Program,
        _ => NetbootStage::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::origin::Origins;
    use planner::netboot::Why;
    use proptest::prelude::*;
    use serde_json::json;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    fn server(strangers: bool) -> Boots {
        let script = script::Config {
            replicas: crate::replicas::Replicas::alone(Ipv4Addr::new(10, 88, 0, 1)),
            http_port: 7080,
            grpc_port: 42113,
            syslog: None,
            kernel_arguments: Vec::new(),
            identity: crate::identity::Identity::Open,
        };
        let (eyes, _) = crate::reports::channel(Arc::default());
        let origins = Arc::new(Origins::new(origin::Config::default()));
        Boots { script, files: Arc::new(Files::default()), origins, strangers, eyes }
    }

    #[test]
    fn strangers_have_scripts_where_that_is_asked_for() {
        let path = "/ipxe/script/52-54-00-00-00-01/auto.ipxe";
        let missing = Why::UnknownMac { mac: "52:54:00:00:00:01".to_owned() };
        let refused = Reply::Refused(StatusCode::NOT_FOUND, format!("{missing}\n"));
        assert!(route(&Directory::default(), &server(false), path) == refused);
        let Reply::Text(script) = route(&Directory::default(), &server(true), path) else { panic!("no script") };
        assert!(
            script.contains(" worker_id=52:54:00:00:00:01 ") && script.contains(" ipam=52-54-00-00-00-01:::"),
            "{script}"
        );
    }

    #[test]
    fn an_image_is_the_hardwares_own_or_a_file_or_the_one_that_is_configured() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("here.iso"), "x").expect("written");
        let mut server = server(false);
        server.files = Arc::new(Files::read(&[], Some(folder.path())).expect("read"));
        let asked = |server: &Boots, source: Option<&str>, name: &str| {
            let interface = json!({"dhcp": {"mac": "52:54:00:00:00:01"}, "netboot": {"allowPXE": true},
                "isoboot": {"sourceISO": source}});
            let object = json!({"metadata": {"name": "s1"}, "spec": {"interfaces": [interface]}});
            let directory = Directory::new(vec![Arc::new(serde_json::from_value(object).expect("a Hardware"))]);
            route(&directory, server, &format!("/iso/52-54-00-00-00-01/{name}"))
        };
        let url_of = |reply: Reply| match reply {
            Reply::Remote { url, arguments } if arguments.contains(" worker_id=52:54:00:00:00:01 ") => Some(url),
            _ => None,
        };
        let own = Some("https://images.example/hook.iso?sig=1");
        assert_eq!(url_of(asked(&server, own, "here.iso")).as_deref(), own);
        assert!(matches!(asked(&server, None, "here.iso"), Reply::Image { .. }));
        let missing = Reply::Refused(StatusCode::NOT_FOUND, "there is no file 'other.iso'\n".to_owned());
        assert!(asked(&server, Some(""), "other.iso") == missing);
        let configured = Some("http://images.example/configured.iso".to_owned());
        let config = origin::Config { url: configured.clone(), ca_file: None };
        server.origins = Arc::new(Origins::new(config));
        assert!(matches!(asked(&server, None, "here.iso"), Reply::Image { .. }));
        assert_eq!(url_of(asked(&server, None, "other.iso")), configured);
        for (bad, said) in [("ftp://x/y.iso", "an http or https URL"), ("http://me:secret@x/y.iso", "an URL without")] {
            let Reply::Refused(status, why) = asked(&server, Some(bad), "here.iso") else { panic!("{bad}") };
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(why.starts_with("isoboot.sourceISO: ") && why.contains(said) && !why.contains("secret"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_survived(path in "(/(ipxe|osie|iso|script|binary|[ -~]{0,8})){0,5}") {
            for strangers in [false, true] {
                route(&Directory::default(), &server(strangers), &path);
            }
        }
    }
}
