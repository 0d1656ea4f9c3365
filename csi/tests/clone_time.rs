//! How long a clone takes, by the image's size: the time of `Pool::create_volume` from a snapshot, syncs included.

mod fixture;

use csi::pool::{ContentSource, Pool, Range};
use fixture::Mounted;
use std::{fs::File, os::unix::fs::FileExt, time::Instant};

const GIB: u64 = 1 << 30;

#[test]
fn a_clone_s_time_does_not_depend_on_the_image_s_size() {
    let Some(mounted) = Mounted::xfs("a_clone_s_time_does_not_depend_on_the_image_s_size", "400G") else { return };
    let pool = Pool::open("fast", &mounted.path()).expect("opened");
    let mut slowest = 0;
    for size in [GIB, 10 * GIB, 100 * GIB] {
        let range = Range { required: Some(size), limit: None };
        let golden = pool.create_volume(&format!("golden-{size}"), range, None).expect("created");
        // As a system image is: some content at its start, most of it never written.
        let file = File::options().write(true).open(pool.image(&golden.handle)).expect("the image");
        let block = vec![1; 1 << 20];
        (0..64).try_for_each(|at| file.write_all_at(&block, at * (1 << 20))).expect("content");
        file.sync_all().expect("synced");
        let snapshot = pool.create_snapshot(&format!("snapshot-{size}"), &golden.handle).expect("taken");
        let source = ContentSource::Snapshot(snapshot.id.to_string());
        let mut times: Vec<u128> = (0..9)
            .map(|turn| {
                let started = Instant::now();
                pool.create_volume(&format!("clone-{size}-{turn}"), range, Some(&source)).expect("cloned");
                started.elapsed().as_micros()
            })
            .collect();
        times.sort_unstable();
        println!("clone of {} GiB: median {} us, slowest {} us", size / GIB, times[4], times[8]);
        slowest = slowest.max(times[4]);
    }
    // A copy of the content alone would take longer than that, let alone of the image.
    assert!(slowest < 1_000_000, "a clone took {slowest} us");
}
