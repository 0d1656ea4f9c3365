//! The resources that only tell: everything but the system itself.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::auth::{SESSIONS, session_resource};
use super::system::{BOOT_OPTIONS, JOB, PATH as SYSTEM, boot_option, option_id};
use super::{Bmc, Of};
use crate::server::personality::Owner;
use crate::server::system_uuid;

const ROOT: &str = "/redfish/v1";
pub const MANAGER: &str = "/redfish/v1/Managers/1";
pub const METADATA: &str = "/redfish/v1/$metadata";
pub const VERSION: &str = "1.17.0";

/// Schemas whose namespaces `$metadata` names: collections and resources without version, then the versions in use.
const SCHEMAS: [(&str, &[&str]); 19] = [
    ("ServiceRoot", &["ServiceRoot.v1_16_0"]),
    ("ComputerSystemCollection", &[]),
    ("ComputerSystem", &["ComputerSystem.v1_20_0"]),
    ("BootOptionCollection", &[]),
    ("BootOption", &["BootOption.v1_0_4"]),
    ("VirtualMediaCollection", &[]),
    ("VirtualMedia", &["VirtualMedia.v1_6_5"]),
    ("ManagerCollection", &[]),
    ("Manager", &["Manager.v1_18_0"]),
    ("ChassisCollection", &[]),
    ("Chassis", &["Chassis.v1_23_0"]),
    ("SessionService", &["SessionService.v1_1_9"]),
    ("SessionCollection", &[]),
    ("Session", &["Session.v1_3_0"]),
    ("AccountService", &["AccountService.v1_13_0"]),
    ("ManagerAccountCollection", &[]),
    ("ManagerAccount", &["ManagerAccount.v1_11_0"]),
    ("RoleCollection", &[]),
    ("Role", &["Role.v1_3_1"]),
];

/// The roles that every service has, and what they may do. The one account is an administrator.
const ROLES: [(&str, &[&str]); 3] = [
    ("Administrator", &["Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"]),
    ("Operator", &["Login", "ConfigureSelf", "ConfigureComponents"]),
    ("ReadOnly", &["Login", "ConfigureSelf"]),
];

