//! What the guests of this DPU's NICs are told when they ask at the metadata address (docs/design/network.md, "Metadata").
//!
//! A task of its own beside the rounds: nothing that is plugged waits for it. It reads the Secret of each granted NIC once, which was
//! written before the grant, and keeps it in memory alone. So after a start without the API server nobody is answered, and guests ask again.

use crate::clock;
use crate::cluster::{Cluster, bounded};
use crate::watch::Desired;
use api::{NicAttachment, names};
use jiff::Timestamp;
use planner::metadata::{Instance, Interface};
use planner::network::rows::metadata_port;
use ports::metadata::{MetadataGuest, MetadataPort};
use ports::switch::MetadataPlug;
use ports::{ErrorClass, Metadata, PortError, Switch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

const AGAIN: Duration = Duration::from_secs(5);
/// What somebody has taken out of the switch is plugged again.
const PERIOD: Duration = Duration::from_secs(60);

/// A granted NIC whose guest is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    uid: String,
    created: Option<Timestamp>,
    machine_uid: String,
    machine: String,
    secret: String,
    subnet_uid: String,
    mtu: u16,
    nic: Interface,
}

type Secrets = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

pub(crate) struct Answers {
    service: Arc<dyn Metadata>,
    switch: Arc<dyn Switch>,
    dpu_name: String,
    /// Devices of each life of the agent have names of their own: a switch in user space may keep one that is gone under a name that
    /// is there again at once.
    life: i128,
    /// `None`: the API server has not told of them yet.
    wanted: watch::Sender<Option<Vec<Told>>>,
    unanswered: Mutex<Unanswered>,
    /// The rounds tell of the above.
    wake: Arc<Notify>,
}

/// Whose guest is not answered, by the UID of the attachment: why.
type Unanswered = BTreeMap<String, String>;

impl Answers {
    pub(crate) fn new(dpu_name: &str, service: Arc<dyn Metadata>, switch: Arc<dyn Switch>, wake: Arc<Notify>) -> Self {
        let (life, wanted) = (clock::now().as_nanosecond(), watch::Sender::new(None));
        Self { service, switch, dpu_name: dpu_name.to_owned(), life, wanted, unanswered: Mutex::default(), wake }
    }

    /// As the last attempt has shown.
    pub(crate) fn unanswered(&self) -> Unanswered {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, now: &Unanswered) {
        let mut told = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != *now {
            now.iter().filter(|(nic, _)| !told.contains_key(*nic)).for_each(|(nic, why)| tracing::warn!(nic, "{why}"));
            told.clone_from(now);
            self.wake.notify_one();
        }
    }

    pub(crate) fn update(&self, desired: &Desired) {
        let read = |object: &NicAttachment| told(object).filter(|_| object.spec.dpu_name == self.dpu_name);
        let Some((all, _)) = desired.nics.all(read) else { return };
        let now = Some(all.into_iter().flatten().collect());
        self.wanted.send_if_modified(|before| {
            let differs = *before != now;
            if differs {
                *before = now;
            }
            differs
        });
    }

    /// For ever.
    pub(crate) async fn run(&self, joined: watch::Receiver<Option<Cluster>>) {
        let (mut wanted, mut secrets) = (self.wanted.subscribe(), Secrets::new());
        loop {
            let now = wanted.borrow_and_update().clone();
            let cluster = joined.borrow().clone();
            let unanswered = match now {
                Some(nics) => self.serve(&nics, &mut secrets, cluster.as_ref()).await,
                None => Unanswered::new(),
            };
            self.tell(&unanswered);
            tokio::select! {
                biased;
                _ = wanted.changed() => {}
                () = tokio::time::sleep(if unanswered.is_empty() { PERIOD } else { AGAIN }) => {}
            }
        }
    }

    async fn serve(&self, nics: &[Told], secrets: &mut Secrets, cluster: Option<&Cluster>) -> Unanswered {
        secrets.retain(|uid, _| nics.iter().any(|nic| nic.uid == *uid));
        let mut unanswered = Unanswered::new();
        for nic in nics.iter().filter(|nic| !secrets.contains_key(&nic.uid)).collect::<Vec<_>>() {
            match data(&nic.secret, cluster).await {
                Ok(data) => drop(secrets.insert(nic.uid.clone(), data)),
                Err(error) => drop(unanswered.insert(nic.uid.clone(), nobody_answers(&error))),
            }
        }
        let (ports, plugs) = self.ports(nics, secrets);
        let failed = self.service.answer(ports).await;
        let plugged = self.switch.plug_metadata(&plugs).await;
        for nic in nics {
            let device = self.device(&nic.subnet_uid);
            let has_port = plugs.iter().any(|plug| plug.device == device);
            let error = failed.get(&device).or(plugged.as_ref().err().filter(|_| has_port));
            if let Some(error) = error {
                unanswered.entry(nic.uid.clone()).or_insert_with(|| nobody_answers(error));
            }
        }
        unanswered
    }

