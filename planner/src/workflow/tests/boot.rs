//! Boot options: which Jobs, in which order, and what becomes of the Workflow.

use super::{AGENT, at, hardware, workflow};
use crate::netboot::{Directory, Verdict, verdict};
use crate::workflow::{Prepare, Report, Reported, advance, before, is_prepared, job_name, prepare, report, serve};
use api::labels;
use api::tinkerbell::{Hardware, Job, Template, Workflow};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

const TEXT: &str = "{name: t, tasks: [{name: one, worker: '{{.device_1}}', actions: [{name: a, image: a}]}]}";

struct World {
    workflow: Workflow,
    hardware: Hardware,
    job: Option<Arc<Job>>,
    /// Jobs that were made, and what was set.
    story: Vec<String>,
}

impl World {
    fn new(options: Value) -> Self {
        let mut workflow = workflow("w");
        workflow.spec.boot_options = serde_json::from_value(options).expect("options");
        let mut hardware = hardware();
        let reference = json!({"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": "bmc"});
        hardware.spec.bmc_ref = serde_json::from_value(reference).expect("a reference");
        let template: Template =
            serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": {"data": TEXT}})).expect("a Template");
        workflow.status = advance(&workflow, Some(&template), Some(&hardware), at(0)).status;
        Self { workflow, hardware, job: None, story: Vec::new() }
    }

    fn state(&self) -> &str {
        self.workflow.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default()
    }

    /// Until nothing is to be done. A Job that is made has this condition at once; `None`: it runs.
    fn settle(&mut self, ends: Option<&str>) {
        for _ in 0..30 {
            let found = self.job.clone().filter(|job| job.metadata.name == job_name(&self.workflow));
            let preparation = prepare(&self.workflow, Some(&self.hardware), found.as_ref(), None, at(0));
            let quiet = preparation.status.is_none() && preparation.action.is_none();
            self.workflow.status = preparation.status.or(self.workflow.status.take());
            match preparation.action {
                Some(Prepare::AllowNetboot(allowed)) => {
                    self.story.push(format!("allowPXE {allowed}"));
                    let netboot = json!({"allowPXE": allowed});
                    for interface in &mut self.hardware.spec.interfaces {
                        interface.netboot = serde_json::from_value(netboot.clone()).expect("netboot");
                    }
                }
                Some(Prepare::DeleteJob(target)) => {
                    self.story.push(format!("delete {}", target.name));
                    self.job = None;
                }
                Some(Prepare::CreateJob(mut job)) => {
                    let tasks = serde_json::to_string(&job.spec.tasks).expect("json");
                    self.story.push(format!("{} {tasks}", job.metadata.name.clone().unwrap_or_default()));
                    job.metadata.uid = Some(format!("uid-{}", self.story.len()));
                    let condition =
                        |end| json!({"conditions": [{"type": end, "status": "True", "message": "the BMC is away"}]});
                    job.status = ends.map(|end| serde_json::from_value(condition(end)).expect("a status"));
                    self.job = Some(Arc::new(*job));
                }
                None => {}
            }
            if quiet {
                return;
            }
        }
        panic!("it does not converge: {:?}", self.workflow.status);
    }

