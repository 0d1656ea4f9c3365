//! The real program: recorded calls, and their answers. Where a pod's network namespace is needed, a real one.

mod agent;
mod multus;
mod undone;

use agent::Agent;
use proto::interfaces::v1alpha1::Interface;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

struct Call<'a> {
    verb: &'a str,
    container: &'a str,
    netns: &'a str,
}

/// What ptp and host-local answered on a node of the sandbox.
fn previous() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "veth7d2c1f03", "mac": "fe:1c:26:07:bb:4e"},
            {"name": "eth0", "mac": "f2:05:2e:80:c1:5a", "sandbox": "/run/netns/pod"},
        ],
        "ips": [{"address": "10.244.1.7/32", "gateway": "10.244.1.1", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dns": {},
    })
}

/// As containerd hands it over, behind ptp.
fn config(folder: &Path, annotations: Value) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "metalplane",
        "capabilities": {"io.kubernetes.cri.pod-annotations": true},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations},
        "socket": folder.join("agent.sock"), "stateDirectory": folder.join("state"),
        "prevResult": previous(),
    })
}

fn asking() -> Value {
    json!({"metalplane.io/subnet": "blue", "kubernetes.io/config.source": "api"})
}

impl Call<'_> {
    fn run_with(&self, stdin: &str, args: &str) -> Output {
        self.run_as("eth0", stdin, args)
    }

    fn run_as(&self, ifname: &str, stdin: &str, args: &str) -> Output {
        // The plugin of another architecture is started by what EMULATOR names.
        let program: Vec<String> =
            std::env::var("EMULATOR").into_iter().chain([env!("CARGO_BIN_EXE_metalplane").to_owned()]).collect();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        command.env_clear().env("CNI_COMMAND", self.verb).env("CNI_CONTAINERID", self.container);
        command.env("CNI_NETNS", self.netns).env("CNI_IFNAME", ifname).env("CNI_ARGS", args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("metalplane");
        // One that is refused by its environment does not read.
        let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
        child.wait_with_output().expect("it ends")
    }

    fn run(&self, config: &Value) -> Output {
        self.run_with(
            &config.to_string(),
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=team;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=uid-1",
        )
    }

    fn succeeds(&self, config: &Value) -> Value {
        let output = self.run(config);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {text}", self.verb);
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") }
    }

    fn fails(&self, config: &Value) -> (u64, String) {
        error(&self.run(config))
    }
}

fn error(output: &Output) -> (u64, String) {
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(!output.status.success(), "{said}");
    (said["code"].as_u64().expect("a code"), said["msg"].as_str().expect("a message").to_owned())
}

fn call(verb: &str) -> Call<'_> {
    Call { verb, container: "c1", netns: "/run/netns/none" }
}

#[test]
fn a_pod_that_asks_for_nothing_needs_no_agent() {
    let dir = TempDir::new().expect("a folder");
    let folder = dir.path();
    for annotations in [json!({}), json!({"kubernetes.io/config.source": "api"})] {
        let config = config(folder, annotations);
        assert_eq!(call("ADD").succeeds(&config), previous());
        for verb in ["CHECK", "DEL", "DEL", "GC", "STATUS"] {
            assert_eq!(call(verb).succeeds(&config), Value::Null, "{verb}");
        }
    }
    // Nor does it fail by a configuration that is wrong for others.
    let mut wrong = config(folder, json!({}));
    (wrong["subnet"], wrong["cniVersion"]) = (json!("blue"), json!("0.2.0"));
    assert_eq!(call("ADD").succeeds(&wrong), previous());
    let mut without = config(folder, json!({}));
    without.as_object_mut().expect("an object").remove("runtimeConfig");
    assert_eq!(call("ADD").succeeds(&without), previous());
    assert!(!folder.join("state").exists(), "nothing is left");
}

#[test]
fn versions_are_told_without_a_configuration() {
    let output = call("VERSION").run_with("", "");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    assert_eq!(error(&call("UPDATE").run_with("", "")).0, 4);
}

