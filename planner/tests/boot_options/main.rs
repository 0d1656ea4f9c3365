//! Every listing of a real server's firmware that is on record, and what people and firmware do to them.

mod listings;

use api::machine::InstalledDisk;
use listings::{EUI64, LISTINGS, Listing, OWN_REFERENCE, SERIAL};
use planner::boot_option::installed::{is_system_of, of_disk};
use planner::boot_option::{ANY_DISK, Choice, Own, Refusal, Rule, choose, of_network};
use planner::host::BootOption;
use proptest::prelude::*;

fn own() -> Own {
    Own {
        serial: Some(SERIAL.to_owned()),
        eui64: Some(EUI64),
        nsid: 1,
        macs: vec![[0x94, 0x6d, 0xae, 0x91, 0xfb, 0x22]],
        pci_address: Some((0x26, 0, 2)),
        learnt: None,
    }
}

fn chosen(result: Result<Choice, Refusal>) -> Result<(String, Rule), String> {
    match result {
        Ok(Choice::Option { reference, rule, .. }) => Ok((reference, rule)),
        Ok(Choice::AnyDisk) => Err("AnyDisk".to_owned()),
        Err(Refusal::NotListed) => Err("NotListed".to_owned()),
        Err(Refusal::Ambiguous(rule, options)) => Err(format!("Ambiguous {rule:?} {}", options.len())),
    }
}

fn rule(options: &[BootOption]) -> Result<Rule, String> {
    chosen(choose(None, &own(), options)).map(|(reference, rule)| {
        assert_eq!(reference, OWN_REFERENCE, "{options:?}");
        rule
    })
}

/// The option of the DPU's disk, or the refusal. Without that option, as before the first POST with the disk or after one that
/// the DPU was too late for: a refusal.
macro_rules! listings {
    ($($name:ident $at:literal)*) => {
        $(
            #[test]
            fn $name() {
                let listing = &LISTINGS[$at];
                let expected = listing.expected.ok_or_else(|| "NotListed".to_owned());
                assert_eq!(rule(&listing.with_own()), expected, "{}", listing.server);
                assert_eq!(rule(&listing.others()), Err("NotListed".to_owned()), "{}", listing.server);
            }
        )*

        #[test]
        fn every_listing_has_its_test() {
            assert_eq!([$($at),*], std::array::from_fn::<usize, { LISTINGS.len() }, _>(|at| at));
        }
    };
}

/// The same disk, if it were the server's own, and a Workflow had put a system on it.
fn installed(place: Option<&str>) -> InstalledDisk {
    InstalledDisk {
        serial_number: Some(SERIAL.to_owned()),
        wwid: Some(format!("eui.{}", EUI64.map(|byte| format!("{byte:02x}")).concat())),
        uefi_device_path: place.map(str::to_owned),
        partition_guids: Vec::new(),
    }
}

/// By its place too where firmware says no more of it; where it is not listed nothing is.
#[test]
fn an_installed_disk_is_found_wherever_it_is_listed_by_a_whole_path() {
    for listing in LISTINGS {
        let with_own = listing.with_own();
        let own = with_own.iter().find(|option| option.reference == OWN_REFERENCE);
        let path = own.and_then(|option| option.uefi_device_path.as_deref()).unwrap_or_default();
        let place = path.split("/HD(").next().filter(|place| place.starts_with("PciRoot("));
        let disk = installed(place);
        let found = of_disk(&disk, &with_own).map(|option| option.reference.as_str());
        let is_told = place.is_some() || listing.expected == Some(Rule::Serial);
        assert_eq!(found, Some(OWN_REFERENCE).filter(|_| is_told), "{}", listing.server);
        assert_eq!(of_disk(&disk, &listing.others()), None, "{}", listing.server);
    }
}

