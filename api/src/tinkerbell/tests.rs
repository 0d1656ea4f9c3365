//! Manifests as Tinkerbell's users write them are read and written back without a loss.

use super::{Hardware, Machine, Template, Workflow};
use serde_json::{Value, json};

fn kept<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) {
    let read: T = serde_json::from_value(object.clone()).expect("readable");
    assert_eq!(&serde_json::to_value(read).expect("writable"), object);
}

#[test]
fn hardware_keeps_every_field() {
    kept::<Hardware>(&json!({
        "apiVersion": "tinkerbell.org/v1alpha1",
        "kind": "Hardware",
        "metadata": {"name": "rack1-u07", "namespace": "inventory"},
        "spec": {
            "agentID": "02:00:00:00:00:01",
            "auto": {"enrollmentEnabled": true},
            "bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": "rack1-u07"},
            "tinkVersion": 0,
            "disks": [{"device": "/dev/nvme0n1"}],
            "resources": {"cpu": "64", "memory": "512Gi"},
            "userData": "#cloud-config\n",
            "vendorData": "",
            "references": {"lvm": {"namespace": "a", "name": "b", "group": "c.org", "version": "v1", "resource": "ds"}},
            "interfaces": [{
                "disableDhcp": false,
                "isoboot": {"sourceISO": "http://images/hook.iso"},
                "netboot": {
                    "allowPXE": true,
                    "allowWorkflow": false,
                    "ipxe": {"url": "http://x/auto.ipxe", "contents": "#!ipxe", "binary": "ipxe.efi"},
                    "osie": {"baseURL": "http://x", "kernel": "k", "initrd": "i", "kernelParams": ["a=b"]},
                    "pxelinux": {"config": "default x"},
                    "rpi": {"configTxt": "x", "firmwarePath": "y", "serialNum": "z"},
                },
                "dhcp": {
                    "mac": "02:00:00:00:00:01", "hostname": "h", "domain_name": "d", "lease_time": 86400,
                    "name_servers": ["1.1.1.1"], "time_servers": ["2.2.2.2"], "arch": "x86_64", "uefi": true,
                    "iface_name": "eth0", "vlan_id": "12", "tftp_server_name": "t", "boot_file_name": "b",
                    "ip": {"address": "10.0.0.2", "netmask": "255.0.0.0", "gateway": "10.0.0.1", "family": 4},
                    "classless_static_routes": [{"destination_descriptor": "10.1.0.0/16", "router": "10.0.0.1"}],
                },
            }],
            "metadata": {
                "bonding_mode": 4,
                "instance": {
                    "id": "i", "allow_pxe": false, "tags": ["a"], "ips": [{"address": "10.0.0.2", "public": false}],
                    "operating_system": {"slug": "debian_12"},
                    "storage": {"disks": [{"device": "/dev/sda", "partitions": [{"number": 1, "size": 4096}]}]},
                },
            },
        },
        "status": {"state": "Ready"},
    }));
}

#[test]
fn machine_keeps_every_field() {
    kept::<Machine>(&json!({
        "apiVersion": "bmc.tinkerbell.org/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": "rack1-u07"},
        "spec": {"connection": {
            "host": "10.77.0.101",
            "port": 623,
            "authSecretRef": {"name": "rack1-u07-bmc", "namespace": "inventory"},
            "insecureTLS": true,
            "providerOptions": {
                "preferredOrder": ["gofish"],
                "redfish": {"port": 443, "useBasicAuth": true, "systemName": "1"},
                "intelAMT": {"port": 16992, "hostScheme": "http"},
                "ipmitool": {"port": 623, "cipherSuite": "17"},
                "homeassistant": {"switchEntityID": "switch.a", "powerOperationDelaySeconds": 5},
                "rpc": {"consumerURL": "http://x", "hmac": {"secrets": {"sha256": [{"name": "k"}]}}},
            },
        }},
        "status": {
            "powerState": "off",
            "conditions": [{"type": "Contactable", "status": "True", "lastUpdateTime": "2026-11-21T08:00:00Z"}],
        },
    }));
}

#[test]
fn an_object_without_a_spec_is_readable() {
    let hardware: Hardware = serde_json::from_value(json!({"metadata": {"name": "bare"}})).expect("readable");
    assert!(hardware.spec.bmc_ref.is_none() && hardware.status.is_none());
    let machine: Machine = serde_json::from_value(json!({"metadata": {"name": "bare"}})).expect("readable");
    assert_eq!(machine.spec.connection.host, "");
}

#[test]
fn a_quantity_may_be_a_number() {
    let hardware: Hardware =
        serde_json::from_value(json!({"spec": {"resources": {"memory": 8_589_934_592_i64}}})).expect("readable");
    assert_eq!(hardware.spec.resources["memory"].0, "8589934592");
}

#[test]
fn workflow_keeps_every_field() {
    kept::<Workflow>(&json!({
        "apiVersion": "tinkerbell.org/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "install"},
        "spec": {
            "disabled": false, "templateRef": "debian", "hardwareRef": "rack1-u07", "hardwareMap": {"device_1": "a"},
            "bootOptions": {
                "toggleAllowNetboot": true, "isoURL": "http://images/hook.iso", "bootMode": "customboot",
                "custombootConfig": {
                    "preparingActions": [
                        {"powerAction": "off"},
                        {"oneTimeBootDeviceAction": {"device": ["pxe"], "efiBoot": true}},
                        {"bootDevice": {"device": "pxe", "persistent": false, "efiBoot": true}},
                    ],
                    "postActions": [{"virtualMediaAction": {"mediaURL": "", "kind": "CD"}}],
                },
            },
        },
        "status": {
            "agentID": "a", "state": "RUNNING", "templateRendering": "successful", "globalTimeout": 600,
            "globalExecutionStop": "2026-11-24T10:00:00Z",
            "bootOptions": {
                "allowNetboot": {"toggledTrue": true, "toggledFalse": false},
                "jobs": {"netboot-install": {"uid": "u", "complete": true, "existingJobDeleted": true}},
            },
            "currentState": {
                "agentID": "a", "taskID": "t", "actionID": "i", "state": "RUNNING", "actionName": "n", "taskName": "m",
            },
            "tasks": [{
                "id": "t", "name": "m", "agentID": "a", "volumes": ["/dev:/dev"], "environment": {"A": "1"},
                "actions": [{
                    "id": "i", "name": "n", "image": "image2disk", "timeout": 90, "command": ["c"], "volumes": ["/l:/l"],
                    "pid": "host", "namespaces": {"network": "host", "pid": "host"}, "environment": {"B": ""},
                    "state": "SUCCESS", "executionStart": "2026-11-24T10:00:00Z", "executionStop": "2026-11-24T10:00:01Z",
                    "executionDuration": "1s", "message": "done",
                }],
            }],
            "conditions": [{
                "type": "TemplateRenderedSuccess", "status": "True", "reason": "Complete", "message": "m",
                "time": "2026-11-24T10:00:00Z",
            }],
        },
    }));
    kept::<Template>(&json!({
        "apiVersion": "tinkerbell.org/v1alpha1",
        "kind": "Template",
        "metadata": {"name": "debian"},
        "spec": {"data": "version: '0.1'"},
        "status": {"state": "Ready"},
    }));
}