    /// A machine takes the server.
    fn claim(&mut self) {
        let claim = [("metalplane.io/claimed-by", "m"), ("metalplane.io/claimed-by-name", "team-a/bm-01")];
        self.hardware.metadata.annotations = Some(claim.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }

    fn runs(&mut self) {
        self.ends(Reported::Success);
    }

    fn ends(&mut self, how: Reported) {
        let served = serve(AGENT, &self.workflow).expect("served");
        self.workflow.status = served.status.or(self.workflow.status.take());
        let report_ = Report {
            agent_id: AGENT.to_owned(),
            task_id: String::new(),
            action_id: served.action_id,
            state: how,
            start: None,
            stop: None,
            duration: String::new(),
            message: String::new(),
        };
        self.workflow.status = report(&self.workflow, &report_, at(1)).or(self.workflow.status.take());
    }

    fn condition(&self, type_: &str) -> String {
        let conditions = self.workflow.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().filter(|c| c.type_ == type_).filter_map(|c| c.message.clone()).collect()
    }
}

#[test]
fn netboot_with_its_toggle_goes_through_both_phases() {
    let mut w = World::new(json!({"bootMode": "netboot", "toggleAllowNetboot": true}));
    assert_eq!(w.state(), "PREPARING");
    assert!(serve(AGENT, &w.workflow).is_none(), "no action before the boot options are done");
    let other = json!({"metadata": {"name": "netboot-w", "namespace": "default", "uid": "other"}});
    w.job = Some(Arc::new(serde_json::from_value(other).expect("a Job")));
    w.settle(Some("Completed"));
    let tasks = r#"[{"powerAction":"off"},{"oneTimeBootDeviceAction":{"device":["pxe"]}},{"powerAction":"on"}]"#;
    assert_eq!(w.story, ["allowPXE true".to_owned(), "delete netboot-w".to_owned(), format!("netboot-w {tasks}")]);
    let job = w.job.clone().expect("a Job");
    let meta = &job.metadata;
    assert_eq!(meta.labels, meta.annotations);
    assert_eq!(
        meta.labels.as_ref().and_then(|all| all.get("tink-controller-auto-created")).map(String::as_str),
        Some("true")
    );
    assert_eq!(meta.owner_references.as_ref().map(|owners| owners[0].uid.as_str()), Some("w"));
    assert_eq!(w.state(), "PENDING");
    let status = w.workflow.status.clone().expect("a status");
    let options = serde_json::to_value(status.boot_options).expect("json");
    let jobs = json!({"netboot-w": {"uid": "uid-3", "complete": true, "existingJobDeleted": true}});
    assert_eq!(options, json!({"allowNetboot": {"toggledTrue": true}, "jobs": jobs}));
    for condition in ["AllowNetbootTrue", "BootJobSetupComplete", "BootJobComplete", "TemplateRenderedSuccess"] {
        assert_ne!(w.condition(condition), "", "{condition}");
    }
    w.runs();
    assert_eq!(w.state(), "POST");
    assert!(is_prepared(&w.workflow));
    let directory = Directory::new(vec![Arc::new(w.hardware.clone())]).with_workflows(&[Arc::new(w.workflow.clone())]);
    let subject = directory.by_mac(AGENT).expect("one");
    assert!(matches!(verdict(&subject), Verdict::LocalDisk(_)), "its last action may have restarted it");
    w.settle(None);
    assert_eq!(w.story.last().map(String::as_str), Some("allowPXE false"));
    assert_eq!(w.state(), "SUCCESS");
}

#[test]
fn each_mode_has_upstreams_jobs() {
    let iso = json!({"bootMode": "isoboot", "isoURL": "http://x/a.iso"});
    let mut w = World::new(iso);
    w.hardware.spec.interfaces[0].dhcp.as_mut().expect("dhcp").uefi = Some(true);
    w.settle(Some("Completed"));
    w.runs();
    w.settle(Some("Completed"));
    let mount = r#"iso-mount-w [{"powerAction":"off"},{"virtualMediaAction":{"kind":"CD"}},{"virtualMediaAction":{"mediaURL":"http://x/a.iso","kind":"CD"}},{"oneTimeBootDeviceAction":{"device":["cdrom"],"efiBoot":true}},{"powerAction":"on"}]"#;
    assert_eq!(w.story, [mount, r#"iso-eject-w [{"virtualMediaAction":{"kind":"CD"}}]"#]);
    assert_eq!(w.state(), "SUCCESS");

    let url = "http://x/{{ (index .Hardware.Interfaces 0).DHCP.MAC }}.iso";
    let mut w = World::new(json!({"bootMode": "customboot", "custombootConfig": {
        "preparingActions": [{"virtualMediaAction": {"mediaURL": url, "kind": "CD"}}],
        "postActions": [{"powerAction": "off"}],
    }}));
    w.settle(Some("Completed"));
    w.runs();
    w.settle(Some("Completed"));
    let medium = format!(
        r#"customboot-preparing-w [{{"virtualMediaAction":{{"mediaURL":"http://x/{AGENT}.iso","kind":"CD"}}}}]"#
    );
    assert_eq!(w.story, [medium, r#"customboot-post-w [{"powerAction":"off"}]"#.to_owned()]);

    let mut w = World::new(json!({"bootMode": "customboot"}));
    w.settle(None);
    assert_eq!((w.state(), w.story.len()), ("PENDING", 0));
}

#[test]
fn the_medium_of_a_run_that_did_not_succeed_is_ejected() {
    let eject = r#"iso-eject-w [{"virtualMediaAction":{"kind":"CD"}}]"#;
    let iso = || World::new(json!({"bootMode": "isoboot", "isoURL": "http://x/a.iso", "toggleAllowNetboot": true}));
    for (how, state) in [(Reported::Failed, "FAILED"), (Reported::Timeout, "TIMEOUT")] {
        let mut w = iso();
        w.settle(Some("Completed"));
        w.ends(how);
        assert_eq!(w.state(), state);
        assert!(is_prepared(&w.workflow), "{state}: the medium is still in");
        let why = w.condition("WorkflowFailed");
        w.settle(Some("Completed"));
        assert_eq!((w.state(), w.story.last().map(String::as_str)), (state, Some(eject)));
        assert_eq!(w.condition("WorkflowFailed"), why);
        assert!(!is_prepared(&w.workflow), "{state}: the medium is out");
        assert!(!w.story.contains(&"allowPXE false".to_owned()), "as upstream leaves it: {:?}", w.story);
    }

    // It cannot be ejected: that is said, and the end is no other one.
    let mut w = iso();
    w.settle(Some("Completed"));
    w.ends(Reported::Timeout);
    w.settle(Some("Failed"));
    assert_eq!((w.state(), w.story.last().map(String::as_str)), ("TIMEOUT", Some(eject)));
    assert!(w.condition("BootJobFailed").contains("the BMC is away"), "{:?}", w.workflow.status);

    // A machine has the server by then: nothing is ejected, not when the machine has given the server back either.
    let mut w = iso();
    w.settle(Some("Completed"));
    w.ends(Reported::Failed);
    let annotations = w.hardware.metadata.annotations.clone();
    w.claim();
    w.settle(Some("Completed"));
    assert!(w.condition("BootJobSetupFailed").contains("claimed by BareMetalMachine"), "{:?}", w.workflow.status);
    w.hardware.metadata.annotations = annotations;
    w.settle(Some("Completed"));
    assert!(w.state() == "FAILED" && !is_prepared(&w.workflow), "{:?}", w.workflow.status);
    assert!(
        !w.story.iter().any(|told| told == eject),
        "the medium of another Workflow may be in the drive: {:?}",
        w.story
    );

    // The Job that inserts it has failed half-way.
    let mut w = iso();
    w.settle(Some("Failed"));
    let ejected = |w: &World| w.story.iter().any(|told| told == eject);
    assert!(w.state() == "FAILED" && ejected(&w), "{:?}", w.story);

    // Nothing was inserted.
    let mut w = World::new(json!({"bootMode": "isoboot"}));
    w.settle(None);
    assert!(w.state() == "FAILED" && w.story.is_empty() && !is_prepared(&w.workflow), "{:?}", w.story);
    let mut w = World::new(json!({"bootMode": "netboot"}));
    w.settle(Some("Completed"));
    w.ends(Reported::Failed);
    assert!(w.state() == "FAILED" && !is_prepared(&w.workflow), "{:?}", w.workflow.status);
}

#[test]
fn what_cannot_be_done_is_failed_and_says_why() {
    let fails = |mut w: World, ends: Option<&str>, type_: &str, why: &str| {
        w.settle(ends);
        assert_eq!(w.state(), "FAILED");
        assert!(w.condition(type_).contains(why), "{:?}", w.workflow.status);
    };
    let netboot = || World::new(json!({"bootMode": "netboot"}));
    fails(netboot(), Some("Failed"), "BootJobFailed", "the BMC is away");
    fails(World::new(json!({"bootMode": "iso"})), None, "BootJobSetupFailed", "isoURL is empty");
    let mut w = netboot();
    w.hardware.spec.bmc_ref = None;
    fails(w, None, "BootJobSetupFailed", "has no spec.bmcRef");
    let mut w = netboot();
    w.claim();
    fails(w, None, "BootJobSetupFailed", "claimed by BareMetalMachine 'team-a/bm-01'");

    let mut w = netboot();
    w.claim();
    let discovery = (labels::BOOT_STRATEGY.to_owned(), labels::DISCOVERY.to_owned());
    w.hardware.metadata.annotations.get_or_insert_default().extend([discovery]);
    w.settle(None);
    assert_eq!(w.state(), "PREPARING");
    assert!(w.job.is_some(), "it is the Job that waits");

    let mut w = netboot();
    w.settle(None);
    assert_eq!((w.state(), w.condition("BootJobRunning").as_str()), ("PREPARING", "job running"));
    w.job = None;
    fails(w, None, "BootJobFailed", "deleted while it ran");
}

#[test]
fn an_earlier_job_that_does_not_go_is_said_and_ends_the_workflow() {
    let mut w = World::new(json!({"bootMode": "netboot"}));
    let earlier = json!({"metadata": {
        "name": "netboot-w", "uid": "earlier", "finalizers": ["example.com/a"], "deletionTimestamp": at(0).to_string(),
    }});
    w.job = Some(Arc::new(serde_json::from_value(earlier).expect("a Job")));
    w.settle(None);
    assert_eq!((w.state(), w.story.len()), ("PREPARING", 0));
    assert!(w.condition("BootJobRunning").contains("its finalizers: example.com/a"), "{:?}", w.workflow.status);
    let awaited = prepare(&w.workflow, Some(&w.hardware), w.job.as_ref(), None, at(599));
    assert_eq!((awaited.status, awaited.action, awaited.wake_at), (None, None, Some(at(600))));

    let over = prepare(&w.workflow, Some(&w.hardware), w.job.as_ref(), None, at(600));
    assert_eq!(over.wake_at, None);
    w.workflow.status = over.status;
    assert_eq!(w.state(), "FAILED");
    assert!(w.condition("BootJobSetupFailed").contains("10 minutes"), "{:?}", w.workflow.status);

    let mut w = World::new(json!({"bootMode": "netboot"}));
    w.settle(Some("Completed"));
    assert_eq!(w.state(), "PENDING", "nothing is in the way");
}

/// What has the server of `of` first, and until when at most.
fn ahead(of: &World, other: &World, now: i64) -> Option<(String, Option<Timestamp>)> {
    before(&of.workflow, [&of.workflow, &other.workflow], at(now)).map(|before| (before.workflow, before.until))
}

/// Made after `w`, for the same server.
fn behind(options: Value) -> World {
    let mut second = World::new(options);
    second.workflow.metadata.name = Some("x".to_owned());
    second.workflow.metadata.uid = Some("x".to_owned());
    let made = second.workflow.metadata.creation_timestamp.as_mut().expect("a time");
    made.0 += jiff::SignedDuration::from_secs(1);
    second
}

#[test]
fn the_bmc_is_asked_for_nothing_while_another_workflow_has_the_server() {
    let netboot = || json!({"bootMode": "netboot"});
    let (mut first, mut second) = (World::new(netboot()), behind(netboot()));
    let has_it = |until: Option<i64>| Some(("w".to_owned(), until.map(at)));
    assert_eq!((ahead(&second, &first, 0), ahead(&first, &second, 0)), (has_it(None), None), "the older one");
    first.settle(None);
    assert_eq!(ahead(&second, &first, 0), has_it(None), "its Job runs");
    let mut job = Job::clone(first.job.as_deref().expect("made"));
    job.status = serde_json::from_value(json!({"conditions": [{"type": "Completed", "status": "True"}]})).ok();
    first.job = Some(Arc::new(job));
    first.settle(None);
    assert_eq!(first.state(), "PENDING");
    // Its server comes up, or does not.
    assert_eq!(ahead(&second, &first, 1199), has_it(Some(1200)));
    assert_eq!(ahead(&second, &first, 1200), None);
    first.ends(Reported::Running);
    assert_eq!((first.state(), ahead(&second, &first, 9999)), ("RUNNING", has_it(None)));

    let waits = before(&second.workflow, [&first.workflow], at(0));
    let waiting = prepare(&second.workflow, Some(&second.hardware), None, waits.as_ref(), at(0));
    assert_eq!((waiting.action, waiting.wake_at), (None, None));
    second.workflow.status = waiting.status;
    let said = "Hardware 'h' has Workflow 'w': the controller asks the BMC for what spec.bootOptions say when Workflow 'w' has ended";
    assert_eq!((second.state(), second.condition("Queued").as_str()), ("PREPARING", said));

    first.runs();
    first.settle(None);
    assert_eq!((first.state(), ahead(&second, &first, 0)), ("SUCCESS", None));
    second.settle(Some("Completed"));
    assert_eq!((second.state(), second.condition("Queued").as_str()), ("PENDING", ""));
    assert_eq!(second.story.len(), 1, "{:?}", second.story);
    assert_eq!(ahead(&second, &behind(netboot()), 0), None, "one that has begun waits for nothing");
}

#[test]
fn a_server_is_anothers_once_the_medium_of_a_run_that_failed_is_out() {
    let iso = json!({"bootMode": "isoboot", "isoURL": "http://10.0.0.1/iso/a.iso"});
    let (mut first, second) = (World::new(iso), behind(json!({"bootMode": "netboot"})));
    first.settle(Some("Completed"));
    first.ends(Reported::Failed);
    assert_eq!((first.state(), ahead(&second, &first, 0)), ("FAILED", Some(("w".to_owned(), None))));
    first.settle(Some("Completed"));
    assert_eq!(ahead(&second, &first, 0), None);
    first.workflow.spec.disabled = Some(true);
    assert_eq!(ahead(&second, &first, 0), None);
}