/// By PXE over IPv4: neither by HTTP, nor over IPv6, nor of another NIC.
#[test]
fn the_option_of_a_nic_is_found_by_its_mac() {
    let hpe = [0xb8, 0x3f, 0xd2, 0xd7, 0xf7, 0x4a];
    let dgx = [0x94, 0x6d, 0xae, 0x91, 0xfb, 0x22];
    let bluefield = [0x94, 0x6d, 0xae, 0x91, 0xfb, 0x30];
    for (server, mac, expected) in [
        ("HPE DL385", hpe, Some("Boot0011")),
        ("HPE DL385", dgx, None),
        ("NVIDIA DGX H100", dgx, Some("Boot0026")),
        ("Lenovo GB300", dgx, Some("Boot0001")),
        ("BlueField-3's own BMC", bluefield, Some("Boot0000")),
        ("Supermicro", dgx, None),
    ] {
        let listing = LISTINGS.iter().find(|listing| listing.server.starts_with(server)).expect(server);
        let mut options = listing.others();
        let found = of_network(mac, &options).map(|option| option.reference.clone());
        assert_eq!(found.as_deref(), expected, "{server}");
        let Some(at) = options.iter().position(|option| Some(&option.reference) == found.as_ref()) else { continue };
        // Two are as good as none, and one that is disabled is not booted.
        let twice = BootOption { reference: "Boot00FF".to_owned(), ..options[at].clone() };
        assert_eq!(of_network(mac, &[&options[..], &[twice]].concat()), None, "{server}");
        options[at].enabled = false;
        assert_eq!(of_network(mac, &options), None, "{server}");
    }
}

listings! {
    dell_with_an_eui64 0
    dell_without 1
    hpe_proliant 2
    hpe_edgeline 3
    lenovo_classes 4
    lenovo_disks 5
    supermicro 6
    dgx 7
    gb200 8
    gh200 9
    gb300 10
    switch_tray 11
    bluefields_own_bmc 12
    ami_with_virtual_media 13
    ovmf 14
}

#[test]
fn an_eui64_is_read_in_both_byte_orders_and_zeros_are_none() {
    let option = |eui64: &str| {
        vec![listings::option(OWN_REFERENCE, "UEFI OS", &format!("PciRoot(0x0)/Pci(0x3,0x0)/NVMe(0x1,{eui64})"))]
    };
    assert_eq!(rule(&option("77-66-55-44-33-22-11-02")), Ok(Rule::Eui64));
    assert_eq!(rule(&option("02-11-22-33-44-55-66-77")), Ok(Rule::Eui64));
    assert_eq!(rule(&option("00-00-00-00-00-00-00-00")), Err("NotListed".to_owned()));
    let nothing_known = Own { eui64: Some([0; 8]), nsid: 1, ..Own::default() };
    assert_eq!(choose(None, &nothing_known, &option("00-00-00-00-00-00-00-00")), Err(Refusal::NotListed));
}

#[test]
fn the_only_disk_and_a_disk_by_a_name_of_ours_are_not_taken() {
    let path = "PciRoot(0x0)/Pci(0x2,0x0)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)";
    for name in [
        "UEFI OS",
        "NVMe disk in the DPU's boot slot",
        "dpu",
        "UEFI Metalplane disk 1",
        "BlueField NVMe SNAP Controller",
    ] {
        assert_eq!(rule(&[listings::option(OWN_REFERENCE, name, path)]), Err("NotListed".to_owned()), "{name}");
    }
}

#[test]
fn the_seed_beside_the_boot_disk_is_not_the_boot_disk() {
    let seed = format!("UEFI Metalplane disk {SERIAL} 2");
    let path = "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x2,00-00-00-00-00-00-00-00)";
    assert_eq!(rule(&[listings::option("Boot0009", &seed, path)]), Err("NotListed".to_owned()));
    assert_eq!(rule(&[listings::option("Boot0009", &seed, "")]), Err("NotListed".to_owned()));
    let disk = listings::option(OWN_REFERENCE, &format!("UEFI Metalplane disk {SERIAL} 1"), "");
    assert_eq!(rule(&[listings::option("Boot0009", &seed, ""), disk]), Ok(Rule::Serial));
}

