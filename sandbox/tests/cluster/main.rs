//! A whole cluster comes up, does what the rest of Metalplane needs of it, and leaves nothing behind.

mod network;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::Sandbox;
use sandbox::cluster::cgroup::Cgroups;
use sandbox::cluster::leftover;
use sandbox::handle::Options;
use sandbox::supervisor::process::{Listed, ProcessSpec, State};
use serde_json::json;
use tokio::process::Command;

const BUSYBOX: &str = "/usr/bin/busybox";
const IMAGE: &str = "metalplane.local/busybox:1";
/// Where a CSI driver mounts for kubelet to see.
const PLUGINS: &str = "/var/lib/kubelet/plugins";
const NODES: [&str; 3] = ["dpu-1", "dpu-2", "node-1"];

fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root".into());
    }
    (!Path::new(BUSYBOX).exists()).then(|| format!("{BUSYBOX} is missing (Debian: busybox-static)"))
}

#[tokio::test]
async fn a_cluster_comes_up_works_and_leaves_nothing() {
    if let Some(reason) = missing() {
        eprintln!("SKIP a_cluster_comes_up_works_and_leaves_nothing: {reason}");
        return;
    }
    let options =
        Options { servers: Vec::new(), program: Some(env!("CARGO_BIN_EXE_sandbox").into()), ..Options::default() };
    let name = format!("t{}", std::process::id());
    let settings = kernel_settings();
    let sandbox = Sandbox::start(&name, options).await.expect("a sandbox");
    let layout = sandbox.layout().clone();
    let outcome = checks(&sandbox).await;
    sandbox.down().await.expect("the sandbox ends");
    outcome.expect("every check");
    assert_eq!(kernel_settings(), settings, "this machine's own settings were changed");
    let remains = leftover::remains(&layout, &Cgroups::detect().expect("control groups")).await.expect("a look");
    assert_eq!(remains, Vec::<String>::new());
    std::fs::remove_dir_all(&layout.dir).expect("the logs can go");
}

/// Some that kubelet would change.
fn kernel_settings() -> Vec<Option<String>> {
    let names = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"];
    names.iter().map(|name| std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()).collect()
}

#[tokio::test]
async fn what_a_killed_supervisor_leaves_is_cleaned_up() {
    if let Some(reason) = missing() {
        eprintln!("SKIP what_a_killed_supervisor_leaves_is_cleaned_up: {reason}");
        return;
    }
    let program = env!("CARGO_BIN_EXE_sandbox");
    let options = Options {
        nodes: vec!["node-1".into()],
        servers: Vec::new(),
        program: Some(program.into()),
        ..Options::default()
    };
    let name = format!("k{}", std::process::id());
    let sandbox = Sandbox::start(&name, options).await.expect("a sandbox");
    let layout = sandbox.layout().clone();
    let cgroups = Cgroups::detect().expect("control groups");
    let supervisor = i32::try_from(sandbox.ready().supervisor).expect("a process id");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).expect("killed");
    assert_ne!(leftover::remains(&layout, &cgroups).await.expect("a look"), Vec::<String>::new());
    output(Command::new(program).args(["down", "--name", &name])).await.expect("down cleans up");
    assert_eq!(leftover::remains(&layout, &cgroups).await.expect("a look"), Vec::<String>::new());
    std::fs::remove_dir_all(&layout.dir).expect("the logs can go");
}

async fn checks(sandbox: &Sandbox) -> Result<()> {
    image_is_imported_once(sandbox).await.context("load-image")?;
    pods_run_everywhere(sandbox).await.context("pods")?;
    what_a_pod_mounts_reaches_its_node(sandbox).await.context("mounts")?;
    a_dpu_sees_little_of_its_server(sandbox).await.context("a server's folder")?;
    pods_reach_the_control_plane(sandbox).await.context("network of pods")?;
    network::nothing_leads_out(sandbox).await.context("default routes")?;
    network::a_guest_meets_the_switch_alone(sandbox).await.context("the node's own network")?;
    network::nothing_passes_but_between_logical_ports(sandbox).await.context("OVN")?;
    network::guests_outlive_the_control_of_their_network(sandbox).await.context("OVN killed")?;
    processes_can_be_killed_and_started(sandbox).await.context("process control")?;
    a_dpu_loses_power_and_comes_back(sandbox).await.context("power")
}

async fn image_is_imported_once(sandbox: &Sandbox) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tar = folder.path().join("busybox.tar");
    let description =
        sandbox::oci::Description { reference: IMAGE, entrypoint: &["/bin/busybox"], ..Default::default() };
    sandbox::oci::write_image(&tar, description, &[(Path::new(BUSYBOX), "/bin/busybox", 0o755)])?;
    let answer = sandbox.request(json!({"op": "load-image", "tar": tar})).await?;
    ensure!(answer["imported"] == json!(NODES), "first import: {answer}");
    let answer = sandbox.request(json!({"op": "load-image", "tar": tar})).await?;
    ensure!(answer["had"] == json!(NODES), "second import: {answer}");
    Ok(())
}

