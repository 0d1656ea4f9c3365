use super::*;
use crate::event::{Event, Told};
use crate::host::{
    BootChange, BootMode, BootOverride, BootSource, HostObserved, MediaUrl, Medium, MediumChange, PowerAction,
    PowerState,
};
use crate::meta::{name, uid};
use crate::observed::BmcProblem;
use crate::observed::BmcSeen;
use crate::protocol::Protocol;
use crate::seen::Seen;
use api::tinkerbell::Machine;
use api::tinkerbell::job::RunCondition;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn at(millis: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_700_000_000) + SignedDuration::from_millis(millis)
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Done,
    /// Accepted, and forgotten by the BMC.
    Forgotten,
    LostDone,
    LostNotDone,
    Busy,
    CrashBefore,
    CrashAfter,
}

/// A Job, its BMC and the shell around the plan.
struct World {
    o: Observed,
    now: i64,
    host: HostObserved,
    sent: Vec<PowerAction>,
    /// Warm resets that the host has seen.
    resets: usize,
    readable: bool,
    media: Vec<MediumChange>,
    /// The BMC does not tell which image is inserted.
    untold: bool,
    /// The BMC shows as continuous what was asked for once.
    for_good: bool,
    /// The Events of the Job.
    events: Vec<Told>,
}

impl World {
    fn new(tasks: Value, power: PowerState) -> Self {
        let job = json!({
            "metadata": {"name": "j", "namespace": "inventory", "uid": "job"},
            "spec": {"machineRef": {"name": "bmc", "namespace": "inventory"}, "tasks": tasks},
        });
        let machine = json!({"metadata": {"name": "bmc"}, "spec": {"connection": {"host": "a", "insecureTLS": true}}});
        let server = Server { hardware: "hw".to_owned(), ..Server::default() };
        let o = Observed {
            job: Arc::new(serde_json::from_value(job).expect("a Job")),
            machine: Some(Arc::new(serde_json::from_value(machine).expect("a Machine"))),
            inventory: "inventory".to_owned(),
            servers: vec![server],
            ..Observed::default()
        };
        let host = HostObserved::with_power(power);
        Self {
            o,
            now: 0,
            host,
            sent: Vec::new(),
            resets: 0,
            readable: true,
            media: Vec::new(),
            untold: false,
            for_good: false,
            events: Vec::new(),
        }
    }

    fn read(&mut self) {
        self.o.bmc = match self.readable {
            true => BmcSeen { host: Seen::Fresh(self.host.clone()), read_at: Some(at(self.now)), ..BmcSeen::default() },
            false => BmcSeen { problem: Some(BmcProblem::Unreachable("no answer".into())), ..BmcSeen::default() },
        };
    }

    /// One round; `false`: there is nothing to do but wait.
    fn round(&mut self, fate: Fate) -> bool {
        self.read();
        // A reading is never of the moment in which something was sent.
        self.now += 1;
        let plan = plan(&self.o, at(self.now));
        let mut news = plan.status.is_some();
        if let Some((called, status)) = plan.task {
            let task =
                self.o.tasks.iter_mut().find(|task| task.metadata.name.as_ref() == Some(&called)).expect("a Task");
            news |= task.status.as_ref() != Some(&status);
            Arc::make_mut(task).status = Some(status);
        }
        self.events.extend(plan.tell);
        if let Some(status) = plan.status {
            Arc::make_mut(&mut self.o.job).status = Some(status);
        }
        match plan.action {
            None => return news,
            Some(Action::Hold { .. }) => self.o.servers[0].job = Some("job".to_owned()),
            Some(Action::Release { .. }) => self.o.servers[0].job = None,
            Some(Action::CreateTask(mut task)) => {
                task.metadata.creation_timestamp = Some(Time(at(self.now)));
                task.metadata.uid = task.metadata.name.clone();
                self.o.tasks.push(Arc::new(*task));
            }
            Some(Action::DeleteTask(target)) => self.o.tasks.retain(|task| uid(&task.metadata) != target.uid),
            Some(Action::Send { task, request }) => self.send(&task, request, fate),
        }
        true
    }

