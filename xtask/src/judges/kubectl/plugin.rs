//! `kubectl bm`: bmctl under the name by which kubectl finds plug-ins, against the real API server.

use super::program;
use super::session::Session;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

pub(super) fn run(root: &Path, session: &mut Session) -> Result<()> {
    let bin = session.folder.join("bin");
    symlink(program("bmctl")?, bin.join("kubectl-bm")).context("install the plug-in")?;
    session.works("kubectl finds the plug-in", &["plugin", "list"], None, &["kubectl-bm"]);
    session.works(
        "bm version",
        &["bm", "version"],
        None,
        &["Client Version: ", "Metalplane Version: ", "Kubernetes Version: v1"],
    );
    let table = session.works("bm get", &["bm", "get"], None, &["bm-01 Running True 10.20.0.7 rack1-u07"]);
    let wide = table.out.lines().find(|line| line.chars().count() > 80);
    session.step("bm get within 80 columns", wide.map_or(Ok(()), |line| Err(line.to_owned())));
    session.works("bm get -o name", &["bm", "get", "-o", "name"], None, &["baremetalmachine.metalplane.io/bm-01"]);
    session.works("bm get -o json", &["bm", "get", "bm-01", "-o", "json"], None, &["\"hardwareName\": \"rack1-u07\""]);
    session.works("bm explain", &["bm", "explain", "bm-01"], None, &["Ready: True", "VolumesReady: True"]);
    session.works("bm timeline", &["bm", "timeline", "bm-01"], None, &["HardwareClaimed"]);
    let list = ["bm", "snapshot", "list", "bm-01"];
    session.works("bm snapshot list", &list, None, &["before-upgrade bm-01 False SeveralDisksRun"]);
    let create = ["bm", "snapshot", "create", "bm-01", "s2", "--dry-run"];
    session.works("bm snapshot create", &create, None, &["machinesnapshot.metalplane.io/s2", "server dry run"]);
    let back = ["bm", "restore", "bm-01", "before-upgrade", "--dry-run"];
    session.works("bm restore", &back, None, &["machinerestore.metalplane.io/bm-01-", "server dry run"]);
    let away = ["bm", "migrate", "bm-01", "--to", "rack1-u08", "--dry-run"];
    session.works("bm migrate", &away, None, &["machinemigration.metalplane.io/bm-01-", "server dry run"]);
    session.works(
        "bm migrate-cancel",
        &["bm", "migrate-cancel", "bm-01", "--dry-run"],
        None,
        &["away cancellation submitted"],
    );
    session.works("bm dpu get", &["bm", "dpu", "get"], None, &["dpu-1", "rack1-u07"]);
    changes(session);
    refuses(session);
    completes(root, session)
}

fn changes(session: &mut Session) {
    let dry = ["bm", "stop", "bm-01", "--dry-run", "-o", "yaml"];
    session.works("bm stop --dry-run", &dry, None, &["runStrategy: Halted"]);
    let strategy = ["get", "bmm", "bm-01", "-o", "jsonpath={.spec.runStrategy}"];
    session.works("it changed nothing", &strategy, None, &["Always"]);
    let back = "to set it back: kubectl bm start bm-01";
    session.works("bm stop", &["bm", "stop", "bm-01"], None, &["stop submitted", back]);
    session.works("it writes Halted", &strategy, None, &["Halted"]);
    session.works("bm start", &["bm", "start", "bm-01"], None, &["start submitted"]);
    let add = ["bm", "adddisk", "bm-01", "data", "--size", "1Gi", "--bus", "virtioblk"];
    session.works("bm adddisk", &add, None, &["disk data submitted"]);
    let bus = ["get", "bmm", "bm-01", "-o", "jsonpath={.spec.disks[1]}"];
    session.works("it is in the spec", &bus, None, &["\"bus\":\"VirtioBlk\"", "\"size\":\"1Gi\""]);
    let nic = ["bm", "addinterface", "bm-01", "eth1", "--subnet", "blue", "--address", "10.20.0.8"];
    session.works("bm addinterface", &nic, None, &["interface eth1 submitted"]);
    let shared = ["bm", "addinterface", "bm-01", "shared-nic"];
    session.works("bm addinterface takes a VNic by its name", &shared, None, &["interface shared-nic submitted"]);
    let vnic = ["get", "bmm", "bm-01", "-o", "jsonpath={.spec.interfaces[2].vnic.name}"];
    session.works("it is that VNic", &vnic, None, &["shared-nic"]);
    for (verb, name) in [("removedisk", "data"), ("delinterface", "eth1"), ("removeinterface", "shared-nic")] {
        session.works(&format!("bm {verb}"), &["bm", verb, "bm-01", name], None, &["submitted"]);
    }
    session.works("bm restart", &["bm", "restart", "bm-01"], None, &["restart submitted"]);
}