async fn pods_run_everywhere(sandbox: &Sandbox) -> Result<()> {
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "probe"}},
            "template": {
                "metadata": {"labels": {"app": "probe"}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "probe", "image": IMAGE, "imagePullPolicy": "Never",
                        "command": ["/bin/busybox", "sh", "-c", "echo started; exec /bin/busybox sleep 100000"],
                        "securityContext": {"privileged": true},
                        "volumeMounts": [
                            {"name": "pool", "mountPath": sandbox.ready().pool},
                            {"name": "plugins", "mountPath": PLUGINS, "mountPropagation": "Bidirectional"},
                        ],
                    }],
                    "volumes": [
                        {"name": "pool", "hostPath": {"path": sandbox.ready().pool}},
                        {"name": "plugins", "hostPath": {"path": PLUGINS, "type": "DirectoryOrCreate"}},
                    ],
                },
            },
        },
    });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("probe.json");
    std::fs::write(&file, manifest.to_string())?;
    output(sandbox.kubectl().arg("apply").arg("-f").arg(&file)).await?;
    output(sandbox.kubectl().args(["rollout", "status", "daemonset/probe", "--timeout=180s"])).await?;
    std::fs::write(sandbox.ready().pool.join("from-outside"), "seen")?;
    for node in NODES {
        let pod = pod_on(sandbox, node).await?;
        let log = output(sandbox.kubectl().args(["logs", &pod])).await?;
        ensure!(log.trim() == "started", "log of {pod}: {log}");
        let file = sandbox.ready().pool.join("from-outside").display().to_string();
        let seen = in_pod(sandbox, &pod, &["cat", &file]).await?;
        ensure!(seen == "seen", "the pool in {pod}: {seen}");
    }
    Ok(())
}

async fn what_a_pod_mounts_reaches_its_node(sandbox: &Sandbox) -> Result<()> {
    let pod = pod_on(sandbox, "dpu-1").await?;
    let at = format!("{PLUGINS}/volume");
    let volume = sandbox.ready().pool.join("volume");
    std::fs::File::create(&volume)?.set_len(320 << 20)?;
    output(Command::new("mkfs.xfs").arg("-q").arg(&volume)).await?;
    // A file system on a loop device on the pool: both must go with the sandbox though nobody unmounts it.
    let (mkdir, mount) = (format!("/bin/busybox mkdir -p {at}"), "/bin/busybox mount -t xfs -o loop");
    let script = format!("{mkdir} && {mount} {} {at}", volume.display());
    in_pod(sandbox, &pod, &["sh", "-c", &script]).await?;
    output(sandbox.enter("dpu-1").args(["mountpoint", "-q", &at])).await.context("not seen on the node")?;
    let elsewhere = output(sandbox.enter("dpu-2").args(["mountpoint", "-q", &at])).await;
    ensure!(elsewhere.is_err(), "a mount on dpu-1 is seen on dpu-2");
    let here = std::fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!here.contains(&at), "a mount on dpu-1 is seen on this machine");
    Ok(())
}

/// A pod on a DPU mounts what the DPU has of its server: the password of the server's BMC is not there.
async fn a_dpu_sees_little_of_its_server(sandbox: &Sandbox) -> Result<()> {
    let folder = sandbox.layout().server_dir("server-1");
    std::fs::write(folder.join("secret"), "of the server").context("write beside the server's state")?;
    let seen = output(sandbox.enter("dpu-1").args(["ls", "-A", "/run/metalplane-host"])).await?;
    let meant = ["serial-number", "slots.sock", "vfio-user"];
    ensure!(seen.lines().all(|file| meant.contains(&file)), "the DPU sees {seen}");
    Ok(())
}

async fn pods_reach_the_control_plane(sandbox: &Sandbox) -> Result<()> {
    let argv = [BUSYBOX, "nc", "-ll", "-p", "8000", "-e", BUSYBOX, "echo", "reached"];
    sandbox.spawn(&ProcessSpec::new("test/listener", argv).enter("cp")).await?;
    for node in NODES {
        let pod = pod_on(sandbox, node).await?;
        let said = in_pod(sandbox, &pod, &["sh", "-c", "/bin/busybox nc -w 5 10.77.0.1 8000 </dev/null"]).await?;
        ensure!(said.trim() == "reached", "from {pod}: {said:?}");
        // busybox speaks none of the API server's ciphers; what the server says to plain text is its own words, too.
        let script = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | /bin/busybox nc -w 5 10.96.0.1 443";
        let said = in_pod(sandbox, &pod, &["sh", "-c", script]).await?;
        ensure!(said.contains("HTTPS server"), "the API server from {pod}: {said:?}");
        let other = if node == "dpu-1" { "node-1" } else { "dpu-1" };
        let query = ["get", "pod", &pod_on(sandbox, other).await?, "-o", "jsonpath={.status.podIP}"].map(str::to_owned);
        let address = output(sandbox.kubectl().args(query)).await?;
        in_pod(sandbox, &pod, &["ping", "-c", "1", "-W", "3", &address]).await?;
        // As the API server does when it asks an aggregated one.
        output(sandbox.enter("cp").args(["ping", "-c", "1", "-W", "3", &address])).await?;
    }
    Ok(())
}

