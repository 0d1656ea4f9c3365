//! A schedule that chance would need very long for, step by step.

use super::dice::Dice;
use super::rules::Rule;
use super::schedule::Schedule;
use super::site::{Fence, Server, Site, Volume};
use super::time::Ms;
use super::world::{HeldUp, LATEST, World};
use api::DiskAttachment;
use api::dpu::PowerDomain;

/// More than any step of this schedule takes.
const SOON: Ms = 120_000;

/// Two servers and a volume whose storage lets in whom it was not told to refuse: no list at the storage keeps out what should
/// not have been granted.
fn site() -> Site {
    let servers = (1..=2).map(|number| (format!("dpu-{number}"), Server::new(PowerDomain::Standby)));
    let volume = Volume::new(Fence::Blocklist, false);
    Site { native: Fence::Blocklist, volumes: [("shared".to_owned(), volume)].into(), servers: servers.collect() }
}

/// UID of the attachment by which this DPU is to have the volume.
fn attachment(schedule: &Schedule, dpu: &str) -> Option<String> {
    let objects = schedule.world.objects();
    let of_it = |disk: &&std::sync::Arc<DiskAttachment>| disk.spec.dpu_name == dpu && disk.spec.disk_name == "shared";
    objects.all::<DiskAttachment>().find(of_it).and_then(|disk| disk.metadata.uid.clone())
}

fn reaches(schedule: &Schedule, what: &str, is_so: impl Fn(&Schedule) -> bool) -> Result<(), String> {
    match schedule.until(SOON, is_so)? {
        true => Ok(()),
        false => Err(format!("not reached: {what}: {}", schedule.state())),
    }
}

/// The grant of a disk is under way for 30 s. Meanwhile its sender gives up, the disk is taken from the machine, another one gets
/// the volume, and the first asks for it anew: an attachment of the same name waits for the hold when the grant arrives.
pub fn a_grant_comes_late(without: Option<Rule>) -> Result<(), String> {
    let world = World::new(Dice::new(1), site(), without, false);
    let (by, what) = ("leader-1".to_owned(), "change bm-1-shared".to_owned());
    *world.held_up.borrow_mut() = Some(HeldUp { by, what, after: LATEST });
    let schedule = Schedule::on(world).begin(&[4]);
    let world = &schedule.world;
    let result = (|| {
        reaches(&schedule, "the grant is sent", |this| this.world.held_up.borrow().is_none())?;
        let (sent, first) = (world.now(), attachment(&schedule, "dpu-1"));
        schedule.give("dpu-2", false);
        reaches(&schedule, "the other has it", |this| !this.world.server("dpu-2").connected.is_empty())?;
        schedule.give("dpu-1", true);
        let is_new = |there: Option<String>| there.is_some() && there != first;
        reaches(&schedule, "the first asks again", |this| is_new(attachment(this, "dpu-1")))?;
        if world.now() >= sent + LATEST {
            return Err("the grant was not late enough".to_owned());
        }
        schedule.pass(LATEST)
    })();
    schedule.world.end();
    result
}