#[test]
fn of_two_options_of_one_disk_the_disks_own_is_taken() {
    let path = "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,77-66-55-44-33-22-11-02)";
    let partition = listings::option("Boot0001", "ubuntu", &format!("{path}/HD(1,GPT,1)/\\EFI\\ubuntu\\shimx64.efi"));
    assert_eq!(rule(&[partition, listings::option(OWN_REFERENCE, "UEFI OS", path)]), Ok(Rule::Eui64));
}

#[test]
fn two_disks_by_one_rule_or_by_two_are_for_a_person() {
    let path = |pci: u8, eui64: &str| format!("PciRoot(0x0)/Pci(0x{pci:x},0x0)/NVMe(0x1,{eui64})");
    let (ours, zero) = ("77-66-55-44-33-22-11-02", "00-00-00-00-00-00-00-00");
    let named = format!("UEFI Metalplane disk {SERIAL} 1");
    let option = |reference: &str, name: &str, path: String| listings::option(reference, name, &path);
    let twins = [option("Boot0001", "a", path(1, ours)), option("Boot0002", "b", path(2, ours))];
    assert_eq!(rule(&twins), Err("Ambiguous Eui64 2".to_owned()));
    let serials = [option("Boot0001", &named, path(1, zero)), option("Boot0002", &named, path(2, zero))];
    assert_eq!(rule(&serials), Err("Ambiguous Serial 2".to_owned()));
    let both = [option("Boot0001", "a", path(1, ours)), option("Boot0002", &named, path(2, zero))];
    assert_eq!(rule(&both), Err("Ambiguous Eui64 2".to_owned()));
}

#[test]
fn where_the_disk_was_found_before_it_is_found_again() {
    let path = "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)";
    let learnt = Own { learnt: Some(path.to_owned()), ..own() };
    let partition = format!("{path}/HD(1,GPT,1)");
    let option = |name: &str, path: &str| vec![listings::option(OWN_REFERENCE, name, path)];
    assert_eq!(
        chosen(choose(None, &learnt, &option("UEFI OS", &partition))),
        Ok((OWN_REFERENCE.to_owned(), Rule::LearntPath))
    );
    // Another disk has that place now, and says so.
    let other = "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,60-33-01-21-9A-38-25-00)";
    assert_eq!(choose(None, &learnt, &option("UEFI OS", other)), Err(Refusal::NotListed));
}

#[test]
fn what_is_gone_or_disabled_is_not_taken() {
    let path = "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,77-66-55-44-33-22-11-02)";
    let there = listings::option(OWN_REFERENCE, "UEFI OS", path);
    for option in [BootOption { enabled: false, ..there.clone() }, BootOption { present: false, ..there.clone() }] {
        assert_eq!(rule(&[option]), Err("NotListed".to_owned()));
    }
}

#[test]
fn an_administrators_word_comes_first() {
    let options = LISTINGS[0].with_own();
    let by = |named: &str| chosen(choose(Some(named), &own(), &options));
    assert_eq!(by(&options[0].reference), Ok((options[0].reference.clone(), Rule::Administrator)));
    assert_eq!(by(&options[0].display_name), Ok((options[0].reference.clone(), Rule::Administrator)));
    assert_eq!(by("Boot0FFF"), Err("NotListed".to_owned()));
    assert_eq!(by(ANY_DISK), Err("AnyDisk".to_owned()));
    let twice = [options.clone(), options.clone()].concat();
    assert_eq!(
        chosen(choose(Some(&options[0].display_name), &own(), &twice)),
        Err("Ambiguous Administrator 2".to_owned())
    );
}

