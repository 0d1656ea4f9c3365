use super::{AGENT, hardware, workflow};
use crate::workflow::references::References;
use crate::workflow::render::{render, text_of};
use crate::workflow::{MAX_RENDERED, data};

fn text(template: &str) -> Result<String, String> {
    text_of(template, &data::of(&workflow("w"), Some(&hardware()), &References::default()))
}

/// What Go's text/template and sprig make of the same.
#[test]
fn as_go_renders_it() {
    for (template, rendered) in [
        ("{{.device_1}}", AGENT),
        ("{{ index .Hardware.Disks 0 }}", "/dev/nvme0n1"),
        ("{{ formatPartition ( index .Hardware.Disks 0 ) 1 }}", "/dev/nvme0n1p1"),
        ("{{ formatPartition \"/dev/sda\" 2 }}", "/dev/sda2"),
        ("{{ formatPartition \"/dev/disk/by-id/x\" 2 }}", "/dev/disk/by-id/x-part2"),
        ("{{ (index .Hardware.Interfaces 0).DHCP.MAC }}", AGENT),
        ("{{ (index .hardware.spec.interfaces 0).dhcp.ip.address }}", "10.0.0.2"),
        ("{{ netmaskToPrefixLength (index .Hardware.Interfaces 0).DHCP.IP.Netmask }}", "24"),
        ("{{ range $i, $d := .hardware.spec.disks }}{{ $i }}={{ $d.device }}{{ end }}", "0=/dev/nvme0n1"),
        ("{{ with .Hardware.UserData }}{{ . }}{{ else }}none{{ end }}", "none"),
        ("{{ .Hardware.UserData }}", ""),
        ("{{ .Hardware.Metadata.State }}{{ .Hardware.Metadata.BondingMode }}", "active0"),
        ("{{ .Hardware.Metadata.Instance.OperatingSystem.OsSlug }}", "debian_12"),
        ("{{ .Hardware.Metadata.Instance.Hostname }}{{ .Hardware.Metadata.Instance.AllowPxe }}", "false"),
        ("{{ range .Hardware.Metadata.Instance.Ips }}{{ .Address }}/{{ .Family }}{{ end }}", "10.0.0.2/0"),
        ("{{ len .Hardware.Metadata.Instance.SSHKeys }}", "0"),
        ("{{ with .Hardware.Metadata.Facility }}{{ .PlanSlug }}{{ else }}none{{ end }}", "none"),
        ("{{ printf \"%s-%d\" \"a\" 3 | quote }}", "\"a-3\""),
        ("{{ \"\" | default \"d\" }}", "d"),
        ("{{ index (splitList \",\" \"a,b\") 1 | upper | b64enc }}", "Qg=="),
        ("{{ \"a\\nb\" | nindent 2 }}", "\n  a\n  b"),
        ("{{ list 1 2 | toJson }}", "[1,2]"),
        ("{{ (fromYaml \"a: {b: 1}\").a.b }}", "1"),
        ("{{ add 1 2 3 }}", "6"),
    ] {
        assert_eq!(text(template).as_deref(), Ok(rendered), "{template}");
    }
}

#[test]
fn what_is_missing_or_not_served_is_named() {
    for (template, said) in [
        ("{{ .device_2 }}", "device_2"),
        ("{{ .references.lvm }}", "lvm"),
        ("{{ now }}", "now"),
        ("{{ env \"HOME\" }}", "env"),
        ("{{ uuidv4 }}", "uuidv4"),
        ("{{ if false }}{{ ago 1 }}{{ end }}", "there is no function 'ago'"),
        ("{{ if false }}{{ $absent }}{{ end }}", "there is no variable '$absent'"),
        ("a{{ end }}b", "a block is not ended"),
        ("{{ if true }}a", "a block is not ended"),
        ("a{{ break }}", "are for a range"),
        ("{{ .device_1", "unclosed"),
        ("{{ fail \"because\" }}", "because"),
    ] {
        let error = text(template).expect_err(template);
        assert!(error.contains(said), "{template}: {error}");
    }
}

