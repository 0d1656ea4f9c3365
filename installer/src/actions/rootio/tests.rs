//! What is refused before a disk is touched, and where partitions go. What is made of them is the guest's test.

use super::super::tests::action;
use super::*;
use imaging::gpt::create::Kind;

const MIB: u64 = 1 << 20;

/// How a table is made of what the metadata says.
type Make = fn(&str, &[metadata::Partition], (u64, u64)) -> Result<Table, String>;

fn parsed(partitions: &str) -> Result<Storage, String> {
    Storage::parse(&format!(
        r#"{{"metadata": {{"instance": {{"hostname": "a", "storage": {{"disks": [{{"device": "/dev/sda", "partitions": [{partitions}]}}]}}}}}}}}"#
    ))
}

#[test]
fn partitions_follow_each_other_and_the_last_one_takes_the_rest() {
    let text = r#"{"label": "BIOS", "number": 1, "size": 4096}, {"label": "SWAP", "number": 2, "size": 4097}, {"label": "ROOT", "number": 3, "size": 0}"#;
    let storage = parsed(text).expect("parsed");
    let wanted = &storage.disks[0].partitions;
    let gpt = |sector: u64| match Table::gpt("p", wanted, (20 * MIB, sector)).expect("room") {
        Table::Gpt(all) => all.into_iter().map(|one| (one.name, one.kind, one.offset, one.length)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    // What is behind the last one is the backup's.
    let (bios, swap, root) = ("BIOS".to_owned(), "SWAP".to_owned(), "ROOT".to_owned());
    let expected = [
        (bios, Kind::BiosBoot, MIB, 2 * MIB),
        (swap, Kind::Swap, 3 * MIB, 2 * MIB + 512),
        (root, Kind::Linux, 6 * MIB, 14 * MIB - 33 * 512),
    ];
    assert_eq!(gpt(512), expected);
    assert_eq!(gpt(4096)[1].3, 2 * MIB + 4096, "whole sectors of the disk");
}

#[test]
fn an_mbr_has_upstreams_types_and_ends_with_the_disk() {
    let text = r#"{"label": "FAT32_ACTIVE", "number": 1, "size": 2048}, {"label": "SWAP", "number": 2, "size": 2048},
                  {"label": "FAT32", "number": 3, "size": 2048}, {"label": "ROOT", "number": 4}"#;
    let of = |text: &str, size: u64| {
        let storage = parsed(text).expect("parsed");
        Table::mbr("p", &storage.disks[0].partitions, (size, 512))
    };
    let Ok(Table::Mbr(all)) = of(text, 20 * MIB) else { panic!("room") };
    let all: Vec<_> = all.into_iter().map(|one| (one.kind, one.is_active, one.offset, one.length)).collect();
    use mbr::Kind::{Fat32, Linux, Swap};
    let expected = [
        (Fat32, true, MIB, MIB),
        (Swap, false, 2 * MIB, MIB),
        (Fat32, false, 3 * MIB, MIB),
        (Linux, false, 4 * MIB, 16 * MIB),
    ];
    assert_eq!(all, expected);
    let Ok(Table::Mbr(all)) = of(r#"{"label": "LINUX_ACTIVE", "number": 1}"#, 3 << 40) else { panic!("room") };
    assert_eq!(
        (all[0].kind, all[0].is_active, all[0].length),
        (Linux, true, (2 << 40) - MIB),
        "as far as an MBR reaches"
    );
    let fifth = format!(r#"{text}, {{"label": "MORE", "number": 5, "size": 1}}"#)
        .replace(r#""number": 4"#, r#""number": 4, "size": 1"#);
    assert_eq!(of(&fifth, 20 * MIB), Err("p are 5, and an MBR has 4: write no more, or leave MBR out".to_owned()));
}

#[test]
fn what_does_not_fit_is_named() {
    for (text, said) in [
        (r#"{"number": 2, "size": 1}"#, "p[0].number is 2: write 1"),
        (r#"{"number": 1}, {"number": 2, "size": 1}"#, "p[0].size is 0"),
        (r#"{"number": 1, "size": 99999}"#, "p[0].size is 99999 sectors of 512 bytes, and 18432 are left"),
        (r#"{"number": 1, "size": 18432}, {"number": 2}"#, "p[1].size is 0 sectors"),
        (r#"{"number": 1, "size": 18446744073709551615}"#, "are left"),
    ] {
        let storage = parsed(text).expect("parsed");
        let tables: [(Make, u64); 2] = [(Table::gpt, 10 * MIB + 33 * 512), (Table::mbr, 10 * MIB)];
        for (table, size) in tables {
            let error = table("p", &storage.disks[0].partitions, (size, 512)).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_its_name() {
    let with = |storage: &str| format!(r#"{{"metadata": {{"instance": {{"storage": {storage}}}}}}}"#);
    let empty = with("{}");
    let lines = Lines::default();
    let run = async |command: &[&str], environment: &[(&str, &str)]| {
        let mut action = action("quay.io/tinkerbell/actions/rootio:latest", environment);
        action.command = command.iter().map(|word| (*word).to_owned()).collect();
        run(&Disks::of_this_machine(), &action, &lines).await
    };
    for (command, list) in
        [("partition", "disks"), ("wipe", "disks"), ("format", "filesystems"), ("mount", "filesystems")]
    {
        assert_eq!(run(&[command], &[(DOCUMENT, &empty)]).await, Ok(()));
        assert_eq!(lines.newest(), format!("the metadata has no storage.{list}: {command} changes nothing"));
    }
    let (raid, groups) = (with(r#"{"raid": [{}]}"#), with(r#"{"volume_groups": [{}]}"#));
    let absent = with(r#"{"disks": [{"device": "/dev/no-such-disk"}]}"#);
    for (command, environment, said) in [
        (&[][..], &[(DOCUMENT, &*empty)][..], "write one of partition, format, mount or wipe"),
        (&["erase"], &[(DOCUMENT, &*empty)], "write one of partition"),
        (&["partition", "format"], &[(DOCUMENT, &*empty)], "write one of partition"),
        (&["partition"], &[(DOCUMENT, &*empty), ("MBR", "false")], "leave it out for a GPT"),
        (&["partition"], &[], "MIRROR_HOST is missing"),
        (&["partition"], &[(HOST, "a"), (PORT, "x")], "METADATA_SERVICE_PORT is \"x\""),
        (&["partition"], &[(HOST, "127.0.0.1"), (PORT, "1")], "boot serves it at port 7080"),
        (&["partition"], &[(DOCUMENT, "{}")], "cannot be read"),
        (&["partition"], &[(DOCUMENT, &*raid)], "storage.raid: the installer makes none"),
        (&["format"], &[(DOCUMENT, &*groups)], "storage.volume_groups"),
        (&["wipe"], &[(DOCUMENT, &*absent)], "storage.disks[0].device /dev/no-such-disk"),
    ] {
        let error = run(command, environment).await.expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}