fn refuses(session: &mut Session) {
    for (words, code, part) in [
        (vec!["bm", "explain", "none"], 1, "kubectl bm get"),
        (vec!["bm", "adddisk", "bm-01", "Data", "--size", "1Gi"], 1, "spec.disks[1].name"),
        (vec!["bm", "adddisk", "bm-01", "root", "--size", "1Gi"], 1, "kubectl bm removedisk bm-01 root"),
        (vec!["bm", "removedisk", "bm-01", "none"], 1, "it has: root"),
        (vec!["bm", "addinterface", "bm-01", "eth9"], 1, "--subnet or --vnic"),
        (vec!["bm", "adddisk", "bm-01", "data"], 2, "--claim"),
        (vec!["bm", "get", "-o", "xml"], 2, "possible values"),
        (vec!["bm", "stop", "bm-01", "--wait", "--timeout", "1s"], 124, "kubectl bm explain bm-01"),
        (vec!["bm", "dpu", "confirm-down", "no-such-uid", "--yes"], 1, "kubectl bm dpu get"),
    ] {
        let said = session.say(&words, None);
        let result = match (said.code == code, said.err.contains(part)) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("it does not say '{part}'")),
            _ => Err(format!("exit code {} in place of {code}", said.code)),
        };
        session.step(&format!("{}: exit code {code}", words.join(" ")), result);
    }
}

/// The way that kubectl itself completes a plug-in's arguments.
fn completes(root: &Path, session: &mut Session) -> Result<()> {
    let script = session.works("the script for kubectl", &["bm", "completion", "kubectl"], None, &["#!/bin/sh"]);
    let path = session.folder.join("bin/kubectl_complete-bm");
    fs::write(&path, script.out).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("make it executable")?;
    for (what, words, part) in [
        ("verbs", vec!["__complete", "bm", "add"], "adddisk"),
        ("machines", vec!["__complete", "bm", "stop", "bm"], "bm-01"),
        ("machines of another namespace", vec!["__complete", "bm", "get", "-n", "default", "bm"], "bm-01"),
        ("disks", vec!["__complete", "bm", "removedisk", "bm-01", "ro"], "root"),
        ("interfaces", vec!["__complete", "bm", "removeinterface", "bm-01", ""], "eth0"),
        ("subnets", vec!["__complete", "bm", "addinterface", "bm-01", "x", "--subnet", "b"], "blue"),
        ("short names of kubectl itself", vec!["__complete", "get", "bmm", "bm"], "bm-01"),
    ] {
        session.works(&format!("completion of {what}"), &words, None, &[part]);
    }
    for shell in ["bash", "zsh", "fish"] {
        session.works(&format!("the script for {shell}"), &["bm", "completion", shell], None, &["bmctl"]);
    }
    let mut bash = std::process::Command::new("bash");
    let bmctl = program("bmctl")?;
    let words =
        "COMP_WORDS=(bmctl explain bm) COMP_CWORD=2; _clap_complete_bmctl bmctl bm explain; echo \"${COMPREPLY[@]}\"";
    let folder = bmctl.parent().context("bmctl lies in a folder")?.display().to_string();
    bash.current_dir(root).args(["-c", &format!("PATH={folder}:$PATH; . <(bmctl completion bash); {words}")]);
    let said = session.other(bash, "bash, completing `bmctl explain bm`")?;
    session.judged("bash completes a machine's name", &said, true, &["bm-01"]);
    Ok(())
}
