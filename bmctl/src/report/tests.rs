//! A DPU and a BMC in which a secret stands wherever one could.

use super::bmc::Bmc;
use super::{archive, dpu};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

const SECRET: &str = "hunter2";

fn program(folder: &Path, name: &str, script: &str) {
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("write");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Answers every call with a list that holds a secret.
async fn snap(listener: UnixListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = vec![0; 4096];
        let _ = stream.read(&mut request).await;
        let said = format!(
            r#"{{"jsonrpc": "2.0", "id": 1, "result": [{{"vuid": "MT1D0F2", "chap_secret": "{SECRET}", "url": "iscsi://u:{SECRET}@192.0.2.1/0"}}]}}"#
        );
        let (head, tail) = said.split_at(said.len() / 2);
        let _ = stream.write_all(head.as_bytes()).await;
        tokio::task::yield_now().await;
        let _ = stream.write_all(tail.as_bytes()).await;
    }
}

fn tar(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tar").arg("-f").arg(file).args(arguments).output().expect("tar(1)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn a_report_has_what_is_there_and_no_secret() {
    let folder = std::env::temp_dir().join(format!("bmctl-report-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    program(
        &folder,
        "devlink",
        &format!(r#"echo '{{"port": {{"pci/0000:03:00.0/196608": {{"flavour": "pcipf", "token": "{SECRET}"}}}}}}'"#),
    );
    program(&folder, "virtnet", &format!("echo 'cannot connect, password={SECRET}' >&2; exit 1"));
    // The password comes by standard input alone, and is in an error that curl might print.
    program(
        &folder,
        "curl",
        &format!(
            r#"config=$(cat)
case "$*" in *{SECRET}*) echo "a password among the arguments"; exit 1;; esac
case "$config" in *'"root:{SECRET}"'*) ;; *) echo "no credential" >&2; exit 1;; esac
case "$config" in
*'/redfish/v1/Systems"'*) echo '{{"Members": [{{"@odata.id": "/redfish/v1/Systems/1"}}]}}';;
*'BootOptions'*) echo '{{"Members": [{{"DisplayName": "NVMe", "SessionToken": "{SECRET}"}}]}}';;
*'Systems/1"'*) echo '{{"@Redfish.Settings": {{"SettingsObject": {{"@odata.id": "/redfish/v1/Systems/1/Pending"}}}}}}';;
*'Pending"'*) echo '{{"Boot": {{"BootOrder": ["Boot0001"]}}}}';;
*) echo "curl: (22) {SECRET} is not the password" >&2; exit 22;;
esac"#
        ),
    );
    let socket = folder.join("snap.sock");
    let serving = tokio::spawn(snap(UnixListener::bind(&socket).expect("a socket")));
    let mut path = OsString::from(&folder);
    path.push(":/usr/bin:/bin");

    let mut parts = dpu::gather(&[socket.clone(), folder.join("none.sock")], &path).await;
    let bmc = Bmc { url: "https://192.0.2.7/", user: "root", password: SECRET, insecure: true };
    parts.extend(bmc.gather(&path).await);
    let file = folder.join("report.tar");
    archive::write(&file, &parts).expect("written");
    serving.abort();

    let listed = tar(&file, &["-t"]);
    for part in [
        "index.txt",
        "dpu/devlink-port.json",
        "snap/0-rpc_get_methods.json",
        "bmc/0/boot-options.json",
        "bmc/0/settings.json",
    ] {
        assert!(listed.contains(part), "{part} is missing: {listed}");
    }
    let all = tar(&file, &["-x", "-O"]);
    for kept in ["pcipf", "MT1D0F2", "Boot0001", "virtnet: exit status: 1", "none.sock"] {
        assert!(all.contains(kept), "{kept} is missing: {all}");
    }
    let bytes = std::fs::read(&file).expect("the archive");
    assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "a secret is in the archive: {all}");
    assert_eq!(std::fs::metadata(&file).expect("the archive").permissions().mode() & 0o777, 0o600);
    std::fs::remove_dir_all(&folder).expect("removed");
}
