//! All disks of a server are erased, without a network: this was booted from a disk that a DPU presents ([`imaging::eraser`]), and reports
//! there. The report is what the action `erase` tells of each disk ([`crate::actions`]); whoever presents the disk reads it, and powers
//! the server off. A server that starts again begins again: to erase twice harms nobody.
//!
//! Nobody asks here which disks there are to be. So it begins once no new one has appeared for a while: some come seconds after their driver.

use crate::actions::erase;
use crate::agent::Then;
use crate::console;
use crate::disks::{Disks, Known};
use crate::lines::Lines;
use anyhow::{Context, Result, bail};
use imaging::eraser::{Report, State, Writer, is_named};
use std::fs::File;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The largest disks take a day and more to be written and read.
const LIMIT: Duration = Duration::from_secs(172_800);
/// How often it is said that it goes on.
const ALIVE: Duration = Duration::from_secs(60);
/// Between two looks at what there is, or two tries to write the report.
const LOOK: Duration = Duration::from_secs(1);
/// Disks are all there if none has come for so long; or after the longest.
const STILL: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(180);

/// Does not return but for an error: what is reported stands until the power goes.
pub async fn run(name: &str) -> Result<Then> {
    let disks = Disks::of_this_machine();
    let (own, disk) = found(&disks, name).await?;
    console::say(format_args!("reports on {}", own.name));
    let mut writer = Writer::new(&disk).with_context(|| format!("read {}", own.name))?;
    let disks = disks.without(&own);
    let lines = Lines::default();
    lines.say("waits until all disks are there");
    tell(&mut writer, State::Running, &lines).await;
    settled(&disks).await;
    let count = disks.all().len();
    lines.say(&format!("erases {count} disks"));
    let erased = erase::all(&disks, Instant::now() + LIMIT, &lines);
    tokio::pin!(erased);
    let ended = loop {
        tell(&mut writer, State::Running, &lines).await;
        tokio::select! {
            biased;
            ended = &mut erased => break ended,
            () = sleep(ALIVE) => {}
        }
    };
    let state = match ended {
        // A server with a DPU need not have a disk of its own.
        Ok(_) => State::Success,
        Err(why) => {
            lines.say(&why);
            State::Failed
        }
    };
    tell(&mut writer, state, &lines).await;
    console::say(format_args!("{state:?}; waits to be powered off"));
    std::future::pending().await
}

/// The disk with that name. It may come late, as others.
async fn found(disks: &Disks, name: &str) -> Result<(Known, File)> {
    let until = Instant::now() + LONGEST;
    loop {
        let mut all: Vec<(Known, File)> = disks.all().into_iter().filter_map(|disk| named(disks, disk, name)).collect();
        if all.len() > 1 {
            let names = all.iter().map(|(disk, _)| disk.name.as_str()).collect::<Vec<_>>().join(" and ");
            bail!("{names} both have the name of the disk that this was booted from ({name})");
        }
        if let Some(one) = all.pop() {
            return Ok(one);
        }
        if Instant::now() >= until {
            bail!("the disk that this was booted from ({name}) is not there");
        }
        sleep(LOOK).await;
    }
}

fn named(disks: &Disks, disk: Known, name: &str) -> Option<(Known, File)> {
    let file = File::options().read(true).write(true).open(disks.node(&disk)).ok()?;
    is_named(&file, name).ok()?.then_some((disk, file))
}

async fn settled(disks: &Disks) {
    let names = || disks.all().into_iter().map(|disk| (disk.name, disk.size_bytes)).collect::<Vec<_>>();
    let began = Instant::now();
    let (mut seen, mut since) = (names(), began);
    while since.elapsed() < STILL && began.elapsed() < LONGEST {
        sleep(LOOK).await;
        let now = names();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Until it is on the disk.
async fn tell(writer: &mut Writer<'_>, state: State, lines: &Lines) {
    let report = Report { state, message: lines.last() };
    while let Err(error) = writer.write(&report) {
        console::say(format_args!("writing the report: {error}"));
        sleep(LOOK).await;
    }
}
