//! An ISO image of another server (nginx), named by the Hardware, with this server's arguments filled in on the way.

use super::site::{ApiServer, Running, US, path, until};
use super::{INVENTORY, MAC};
use api::tinkerbell::Hardware;
use kube::Api;
use kube::api::{Patch, PatchParams};
use sandbox::preflight;
use serde_json::{Value, json};
use std::process::Command;

const NGINX: (&str, &str) = ("nginx", "nginx-light");
const PORT: u16 = 8080;
/// Shared by two of the parts that are fetched.
const PLACE: usize = (1 << 20) - 100;

/// Inside there is no way out. What cannot be had is told there.
pub async fn prefetch() {
    let _ = preflight::unpacked(NGINX.0, NGINX.1).await;
}

async fn names(site: &ApiServer, source: Value) {
    let hardware: Api<Hardware> = Api::namespaced(site.admin.clone(), INVENTORY);
    let mut object = hardware.get("s1").await.expect("there");
    let mut interface = serde_json::to_value(&object.spec.interfaces[0]).expect("an interface");
    interface["isoboot"] = source;
    object.spec.interfaces[0] = serde_json::from_value(interface).expect("an interface");
    let interfaces = json!({"spec": {"interfaces": object.spec.interfaces}});
    hardware.patch("s1", &PatchParams::default(), &Patch::Merge(interfaces)).await.expect("written");
}

/// `curl`: by the server; the status and the body.
pub async fn image(
    test: &str,
    site: &ApiServer,
    dir: &tempfile::TempDir,
    curl: &impl AsyncFn(&[&str], &str) -> (String, String),
) {
    let (program, environment) = match preflight::unpacked(NGINX.0, NGINX.1).await {
        Ok(found) => found,
        Err(error) => {
            eprintln!("SKIP {test}: an ISO image of another server: {error:#}");
            return;
        }
    };
    let below = path(dir, "images");
    std::fs::create_dir(&below).expect("made");
    let mut iso = vec![b'.'; 3 << 20];
    let empty = proto::argument_area::empty();
    iso[PLACE..PLACE + empty.len()].copy_from_slice(empty.as_bytes());
    std::fs::write(below.join("hook.iso"), &iso).expect("written");
    let (run, root) = (dir.path().display(), below.display());
    let config = format!(
        "daemon off; pid {run}/nginx.pid; error_log stderr; user root;\nevents {{}}\n\
         http {{ access_log {run}/nginx.access; client_body_temp_path {run}; proxy_temp_path {run}; fastcgi_temp_path {run};\n\
         uwsgi_temp_path {run}; scgi_temp_path {run}; server {{ listen {US}:{PORT}; root {root};\n\
         location /moved.iso {{ return 302 /hook.iso?token=secret; }} }} }}\n"
    );
    std::fs::write(path(dir, "nginx.conf"), config).expect("written");
    let mut command = Command::new(program);
    command.arg("-c").arg(path(dir, "nginx.conf")).args(["-e", "stderr"]).envs(environment);
    let nginx = Running::start(&mut command, &path(dir, "nginx.log"));

    names(site, json!({"sourceISO": format!("http://{US}:{PORT}/moved.iso?token=secret")})).await;
    let any = format!("/iso/{}/any.iso", MAC.replace(':', "-"));
    let whole = until("the image is served", async || {
        let (code, body) = curl(&[], &any).await;
        let said = || std::fs::read_to_string(path(dir, "nginx.log")).unwrap_or_default();
        if code == "200" { Ok(body) } else { Err(format!("{code} {body} {}", said())) }
    })
    .await;
    assert_eq!(whole.len(), iso.len());
    let arguments = whole[PLACE..PLACE + empty.len()].trim_end();
    assert!(arguments.contains(&format!(" worker_id={MAC} ")), "{arguments}");
    assert!(whole[..PLACE].bytes().chain(whole[PLACE + empty.len()..].bytes()).all(|byte| byte == b'.'));
    for (first, last) in
        [(0, 2047), (PLACE + 10, PLACE + 20), (PLACE - 5, PLACE + 4000), (whole.len() - 9, whole.len() - 1)]
    {
        let (code, part) = curl(&["-r", &format!("{first}-{last}")], &any).await;
        assert_eq!((code.as_str(), part.as_str()), ("206", &whole[first..=last]));
    }
    let asked = std::fs::read_to_string(path(dir, "nginx.access")).expect("its log");
    assert!(asked.contains("\"GET /moved.iso?token=secret ") && asked.contains("\" 206 1048576 "), "{asked}");

    drop(nginx);
    names(site, json!({"sourceISO": format!("http://{US}:{PORT}/gone.iso?token=secret")})).await;
    until("it cannot be fetched", async || {
        let (code, body) = curl(&["-r", "0-9"], &any).await;
        if code == "502" { Ok(()) } else { Err(format!("{code} {body}")) }
    })
    .await;
    let log = std::fs::read_to_string(path(dir, "boot.log")).expect("its log");
    assert!(log.contains(&format!("http://{US}:{PORT}/gone.iso: ")) && !log.contains("secret"), "{log}");
    names(site, Value::Null).await;
}
