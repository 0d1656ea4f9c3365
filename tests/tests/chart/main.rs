//! The chart's values for DPUs and for OVN, rendered by helm as it is: what is accepted reaches the program, whose own flags and wiring take it;
//! what is not is refused by name.

mod rights;

use clap::Parser;
use dpu_agent::args::{Args, DisksBy, NicsBy};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Output;
use tests::chart::{self, SETTINGS};

struct Helm(chart::Helm);

impl Helm {
    async fn find(test: &str) -> Option<Helm> {
        match chart::Helm::find().await {
            Ok(helm) => Some(Helm(helm)),
            Err(error) => {
                eprintln!("SKIP {test}: {error:#}");
                None
            }
        }
    }

    fn render(&self, template: &str, values: &[&str]) -> Output {
        self.rendered(&["--show-only", &format!("templates/{template}.yaml")], values)
    }

    fn rendered(&self, flags: &[&str], values: &[&str]) -> Output {
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        let flags: Vec<String> = flags.chain(values.iter().map(|value| format!("--set={value}"))).collect();
        self.0.template("", &flags).expect("helm runs")
    }

    /// A program's objects, and its flags as it understands them.
    fn program<A: Parser>(&self, template: &str, values: &[&str]) -> (String, A) {
        let output = self.render(template, values);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{values:?}: {said}");
        let text = String::from_utf8(output.stdout).expect("text");
        let flags = text.lines().filter_map(|line| line.trim().strip_prefix("- --")).map(|flag| {
            let flag = flag.replace("$(NODE_NAME)", "dpu-1").replace("$(NODE_ADDRESS)", "198.51.100.7");
            format!("--{flag}")
        });
        let args = A::try_parse_from([template.to_owned()].into_iter().chain(flags));
        (text, args.unwrap_or_else(|error| panic!("{values:?}: {error}")))
    }

    fn agent(&self, values: &[&str]) -> (String, Args) {
        self.program("agent", values)
    }

    /// Every object of the chart with all of its parts.
    fn whole(&self, values: &[&str]) -> Vec<Value> {
        let parts = [
            "boot.enabled=true",
            "boot.addresses={192.0.2.1,192.0.2.2}",
            "cni.enabled=true",
            "cni.smartNics=true",
            "cni.workers.enabled=true",
            "csi.proxy.enabled=true",
            "csi.proxy.machineNamespace=workers",
            "spdkTarget.enabled=true",
            "agent.disksBy=spdk",
        ];
        objects(self.rendered(&[], &[&parts, values].concat()), &format!("{values:?}"))
    }