    fn send(&mut self, task: &str, request: Request, fate: Fate) {
        let of = self.o.tasks.iter().find(|there| name(&there.metadata) == task).expect("a Task");
        let task = uid(&of.metadata).to_owned();
        let started = of.status.as_ref().is_some_and(|status| status.start_time.is_some());
        assert!(started, "it was sent before its start was written");
        assert_eq!(self.o.servers[0].claimed_by, None, "a claimed server");
        assert_eq!(self.o.servers[0].job.as_deref(), Some("job"), "not on record");
        if fate == Fate::CrashBefore {
            self.o.sent = None;
            return;
        }
        match &request {
            Request::Power(action) => self.sent.push(*action),
            Request::Medium(change) => self.media.push(change.clone()),
            Request::Boot(_) => {}
        }
        if matches!(fate, Fate::Done | Fate::LostDone | Fate::CrashAfter) {
            self.effect(&request);
        }
        let same = self.o.sent.as_ref().filter(|sent| sent.task == task && sent.request == request);
        let count = same.map_or(0, |sent| sent.count) + 1;
        let answer = match fate {
            Fate::Done | Fate::Forgotten => Answer::Accepted,
            Fate::Busy => Answer::NotNow("in POST".to_owned()),
            _ => Answer::Unknown("no answer".to_owned()),
        };
        self.o.sent = (fate != Fate::CrashAfter).then_some(Sent { task, request, at: at(self.now), count, answer });
    }

    fn effect(&mut self, request: &Request) {
        match request {
            Request::Power(PowerAction::On) => self.host.power = PowerState::On,
            Request::Power(PowerAction::SoftOff | PowerAction::ForceOff) => self.host.power = PowerState::Off,
            Request::Power(PowerAction::WarmReset) => self.resets += 1,
            Request::Boot(BootChange::Next { source, mode }) if self.for_good => {
                self.host.boot.always = Some(BootOverride { source: *source, mode: Some(*mode) });
            }
            Request::Boot(BootChange::Next { source, mode }) => {
                self.host.boot.next = Some(BootOverride { source: *source, mode: Some(*mode) });
            }
            Request::Boot(BootChange::Always { source, mode }) => {
                self.host.boot.always = Some(BootOverride { source: *source, mode: Some(*mode) });
            }
            Request::Boot(_) => {}
            Request::Medium(MediumChange::Eject) => self.host.medium = Medium::Ejected,
            Request::Medium(MediumChange::Insert(url)) => {
                let told = (!self.untold).then(|| MediaUrl::shown(url.reveal()));
                self.host.medium = Medium::Inserted(told);
            }
        }
    }

    /// Until the Job is over and has released its server.
    fn run(&mut self, mut fates: impl Iterator<Item = Fate>) {
        for _ in 0..2000 {
            let fate = fates.next().unwrap_or(Fate::Done);
            if !self.round(fate) {
                if is_over(&self.o.job) {
                    return;
                }
                self.now += 1000;
            }
        }
        panic!("it never ends: {:?}", self.o.job.status);
    }

    fn conditions(&self) -> &[RunCondition] {
        &self.o.job.status.as_ref().expect("a status").conditions
    }

    fn failure(&self) -> &str {
        assert!(is(self.conditions(), FAILED), "{:?}", self.conditions());
        let why = message(self.conditions(), FAILED);
        assert_eq!(self.ended_by(), [Event::JobFailed.told(why)]);
        why
    }

    fn completes(&mut self) {
        self.run(std::iter::empty());
        assert!(is(self.conditions(), COMPLETED), "{:?}", self.conditions());
        assert_eq!(self.o.servers[0].job, None, "the server is released");
        assert_eq!(self.ended_by(), [Event::JobCompleted.told("every request was carried out")]);
    }

    /// The Events but the one of its start.
    fn ended_by(&self) -> Vec<Told> {
        self.events.iter().filter(|told| told.event != Event::JobRunning).cloned().collect()
    }
}

fn power(action: &str) -> Value {
    json!([{"powerAction": action}])
}

