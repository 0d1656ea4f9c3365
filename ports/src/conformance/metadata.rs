//! What every [`Metadata`] promises, run on a [`Bench`] that the driver's test provides.

use crate::Metadata;
use crate::metadata::{MetadataGuest, MetadataPort};
use async_trait::async_trait;
use planner::metadata::{Instance, Interface, USER_DATA};
use std::net::IpAddr;
use std::sync::Arc;

/// One request of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub mac: &'a str,
    pub from: IpAddr,
    pub path: &'a str,
}

/// A node with two switches; [`BLUE`] has the guests `1` and `2`, [`RED`] the guest `3`, which has the address of `1`.
#[async_trait]
pub trait Bench: Send + Sync {
    /// A service on a node where nothing is answered.
    async fn open(&self) -> Box<dyn Metadata>;

    /// What tells a device of this name from one that was made before it; `None`: there is none.
    async fn device(&self, name: &str) -> Option<u64>;

    /// What the guest gets that has this MAC address, behind the switch that the device is plugged into: it is plugged first. `None`: nobody answers.
    async fn ask(&self, device: &str, asked: Asked<'_>) -> Option<Vec<u8>>;

    /// From now on no device can be made; or again.
    async fn set_refusing(&self, refusing: bool);
}

pub const BLUE: &str = "mmblue";
pub const RED: &str = "mmred";
const GREEN: &str = "mmgreen";
const USER_DATA_PATH: &str = "/latest/user-data";

/// The NIC of a guest: `1` to `3`.
pub fn nic(number: u8) -> Interface {
    let address = if number == 2 { "10.20.0.8" } else { "10.20.0.7" };
    let addresses = vec![address.parse().expect("an address")];
    Interface { mac: format!("02:00:00:00:00:{number:02x}"), addresses }
}

fn guest(number: u8) -> MetadataGuest {
    let data = [(USER_DATA.to_owned(), format!("#!/bin/sh\n# {number}\n").into_bytes())].into();
    let (id, hostname) = (format!("uid-{number}"), format!("guest-{number}"));
    let instance = Instance { id, hostname, interfaces: vec![nic(number)], data, further: [].into() };
    MetadataGuest { nic: nic(number), instance: Arc::new(instance) }
}

fn port(device: &str, guests: &[u8]) -> MetadataPort {
    let last = if device == BLUE { "fe" } else { "fd" };
    let guests = guests.iter().map(|number| guest(*number)).collect();
    MetadataPort { device: device.to_owned(), mac: format!("02:00:00:00:00:{last}"), mtu: 1442, guests }
}

async fn is_told(bench: &impl Bench, device: &str, number: u8) -> bool {
    let (nic, wanted) = (nic(number), format!("#!/bin/sh\n# {number}\n"));
    let asked = Asked { mac: &nic.mac, from: nic.addresses[0], path: USER_DATA_PATH };
    match bench.ask(device, asked).await {
        Some(told) => {
            assert_eq!(String::from_utf8_lossy(&told), wanted, "guest {number} is told of itself");
            true
        }
        None => false,
    }
}

/// Panics at the first promise that is not kept.
pub async fn suite(bench: &impl Bench) {
    let service = bench.open().await;
    let answer = async |ports: Vec<MetadataPort>| {
        let failed = service.answer(ports).await;
        assert!(failed.is_empty(), "{failed:?}");
    };
    answer(Vec::new()).await;
    answer(vec![port(BLUE, &[1, 2]), port(RED, &[3])]).await;
    let first = bench.device(BLUE).await.expect("the device is there when it returns");
    assert!(is_told(bench, BLUE, 1).await && is_told(bench, BLUE, 2).await);
    assert!(is_told(bench, RED, 3).await, "of an equal address behind another port");
    let second = nic(2);
    let hostname = Asked { mac: &second.mac, from: second.addresses[0], path: "/latest/meta-data/hostname" };
    assert_eq!(bench.ask(BLUE, hostname).await.as_deref(), Some(b"guest-2".as_slice()));
    assert_eq!(bench.ask(BLUE, Asked { path: "/latest/meta-data/nothing", ..hostname }).await, None, "not there");
    let foreign = "10.20.0.99".parse().expect("an address");
    assert_eq!(bench.ask(BLUE, Asked { from: foreign, ..hostname }).await, None, "an address that is not its own");

    answer(vec![port(BLUE, &[1]), port(RED, &[3])]).await;
    assert_eq!(bench.device(BLUE).await, Some(first), "a port that stays keeps its device");
    assert!(is_told(bench, BLUE, 1).await && !is_told(bench, BLUE, 2).await, "who is not named is not answered");
    answer(vec![port(BLUE, &[1, 2])]).await;
    assert!(is_told(bench, BLUE, 2).await, "and is, once it is");
    assert_eq!(bench.device(RED).await, None, "a port that goes takes its device along");

    bench.set_refusing(true).await;
    let failed = service.answer(vec![port(BLUE, &[2]), port(RED, &[3]), port(GREEN, &[])]).await;
    assert_eq!(failed.keys().collect::<Vec<_>>(), [GREEN, RED], "those that cannot be made are told: {failed:?}");
    assert!(!failed[RED].message.is_empty(), "with the cause");
    assert_eq!((bench.device(BLUE).await, bench.device(RED).await), (Some(first), None));
    assert!(is_told(bench, BLUE, 2).await, "the others answer");
    bench.set_refusing(false).await;
    answer(vec![port(BLUE, &[2]), port(RED, &[3])]).await;
    assert!(is_told(bench, RED, 3).await && is_told(bench, BLUE, 2).await, "the next call tries again");

    let other = MetadataPort { mtu: 1400, ..port(BLUE, &[2]) };
    answer(vec![other]).await;
    assert_ne!(bench.device(BLUE).await.expect("made anew"), first, "another port by the same name is made anew");
    assert!(is_told(bench, BLUE, 2).await);
    answer(Vec::new()).await;
    assert_eq!(bench.device(BLUE).await, None);
}