impl Bmc {
    /// The resource at a path, if there is one.
    pub(super) fn resource(&self, path: &str) -> Option<Value> {
        match &self.of {
            Of::Host => self.host_resource(path),
            Of::Dpu(on) => self.dpu_resource(path, on.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn host_resource(&self, path: &str) -> Option<Value> {
        let below = path.strip_prefix(ROOT);
        let below = match (path, below) {
            ("/redfish", _) => return Some(json!({ "v1": "/redfish/v1/" })),
            (_, Some(below)) => below,
            _ => return None,
        };
        Some(match below {
            "" => self.root(),
            "/odata" => service_document(),
            "/Systems" => collection(path, "ComputerSystemCollection", "Computer systems", &["1"]),
            "/Systems/1" => self.system().0,
            "/Systems/1/BootOptions" => {
                let personality = self.machine.personality;
                if personality.options.is_empty() {
                    return None;
                }
                let options = self.machine.boot_settings().options(personality);
                let ids: Vec<String> = options.iter().map(|option| option_id(&self.machine, *option)).collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                collection(path, "BootOptionCollection", "Boot options", &ids)
            }
            "/Managers" => collection(path, "ManagerCollection", "Managers", &["1"]),
            "/Managers/1" => self.manager(),
            "/Chassis" => collection(path, "ChassisCollection", "Chassis", &["1"]),
            "/Chassis/1" => self.chassis(),
            "/SessionService" => session_service(),
            "/SessionService/Sessions" => {
                let ids = self.sessions.ids();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                collection(path, "SessionCollection", "Sessions", &ids)
            }
            "/AccountService" => account_service(),
            "/AccountService/Accounts" => collection(path, "ManagerAccountCollection", "Accounts", &["1"]),
            "/AccountService/Accounts/1" => self.account(),
            "/AccountService/Roles" => {
                let names: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
                collection(path, "RoleCollection", "Roles", &names)
            }
            _ if path == JOB => return self.job(),
            _ => {
                let settings = self.settings(path).map(|(resource, _)| resource);
                return settings.or_else(|| self.media_resource(path)).or_else(|| self.member(path));
            }
        })
    }

    /// Members of collections.
    fn member(&self, path: &str) -> Option<Value> {
        let (folder, name) = path.rsplit_once('/')?;
        match folder {
            BOOT_OPTIONS => {
                let options = self.machine.boot_settings().options(self.machine.personality);
                let option = options.into_iter().find(|option| option_id(&self.machine, *option) == name)?;
                Some(boot_option(&self.machine, option))
            }
            SESSIONS => {
                let user = &self.machine.config.bmc.username;
                self.sessions.ids().iter().any(|id| id == name).then(|| session_resource(name, user))
            }
            "/redfish/v1/AccountService/Roles" => {
                ROLES.iter().find(|(role, _)| *role == name).map(|(role, privileges)| self::role(role, privileges))
            }
            _ => None,
        }
    }

    fn root(&self) -> Value {
        json!({
            "@odata.id": "/redfish/v1/",
            "@odata.type": "#ServiceRoot.v1_16_0.ServiceRoot",
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": VERSION,
            "UUID": self.manager_uuid(),
            "Vendor": self.machine.personality.manufacturer,
            "Product": self.machine.personality.model,
            "Systems": { "@odata.id": "/redfish/v1/Systems" },
            "Managers": { "@odata.id": "/redfish/v1/Managers" },
            "Chassis": { "@odata.id": "/redfish/v1/Chassis" },
            "SessionService": { "@odata.id": "/redfish/v1/SessionService" },
            "AccountService": { "@odata.id": "/redfish/v1/AccountService" },
            "Links": { "Sessions": { "@odata.id": SESSIONS } },
        })
    }

    fn manager(&self) -> Value {
        let mut manager = json!({
            "@odata.id": MANAGER,
            "@odata.type": "#Manager.v1_18_0.Manager",
            "Id": "1",
            "Name": "BMC",
            "ManagerType": "BMC",
            "Model": "Virtual BMC",
            "FirmwareVersion": env!("CARGO_PKG_VERSION"),
            "UUID": self.manager_uuid(),
            "ServiceEntryPointUUID": self.manager_uuid(),
            "PowerState": "On",
            "DateTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": {
                "ManagerForServers": [{ "@odata.id": SYSTEM }],
                "ManagerForChassis": [{ "@odata.id": "/redfish/v1/Chassis/1" }],
            },
        });
        if let Some(media) = self.media_of(Owner::Manager) {
            manager["VirtualMedia"] = media;
        }
        manager
    }

    fn chassis(&self) -> Value {
        let machine = &self.machine;
        json!({
            "@odata.id": "/redfish/v1/Chassis/1",
            "@odata.type": "#Chassis.v1_23_0.Chassis",
            "Id": "1",
            "Name": "Chassis",
            "ChassisType": "RackMount",
            "Manufacturer": machine.personality.manufacturer,
            "Model": machine.personality.model,
            "SerialNumber": machine.config.serial_number,
            "PowerState": self.shown_power(),
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": {
                "ComputerSystems": [{ "@odata.id": SYSTEM }],
                "ManagedBy": [{ "@odata.id": MANAGER }],
            },
        })
    }

    fn account(&self) -> Value {
        json!({
            "@odata.id": "/redfish/v1/AccountService/Accounts/1",
            "@odata.type": "#ManagerAccount.v1_11_0.ManagerAccount",
            "Id": "1",
            "Name": "User account",
            "UserName": self.machine.config.bmc.username,
            "Password": null,
            "RoleId": "Administrator",
            "Enabled": true,
            "Locked": false,
            "AccountTypes": ["Redfish"],
            "Links": { "Role": { "@odata.id": "/redfish/v1/AccountService/Roles/Administrator" } },
        })
    }

    fn manager_uuid(&self) -> String {
        uuid::Uuid::new_v5(&system_uuid(&self.machine.config), b"bmc").to_string()
    }
}

pub fn collection(path: &str, kind: &str, name: &str, members: &[&str]) -> Value {
    let members: Vec<Value> = members.iter().map(|id| json!({ "@odata.id": format!("{path}/{id}") })).collect();
    json!({
        "@odata.id": path,
        "@odata.type": format!("#{kind}.{kind}"),
        "Name": name,
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

fn session_service() -> Value {
    json!({
        "@odata.id": "/redfish/v1/SessionService",
        "@odata.type": "#SessionService.v1_1_9.SessionService",
        "Id": "SessionService",
        "Name": "Session service",
        "ServiceEnabled": true,
        "Status": { "State": "Enabled", "Health": "OK" },
        "Sessions": { "@odata.id": SESSIONS },
    })
}

fn account_service() -> Value {
    json!({
        "@odata.id": "/redfish/v1/AccountService",
        "@odata.type": "#AccountService.v1_13_0.AccountService",
        "Id": "AccountService",
        "Name": "Account service",
        "ServiceEnabled": true,
        "Status": { "State": "Enabled", "Health": "OK" },
        "Accounts": { "@odata.id": "/redfish/v1/AccountService/Accounts" },
        "Roles": { "@odata.id": "/redfish/v1/AccountService/Roles" },
    })
}

fn role(name: &str, privileges: &[&str]) -> Value {
    json!({
        "@odata.id": format!("/redfish/v1/AccountService/Roles/{name}"),
        "@odata.type": "#Role.v1_3_1.Role",
        "Id": name,
        "Name": format!("{name} role"),
        "RoleId": name,
        "IsPredefined": true,
        "AssignedPrivileges": privileges,
    })
}

fn service_document() -> Value {
    let entry = |name: &str, url: &str| json!({ "name": name, "kind": "Singleton", "url": url });
    json!({
        "@odata.context": "/redfish/v1/$metadata",
        "value": [
            entry("Service", "/redfish/v1/"),
            entry("Systems", "/redfish/v1/Systems"),
            entry("Managers", "/redfish/v1/Managers"),
            entry("Chassis", "/redfish/v1/Chassis"),
            entry("SessionService", "/redfish/v1/SessionService"),
            entry("AccountService", "/redfish/v1/AccountService"),
            entry("Sessions", SESSIONS),
        ],
    })
}

/// The metadata document: where the schemas are, and the service's entry point.
pub fn metadata() -> String {
    let mut references = String::new();
    let others: [(&str, &[&str]); 2] =
        [("RedfishExtensions", &["RedfishExtensions.v1_0_0"]), ("Message", &["Message.v1_2_0"])];
    for (schema, versions) in SCHEMAS.iter().chain(&others) {
        let includes = std::iter::once(schema).chain(*versions).map(|namespace| {
            let alias = if namespace.starts_with("RedfishExtensions.") { " Alias=\"Redfish\"" } else { "" };
            format!("    <edmx:Include Namespace=\"{namespace}\"{alias}/>\n")
        });
        let file = format!("http://redfish.dmtf.org/schemas/v1/{schema}_v1.xml");
        references +=
            &format!("  <edmx:Reference Uri=\"{file}\">\n{}  </edmx:Reference>\n", includes.collect::<String>());
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">\n{references}  \
         <edmx:DataServices>\n    <Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" Namespace=\"Service\">\n      \
         <EntityContainer Name=\"Service\" Extends=\"ServiceRoot.v1_16_0.ServiceContainer\"/>\n    </Schema>\n  \
         </edmx:DataServices>\n</edmx:Edmx>\n"
    )
}