#[test]
fn each_request_is_sent_once_in_its_order_and_shown() {
    let netboot = json!([
        {"powerAction": "off"},
        {"oneTimeBootDeviceAction": {"device": ["pxe"], "efiBoot": true}},
        {"powerAction": "on"},
    ]);
    let mut w = World::new(netboot, PowerState::On);
    w.completes();
    assert_eq!(w.sent, [PowerAction::ForceOff, PowerAction::On]);
    assert_eq!(w.host.boot.next.map(|next| next.source), Some(BootSource::Pxe));
    let names: Vec<_> = w.o.tasks.iter().map(|task| name(&task.metadata)).collect();
    assert_eq!(names, ["j-task-0", "j-task-1", "j-task-2"]);
    for task in &w.o.tasks {
        assert_eq!(task.metadata.labels.as_ref().and_then(|all| all.get("owner-name")).map(String::as_str), Some("j"));
        assert!(task.status.as_ref().is_some_and(|status| status.completion_time.is_some()));
    }
    for (action, from, sent) in [
        ("on", PowerState::On, vec![]),
        ("soft", PowerState::On, vec![PowerAction::SoftOff]),
        ("cycle", PowerState::On, vec![PowerAction::ForceOff, PowerAction::On]),
        ("cycle", PowerState::Off, vec![PowerAction::On]),
        ("reset", PowerState::On, vec![PowerAction::WarmReset]),
        ("status", PowerState::On, vec![]),
    ] {
        let mut w = World::new(power(action), from);
        w.completes();
        assert_eq!(w.sent, sent, "{action}");
    }
}

#[test]
fn what_is_not_served_fails_by_name_and_sends_nothing() {
    for (action, why) in [
        (
            json!({"virtualMediaAction": {"mediaURL": "http://x/a.iso", "kind": "Floppy"}}),
            "kind: 'Floppy' is not served",
        ),
        (
            json!({"virtualMediaAction": {"mediaURL": "debian.iso", "kind": "CD"}}),
            "virtualMediaAction.mediaURL is no URL of an image. Next: write scheme://host/path",
        ),
        (json!({"bootDevice": {"device": "safe"}}), "safe is no boot source"),
        (json!({"oneTimeBootDeviceAction": {"device": []}}), "device is empty"),
        (json!({}), "the action is empty"),
    ] {
        let mut w = World::new(json!([{"powerAction": "status"}, action]), PowerState::Off);
        w.run(std::iter::empty());
        assert!(w.failure().contains(why), "{}", w.failure());
        assert_eq!(w.sent, []);
    }
    let mut w = World::new(power("reset"), PowerState::Off);
    w.run(std::iter::empty());
    assert!(w.failure().contains("the host is off"), "{}", w.failure());
}

/// As sushy-tools tells it; what stood there before it was asked does not count.
#[test]
fn an_override_that_the_bmc_shows_as_continuous_is_one_once_it_was_accepted() {
    let once = json!([{"oneTimeBootDeviceAction": {"device": ["pxe"], "efiBoot": true}}]);
    let mut w = World::new(once.clone(), PowerState::Off);
    w.for_good = true;
    w.completes();
    let status = w.o.tasks[0].status.clone().expect("a status");
    assert!(message(&status.conditions, COMPLETED).contains("shows the override as continuous"), "{status:?}");

    let mut w = World::new(once, PowerState::Off);
    w.host.boot.always = Some(BootOverride { source: BootSource::Pxe, mode: Some(BootMode::Uefi) });
    w.completes();
    assert_eq!(w.host.boot.next.map(|next| next.source), Some(BootSource::Pxe), "it was asked for");
    let mut w = World::new(json!([{"bootDevice": {"device": "pxe", "persistent": true}}]), PowerState::Off);
    w.for_good = true;
    w.completes();
    assert_eq!(message(&w.o.tasks[0].status.as_ref().expect("a status").conditions, COMPLETED), "");
}

fn medium(url: Option<&str>) -> Value {
    json!({"virtualMediaAction": {"mediaURL": url, "kind": "CD"}})
}

