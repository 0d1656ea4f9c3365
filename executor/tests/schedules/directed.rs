//! Schedules that chance would need very long for, step by step.

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
fn site(domain: PowerDomain) -> Site {
    let servers = (1..=2).map(|number| (format!("dpu-{number}"), Server::new(domain)));
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

fn held_up(world: &World, by: &str, what: &str, at: Ms) {
    world.held_up.borrow_mut().push(HeldUp { by: by.to_owned(), what: what.to_owned(), at });
}

fn comes_later(world: &World, at: Ms) -> Result<(), String> {
    if world.now() < at { Ok(()) } else { Err("it was not late enough".to_owned()) }
}

/// The grant of a disk is under way for 30 s. Meanwhile its sender gives up, the disk is taken from the machine, another one gets
/// the volume, and the first asks for it anew: an attachment of the same name waits for the hold when the grant arrives.
pub fn a_grant_comes_late(without: Option<Rule>) -> Result<(), String> {
    let world = World::new(Dice::new(1), site(PowerDomain::Standby), without, false);
    held_up(&world, "leader-1", "change bm-1-shared", LATEST);
    let schedule = Schedule::on(world).begin(&[4]);
    let world = &schedule.world;
    let result = (|| {
        reaches(&schedule, "the grant is sent", |this| this.world.held_up.borrow().is_empty())?;
        let first = attachment(&schedule, "dpu-1");
        schedule.give("dpu-2", false);
        reaches(&schedule, "the other has it", |this| !this.world.server("dpu-2").connected.is_empty())?;
        schedule.give("dpu-1", true);
        let is_new = |there: Option<String>| there.is_some() && there != first;
        reaches(&schedule, "the first asks again", |this| is_new(attachment(this, "dpu-1")))?;
        comes_later(world, LATEST)?;
        schedule.pass(LATEST)
    })();
    schedule.world.end();
    result
}

/// A DPU's target is asked to connect a volume, and to present it, and does neither for half a minute. Its agent asks again, and
/// that is done; the disk is taken away, and another DPU gets the volume, when the first requests are done after all.
pub fn a_disk_is_presented_late(without: Option<Rule>) -> Result<(), String> {
    // By this seed the host comes up at once, long before the late requests do.
    let world = World::new(Dice::new(2), site(PowerDomain::Standby), without, false);
    held_up(&world, "dpu-1", "Connect", LATEST);
    let schedule = Schedule::on(world).begin(&[4]);
    let world = &schedule.world;
    let result = (|| {
        let is_sent = |this: &Schedule| this.world.held_up.borrow().is_empty();
        reaches(&schedule, "it is asked to connect", is_sent)?;
        let uid = attachment(&schedule, "dpu-1").unwrap_or_default();
        held_up(world, "dpu-1", &format!("Expose {uid}"), LATEST + 1);
        reaches(&schedule, "it is asked to present", is_sent)?;
        reaches(&schedule, "it is presented", |this| this.rests("dpu-1"))?;
        schedule.give("dpu-2", false);
        reaches(&schedule, "the other has it", |this| !this.world.server("dpu-2").connected.is_empty())?;
        comes_later(world, LATEST)?;
        schedule.pass(LATEST)
    })();
    schedule.world.end();
    result
}

/// A machine is gone, and its host off, when a leader that does not know it makes an attachment for it, and grants it. The DPU went
/// down with the host, and nobody starts that again.
#[test]
fn what_is_granted_too_late_where_the_dpu_is_off_with_its_host_is_given_back() {
    let world = World::new(Dice::new(1), site(PowerDomain::Host), None, false);
    let schedule = Schedule::on(world).begin(&[4]);
    let world = &schedule.world;
    let result = (|| {
        reaches(&schedule, "it runs", |this| this.rests("dpu-1"))?;
        let seed = world.objects().all::<DiskAttachment>().find(|disk| disk.spec.disk_name != "shared").cloned();
        let mut late = DiskAttachment::clone(&*seed.ok_or("a machine has a seed")?);
        schedule.delete_machines()?;
        schedule.is_given_back()?;
        late.status = None;
        world.objects().create(late).map_err(|error| format!("{error:?}"))?;
        schedule.is_given_back()
    })();
    schedule.world.end();
    result.expect("it is given back");
}
