//! What a template reads: each key of `hardwareMap`, `.hardware` by its JSON names, and the older `.Hardware` by the names
//! of Go's fields; and `.references`, of which only what is given is there: a template that reads another one is not rendered.

use super::metadata;
use super::references::References;
use super::values::{fields, map, string, value};
use api::tinkerbell::Hardware;
use api::tinkerbell::hardware::Interface;
use api::tinkerbell::workflow::Workflow;
use gotmpl::Value;

pub(super) fn of(
    workflow: &Workflow,
    hardware: Option<&Hardware>,
    references: &References<serde_json::Value>,
) -> Value {
    let mut top: Vec<_> = workflow.spec.hardware_map.iter().map(|(key, text)| (key.clone(), string(text))).collect();
    // As upstream, what follows comes before a parameter of that name.
    let given = references.given().map(|(name, object)| (name.clone(), value(object)));
    top.push(("references".to_owned(), map(given)));
    if let Some(hardware) = hardware {
        let json = serde_json::to_value(hardware).unwrap_or_default();
        top.push(("hardware".to_owned(), value(&json)));
        top.push(("Hardware".to_owned(), by_go_names(hardware)));
    }
    map(top)
}

/// Go's zero value of a field that is not set.
fn text(text: Option<&String>) -> Value {
    string(text.map(String::as_str).unwrap_or_default())
}

fn texts(list: &[String]) -> Value {
    Value::List(list.iter().map(|text| string(text)).collect())
}

fn by_go_names(hardware: &Hardware) -> Value {
    let spec = &hardware.spec;
    let disks = spec.disks.iter().map(|disk| text(disk.device.as_ref())).collect();
    let metadata = serde_json::to_value(&spec.metadata).unwrap_or_default();
    fields([
        ("Disks", Value::List(disks)),
        ("Interfaces", Value::List(spec.interfaces.iter().map(interface).collect())),
        ("Metadata", metadata::by_go_names(&metadata)),
        ("UserData", text(spec.user_data.as_ref())),
        ("VendorData", text(spec.vendor_data.as_ref())),
    ])
}

fn interface(interface: &Interface) -> Value {
    let dhcp = interface.dhcp.clone().unwrap_or_default();
    let ip = dhcp.ip.clone().unwrap_or_default();
    let routes = dhcp.classless_static_routes.iter().map(|route| {
        fields([("DestinationDescriptor", string(&route.destination_descriptor)), ("Router", string(&route.router))])
    });
    let netboot = interface.netboot.clone().unwrap_or_default();
    let osie = netboot.osie.unwrap_or_default();
    let ipxe = netboot.ipxe.unwrap_or_default();
    fields([
        (
            "DHCP",
            fields([
                ("MAC", text(dhcp.mac.as_ref())),
                ("Hostname", text(dhcp.hostname.as_ref())),
                ("DomainName", text(dhcp.domain_name.as_ref())),
                ("LeaseTime", Value::Int(dhcp.lease_time.unwrap_or_default())),
                ("NameServers", texts(&dhcp.name_servers)),
                ("TimeServers", texts(&dhcp.time_servers)),
                ("Arch", text(dhcp.arch.as_ref())),
                ("UEFI", Value::Bool(dhcp.uefi.unwrap_or_default())),
                ("IfaceName", text(dhcp.iface_name.as_ref())),
                (
                    "IP",
                    fields([
                        ("Address", text(ip.address.as_ref())),
                        ("Netmask", text(ip.netmask.as_ref())),
                        ("Gateway", text(ip.gateway.as_ref())),
                        ("Family", Value::Int(ip.family.unwrap_or_default())),
                    ]),
                ),
                ("VLANID", text(dhcp.vlan_id.as_ref())),
                ("ClasslessStaticRoutes", Value::List(routes.collect())),
                ("TFTPServerName", text(dhcp.tftp_server_name.as_ref())),
                ("BootFileName", text(dhcp.boot_file_name.as_ref())),
            ]),
        ),
        ("DisableDHCP", Value::Bool(interface.disable_dhcp.unwrap_or_default())),
        (
            "Netboot",
            fields([
                ("AllowPXE", Value::Bool(netboot.allow_pxe.unwrap_or_default())),
                ("AllowWorkflow", Value::Bool(netboot.allow_workflow.unwrap_or_default())),
                (
                    "IPXE",
                    fields([
                        ("URL", text(ipxe.url.as_ref())),
                        ("Contents", text(ipxe.contents.as_ref())),
                        ("Binary", text(ipxe.binary.as_ref())),
                    ]),
                ),
                (
                    "OSIE",
                    fields([
                        ("BaseURL", text(osie.base_url.as_ref())),
                        ("Kernel", text(osie.kernel.as_ref())),
                        ("Initrd", text(osie.initrd.as_ref())),
                        ("KernelParams", texts(&osie.kernel_params)),
                    ]),
                ),
            ]),
        ),
    ])
}