#[test]
fn a_medium_is_inserted_booted_and_ejected() {
    let url = "http://ann:hunter2@images.example/a.iso?sig=c2VjcmV0";
    let cdrom = json!({"oneTimeBootDeviceAction": {"device": ["cdrom"], "efiBoot": true}});
    let isoboot = json!([{"powerAction": "off"}, medium(None), medium(Some(url)), cdrom, {"powerAction": "on"}]);
    let inserted = MediumChange::Insert(MediaUrl::parse(url).expect("a URL"));
    for before in [Medium::Unknown, Medium::Ejected, Medium::Inserted(Some(MediaUrl::shown("http://x/b.iso")))] {
        let mut w = World::new(isoboot.clone(), PowerState::On);
        w.host.medium = before.clone();
        w.completes();
        let ejected = if before == Medium::Ejected { Vec::new() } else { vec![MediumChange::Eject] };
        assert_eq!(w.media, [ejected, vec![inserted.clone()]].concat(), "{before}");
        let next = w.host.boot.next.map(|next| (next.source, next.mode));
        assert_eq!(next, Some((BootSource::Cd, Some(BootMode::Uefi))));
        assert_eq!(w.sent, [PowerAction::ForceOff, PowerAction::On]);
    }
    let mut w = World::new(json!([medium(Some(""))]), PowerState::On);
    w.host.medium = Medium::Inserted(None);
    w.completes();
    assert_eq!(w.media, [MediumChange::Eject], "an empty URL ejects");
}

#[test]
fn an_inserted_medium_is_shown_before_its_task_is_done() {
    let url = "http://ann:hunter2@images.example/a.iso?sig=c2VjcmV0";
    let mut w = World::new(json!([medium(Some(url))]), PowerState::On);
    w.host.medium = Medium::Inserted(Some(MediaUrl::shown("http://x/b.iso")));
    w.run(std::iter::repeat(Fate::Forgotten));
    let said = "after 10 minutes the BMC shows http://x/b.iso in its virtual drive: it accepted the request";
    assert!(w.failure().contains(said), "{}", w.failure());
    assert!((5..20).contains(&w.media.len()), "{}", w.media.len());

    // Nothing was shown before, and nothing in particular afterwards: what was accepted counts, and no lost answer does.
    let mut w = World::new(json!([medium(Some(url))]), PowerState::On);
    (w.untold, w.host.medium) = (true, Medium::Inserted(None));
    w.run(std::iter::repeat_n(Fate::LostNotDone, 20).chain(std::iter::repeat_n(Fate::Busy, 20)));
    assert!(is(w.conditions(), COMPLETED), "{:?}", w.conditions());
    let said = w.o.sent.as_ref().map(|sent| (sent.answer.clone(), sent.count as usize));
    assert_eq!(said, Some((Answer::Accepted, w.media.len())));
    assert!(w.media.len() > 2, "{}", w.media.len());

    for sent in w.o.sent.iter().map(|sent| format!("{sent:?}")) {
        assert!(sent.contains("images.example/a.iso") && !sent.contains("hunter2") && !sent.contains("sig"), "{sent}");
    }
    let wrong = medium(Some("http://ann:hunter2/x@images.example/a.iso"));
    let mut w = World::new(json!([wrong]), PowerState::On);
    w.run(std::iter::empty());
    assert!(!w.failure().contains("hunter2"), "{}", w.failure());
}

#[test]
fn a_server_that_is_a_machines_is_not_touched() {
    let mut w = World::new(power("off"), PowerState::On);
    w.o.servers[0].claimed_by = Some("BareMetalMachine 'team-a/bm-01'".to_owned());
    w.run(std::iter::empty());
    assert!(w.failure().contains("claimed by BareMetalMachine 'team-a/bm-01'"), "{}", w.failure());

    let mut w = World::new(power("off"), PowerState::On);
    w.o.dpus = vec!["dpu-1".to_owned()];
    w.run(std::iter::empty());
    assert!(w.failure().contains("own BMC of Dpu 'dpu-1'"), "{}", w.failure());

    // Between two requests.
    let mut w = World::new(json!([{"powerAction": "off"}, {"powerAction": "on"}]), PowerState::On);
    while w.o.tasks.len() < 2 {
        w.round(Fate::Done);
    }
    w.o.servers[0].claimed_by = Some("BareMetalMachine 'team-a/bm-01'".to_owned());
    w.run(std::iter::empty());
    assert_eq!(w.sent, [PowerAction::ForceOff]);
    assert!(w.failure().contains("claimed"), "{}", w.failure());
}

