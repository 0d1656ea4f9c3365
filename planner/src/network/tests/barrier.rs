//! InForce is never said too early: a site with chassis that stop and go on, a database that is changed by hand and put back, a
//! controller that is killed between any two of its steps.

use crate::network::barrier::{Known, Observed, PATIENCE, Verdict, above, is_numbered, is_said, judge, of_chassis};
use crate::reason::Waiting;
use api::conditions::{self, ConditionStatus, IN_FORCE};
use api::network::Programmed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CHASSIS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The user changes the object.
    Change,
    /// Somebody changes its rows.
    ByHand,
    /// The controller looks at the object; it may be killed after so many of its steps.
    Reconcile(usize),
    /// The controller asks for a number, or somebody else does.
    Raise,
    OtherRaise,
    /// A chassis installs what there is, stops, or goes on.
    Install(usize),
    Stop(usize),
    Start(usize),
    Backup,
    Restore,
}

/// What a chassis has installed: the number that it tells, and which version of the rows.
#[derive(Debug, Clone, Default)]
struct Installed {
    number: u64,
    rows: i64,
    stopped: bool,
}

#[derive(Debug, Clone, Default)]
struct Site {
    rows: i64,
    number: u64,
    backup: (i64, u64),
    chassis: BTreeMap<String, Installed>,
    generation: i64,
    programmed: Option<Programmed>,
    conditions: Vec<Condition>,
    known: Option<Known>,
}

impl Site {
    fn new() -> Self {
        let chassis = CHASSIS.iter().map(|name| ((*name).to_owned(), Installed::default())).collect();
        Self { chassis, generation: 1, ..Self::default() }
    }

    fn numbers(&self) -> BTreeMap<String, Option<u64>> {
        let number = |installed: &Installed| (installed.number > 0).then_some(installed.number);
        self.chassis.iter().map(|(name, installed)| (name.clone(), number(installed))).collect()
    }

    fn verdict(&self) -> Verdict {
        let (concerned, numbers) = (CHASSIS.iter().map(|name| (*name).to_owned()).collect(), self.numbers());
        judge(&Observed {
            what: "the rules",
            generation: Some(self.generation),
            programmed: self.programmed.as_ref(),
            conditions: &self.conditions,
            known: self.known.unwrap_or(Known::Nothing),
            number: self.number,
            concerned: &concerned,
            installed: Ok(&numbers),
            elapsed: Duration::ZERO,
        })
    }

    fn say(&mut self, in_force: bool, number: Option<u64>) {
        let status = if in_force { ConditionStatus::True } else { ConditionStatus::False };
        let (generation, at) = (Some(self.generation), jiff::Timestamp::UNIX_EPOCH);
        conditions::set(&mut self.conditions, IN_FORCE, status, "Because", "", generation, at);
        self.programmed = Some(Programmed { generation, nb_cfg: number, epoch: None });
    }

    /// As the controller does it, killed after `steps` of its own. True: it has just said InForce.
    fn reconcile(&mut self, steps: usize) -> bool {
        let is_said = is_said(Some(self.generation), &self.conditions);
        let is_numbered = is_numbered(Some(self.generation), self.programmed.as_ref());
        let mut left = steps;
        let mut goes_on = || {
            left = left.saturating_sub(1);
            left > 0
        };
        if self.rows != self.generation {
            if is_said || is_numbered {
                self.say(false, None);
                return false;
            }
            self.rows = self.generation;
            self.known = Some(Known::Committed);
            if !goes_on() {
                self.known = None;
                return false;
            }
        }
        let verdict = self.verdict();
        match verdict {
            Verdict::Ask(_) => {
                self.say(false, None);
                self.known = goes_on().then_some(Known::Committed);
                false
            }
            Verdict::Lags { number, .. } => {
                self.say(false, Some(number));
                self.known = goes_on().then_some(Known::Number(number));
                false
            }
            Verdict::InForce { number, .. } => {
                self.say(true, Some(number));
                self.known = None;
                !is_said
            }
        }
    }

    fn go(&mut self, step: Step) -> bool {
        let of = |at: usize| CHASSIS[at % CHASSIS.len()];
        match step {
            Step::Change => self.generation += 1,
            Step::ByHand => self.rows = -1,
            Step::Reconcile(steps) => return self.reconcile(steps),
            Step::Raise => {
                self.number = self.number.max(above(&self.numbers())) + 1;
                if self.known == Some(Known::Committed) {
                    self.known = Some(Known::Number(self.number));
                }
            }
            Step::OtherRaise => self.number += 1,
            Step::Install(at) => {
                let (number, rows) = (self.number, self.rows);
                if let Some(chassis) = self.chassis.get_mut(of(at)).filter(|chassis| !chassis.stopped) {
                    (chassis.number, chassis.rows) = (number, rows);
                }
            }
            Step::Stop(at) | Step::Start(at) => {
                if let Some(chassis) = self.chassis.get_mut(of(at)) {
                    chassis.stopped = matches!(step, Step::Stop(_));
                }
            }
            Step::Backup => self.backup = (self.rows, self.number),
            Step::Restore => {
                (self.rows, self.number) = self.backup;
                // The connection is lost with it.
                self.known = self.known.map(|_| Known::Committed);
            }
        }
        false
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Change),
        1 => Just(Step::ByHand),
        8 => (1..4usize).prop_map(Step::Reconcile),
        5 => Just(Step::Raise),
        1 => Just(Step::OtherRaise),
        8 => (0..3usize).prop_map(Step::Install),
        2 => (0..3usize).prop_map(Step::Stop),
        2 => (0..3usize).prop_map(Step::Start),
        1 => Just(Step::Backup),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn in_force_is_said_only_when_every_chassis_has_the_rows(steps in steps()) {
        let mut site = Site::new();
        for step in steps {
            if site.go(step) {
                // What somebody wrote by hand, and a chassis has, is of no generation.
                let older = |installed: &Installed| installed.rows >= 0 && installed.rows != site.generation;
                let behind = site.chassis.iter().find(|(_, installed)| older(installed));
                prop_assert!(behind.is_none(), "{behind:?} at generation {}: {site:#?}", site.generation);
            }
        }
        // Whatever has happened: with all chassis alive it gets there, and then nothing is left to say.
        for _ in 0..3 {
            for at in 0..3 {
                site.go(Step::Start(at));
            }
            site.go(Step::Reconcile(9));
            site.go(Step::Raise);
            for at in 0..3 {
                site.go(Step::Install(at));
            }
        }
        site.go(Step::Reconcile(9));
        prop_assert!(is_said(Some(site.generation), &site.conditions), "{site:#?}");
        let before = (site.programmed.clone(), site.conditions.clone());
        site.known = None;
        site.go(Step::Reconcile(9));
        prop_assert_eq!(before, (site.programmed.clone(), site.conditions.clone()));
    }
}