#[test]
fn what_is_wrong_is_named_with_its_code() {
    let dir = TempDir::new().expect("a folder");
    let folder = dir.path();
    let add = call("ADD");
    let said = |(code, message): (u64, String), expected: u64, named: &str| {
        assert!(code == expected && message.contains(named), "{code}: {message}, not {expected}: {named}");
    };
    said(add.fails(&config(folder, asking())), 11, "AgentUnresponsive");
    let mut member = config(folder, asking());
    member["securityGroups"] = json!(["web"]);
    said(add.fails(&member), 7, "securityGroups: behind another plugin this is asked for by the pod's annotation");
    let mut unknown = config(folder, asking());
    unknown["master"] = json!("eth0");
    said(add.fails(&unknown), 7, "master: a network configuration of type metalplane has no such member");
    let mut version = config(folder, asking());
    version["cniVersion"] = json!("2.0.0");
    said(add.fails(&version), 7, "cniVersion: '2.0.0': write one of 0.3.0");
    let mut first = config(folder, asking());
    first.as_object_mut().expect("an object").remove("prevResult");
    said(add.fails(&first), 7, "prevResult is missing");
    let text = config(folder, asking()).to_string();
    said(error(&add.run_with(&text, "K8S_POD_NAMESPACE=team;K8S_POD_NAME=web")), 4, "CNI_ARGS has no K8S_POD_UID");
    said(error(&add.run_with("{", "")), 6, "the network configuration");
    let outside = Call { container: "../c1", ..call("DEL") };
    said(outside.fails(&config(folder, asking())), 4, "CNI_CONTAINERID is '../c1'");
    let mut required = config(folder, json!({}));
    required["required"] = json!(true);
    said(call("STATUS").fails(&required), 50, "AgentUnresponsive");
    let lost = call("CHECK").fails(&config(folder, asking()));
    said(lost, 100, "ADD has attached none");

    let agent = Agent::start(folder, Err(tonic::Status::invalid_argument("annotation metalplane.io/networks: no")));
    said(add.fails(&config(folder, asking())), 7, "Pod 'team/web': annotation metalplane.io/networks: no");
    agent.answer(Err(tonic::Status::unavailable("not within 55 s: NotBound: OVN has not bound it")));
    said(add.fails(&config(folder, asking())), 11, "NotBound: OVN has not bound it. Next: kubectl describe pod web");
    assert_eq!(call("STATUS").succeeds(&required), Value::Null);
    assert!(!folder.join("state").exists(), "nothing is left");
}

fn ip(args: &str) -> String {
    let output = Command::new("ip").args(args.split(' ')).output().expect("ip(8)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {args}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Network namespaces of pods, which go with the test.
struct Pods(Vec<String>);

impl Pods {
    fn start(names: &[&str]) -> Self {
        let all: Vec<String> = names.iter().map(|name| format!("mpcni-{}-{name}", std::process::id())).collect();
        all.iter().for_each(|name| drop(ip(&format!("netns add {name}"))));
        Self(all)
    }

    fn path(&self, place: usize) -> String {
        format!("/run/netns/{}", self.0[place])
    }

    fn devices(&self, place: usize) -> String {
        ip(&format!("-n {} -brief link", self.0[place]))
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status();
        }
    }
}

/// As the agent leaves it on the node.
fn offer(device: &str) {
    offer_with(device, "02:00:00:00:20:07");
}

fn offer_with(device: &str, mac: &str) {
    ip(&format!("link add mp{device} type veth peer name mq{device} address {mac}"));
    ip(&format!("link set mp{device} up"));
}

#[test]
fn a_pod_gets_its_nic_and_gives_it_back() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP a_pod_gets_its_nic_and_gives_it_back: needs root for network namespaces");
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let (folder, config) = (dir.path(), config(dir.path(), asking()));
    let pods = Pods::start(&["old", "new"]);
    let device = format!("c{}", std::process::id() % 1_000_000);
    let agent = Agent::start(folder, Ok(agent::interface("net1", &format!("mq{device}"))));
    let (old, new) = (pods.path(0), pods.path(1));
    let on = |verb, container, netns| Call { verb, container, netns };

    // The device is not there: again later, and nothing is left.
    let (code, message) = on("ADD", "c1", &old).fails(&config);
    assert!(code == 11 && message.contains("is not on the node"), "{code}: {message}");
    assert_eq!(std::fs::read_dir(folder.join("state")).expect("the folder").count(), 0);

    offer(&device);
    let result = on("ADD", "c1", &old).succeeds(&config);
    assert_eq!(
        result["interfaces"][2],
        json!({"name": "net1", "mac": "02:00:00:00:20:07", "sandbox": old, "mtu": 1442})
    );
    let said_before = (&previous()["ips"], &previous()["routes"]);
    assert_eq!((&result["ips"], &result["routes"]), said_before, "ptp looks for each of them on eth0");
    let (netns, routes) = (&pods.0[0], ip(&format!("-n {} route", pods.0[0])));
    assert!(routes.contains("10.30.0.0/24 via 10.20.0.1 dev net1"), "{routes}");
    let accepts = ip(&format!("netns exec {netns} cat /proc/sys/net/ipv6/conf/net1/accept_ra"));
    assert_eq!(accepts.trim(), "0", "what a router advertises is not the pod's");
    on("CHECK", "c1", &old).succeeds(&config);
    ip(&format!("-n {netns} address del 10.20.0.7/24 dev net1"));
    let (code, message) = on("CHECK", "c1", &old).fails(&config);
    assert!(code == 100 && message.contains("'net1'") && message.contains("10.20.0.7/24"), "{message}");

    // Another sandbox of the same pod: the agent makes the device anew.
    ip(&format!("link del mp{device}"));
    offer(&device);
    on("ADD", "c2", &new).succeeds(&config);
    // The old one's end does not touch it, and may be told twice.
    for _ in 0..2 {
        on("DEL", "c1", &old).succeeds(&config);
        assert!(pods.devices(1).contains("net1"), "{}", pods.devices(1));
    }
    assert_eq!(agent.detached(), ["c1"]);

    // A pod with such a device of its own gets nothing, and loses nothing.
    ip(&format!("-n {} link add net1 type bridge", pods.0[0]));
    agent.answer(Ok(agent::interface("net1", &format!("mq{device}x"))));
    offer(&format!("{device}x"));
    let (code, message) = on("ADD", "c3", &old).fails(&config);
    assert!(code == 7 && message.contains("'net1' already"), "{code}: {message}");
    assert!(pods.devices(0).contains("net1") && !pods.devices(0).contains("mq"), "{}", pods.devices(0));

    // What the runtime does not know goes, and no other.
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}]);
    on("GC", "", "").succeeds(&gc);
    assert!(pods.devices(1).contains("net1"));
    gc["cni.dev/valid-attachments"] = json!([]);
    (gc["name"], gc["prevResult"]) = (json!("another"), Value::Null);
    on("GC", "", "").succeeds(&gc);
    assert!(pods.devices(1).contains("net1"), "of another network");
    gc["name"] = json!("pods");
    on("GC", "", "").succeeds(&gc);
    assert!(!pods.devices(1).contains("net1"), "{}", pods.devices(1));

    // The namespace, and with it the device, is gone before DEL is called, and the agent is too.
    offer(&device);
    agent.answer(Ok(agent::interface("net1", &format!("mq{device}"))));
    on("ADD", "c4", &new).succeeds(&config);
    drop(agent);
    ip(&format!("netns delete {}", pods.0[1]));
    on("DEL", "c4", &new).succeeds(&config);
    assert_eq!(std::fs::read_dir(folder.join("state")).expect("the folder").count(), 0);
}