/// What happens to a listing: options of several servers at once, in another order, of other disks, cut, and by other names.
#[derive(Debug, Clone)]
enum Change {
    Shuffle(usize),
    Drop(usize),
    Rename(usize, String),
    Disk(usize, [u8; 8], u32),
    Partition(usize),
    NoPath(usize),
    Gone(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0usize..64;
    prop_oneof![
        at.clone().prop_map(Change::Shuffle),
        at.clone().prop_map(Change::Drop),
        (
            at.clone(),
            prop_oneof![
                Just("UEFI OS".to_owned()),
                Just("dpu".to_owned()),
                Just(format!("X{SERIAL}")),
                Just(format!("{SERIAL}1 1")),
                Just(SERIAL[..12].to_owned()),
                "[ -~]{0,40}"
            ]
        )
            .prop_map(|(at, name)| Change::Rename(at, name)),
        (at.clone(), prop_oneof![Just([0; 8]), any::<[u8; 8]>()], 0u32..4)
            .prop_map(|(at, eui64, nsid)| Change::Disk(at, eui64, nsid)),
        at.clone().prop_map(Change::Partition),
        at.clone().prop_map(Change::NoPath),
        at.prop_map(Change::Gone),
    ]
}

fn apply(options: &mut Vec<BootOption>, change: &Change) {
    let count = options.len();
    let Some(count) = (count > 0).then_some(count) else { return };
    match change {
        Change::Shuffle(at) => options.rotate_left(at % count),
        Change::Drop(at) => drop(options.remove(at % count)),
        Change::Rename(at, name) => options[at % count].display_name.clone_from(name),
        Change::Disk(at, eui64, nsid) => {
            let option = &mut options[at % count];
            // Our own disk has its own EUI-64 or none: what another one is called by our name cannot be told from ours.
            let eui64 = if option.reference == OWN_REFERENCE { [0; 8] } else { *eui64 };
            if let Some((place, _)) = option.uefi_device_path.as_deref().and_then(|path| path.split_once("/NVMe(")) {
                let text = eui64.map(|byte| format!("{byte:02X}")).join("-");
                option.uefi_device_path = Some(format!("{place}/NVMe(0x{nsid:X},{text})"));
            }
        }
        Change::Partition(at) => {
            if let Some(path) = &mut options[at % count].uefi_device_path {
                path.push_str("/HD(1,GPT,C9C56F3B-1C1E-4E8E-9D56-0B1E7F1B7A11,0x800,0x219800)");
            }
        }
        Change::NoPath(at) => options[at % count].uefi_device_path = None,
        Change::Gone(at) => options[at % count].present = false,
    }
}

fn merged(listings: &[&Listing], with_own: bool) -> Vec<BootOption> {
    let mut all = Vec::new();
    for (number, listing) in listings.iter().enumerate() {
        let of_it = if number == 0 && with_own { listing.with_own() } else { listing.others() };
        for mut option in of_it {
            if option.reference != OWN_REFERENCE {
                option.reference = format!("{number}-{}", option.reference);
            }
            all.push(option);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_is_listed_no_other_disk_is_taken(
        which in prop::collection::vec(0..LISTINGS.len(), 1..4),
        with_own in any::<bool>(),
        changes in prop::collection::vec(change(), 0..12),
        known in any::<(bool, bool, bool)>(),
    ) {
        let mut options = merged(&which.iter().map(|&at| &LISTINGS[at]).collect::<Vec<_>>(), with_own);
        for change in &changes {
            apply(&mut options, change);
        }
        let mut own = own();
        own.serial = own.serial.filter(|_| known.0);
        own.eui64 = own.eui64.filter(|_| known.1);
        if known.2 {
            own.macs.clear();
            own.pci_address = None;
        }
        if let Ok(choice) = choose(None, &own, &options) {
            let Choice::Option { reference, .. } = &choice else { panic!("nobody asked for {choice:?}") };
            prop_assert_eq!(reference, OWN_REFERENCE);
        }
        let mut disk = installed(None);
        disk.serial_number = disk.serial_number.filter(|_| known.0);
        disk.wwid = disk.wwid.filter(|_| known.1);
        if let Some(option) = of_disk(&disk, &options) {
            prop_assert_eq!(&option.reference, OWN_REFERENCE);
        }
    }

    #[test]
    fn no_text_of_a_bmc_is_too_strange(name in "\\PC{0,60}", path in "(PciRoot|/|NVMe|MAC|HD|Pci|\\(|\\)|0x|,|-|[0-9A-Fé]){0,24}") {
        let options = [listings::option("Boot0001", &name, &path)];
        let _ = choose(None, &own(), &options);
        let disk = installed(Some(&path));
        let _ = (of_disk(&disk, &options), is_system_of(&disk, &options[0]));
    }
}