async fn processes_can_be_killed_and_started(sandbox: &Sandbox) -> Result<()> {
    let state = |name: &'static str| async move {
        let listed = sandbox.list().await?;
        listed.into_iter().find(|process| process.name == name).map(|process| process.state).context("not listed")
    };
    sandbox.kill_process("dpu-1/kubelet").await?;
    ensure!(matches!(state("dpu-1/kubelet").await?, State::Exited { .. }), "kubelet was killed");
    sandbox.start_process("dpu-1/kubelet").await?;
    ensure!(matches!(state("dpu-1/kubelet").await?, State::Running { .. }), "kubelet was started");
    let refused = sandbox.start_process("dpu-1/kubelt").await.expect_err("no such process");
    ensure!(format!("{refused}").contains("dpu-1/kubelet"), "says what there is: {refused}");
    Ok(())
}

async fn a_dpu_loses_power_and_comes_back(sandbox: &Sandbox) -> Result<()> {
    let boot_id = ["get", "node", "dpu-2", "-o", "jsonpath={.status.nodeInfo.bootID}"];
    let before = output(sandbox.kubectl().args(boot_id)).await?;
    let marker = "test -e /run/marker";
    output(sandbox.enter("dpu-2").args(["sh", "-c", "touch /run/marker /var/lib/marker"])).await?;
    // Not of the node's group, but in the node: it must lose power, too.
    sandbox.spawn(&ProcessSpec::new("test/in-dpu-2", [BUSYBOX, "sleep", "100000"]).enter("dpu-2")).await?;
    let name = output(sandbox.enter("dpu-2").arg("hostname")).await?;
    ensure!(name.trim() == "dpu-2", "the node calls itself {name}");
    sandbox.power("dpu-2", "off").await?;
    let listed = sandbox.list().await?;
    let runs = |process: &&Listed| matches!(process.state, State::Running { .. });
    let left: Vec<&str> = listed.iter().filter(runs).map(|process| process.name.as_str()).collect();
    let of_node = |name: &&&str| name.starts_with("dpu-2/") || **name == "test/in-dpu-2";
    ensure!(!left.iter().any(|name| of_node(&name)), "still running: {left:?}");
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    until(Duration::from_secs(120), || async {
        let seen = output(sandbox.kubectl().args(["get", "node", "dpu-2", "-o", ready])).await?;
        ensure!(seen == "Unknown", "Ready is {seen}");
        Ok(())
    })
    .await?;
    sandbox.power("dpu-2", "on").await?;
    let after = output(sandbox.kubectl().args(boot_id)).await?;
    ensure!(before != after, "the boot id stayed {before}");
    let file = output(sandbox.enter("dpu-2").args(["cat", "/run/metalplane/boot-id"])).await?;
    ensure!(file.trim() == after, "the file says {file}, the node {after}");
    ensure!(output(sandbox.enter("dpu-2").args(["sh", "-c", marker])).await.is_err(), "/run was not wiped");
    output(sandbox.enter("dpu-2").args(["test", "-e", "/var/lib/marker"])).await?;
    until(Duration::from_secs(180), || async {
        let pod = pod_on(sandbox, "dpu-2").await?;
        in_pod(sandbox, &pod, &["true"]).await.map(drop)
    })
    .await?;
    network::guests_reach_each_other(sandbox).await
}

async fn pod_on(sandbox: &Sandbox, node: &str) -> Result<String> {
    let field = format!("spec.nodeName={node}");
    let query =
        ["get", "pods", "-l", "app=probe", "--field-selector", &field, "-o", "jsonpath={.items[*].metadata.name}"];
    let name = output(sandbox.kubectl().args(query)).await?;
    ensure!(!name.is_empty() && !name.contains(' '), "pods on {node}: {name:?}");
    Ok(name)
}

async fn in_pod(sandbox: &Sandbox, pod: &str, command: &[&str]) -> Result<String> {
    output(sandbox.kubectl().args(["exec", pod, "--", "/bin/busybox"]).args(command)).await
}

async fn until<F: Future<Output = Result<()>>>(limit: Duration, mut probe: impl FnMut() -> F) -> Result<()> {
    let start = Instant::now();
    loop {
        match probe().await {
            Ok(()) => return Ok(()),
            Err(error) if start.elapsed() > limit => return Err(error.context(format!("still so after {limit:?}"))),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn output(command: &mut Command) -> Result<String> {
    let output = tokio::time::timeout(Duration::from_secs(180), command.kill_on_drop(true).output()).await??;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {}: {error}", command.as_std(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