#[test]
fn a_text_ends_at_256_kib() {
    let most = "a".repeat(MAX_RENDERED);
    assert_eq!(text(&most).as_deref().map(str::len), Ok(MAX_RENDERED));
    let error = text(&format!("{most}a")).expect_err("one more");
    assert!(error.contains("256 KiB"), "{error}");
    let error = text("{{ range $i, $c := splitList \"\" (printf \"%60000s\" \"x\") }}{{ $i }}{{ $i }}{{ end }}");
    assert!(error.expect_err("too long").contains("256 KiB"));
}

const TASKS: &str = "
version: \"0.1\"
name: debian
global_timeout: 600
unknown: ignored
tasks:
- name: os
  worker: {{.device_1}}
  volumes: [/dev:/dev]
  environment: {A: task, B: task}
  actions:
  - name: image
    image: quay.io/tinkerbell/actions/image2disk:latest
    timeout: 90
    environment: {MODE: 0600, COMPRESSED: true, UID: 0, NOTHING: ~, B: 1.50, T: 1e3}
    command: [sh, -c, 007]
  - name: kexec
    image: ghcr.io/a/kexec@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    namespaces: {pid: host}
";

#[test]
fn scalars_stay_as_they_were_written() {
    let rendered = render(TASKS, &workflow("w"), Some(&hardware())).expect("rendered");
    assert_eq!(rendered.global_timeout, 600);
    let task = &rendered.tasks[0];
    assert_eq!(task.agent_id, AGENT);
    let action = &task.actions[0];
    let of = |key: &str| action.environment[key].as_str();
    assert_eq!(
        [of("MODE"), of("COMPRESSED"), of("UID"), of("NOTHING"), of("B"), of("T")],
        ["0600", "true", "0", "", "1.50", "1e3"]
    );
    assert_eq!(action.command, ["sh", "-c", "007"]);
    assert_eq!((action.timeout, task.actions[1].timeout), (Some(90), None));
    let again = render(TASKS, &workflow("w"), Some(&hardware())).expect("rendered");
    assert_eq!(again, rendered, "identifiers too");
    assert_ne!(render(TASKS, &workflow("v"), Some(&hardware())).expect("rendered").tasks[0].id, task.id);
}

#[test]
fn a_bad_document_is_refused_by_its_field() {
    for (from, to, said) in [
        ("name: debian", "name: ''", "name: write"),
        ("worker: {{.device_1}}", "worker: ''", "tasks[0].worker"),
        ("- name: kexec", "- name: image", "tasks[0].actions[1].name: 'image' is used twice"),
        ("image2disk:latest", "image2disk@latest", "tasks[0].actions[0].image"),
        ("quay.io/tinkerbell", "Quay/Tinkerbell", "tasks[0].actions[0].image"),
        ("timeout: 90", "timeout: -1", "tasks[0].actions[0].timeout"),
        ("tasks:", "others:", "tasks: there are none"),
        ("tasks:", "tasks: [", "the rendered text is no template"),
    ] {
        let error = render(&TASKS.replace(from, to), &workflow("w"), Some(&hardware())).expect_err(to);
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn names_of_images() {
    let with = |image: &str| {
        let text = format!("name: a\ntasks: [{{name: a, worker: b, actions: [{{name: a, image: '{image}'}}]}}]");
        render(&text, &workflow("w"), None).is_ok()
    };
    for image in ["image2disk", "image2disk:v1.0.0", "127.0.0.1:5000/a/b:c", "quay.io/tinkerbell-actions/a_b.c"] {
        assert!(with(image), "{image}");
    }
    for image in ["", "A", "a:", "a//b", "-a", "a b", "a@sha256:xyz", "http://a/b"] {
        assert!(!with(image), "{image}");
    }
}