#[test]
fn every_wait_ends_and_says_why() {
    let mut w = World::new(power("off"), PowerState::On);
    w.o.machine = None;
    w.run(std::iter::empty());
    assert!(w.failure().contains("no bmc.tinkerbell.org Machine 'bmc'"), "{}", w.failure());

    let mut w = World::new(power("off"), PowerState::On);
    w.o.servers[0].other = Some("k".to_owned());
    w.run(std::iter::empty());
    assert!(w.failure().contains("Job 'k' has the server"), "{}", w.failure());

    let mut w = World::new(power("off"), PowerState::On);
    w.o.servers[0].claimed_by = Some("Dpu 'dpu-1'".to_owned());
    w.o.servers[0].is_discovery = true;
    w.round(Fate::Done);
    assert!(!is_over(&w.o.job), "a Dpu gives it back: {:?}", w.o.job.status);
    w.run(std::iter::empty());
    assert!(w.failure().contains("claimed by Dpu 'dpu-1'") && w.sent.is_empty(), "{}", w.failure());

    let mut w = World::new(power("off"), PowerState::On);
    w.readable = false;
    w.run(std::iter::empty());
    assert!(w.failure().contains("could not be read for 10 minutes: no answer"), "{}", w.failure());

    let mut w = World::new(power("off"), PowerState::On);
    w.run(std::iter::repeat(Fate::Forgotten));
    assert!(w.failure().contains("the BMC shows power on: it accepted the request"), "{}", w.failure());
    assert!((5..20).contains(&w.sent.len()), "{}", w.sent.len());

    let mut w = World::new(power("off"), PowerState::On);
    Arc::make_mut(&mut w.o.job).spec.machine_ref.namespace = "elsewhere".to_owned();
    w.run(std::iter::empty());
    assert!(w.failure().contains("'inventory' alone"), "{}", w.failure());
}

#[test]
fn a_wait_begins_where_the_task_before_ended() {
    let mut w = World::new(json!([{"powerAction": "off"}, {"powerAction": "on"}]), PowerState::On);
    while w.o.tasks.iter().all(|task| task.status.as_ref().is_none_or(|status| status.completion_time.is_none())) {
        w.round(Fate::Done);
    }
    // The first Task took nearly as long as it may.
    let mut late = World::new(json!([]), PowerState::Off);
    late.o = w.o.clone();
    late.now = w.now + 540_000;
    let first = Arc::make_mut(&mut late.o.tasks[0]);
    first.status.as_mut().expect("a status").completion_time = Some(Time(at(late.now)));
    let machine = late.o.machine.take();
    for _ in 0..120 {
        late.round(Fate::Done);
        late.now += 1000;
    }
    assert!(!is_over(&late.o.job), "eleven minutes after its start: {:?}", late.o.job.status);
    late.o.machine = machine;
    late.completes();
}

#[test]
fn a_task_of_an_earlier_job_of_the_name_is_replaced_and_somebody_elses_is_not() {
    let mut earlier = World::new(power("status"), PowerState::Off);
    Arc::make_mut(&mut earlier.o.job).metadata.uid = Some("earlier".to_owned());
    while earlier.o.tasks.is_empty() {
        earlier.o.servers[0].job = Some("earlier".to_owned());
        earlier.round(Fate::Done);
    }
    let mut w = World::new(power("status"), PowerState::Off);
    w.o.tasks = earlier.o.tasks.clone();
    w.completes();

    let mut w = World::new(power("status"), PowerState::Off);
    w.o.tasks = earlier.o.tasks;
    Arc::make_mut(&mut w.o.tasks[0]).metadata.owner_references = None;
    w.run(std::iter::empty());
    assert!(w.failure().contains("is not this Job's"), "{}", w.failure());
}