    fn device(&self, subnet_uid: &str) -> String {
        format!("mm{}", names::short(&format!("{subnet_uid}/{}", self.life), 12))
    }

    fn ports(&self, nics: &[Told], secrets: &Secrets) -> (Vec<MetadataPort>, Vec<MetadataPlug>) {
        let instances = instances(nics, secrets);
        let subnets: BTreeSet<&str> = nics.iter().map(|nic| nic.subnet_uid.as_str()).collect();
        let mut all = (Vec::new(), Vec::new());
        for subnet in subnets {
            let of_it = nics.iter().filter(|nic| nic.subnet_uid == subnet);
            let guests: Vec<MetadataGuest> = of_it
                .clone()
                .filter_map(|nic| {
                    let instance = instances.get(nic.machine_uid.as_str())?.clone();
                    Some(MetadataGuest { nic: nic.nic.clone(), instance })
                })
                .collect();
            if guests.is_empty() {
                continue;
            }
            let mtu = of_it.map(|nic| nic.mtu).min().unwrap_or_default();
            let (logical_port, mac) = metadata_port(subnet);
            let device = self.device(subnet);
            all.0.push(MetadataPort { device: device.clone(), mac: mac.clone(), mtu, guests });
            all.1.push(MetadataPlug { device, logical_port, mac });
        }
        all
    }
}

fn told(object: &NicAttachment) -> Option<Told> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let metadata = spec.metadata.as_ref()?;
    let granted = spec.grant.is_some() && !spec.release && meta.deletion_timestamp.is_none();
    granted.then(|| Told {
        uid: meta.uid.clone().unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        machine_uid: spec.owner.uid.clone(),
        machine: spec.owner.name.clone(),
        secret: metadata.secret_name.clone(),
        subnet_uid: metadata.subnet_uid.clone(),
        mtu: spec.mtu,
        nic: Interface {
            mac: spec.mac_address.clone(),
            addresses: spec.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        },
    })
}

/// Each machine, by its UID, with the newest that was written for it.
fn instances<'a>(nics: &'a [Told], secrets: &Secrets) -> BTreeMap<&'a str, Arc<Instance>> {
    let mut sorted: Vec<&Told> = nics.iter().collect();
    sorted.sort_by_key(|nic| (nic.created, &nic.uid));
    let machines: BTreeSet<&str> = nics.iter().map(|nic| nic.machine_uid.as_str()).collect();
    let instance = |machine: &'a str| {
        let own: Vec<&&Told> = sorted.iter().filter(|nic| nic.machine_uid == machine).collect();
        let data = own.iter().rev().find_map(|nic| secrets.get(&nic.uid))?.clone();
        let hostname = own.first()?.machine.clone();
        let interfaces = own.iter().map(|nic| nic.nic.clone()).collect();
        Some((
            machine,
            Arc::new(Instance { id: machine.to_owned(), hostname, interfaces, data, further: BTreeMap::new() }),
        ))
    };
    machines.into_iter().filter_map(instance).collect()
}

fn nobody_answers(error: &PortError) -> String {
    format!("the guest is not answered at the metadata address (169.254.169.254); the agent tries again: {error}")
}