    fn refusal(&self, template: &str, values: &[&str]) -> String {
        let output = self.render(template, values);
        assert!(!output.status.success(), "{values:?} is accepted");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn objects(output: Output, values: &str) -> Vec<Value> {
    assert!(output.status.success(), "{values}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let objects = text.split("\n---\n").map(|one| serde_saphyr::from_str(one).expect("YAML"));
    objects.filter(|object: &Value| object.is_object()).collect()
}

#[tokio::test]
async fn whatever_presents_disks_goes_with_whatever_presents_nics() {
    let Some(helm) = Helm::find("whatever_presents_disks_goes_with_whatever_presents_nics").await else { return };
    let disks = [("qemu", DisksBy::Qemu), ("spdk", DisksBy::Spdk), ("snap", DisksBy::Snap), ("none", DisksBy::None)];
    let nics =
        [("qemu", NicsBy::Qemu), ("static", NicsBy::Static), ("virtnet", NicsBy::Virtnet), ("none", NicsBy::None)];
    for (disks_by, of_disks) in disks {
        for (nics_by, of_nics) in nics {
            let values = [format!("agent.disksBy={disks_by}"), format!("agent.nicsBy={nics_by}")];
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if (disks_by, nics_by) == ("none", "none") {
                let refusal = helm.refusal("agent", &values);
                assert!(refusal.contains("would present nothing"), "{refusal}");
                continue;
            }
            let (text, args) = helm.agent(&values);
            assert_eq!((args.disks_by, args.nics_by), (of_disks, of_nics));
            if let Err(error) = dpu_agent::wire_up::ports(&args) {
                panic!("{values:?}: {error:#}");
            }
            assert_eq!(text.contains("name: openvswitch"), nics_by != "none", "{values:?}");
            assert_eq!(text.contains("SYS_CHROOT"), nics_by == "virtnet", "{values:?}");
            assert_eq!(text.contains("name: spdk"), ["spdk", "snap"].contains(&disks_by), "{values:?}");
        }
    }
}

#[tokio::test]
async fn each_value_of_a_bluefield_reaches_the_agent() {
    let Some(helm) = Helm::find("each_value_of_a_bluefield_reaches_the_agent").await else { return };
    let (_, args) = helm.agent(&[
        "agent.disksBy=snap",
        "agent.nicsBy=virtnet",
        "agent.spdkDirectory=/var/lib/nvidia/storage/snap/providers/nvidia",
        "agent.spdkSocket=snap.sock",
        "agent.switchPorts=15",
        "agent.virtnet.program=/opt/virtnet",
        "agent.virtnet.device=mlx5_bond_0",
        "agent.virtnet.queues=8",
        "agent.diskLimits.iops=2000",
    ]);
    let snap = "/var/lib/nvidia/storage/snap/providers/nvidia/snap.sock";
    assert_eq!((args.spdk_socket, args.switch_ports), (PathBuf::from(snap), 15));
    assert_eq!((args.virtnet, args.virtnet_root), (PathBuf::from("/opt/virtnet"), PathBuf::from("/host")));
    assert_eq!((args.virtnet_device.as_str(), args.virtnet_queues, args.disk_iops), ("mlx5_bond_0", 8, 2000));
    let (_, args) = helm.agent(&["agent.diskLimits.iops=3000"]);
    assert_eq!((args.disks_by, args.disk_iops), (DisksBy::Qemu, 3000), "with every kind of disks");
}

/// The page's own, so that it says nothing that the chart and its programs refuse.
#[tokio::test]
async fn the_documented_values_of_a_bluefield_site_are_taken() {
    let Some(helm) = Helm::find("the_documented_values_of_a_bluefield_site_are_taken").await else { return };
    let values = chart::documented("bluefield.md", "6. Install").expect("values");
    let objects = objects(helm.0.template(&values, &[]).expect("helm runs"), &values);
    let (args, pod) = program::<Args>(&objects, "metalplane-dpu-agent");
    assert_eq!((args.disks_by, args.nics_by), (DisksBy::Snap, NicsBy::Static));
    assert!(args.file_pools.is_empty() && args.kubelet_dir.is_none(), "SNAP's container sees neither");
    assert_eq!(args.run_dir, PathBuf::from("/run/metalplane"), "what the page has mounted into SNAP's container");
    if let Err(error) = dpu_agent::wire_up::ports(&args) {
        panic!("{error:#}");
    }
    let volumes = pod["volumes"].as_array().expect("volumes");
    let made_before: Vec<_> = volumes.iter().filter(|volume| volume["hostPath"]["type"] == "Directory").collect();
    assert!(made_before.is_empty(), "no folder has to be made first: {made_before:?}");
    let (args, _) = controller(&objects);
    assert_eq!(args.nvmeof_targets.len(), 1, "the pool's storage node");
    assert!(controller::wire_up::ovn(&args).expect("flags of OVN").is_some());
}

#[tokio::test]
async fn what_no_dpu_can_do_is_refused_by_name() {
    let Some(helm) = Helm::find("what_no_dpu_can_do_is_refused_by_name").await else { return };
    let cases = [
        ("agent.disksBy=vhost", "agent.disksBy: vhost"),
        ("agent.disksBy=nvme", "disksBy"),
        ("agent.nicsBy=vhost", "nicsBy"),
        ("agent.switchPorts=32", "switchPorts"),
        ("agent.runDirectory=run/metalplane", "runDirectory"),
        ("agent.virtnet.device=eth0", "device"),
        ("agent.virtnet.queue=4", "queue"),
        ("agent.spdkSocket=a/b", "spdkSocket"),
        ("agent.spdkVolumes={nvmeof}", "agent.spdkVolumes"),
    ];
    for (value, named) in cases {
        let refusal = helm.refusal("agent", &[value]);
        assert!(refusal.contains(named), "{value}: {refusal}");
    }
}

/// The values without parts, by their paths; the resources of a container are one.
fn leaves(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value.as_object().filter(|parts| !parts.is_empty() && !path.ends_with("resources")) {
        Some(parts) => {
            for (name, part) in parts {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&inner, part, found);
            }
        }
        None => drop(found.insert(path.to_owned())),
    }
}

/// Nothing is accepted and ignored.
#[tokio::test]
async fn every_value_changes_what_is_installed() {
    let Some(helm) = Helm::find("every_value_changes_what_is_installed").await else { return };
    let values: Value = serde_saphyr::from_str(&chart::file("values.yaml").expect("values")).expect("YAML");
    let mut documented = BTreeSet::new();
    leaves("", &values, &mut documented);
    let set: BTreeSet<String> = SETTINGS.iter().map(|setting| setting.path.to_owned()).collect();
    assert_eq!(documented, set, "the values of the chart, and those that are set here");
    let rendered = |within: &str, flags: &[String]| {
        let output = helm.0.template(within, flags).expect("helm runs");
        assert!(output.status.success(), "{within} {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let mut without: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for setting in SETTINGS {
        let before = without.entry(setting.within).or_insert_with(|| rendered(setting.within, &[]));
        assert!(rendered(setting.within, &[setting.flag()]) != *before, "{} changes nothing", setting.path);
    }
}

/// What a part of the values may have is all named, but where it is Kubernetes' own.
#[test]
fn an_unknown_value_is_refused_wherever_it_is() {
    const FREE: [&str; 8] = [
        "global",
        "resources",
        "nodeSelector",
        "selector",
        "claimNamespaces",
        "tolerations",
        "architectures",
        "volumeAttributesClasses",
    ];
    fn look(name: &str, schema: &Value, open: &mut Vec<String>) {
        if schema["type"] == "object" && schema["additionalProperties"] != false && !FREE.contains(&name) {
            open.push(name.to_owned());
        }
        for (name, part) in schema["properties"].as_object().into_iter().flatten() {
            look(name, part, open);
        }
        for part in [&schema["items"], &schema["additionalProperties"]].into_iter().filter(|part| part.is_object()) {
            look(&format!("{name}[]"), part, open);
        }
    }
    let schema = chart::file("values.schema.json").expect("the schema");
    let mut open = Vec::new();
    look("", &serde_json::from_str(&schema).expect("JSON"), &mut open);
    assert!(open.is_empty(), "unknown values are taken here: {open:?}");
}

#[tokio::test]
async fn a_target_of_ours_has_what_the_agent_looks_for() {
    let Some(helm) = Helm::find("a_target_of_ours_has_what_the_agent_looks_for").await else { return };
    let values = ["spdkTarget.enabled=true", "agent.disksBy=spdk", "agent.spdkDirectory=/run/target"];
    let render = |more: &[&str]| {
        let output = helm.render("spdk-target", &[&values[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let flags = |text: &str| {
        let flags = text.lines().filter_map(|line| line.trim().strip_prefix("- --")).map(|flag| format!("--{flag}"));
        let flags = flags.map(|flag| flag.replace("$(NODE_ADDRESS)", "198.51.100.7"));
        spdk_target::args::Cli::try_parse_from(["spdk-target".to_owned()].into_iter().chain(flags)).expect("its flags")
    };
    let (text, ordinary) = (render(&[]), render(&["spdkTarget.hugePages=", "spdkTarget.metricsPort=9766"]));
    let (_, agent) = helm.agent(&values);
    for (cli, no_huge) in [(flags(&text), false), (flags(&ordinary), true)] {
        assert_eq!(cli.spdk.rpc_socket.as_deref(), Some(agent.spdk_socket.as_path()));
        assert_eq!(cli.spdk.vhost_folder.as_deref(), agent.spdk_socket.parent(), "an import makes its socket there");
        assert_eq!((cli.spdk.no_huge, cli.spdk.mem_size, cli.spdk.no_pci), (no_huge, Some(1024), true));
    }
    assert!(text.contains("hugepages-2Mi: 1024Mi") && text.contains("HugePages-2Mi") && !ordinary.contains("uge-dir"));
    assert!(text.contains("type: OnDelete"), "a new image does not take the disks from hosts that run");
    for folder in
        ["/run/target", "/run/metalplane", "/run/metalplane-host", "/var/lib/metalplane-pool", "/var/lib/kubelet"]
    {
        assert!(text.contains(&format!("mountPath: {folder}")), "{folder}, as the agent sees it");
    }
    for (value, named) in [
        ("agent.disksBy=qemu", "agent.disksBy: qemu"),
        ("spdkTarget.cores=2", "cores"),
        ("spdkTarget.hugePages=4Mi", "hugePages"),
    ] {
        let refusal = helm.refusal("spdk-target", &[&values[..], &[value]].concat());
        assert!(refusal.contains(named), "{value}: {refusal}");
    }
    let little =
        helm.refusal("spdk-target", &[&values[..], &["spdkTarget.hugePages=", "spdkTarget.memoryMiB=512"]].concat());
    assert!(little.contains("spdkTarget.memoryMiB"), "{little}");
    for (pages, memory) in [("2Mi", "1025"), ("1Gi", "1536")] {
        let more = [format!("spdkTarget.hugePages={pages}"), format!("spdkTarget.memoryMiB={memory}")];
        let refusal = helm.refusal("spdk-target", &[&values[..], &more.each_ref().map(String::as_str)].concat());
        assert!(refusal.contains("whole huge pages"), "{refusal}");
    }
    // The agent may run outside of the cluster; the target's pod is none of it.
    assert!(render(&["agent.enabled=false"]).contains("kind: DaemonSet"));
}

/// What the agent makes there is told to the target by its path.
#[tokio::test]
async fn the_folder_of_a_dpus_agent_has_one_path_for_agent_and_target() {
    let Some(helm) = Helm::find("the_folder_of_a_dpus_agent_has_one_path_for_agent_and_target").await else { return };
    let folder = "/run/elsewhere";
    let objects = helm.whole(&["agent.runDirectory=/run/elsewhere"]);
    let (args, _) = program::<Args>(&objects, "metalplane-dpu-agent");
    assert_eq!(args.run_dir, PathBuf::from(folder));
    let pods = pods(&objects);
    for workload in ["metalplane-dpu-agent", "metalplane-spdk-target"] {
        let (_, pod) = pods.iter().find(|(name, _)| *name == workload).expect(workload);
        let volumes = pod["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|volume| volume["hostPath"]["path"] == folder).expect("the folder");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).expect("mounted");
        assert_eq!(mount["mountPath"], folder);
        assert!(volumes.iter().all(|volume| volume["hostPath"]["path"] != "/run/metalplane"), "{volumes:?}");
    }
}

const THREE: &str = "ovn.northBound=ssl:192.0.2.1:6641\\,ssl:[2001:db8::2]:6641\\,ssl:ovn-nb.example:6641";

#[tokio::test]
async fn the_way_to_ovn_reaches_the_controller() {
    let Some(helm) = Helm::find("the_way_to_ovn_reaches_the_controller").await else { return };
    let controller = |values: &[&str]| {
        let (text, args) = helm.program::<controller::args::Args>("controller", values);
        // A runtime is there: what is opened connects in the background.
        let ovn = controller::wire_up::ovn(&args).unwrap_or_else(|error| panic!("{values:?}: {error:#}"));
        (text, args, ovn)
    };
    let (text, args, ovn) = controller(&[]);
    assert!(args.ovn_nb.is_none() && ovn.is_none() && !text.contains("name: ovn") && !text.contains("fsGroup"));
    let (_, args, ovn) = controller(&["ovn.northBound=tcp:192.0.2.1:6641"]);
    assert!(args.ovn_certificate.is_none() && ovn.is_some_and(|ovn| ovn.south_bound.is_none()));

    let tls = [THREE, "ovn.southBound=ssl:192.0.2.1:6643", "ovn.tls.secretName=ovn-client"];
    let (text, args, ovn) = controller(&tls);
    assert!(ovn.is_some_and(|ovn| ovn.south_bound.is_some()));
    let addresses = "ssl:192.0.2.1:6641,ssl:[2001:db8::2]:6641,ssl:ovn-nb.example:6641";
    assert_eq!(args.ovn_nb.map(|addresses| addresses.to_string()).as_deref(), Some(addresses));
    let files = [args.ovn_certificate, args.ovn_private_key, args.ovn_ca_cert];
    let mounted = ["tls.crt", "tls.key", "ca.crt"].map(|key| Some(PathBuf::from(format!("/etc/metalplane/ovn/{key}"))));
    assert_eq!((files, args.ovn_server_name), (mounted, None));
    for part in ["secretName: ovn-client", "mountPath: /etc/metalplane/ovn", "fsGroup: 65532"] {
        assert!(text.contains(part), "{part}");
    }
    let keys = "ovn.tls.keys.certificate=cert,ovn.tls.keys.privateKey=key,ovn.tls.keys.authority=cacert";
    let (text, args, _) = controller(&[&tls[..], &["ovn.tls.serverName=HOST", keys, "filePool.fence=true"]].concat());
    assert_eq!(args.ovn_server_name, Some(ovsdb::Named::Host));
    assert_eq!(args.ovn_private_key, Some(PathBuf::from("/etc/metalplane/ovn/key")));
    assert!(!text.contains("fsGroup") && text.contains("name: pool"), "root reads it without a group");
}

#[tokio::test]
async fn what_is_no_way_to_ovn_is_refused_by_name() {
    let Some(helm) = Helm::find("what_is_no_way_to_ovn_is_refused_by_name").await else { return };
    let cases: [(&[&str], &str); 9] = [
        (&[THREE], "ovn.tls.secretName"),
        (&["ovn.northBound=tcp:192.0.2.1:6641", "ovn.tls.secretName=a"], "ovn.tls.secretName"),
        (&["ovn.northBound=tcp:192.0.2.1:6641", "ovn.tls.serverName=a"], "ovn.tls.serverName"),
        (&["ovn.southBound=tcp:192.0.2.1:6642"], "ovn.southBound"),
        (&["ovn.northBound=ssl:192.0.2.1"], "northBound"),
        (&["ovn.northBound=ssl:2001:db8::2:6641"], "northBound"),
        (&["ovn.northBound=pssl:192.0.2.1:6641"], "northBound"),
        (&["ovn.northBound=ssl:192.0.2.1:6641\\,"], "northBound"),
        (&["ovn.tls.secret=a"], "secret"),
    ];
    for (values, named) in cases {
        let refusal = helm.refusal("controller", values);
        assert!(refusal.contains(named), "{values:?}: {refusal}");
    }
}

/// The pod templates of these objects, by the name of their workload.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    let named = objects.iter().filter(|object| object["spec"]["template"]["spec"]["containers"].is_array());
    named
        .map(|object| (object["metadata"]["name"].as_str().unwrap_or_default(), &object["spec"]["template"]["spec"]))
        .collect()
}

fn images(pod: &Value) -> Vec<&str> {
    let containers = ["containers", "initContainers"].into_iter().filter_map(|kind| pod[kind].as_array()).flatten();
    containers.map(|container| container["image"].as_str().expect("an image")).collect()
}

/// The flags of the first container of this workload, as its program understands them, and the pod.
fn program<A: Parser>(objects: &[Value], workload: &str) -> (A, Value) {
    let pods = pods(objects);
    let (_, pod) = pods.iter().find(|(name, _)| *name == workload).expect(workload);
    let flags =
        pod["containers"][0]["args"].as_array().expect("flags").iter().map(|flag| flag.as_str().expect("a flag"));
    let args = A::try_parse_from(std::iter::once(workload).chain(flags));
    (args.unwrap_or_else(|error| panic!("{error}")), (*pod).clone())
}

fn controller(objects: &[Value]) -> (controller::args::Args, Value) {
    program(objects, "metalplane-controller")
}

#[tokio::test]
async fn every_image_comes_from_the_registry_that_is_named_and_every_pod_logs_in_to_it() {
    let test = "every_image_comes_from_the_registry_that_is_named_and_every_pod_logs_in_to_it";
    let Some(helm) = Helm::find(test).await else { return };
    let plain = helm.whole(&["images.boot=docker.io/library/x:1", "images.attacher=plain:2"]);
    let moved = helm.whole(&[
        "images.boot=docker.io/library/x:1",
        "images.attacher=plain:2",
        "images.registry=r.example:5000/metal/",
        "images.pullSecrets={one,two}",
    ]);
    let (before, after) = (pods(&plain), pods(&moved));
    assert_eq!(
        before.len(),
        11,
        "workloads of the chart: {:?}",
        before.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        assert!(before["imagePullSecrets"].is_null(), "{name}");
        assert_eq!(after["imagePullSecrets"], serde_json::json!([{"name": "one"}, {"name": "two"}]), "{name}");
        for (from, to) in images(before).into_iter().zip(images(after)) {
            let path = from.trim_start_matches("metalplane.io/").trim_start_matches("docker.io/");
            assert_eq!(to, format!("r.example:5000/metal/{path}"), "{name}");
        }
    }
    let (args, _) = controller(&moved);
    assert_eq!(args.holder_pull_secrets, ["one", "two"]);
    assert_eq!(args.holder_image, "r.example:5000/metal/pause:0.1.0");
    let policies = moved.iter().map(Value::to_string).filter(|text| text.contains("metalplane-controller-pods"));
    assert!(policies.into_iter().any(|text| text.contains(&format!("image == '{}'", args.holder_image))));
    for (value, named) in [("images.registry=https://r.example", "registry"), ("images.pullSecrets=one", "pullSecrets")]
    {
        assert!(helm.refusal("controller", &[value]).contains(named), "{value}");
    }
}

#[tokio::test]
async fn the_bmcs_authorities_reach_the_controller_as_a_folder_that_is_renewed() {
    let test = "the_bmcs_authorities_reach_the_controller_as_a_folder_that_is_renewed";
    let Some(helm) = Helm::find(test).await else { return };
    assert_eq!(controller(&helm.whole(&[])).0.bmc_ca_file, None);
    let (args, pod) = controller(&helm.whole(&["bmc.caBundle.configMap=trusted", "bmc.caBundle.key=bmcs.pem"]));
    let file = args.bmc_ca_file.expect("a file");
    let mount = &pod["containers"][0]["volumeMounts"][0];
    assert_eq!(file.parent(), mount["mountPath"].as_str().map(std::path::Path::new));
    assert!(mount["subPath"].is_null(), "kubelet renews no file that is mounted alone");
    let map = serde_json::json!({"name": "trusted", "items": [{"key": "bmcs.pem", "path": "ca.crt"}]});
    assert_eq!(pod["volumes"][0]["configMap"], map);
    assert!(helm.refusal("controller", &["bmc.caBundel=x"]).contains("caBundel"));
}

#[tokio::test]
async fn servers_are_discovered_where_that_is_asked_for() {
    let Some(helm) = Helm::find("servers_are_discovered_where_that_is_asked_for").await else { return };
    let may_create = |objects: &[Value]| {
        let rules =
            objects.iter().filter(|object| object["kind"] == "Role").filter_map(|role| role["rules"].as_array());
        let named = |rule: &&Value, field: &str, what: &str| {
            rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == what))
        };
        let mut of_hardware = rules.flatten().filter(|rule| named(rule, "resources", "hardware"));
        of_hardware.any(|rule| named(&rule, "verbs", "create"))
    };
    let without = helm.whole(&[]);
    assert!(!controller(&without).0.discover && !may_create(&without));
    let pool = ["boot.dhcpPools[0].range=10.88.0.200-10.88.0.239", "boot.dhcpPools[0].prefix=24"];
    let with = helm.whole(&[&pool[..], &["boot.dhcpPools[0].gateway=10.88.0.1", "boot.discovery=true"]].concat());
    assert!(controller(&with).0.discover && may_create(&with));
    let boot = pods(&with).into_iter().find(|(name, _)| *name == "metalplane-boot").expect("boot").1.clone();
    let flags = boot["containers"][0]["args"].to_string();
    assert!(flags.contains("--dhcp-pool=10.88.0.200-10.88.0.239/24@10.88.0.1"), "{flags}");
    assert!(helm.refusal("boot", &["boot.enabled=true", "boot.dhcpPools[0].range=x", pool[1]]).contains("range"));
}