#[test]
fn a_reset_whose_answer_was_lost_is_not_sent_again() {
    for fate in [Fate::LostDone, Fate::LostNotDone, Fate::CrashBefore, Fate::CrashAfter] {
        let mut w = World::new(power("reset"), PowerState::On);
        w.run(std::iter::repeat(fate));
        assert!(w.failure().contains("not known whether it was done"), "{fate:?}: {}", w.failure());
        assert!(w.sent.len() <= 1, "{fate:?}: {:?}", w.sent);
    }
    let mut w = World::new(power("reset"), PowerState::On);
    let busy = std::iter::repeat_n(Fate::Busy, 30);
    w.run(busy);
    assert_eq!(w.resets, 1, "refused for now: that was none");
}

#[test]
fn a_machine_says_whether_its_bmc_answers() {
    let w = World::new(power("on"), PowerState::On);
    let machine = w.o.machine.expect("a Machine");
    let read = BmcSeen { host: Seen::Fresh(w.host), ..BmcSeen::default() };
    let mut said = Machine::clone(&machine);
    assert_eq!(contact(&said, &BmcSeen::default(), at(0)), None, "nothing is known");
    said.status = contact(&said, &read, at(0));
    let told = |machine: &Machine| {
        let status = machine.status.clone().expect("a status");
        (serde_json::to_value(status.power_state).expect("json"), status.conditions[0].clone())
    };
    assert_eq!(told(&said).0, json!("on"));
    assert_eq!((told(&said).1.status.as_str(), told(&said).1.message), ("True", None));
    assert_eq!(contact(&said, &read, at(9)), None, "the same is not written again");
    let ipmi = BmcProblem::NotSpoken { machine: "bmc".to_owned(), protocol: Protocol::Ipmi };
    said.status = contact(&said, &BmcSeen { problem: Some(ipmi), ..BmcSeen::default() }, at(10));
    assert_eq!(told(&said).0, json!("unknown"));
    assert!(told(&said).1.message.unwrap_or_default().starts_with("ProviderNotSupported: "));
    let rpc = json!({"rpc": {"consumerURL": "http://x"}});
    said.spec.connection.provider_options = serde_json::from_value(rpc).expect("options");
    said.status = contact(&said, &read, at(11));
    assert!(told(&said).1.message.unwrap_or_default().contains("asks for rpc"));
}

fn fate() -> impl Strategy<Value = Fate> {
    use Fate::{Busy, CrashAfter, CrashBefore, Done, Forgotten, LostDone, LostNotDone};
    prop::sample::select(vec![Done, Forgotten, LostDone, LostNotDone, Busy, CrashBefore, CrashAfter])
}

proptest! {
    /// Whatever is lost and whoever is restarted: a Job ends; it is Completed only if the host is as it was asked to be; and no reset
    /// happens twice.
    #[test]
    fn a_job_ends_and_does_not_lie(
        actions in prop::collection::vec(prop::sample::select(vec!["on", "off", "soft", "cycle", "reset", "status"]), 1..4),
        media in prop::collection::vec(prop::sample::select(vec!["", "http://x/a.iso", "http://x/b.iso"]), 0..3),
        on in any::<bool>(),
        fates in prop::collection::vec(fate(), 0..60),
    ) {
        let power = actions.iter().map(|action| json!({"powerAction": action}));
        let tasks: Vec<Value> = media.iter().map(|url| medium(Some(url))).chain(power).collect();
        let asked = actions.iter().filter(|action| **action == "reset").count();
        let mut w = World::new(json!(tasks), if on { PowerState::On } else { PowerState::Off });
        w.run(fates.into_iter());
        prop_assert!(w.resets <= asked, "{} resets of {asked}", w.resets);
        prop_assert_eq!(w.o.servers[0].job.as_ref(), None);
        if is(w.conditions(), COMPLETED) {
            let last = actions.iter().rev().find(|action| **action != "status");
            let wanted = match last {
                Some(&"on" | &"cycle" | &"reset") => PowerState::On,
                Some(_) => PowerState::Off,
                None => w.host.power,
            };
            prop_assert_eq!(w.host.power, wanted);
            let change = media.last().map(|url| MediaUrl::parse(url).map_or(MediumChange::Eject, MediumChange::Insert));
            prop_assert!(change.is_none_or(|change| change.is_shown(&w.host.medium)), "{}", w.host.medium);
        }
    }
}