#[test]
fn a_function_is_waited_for_and_goes_back_to_the_node() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP a_function_is_waited_for_and_goes_back_to_the_node: needs root for network namespaces");
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let (folder, config) = (dir.path(), config(dir.path(), asking()));
    let pods = Pods::start(&["f-old", "f-new"]);
    let device = format!("f{}", std::process::id() % 1_000_000);
    let function = |device: &str| {
        let interface = Interface { function: true, mtu: 1400, ..agent::interface("net1", device) };
        Ok(Interface { mac_address: "02:00:00:00:20:08".to_owned(), ..interface })
    };
    let agent = Agent::start(folder, function(&format!("mq{device}")));
    let (old, new) = (pods.path(0), pods.path(1));
    let on = |verb, container, netns| Call { verb, container, netns };
    // The other end is what the switch has: no carrier while it is down.
    ip(&format!("link add mp{device} type veth peer name mq{device} address 02:00:00:00:20:08"));
    let waiting = std::thread::scope(|scope| {
        let add = scope.spawn(|| on("ADD", "c1", &old).succeeds(&config));
        while !pods.devices(0).contains("net1") {
            std::thread::yield_now();
        }
        let waiting = !add.is_finished();
        ip(&format!("link set mp{device} up"));
        let result = add.join().expect("it is attached");
        assert_eq!(result["interfaces"][2]["mac"], "02:00:00:00:20:08");
        waiting
    });
    assert!(waiting && ip(&format!("-n {} link show net1", pods.0[0])).contains("mtu 1400"));

    // Another sandbox of the pod has it, under the name by which it was given back.
    let given_back = "mp020000002008";
    agent.answer(function(given_back));
    on("ADD", "c2", &new).succeeds(&config);
    assert!(pods.devices(1).contains("net1") && !pods.devices(0).contains("net1"));
    on("DEL", "c1", &old).succeeds(&config);
    assert!(pods.devices(1).contains("net1"));
    // A virtual machine in the pod has the address; whoever configures itself may have changed it.
    let state = folder.join("state/c2.eth0.json");
    let own = std::fs::read_to_string(&state)
        .expect("what ADD left")
        .replace("\"configuredByPod\":false", "\"configuredByPod\":true");
    std::fs::write(&state, own).expect("write");
    ip(&format!("-n {} link set net1 address 02:00:00:00:00:99", pods.0[1]));
    for _ in 0..2 {
        on("DEL", "c2", &new).succeeds(&config);
        assert!(!pods.devices(1).contains("net1"));
        assert!(ip(&format!("link show {given_back}")).contains("02:00:00:00:20:08"));
    }
    ip(&format!("link del {given_back}"));
}
