//! What is refused before a disk is touched, and where partitions go. What is made of them is the guest's test.

use super::super::tests::action;
use super::*;
use imaging::gpt::create::Kind;

const MIB: u64 = 1 << 20;

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
    let layout = layout::of("p", wanted, 512, (17 * 1024, 20 * MIB - 512)).expect("room");
    let places: Vec<_> = layout.iter().map(|one| (one.kind, one.offset, one.length)).collect();
    let expected =
        [(Kind::BiosBoot, MIB, 2 * MIB), (Kind::Swap, 3 * MIB, 2 * MIB + 512), (Kind::Linux, 6 * MIB, 14 * MIB - 512)];
    assert_eq!(places, expected);
    let layout = layout::of("p", wanted, 4096, (24 * 1024, 20 * MIB)).expect("room");
    assert_eq!(layout[1].length, 2 * MIB + 4096, "whole sectors of the disk");
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
        let error = layout::of("p", &storage.disks[0].partitions, 512, (17 * 1024, 10 * MIB)).expect_err(said);
        assert!(error.contains(said), "{error}");
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
        (&["partition"], &[(DOCUMENT, &*empty), ("MBR", "true")], "GPTs alone"),
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