/// A number was told while a chassis lagged; the database is restored, and the controller is killed right after it has put the rows
/// back. A chassis has reached that number of the restored database, without the rows.
#[test]
fn a_number_of_before_a_restore_proves_nothing_of_rows_that_are_put_back() {
    let mut site = Site::new();
    for step in [
        Step::Reconcile(3),
        Step::Raise,
        Step::Reconcile(1),
        Step::Restore,
        Step::OtherRaise,
        Step::Install(2),
        Step::Reconcile(1),
        Step::Reconcile(1),
        Step::Install(1),
        Step::Install(0),
    ] {
        site.go(step);
    }
    assert!(!site.go(Step::Reconcile(1)), "{site:#?}");
}

#[test]
fn a_chassis_that_does_not_answer_is_named() {
    let told = |behind: usize, elapsed: Duration| {
        let name = |number: usize| format!("dpu-{number:02}");
        let concerned: BTreeSet<String> = (1..=12).map(name).collect();
        let installed = (1..=12).map(|number| (name(number), Some(if number > 12 - behind { 6 } else { 7 }))).collect();
        let verdict = judge(&Observed {
            what: "the rules of SecurityGroup 'web'",
            generation: Some(2),
            programmed: None,
            conditions: &[],
            known: Known::Number(7),
            number: 7,
            concerned: &concerned,
            installed: Ok(&installed),
            elapsed,
        });
        match verdict {
            Verdict::Lags { reason, .. } => format!("{}: {}", reason.name(), reason.message()),
            other => format!("{other:?}"),
        }
    };
    assert!(
        told(1, Duration::ZERO).starts_with("NotInForce: the chassis are installing the rules of SecurityGroup 'web'")
    );
    let named = "ChassisUnresponsive: 11 of 12 chassis; chassis 'dpu-12' is unresponsive";
    assert!(told(1, PATIENCE).starts_with(named), "{}", told(1, PATIENCE));
    assert!(told(2, PATIENCE).contains("10 of 12 chassis; chassis 'dpu-11', 'dpu-12' are unresponsive"));
    assert!(told(5, PATIENCE).contains("chassis 'dpu-08', 'dpu-09', 'dpu-10' and 2 more are unresponsive"));
    assert_eq!(told(0, PATIENCE), "InForce { number: 7, chassis: 12 }");
}

#[test]
fn on_how_many_chassis_it_is_in_force_is_told_once_that_is_known() {
    let told = |verdict: Verdict| verdict.reached().map(of_chassis);
    let lags = |reason: Waiting| Verdict::Lags { number: 7, reason: reason.into() };
    assert_eq!(told(Verdict::InForce { number: 7, chassis: 3 }).as_deref(), Some("3/3"));
    let unresponsive = Waiting::ChassisUnresponsive { reached: 2, all: 3, chassis: "'c' is".to_owned() };
    assert_eq!(told(lags(unresponsive)).as_deref(), Some("2/3"));
    let installing = || Waiting::NotInForce { what: "the rules".to_owned() };
    assert_eq!(told(lags(installing())), None);
    assert_eq!(told(lags(Waiting::SouthBoundUnreachable { message: "no".to_owned() })), None);
    assert_eq!(told(Verdict::Ask(installing().into())), None);
}

#[test]
fn without_the_south_bound_database_nothing_new_is_in_force_and_what_was_stays() {
    let programmed = Programmed { generation: Some(2), nb_cfg: Some(7), epoch: None };
    let mut said = Vec::new();
    conditions::set(&mut said, IN_FORCE, ConditionStatus::True, "InForce", "", Some(2), jiff::Timestamp::UNIX_EPOCH);
    let concerned = BTreeSet::from(["a".to_owned()]);
    let of = |known: Known, number: u64| {
        judge(&Observed {
            what: "the rules",
            generation: Some(2),
            programmed: Some(&programmed),
            conditions: &said,
            known,
            number,
            concerned: &concerned,
            installed: Err("no".to_owned()),
            elapsed: Duration::ZERO,
        })
    };
    assert_eq!(of(Known::Nothing, 7), Verdict::InForce { number: 7, chassis: 1 });
    assert!(
        matches!(of(Known::Number(7), 7), Verdict::Lags { reason, .. } if reason.name() == "SouthBoundUnreachable")
    );
    assert!(matches!(of(Known::Committed, 7), Verdict::Ask(reason) if reason.name() == "SouthBoundUnreachable"));
    assert!(matches!(of(Known::Nothing, 6), Verdict::Ask(_)), "the number is of a database that was replaced");
}