async fn data(secret: &str, cluster: Option<&Cluster>) -> Result<BTreeMap<String, Vec<u8>>, PortError> {
    let what = format!("reading Secret {secret} for the metadata service");
    let away = || PortError::new(ErrorClass::Unreachable, format!("{what}: there is no session with the API server"));
    let cluster = cluster.ok_or_else(away)?;
    let data = bounded(&what, cluster.secrets().get(secret)).await?.data.unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::conformance::memory::{InstallsAll, MemoryMetadata, MemorySwitch};

    fn nic(number: u8, machine: &str, subnet: &str, address: &str) -> Told {
        Told {
            uid: format!("nic-{number}"),
            created: Timestamp::from_second(i64::from(number)).ok(),
            machine_uid: format!("uid-{machine}"),
            machine: machine.to_owned(),
            secret: format!("metadata-{number}"),
            subnet_uid: subnet.to_owned(),
            mtu: 1442,
            nic: Interface {
                mac: format!("02:00:00:00:00:{number:02x}"),
                addresses: vec![address.parse().expect("an address")],
            },
        }
    }

    fn written(nics: &[&Told]) -> Secrets {
        let data = |nic: &&Told| BTreeMap::from([("user-data".to_owned(), nic.uid.clone().into_bytes())]);
        nics.iter().map(|nic| (nic.uid.clone(), data(nic))).collect()
    }

    /// Two Vpcs with equal addresses: each Subnet has a port of its own, and a guest is behind that of its own alone.
    #[test]
    fn equal_addresses_of_two_subnets_do_not_meet() {
        let (blue, red) = (nic(1, "blue", "s-1", "10.20.0.7"), nic(2, "red", "s-2", "10.20.0.7"));
        let nics = [blue.clone(), red.clone()];
        let answers = answers();
        let (ports, plugs) = answers.ports(&nics, &written(&[&blue, &red]));
        let of = |subnet: &str| {
            let at = plugs.iter().position(|plug| plug.logical_port == metadata_port(subnet).0).expect("plugged");
            assert_eq!(ports[at].device, plugs[at].device);
            ports[at].guests.iter().map(|guest| guest.instance.hostname.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((of("s-1"), of("s-2")), (vec!["blue"], vec!["red"]));
        assert_ne!(ports[0].device, ports[1].device);
    }

    #[test]
    fn a_machine_has_the_newest_data_and_all_its_nics() {
        let (first, second) = (nic(1, "blue", "s-1", "10.20.0.7"), nic(2, "blue", "s-2", "10.30.0.7"));
        let nics = [second.clone(), first.clone()];
        let all = instances(&nics, &written(&[&first, &second]));
        let blue = &all["uid-blue"];
        assert_eq!(blue.data["user-data"], b"nic-2");
        assert_eq!(blue.interfaces, [first.nic.clone(), second.nic.clone()]);
        assert_eq!(instances(&nics, &written(&[&first]))["uid-blue"].data["user-data"], b"nic-1");
        let (ports, plugs) = answers().ports(&nics, &Secrets::new());
        assert!(ports.is_empty() && plugs.is_empty(), "nothing is known of it yet");
    }

    fn answers() -> Answers {
        answers_by(MemoryMetadata::default())
    }

    fn answers_by(service: MemoryMetadata) -> Answers {
        let switch = MemorySwitch::new(BTreeSet::new, InstallsAll::default());
        Answers::new("dpu-1", Arc::new(service), Arc::new(switch), Arc::default())
    }

    /// A node without /dev/net/tun: whose guest is not answered is told, with the cause, and no more once that is mended.
    #[tokio::test]
    async fn whose_guest_is_not_answered_is_told() {
        let (blue, red) = (nic(1, "blue", "s-1", "10.20.0.7"), nic(2, "red", "s-2", "10.20.0.7"));
        let (service, nics) = (MemoryMetadata::default(), [blue.clone(), red.clone()]);
        let answers = answers_by(service.clone());
        let mut secrets = written(&[&blue, &red]);
        service.refuse(Some("open /dev/net/tun: No such file or directory"));
        let unanswered = answers.serve(&nics, &mut secrets, None).await;
        assert_eq!(unanswered.keys().collect::<Vec<_>>(), ["nic-1", "nic-2"]);
        assert!(unanswered["nic-1"].contains("open /dev/net/tun"), "{unanswered:?}");
        answers.tell(&unanswered);
        assert_eq!(answers.unanswered(), unanswered);
        tokio::time::timeout(Duration::from_secs(1), answers.wake.notified()).await.expect("the rounds are woken");
        service.refuse(None);
        assert_eq!(answers.serve(&nics, &mut secrets, None).await, Unanswered::new());
        assert_eq!(service.ports().len(), 2);
        // Of one whose Secret cannot be read the others know nothing.
        let unread = answers.serve(&nics, &mut written(&[&blue]), None).await;
        assert_eq!(unread.keys().collect::<Vec<_>>(), ["nic-2"]);
    }
}
