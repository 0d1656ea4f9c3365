//! One schedule: volumes pass from machine to machine while the dice let everything befall everybody; then it is over, and all
//! must come to rest, and be given back.

use super::agent::SIZE;
use super::cluster;
use super::dice::Dice;
use super::leader::{Leader, bmc_of, hardware_of, namespace, volume};
use super::lives::{self, Lives};
use super::rules::Rule;
use super::site::{Fence, Server, Site, Volume};
use super::time::Ms;
use super::world::{LATEST, Storm, World, timestamp};
use super::{DRIVER, INVENTORY, USER};
use api::dpu::{
    BmcReference, ConfirmedDown, ConnectorStatus, DpuCapacity, DpuSpec, DpuStatus, HardwareReference, PowerDomain,
};
use api::machine::{BareMetalMachineSpec, ClaimReference, Disk, DiskBus, DiskSource, HardwareChoice, RunStrategy};
use api::quantity::quantity;
use api::tinkerbell::Hardware;
use api::tinkerbell::hardware::TypedLocalObjectReference;
use api::{BareMetalMachine, DiskAttachment, Dpu, VolumeHold};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, Pod, VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use model::Rests;
use planner::connector::KUBELET;
use planner::host::PowerState;
use planner::machine::observed::VolumeSeen;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A healthy world comes to rest long before.
const REST: Ms = 30 * 60_000;

pub type Now = Rc<RefCell<Option<Rc<Leader>>>>;

pub struct Schedule {
    pub world: Rc<World>,
    dpus: Vec<String>,
    pub leaders: Vec<(Rc<Lives>, Now)>,
    manager_down_until: Rc<Cell<Ms>>,
}

fn machine_of(dpu: &str) -> String {
    dpu.replace("dpu-", "bm-")
}

fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn disk(claim: &str) -> Disk {
    let claim_name = claim.to_owned();
    let source = DiskSource { persistent_volume_claim: Some(ClaimReference { claim_name }), ..DiskSource::default() };
    Disk { name: claim.to_owned(), source, ..Disk::default() }
}

fn site(dice: &Dice) -> Site {
    let domain = |_| if dice.one_in(4) { PowerDomain::Host } else { PowerDomain::Standby };
    let count = if dice.one_in(4) { 3 } else { 2 };
    let servers = (1..=count).map(|number| (format!("dpu-{number}"), Server::new(domain(number)))).collect();
    let native = dice.pick(&[Fence::TargetAcl, Fence::Blocklist, Fence::Blocklist, Fence::None]);
    let fence = || if dice.one_in(4) { Fence::Kubelet } else { native };
    let names = if dice.one_in(3) { ["shared", "other"].as_slice() } else { &["shared"] };
    let volumes = names.iter().map(|name| ((*name).to_owned(), Volume::new(fence(), dice.one_in(2)))).collect();
    Site { native, volumes, servers }
}

