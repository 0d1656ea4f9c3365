//! Templates in the forms that Tinkerbell's own examples have, written anew.

use super::{Go, question};
use serde_json::{Value, json};

fn data() -> Value {
    json!({
        "device_1": "52:54:00:00:00:01",
        "arch": "amd64",
        "hardware": {
            "metadata": {"name": "s1", "labels": {"rack": "r7"}},
            "spec": {
                "disks": [{"device": "/dev/nvme0n1"}, {"device": "/dev/sda"}],
                "interfaces": [{"dhcp": {
                    "mac": "52:54:00:00:00:01", "hostname": "s1", "lease_time": 86400, "uefi": true,
                    "name_servers": ["192.0.2.53", "192.0.2.54"],
                    "ip": {"address": "10.0.0.2", "netmask": "255.255.255.0", "gateway": "10.0.0.1"},
                }, "netboot": {"allowPXE": true}}],
                "metadata": {"instance": {"userdata": "#cloud-config\nusers:\n- name: a\n", "tags": []}},
            },
        },
        "Hardware": {
            "Disks": ["/dev/nvme0n1", "/dev/sda"],
            "Interfaces": [{"DHCP": {"MAC": "52:54:00:00:00:01", "IP": {"Address": "10.0.0.2"}}}],
            "UserData": "", "Metadata": {"State": "active", "Instance": {"Hostname": "s1"}},
        },
        "references": {"net": {"spec": {"domain": "example.org", "mtu": 1500}}},
    })
}

const EXAMPLES: &[&str] = &[
    // An image by the first disk.
    r#"version: "0.1"
name: debian
global_timeout: 1800
tasks:
  - name: "os"
    worker: "{{.device_1}}"
    volumes:
      - /dev:/dev
    actions:
      - name: "stream image"
        image: quay.io/tinkerbell/actions/image2disk:latest
        timeout: 9600
        environment:
          DEST_DISK: {{ index .Hardware.Disks 0 }}
          IMG_URL: "http://192.0.2.1:8080/debian-{{ .arch }}.raw.gz"
          MODE: 0600
          COMPRESSED: true
"#,
    // Files of a network, by range.
    r#"{{- $nic := index .hardware.spec.interfaces 0 }}
network:
  version: 2
  ethernets:
    id0:
      match: {macaddress: {{ $nic.dhcp.mac }}}
      addresses: [{{ $nic.dhcp.ip.address }}/24]
      nameservers:
        addresses:
        {{- range $i, $server := $nic.dhcp.name_servers }}
          - {{ $server }} # {{ add1 $i }}
        {{- else }} []
        {{- end }}
      {{- with $nic.dhcp.ip.gateway }}
      routes: [{to: default, via: {{ . }}}]
      {{- end }}
      mtu: {{ .references.net.spec.mtu }}
"#,
    // A choice by what the server is.
    r#"{{ if and $.hardware (eq .arch "amd64") }}kernel: vmlinuz-x86_64{{ else if eq .arch "arm64" }}kernel: vmlinuz-aarch64{{ else }}{{ fail "no kernel" }}{{ end }}
{{- if not .hardware.spec.metadata.instance.tags }}
tags: none
{{- end }}
{{ range $key, $value := .hardware.metadata.labels }}{{ $key }}={{ $value | quote }} {{ end }}
"#,
    // A named template, a block, comments and a literal brace.
    r#"{{- /* what every disk gets */ -}}
{{- define "disk" }}wipe {{ .device }}{{ end -}}
{{ range .hardware.spec.disks }}{{ template "disk" . }};{{ end }}
{{ block "end" .arch }}[{{ . }}]{{ end }} {{ "{{" }} {{ `raw "text"` }} {{ 'a' }}
"#,
    // User data within YAML.
    r#"contents: |
{{ .hardware.spec.metadata.instance.userdata | indent 2 }}
domain: {{ printf "%s.%s" .hardware.metadata.name .references.net.spec.domain | upper | squote }}
encoded: {{ .hardware.spec.metadata.instance.userdata | b64enc }}
mac: {{ .device_1 | replace ":" "-" }}
json: {{ .hardware.spec.interfaces | toJson }}
"#,
    // What is missing, in each place.
    "{{ .device_2 }}",
    "{{ .hardware.spec.absent }}",
    "{{ .references.lvm.spec }}",
    "{{ index .hardware.spec.disks 7 }}",
    "{{ index .hardware.spec \"absent\" }}",
    "{{ template \"absent\" . }}",
    "{{ $undeclared }}",
    "{{ .Hardware.Interfaces.DHCP }}",
];

#[test]
fn templates_of_upstreams_forms() {
    let Some(go) = Go::find("templates_of_upstreams_forms") else { return };
    let questions: Vec<_> = EXAMPLES.iter().map(|text| question(*text, &data())).collect();
    assert_eq!(go.compare("examples", &questions), (6, 7));
}