fn claim(name: &str) -> PersistentVolumeClaim {
    let size: BTreeMap<_, _> = [("storage".to_owned(), quantity(SIZE))].into();
    let resources = VolumeResourceRequirements { requests: Some(size.clone()), limits: None };
    PersistentVolumeClaim {
        metadata: meta(USER, name),
        spec: Some(PersistentVolumeClaimSpec {
            volume_mode: Some("Block".to_owned()),
            volume_name: Some(format!("pv-{name}")),
            resources: Some(resources),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: Some(PersistentVolumeClaimStatus {
            phase: Some("Bound".to_owned()),
            capacity: Some(size),
            ..PersistentVolumeClaimStatus::default()
        }),
    }
}

fn stored(volume: VolumeSeen) -> PersistentVolume {
    let csi = CSIPersistentVolumeSource {
        driver: volume.driver,
        volume_handle: volume.handle,
        ..CSIPersistentVolumeSource::default()
    };
    PersistentVolume {
        metadata: meta("", &volume.name),
        spec: Some(PersistentVolumeSpec { csi: Some(csi), ..PersistentVolumeSpec::default() }),
        ..PersistentVolume::default()
    }
}

fn dpu(name: &str, domain: PowerDomain, has_bmc: bool, fence: Fence) -> Dpu {
    let spec = DpuSpec {
        hardware_ref: Some(HardwareReference { name: hardware_of(name), serial_number: None }),
        power_domain: domain,
        approved: true,
        bmc_ref: has_bmc.then(|| BmcReference { name: bmc_of(name), serial_number: None }),
        ..DpuSpec::default()
    };
    let mut dpu = Dpu::new(name, spec);
    dpu.metadata.finalizers = Some(vec![api::labels::FINALIZER_IN_USE.to_owned()]);
    let offers = [(DRIVER, fence), (KUBELET, Fence::Kubelet)];
    let offers = offers.map(|(driver, fence)| ConnectorStatus {
        driver: driver.into(),
        fence: fence.kind().into(),
        import_refusal: None,
    });
    dpu.status = Some(DpuStatus {
        namespace: Some(namespace(name)),
        capacity: Some(DpuCapacity { disks: 16, nics: 16, hot_plug_ports: 14 }),
        buses: vec![DiskBus::NVMe, DiskBus::VirtioBlk],
        connectors: offers.into(),
        ..DpuStatus::default()
    });
    dpu
}

impl Schedule {
    /// `without`: the rule that does not hold in it.
    pub fn new(seed: u64, without: Option<Rule>, tells: bool) -> Self {
        let dice = Dice::new(seed);
        let site = site(&dice);
        let this = Self::on(World::new(dice, site, without, tells));
        let dice = &this.world.dice;
        let leaders = 1 + u64::from(dice.one_in(2));
        let lags: Vec<Ms> = (0..leaders).map(|_| dice.pick(&[4, 20, 500, 5_000])).collect();
        this.begin(&lags)
    }

    /// Its objects are there, and nobody runs yet.
    pub fn on(world: Rc<World>) -> Self {
        let dpus: Vec<String> = world.site().servers.keys().cloned().collect();
        let this = Self { dpus, leaders: Vec::new(), manager_down_until: Rc::default(), world };
        this.furnish();
        this
    }

    fn furnish(&self) {
        let world = &self.world;
        let claims: Vec<String> = world.site().volumes.keys().cloned().collect();
        let has_bmcs = world.dice.one_in(2);
        let made = "a name of this site is new";
        for name in &claims {
            world.objects().create(claim(name)).expect(made);
            world.objects().create(stored(volume(world, name))).expect(made);
        }
        for name in &self.dpus {
            let bmc_ref = Some(TypedLocalObjectReference { kind: "Machine".to_owned(), ..Default::default() });
            let mut hardware = Hardware { metadata: meta(INVENTORY, &hardware_of(name)), ..Hardware::default() };
            hardware.spec.bmc_ref = bmc_ref;
            world.objects().create(hardware).expect(made);
            let domain = world.server(name).domain;
            let fence = world.site().native;
            world.objects().create(dpu(name, domain, has_bmcs, fence)).expect(made);
            let chosen = HardwareChoice { name: Some(hardware_of(name)), ..HardwareChoice::default() };
            let first = name == &self.dpus[0];
            let spec = BareMetalMachineSpec {
                run_strategy: RunStrategy::Always,
                hardware: Some(chosen),
                disks: if first { claims.iter().map(|claim| disk(claim)).collect() } else { Vec::new() },
                termination_grace_period_seconds: 5,
                ..BareMetalMachineSpec::default()
            };
            let mut machine = BareMetalMachine::new(&machine_of(name), spec);
            machine.metadata = meta(USER, &machine_of(name));
            world.objects().create(machine).expect(made);
        }
    }

    /// One leader for each: so far its caches lag.
    pub fn begin(mut self, lags: &[Ms]) -> Self {
        let world = &self.world;
        cluster::start(world, self.manager_down_until.clone());
        for dpu in &self.dpus {
            let lives = lives::agent(world, dpu);
            world.agents.borrow_mut().insert(dpu.clone(), lives);
        }
        let machines: Vec<String> = self.dpus.iter().map(|dpu| machine_of(dpu)).collect();
        for (number, lag) in (1..).zip(lags) {
            let (name, now) = (format!("leader-{number}"), Now::default());
            let lives = lives::leader(world, &name, machines.clone(), *lag, now.clone());
            self.leaders.push((lives, now));
        }
        self
    }

    /// Until it is so, or for so long. What is wrong is an error.
    pub fn until(&self, most: Ms, is_so: impl Fn(&Self) -> bool) -> Result<bool, String> {
        let (end, mut looked) = (self.world.now() + most, self.world.now());
        while self.world.now() < end {
            if !self.world.step() {
                return Err(self.world.wrong.borrow().clone().unwrap_or_default());
            }
            if self.world.now() >= looked + 100 {
                looked = self.world.now();
                if is_so(self) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    pub fn pass(&self, duration: Ms) -> Result<(), String> {
        self.until(duration, |_| false).map(drop)
    }

    /// As its user would, with the newest version.
    fn edit(&self, machine: &str, change: impl FnOnce(&mut BareMetalMachine)) {
        let change = |machine: &mut BareMetalMachine| {
            change(machine);
            machine.metadata.generation = machine.metadata.generation.map(|before| before + 1);
        };
        // One that is deleted is not edited.
        let _ = self.world.objects().change((USER, machine), &Rests::default(), change);
    }

    /// The user takes the disks from everybody, unless `greedy`, and gives them to one.
    pub fn give(&self, to: &str, greedy: bool) {
        self.world.note(|| format!("user: the volumes are for {to}"));
        let claims: Vec<String> = self.world.site().volumes.keys().cloned().collect();
        for dpu in &self.dpus {
            let disks = if dpu == to { claims.iter().map(|claim| disk(claim)).collect() } else { Vec::new() };
            if dpu == to || !greedy {
                self.edit(&machine_of(dpu), |machine| machine.spec.disks = disks);
            }
        }
    }

    /// Everybody wants them: whoever has the hold keeps it.
    fn want(&self) {
        self.world.note(|| "user: the volumes are for everybody".to_owned());
        self.dpus.iter().for_each(|dpu| self.give(dpu, true));
    }

    /// The volumes are with this one and nobody else, everything runs, and no leader has anything left to do.
    pub fn rests(&self, with: &str) -> bool {
        let presented = |dpu: &String| {
            let server = self.world.server(dpu);
            let volumes = self.world_volumes();
            let shown = server.connected.iter().filter(|(id, _)| server.shown.iter().any(|e| e.id == **id)).count();
            let wanted = if dpu == with { volumes } else { 0 };
            server.power == PowerState::On && server.dpu_on && shown == wanted && server.connected.len() == wanted
        };
        self.idle(self.dpus.len()) && self.dpus.iter().all(presented)
    }

    fn world_volumes(&self) -> usize {
        self.world.objects().all::<PersistentVolumeClaim>().count()
    }

    /// Each leader has planned for each machine, and had nothing to do.
    fn idle(&self, machines: usize) -> bool {
        self.leaders.iter().all(|(_, now)| {
            let now = now.borrow();
            now.as_ref().is_some_and(|leader| {
                let idle = leader.idle.borrow();
                idle.len() == machines && idle.values().all(|idle| *idle)
            })
        })
    }

    fn is_clean(&self) -> bool {
        let objects = self.world.objects();
        let holds = objects.all::<VolumeHold>().all(|hold| hold.spec.holder.is_none());
        let claims = objects.all::<PersistentVolumeClaim>().all(|claim| claim.metadata.finalizers.is_none());
        let gone = objects.all::<BareMetalMachine>().count()
            + objects.all::<DiskAttachment>().count()
            + objects.all::<VolumeAttachment>().count()
            + objects.all::<Pod>().count();
        drop(objects);
        let bare = |server: &Server| {
            server.record.is_empty()
                && server.shown.is_empty()
                && server.connected.is_empty()
                && server.seeds.is_empty()
        };
        holds && claims && gone == 0 && self.world.site().servers.values().all(bare)
    }

    pub fn run(&self) -> Result<(), String> {
        let dice = &self.world.dice;
        let first = self.dpus[0].clone();
        if !self.until(REST, |this| this.rests(&first))? {
            return Err(format!("it does not start: {}", self.state()));
        }
        let mut with = first;
        for _ in 0..1 + dice.below(4) {
            let strength = dice.pick(&[0, 10, 50, 200]);
            let share = || dice.below(strength + 1);
            let until = self.world.now() + 60_000;
            self.world.storm.set(Storm { until, late: share(), lost: share(), refused: share(), deadly: share() / 2 });
            with = self.dpus[dice.below(self.dpus.len() as u64) as usize].clone();
            self.give(&with, dice.one_in(3));
            for _ in 0..1 + dice.below(4) {
                self.pass(dice.below(dice.pick(&[500, 5_000, 20_000])))?;
                match dice.one_in(4) {
                    true => self.want(),
                    false => self.befalls(),
                }
            }
            if dice.one_in(2) {
                self.until(60_000, |this| this.rests(&with))?;
            }
        }
        self.heal()?;
        self.give(&with, false);
        if !self.until(REST, |this| this.rests(&with))? {
            return Err(format!("{with} does not get the volumes: {}", self.state()));
        }
        self.delete_machines()?;
        self.is_given_back()
    }

    pub fn delete_machines(&self) -> Result<(), String> {
        for dpu in &self.dpus {
            let at = Time(timestamp(self.world.now()));
            let deleted =
                self.world.objects().delete::<BareMetalMachine>((USER, &machine_of(dpu)), &Rests::default(), at, false);
            deleted.map_err(|error| format!("{}: {error:?}", machine_of(dpu)))?;
        }
        Ok(())
    }

    pub fn is_given_back(&self) -> Result<(), String> {
        match self.until(REST, Self::is_clean)? {
            true => Ok(()),
            false => Err(format!("something is left: {}", self.state())),
        }
    }

    /// Faults are over, and what was late has come.
    fn heal(&self) -> Result<(), String> {
        self.world.note(|| "all is well from here on".to_owned());
        self.world.storm.set(Storm::default());
        for (lives, _) in &self.leaders {
            lives.held_until.set(0);
        }
        self.manager_down_until.set(0);
        let resumes = |(lives, _): &(Rc<Lives>, Now)| lives.current.borrow().as_ref().map(|p| p.paused_until.get());
        let resumed = self.leaders.iter().filter_map(resumes).max().unwrap_or_default();
        self.pass(LATEST.max(resumed.saturating_sub(self.world.now()) + 1_000))
    }

    fn befalls(&self) {
        let (world, dice) = (&self.world, &self.world.dice);
        let dpu = self.dpus[dice.below(self.dpus.len() as u64) as usize].clone();
        let lasts = 2_000 + dice.below(80_000);
        let until = world.now() + lasts;
        let (leader, _) = &self.leaders[dice.below(self.leaders.len() as u64) as usize];
        let agent = world.agents.borrow()[&dpu].clone();
        let fault = dice.below(15);
        world.note(|| format!("FAULT {fault} for {lasts} ms, {dpu}, {}", leader.name));
        let each = |lives: &Lives, change: &dyn Fn(&super::time::Process)| {
            lives.current.borrow().iter().for_each(|process| change(process));
        };
        match fault {
            0 => {
                world.server(&dpu).cut_until = until;
                each(&agent, &|process| process.cut_until.set(until));
            }
            1 => agent.kill(world, until),
            2 => each(&agent, &|process| process.paused_until.set(until)),
            3 => {
                world.dpu_goes(&dpu);
                world.dpu_comes(&dpu);
            }
            4 | 5 => self.unplug(&dpu, lasts, fault == 5),
            6 => leader.kill(world, if dice.one_in(2) { until } else { 0 }),
            7 => each(leader, &|process| process.paused_until.set(until)),
            8 => each(leader, &|process| process.cut_until.set(until)),
            9 => world.freeze(&leader.name, lasts),
            10 => self.manager_down_until.set(until),
            11 => world.host_goes(&dpu),
            12 => world.server(&dpu).target_crashes(),
            13 => world.freeze(&dpu, lasts),
            _ => world.server(&dpu).bmcs_down_until = until,
        }
    }

    /// The DPU's power is taken for so long. `said`: an administrator says so.
    fn unplug(&self, dpu: &str, lasts: Ms, said: bool) {
        let world = self.world.clone();
        let mut server = world.server(dpu);
        let was_on = server.dpu_on;
        server.unplugged = true;
        drop(server);
        if was_on {
            world.dpu_goes(dpu);
        }
        if said {
            world.server(dpu).tainted = true;
            let confirm = |dpu: &mut Dpu| {
                let boot_id = dpu.status.as_ref().and_then(|status| status.boot_id.clone()).unwrap_or_default();
                dpu.spec.confirmed_down = Some(ConfirmedDown { boot_id });
                dpu.metadata.generation = dpu.metadata.generation.map(|before| before + 1);
            };
            world.objects().change(("", dpu), &Rests::default(), confirm).expect("a DPU of this site");
        }
        let (then, dpu) = (self.world.clone(), dpu.to_owned());
        self.world.time.call(lasts, move || {
            let mut server = then.server(&dpu);
            (server.unplugged, server.tainted) = (false, false);
            drop(server);
            then.dpu_comes(&dpu);
        });
    }
}
