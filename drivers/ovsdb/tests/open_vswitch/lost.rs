//! Answers of the north-bound database that are lost, and questions that never arrived: wherever the connection breaks, the caller is told
//! `Unreachable`, reads anew and plans anew; then everything is there, and once.

use crate::lab::{OpenVSwitchLab, in_namespace, skipped};
use crate::northd::{A, port, subnet};
use crate::proxy::Proxy;
use crate::rows::{handle_at, refreshed};
use ovsdb::OvnNorthBound;
use ovsdb::north_bound::DATABASE;
use planner::network::rows::{Direction, Group, Protocol, Row, Rule, Table, Vpc, diff};
use ports::north_bound::{NorthBoundError, Token};
use ports::{ErrorClass, NorthBound};

const SITE: &str = "site";

/// A database, a controller behind a connection that breaks, and who sees what has become of it.
struct Site {
    lab: OpenVSwitchLab,
    proxy: Proxy,
    north_bound: OvnNorthBound,
    witness: OvnNorthBound,
}

fn token(transitions: u64) -> Token {
    Token { lease_uid: "lease".to_owned(), transitions }
}

impl Site {
    async fn start() -> Self {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        let proxy = Proxy::before(lab.path("db.sock"), lab.path("cut.sock"), &[]);
        let direct = format!("unix:{}", lab.path("db.sock"));
        let (north_bound, witness) = (handle_at(&proxy.address, SITE), handle_at(&direct, SITE));
        refreshed(&north_bound).await;
        north_bound.take_token(&token(1), None).await.expect("nobody leads yet");
        Self { lab, proxy, north_bound, witness }
    }

    /// The next connection that has carried so many bytes ends: of questions or, every other time, of answers.
    fn cut(&self, step: usize) {
        match step % 2 {
            0 => self.proxy.cut_after_requests(step / 2 * 300),
            _ => self.proxy.cut_after_answers(step / 2 * 60),
        }
    }

    /// Whoever looks is in step from here on.
    async fn mend(&self) {
        self.proxy.cut_no_more();
        refreshed(&self.witness).await;
        refreshed(&self.north_bound).await;
    }

    fn is_done(&self, uid: &str, wanted: &[Row]) -> bool {
        diff(wanted, &self.witness.rows(uid).expect("in step")).is_empty()
    }
}

/// What became of those whose answer was lost.
#[derive(Debug, Default)]
struct Unknown {
    done: usize,
    undone: usize,
}

impl Unknown {
    fn count(&mut self, done: bool) {
        *(if done { &mut self.done } else { &mut self.undone }) += 1;
    }

    /// The cuts were before the server's work and after it.
    fn assert_both(&self, each: usize) {
        assert!(self.done >= each && self.undone >= each, "{self:?}");
    }
}

fn group(uid: &str, rules: usize) -> Vec<Row> {
    let rule = |port: u16| Rule {
        direction: Direction::Ingress,
        peers: None,
        ports: vec![(Protocol::Tcp, Some((port, port)))],
        icmp: None,
    };
    Group { uid: uid.to_owned(), rules: (80..).take(rules).map(rule).collect() }.rows(SITE)
}

fn vpc(uid: &str) -> Vec<Row> {
    Vpc { uid: uid.to_owned(), hops: Vec::new() }.rows(SITE)
}

#[test]
fn a_change_whose_answer_is_lost_is_there_once() {
    let name = "a_change_whose_answer_is_lost_is_there_once";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let site = Site::start().await;
        let north_bound = &site.north_bound;
        for rows in [vpc("v"), subnet("s1"), group("g", 1), group("h", 0)] {
            north_bound.apply(&diff(&rows, &[])).await.expect("written");
        }
        // Rows with names that the database itself keeps unique and rows without, made, changed, moved and deleted.
        let turns = [
            (A.uid, port(&A, &["g"])),
            ("g", group("g", 4)),
            ("w", vpc("w")),
            ("s2", subnet("s2")),
            (A.uid, port(&A, &["h"])),
            ("g", group("g", 1)),
            ("s2", Vec::new()),
            ("w", Vec::new()),
            (A.uid, Vec::new()),
        ];
        let mut unknown = Unknown::default();
        for step in 0..18 {
            for (uid, wanted) in &turns {
                let change = diff(wanted, &north_bound.rows(uid).expect("in step"));
                assert!(!change.is_empty(), "{uid}: each turn changes something");
                site.cut(step);
                let answer = north_bound.apply(&change).await;
                site.mend().await;
                let done = site.is_done(uid, wanted);
                match answer {
                    Ok(()) => assert!(done, "step {step}, {uid}: answered and not done"),
                    Err(error) => {
                        assert_eq!(error.class(), ErrorClass::Unreachable, "step {step}, {uid}: {error}");
                        unknown.count(done);
                    }
                }
                let again = diff(wanted, &north_bound.rows(uid).expect("in step"));
                assert_eq!(again.is_empty(), done, "step {step}, {uid}: what is read anew is what is there");
                north_bound.apply(&again).await.unwrap_or_else(|error| panic!("step {step}, {uid}: {error}"));
                site.mend().await;
                let there = site.witness.rows(uid).expect("in step");
                assert!(site.is_done(uid, wanted) && there.len() == wanted.len(), "step {step}, {uid}: {there:#?}");
            }
        }
        unknown.assert_both(20);
        // Of nobody either, in the database itself.
        let wanted = [vpc("v"), subnet("s1"), group("g", 1), group("h", 0)].concat();
        for table in Table::ALL {
            let there = site.lab.tool("ovn-nbctl", &["--bare", "--columns=_uuid", "list", table.name()]);
            let wanted = wanted.iter().filter(|row| row.table == table).count();
            assert_eq!(there.split_whitespace().count(), wanted, "{}: {there}", table.name());
        }
    });
}

/// Who does not know whether the token was taken writes nothing.
#[test]
fn a_token_whose_answer_is_lost_is_taken_again() {
    let name = "a_token_whose_answer_is_lost_is_taken_again";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let site = Site::start().await;
        let (north_bound, mut unknown) = (&site.north_bound, Unknown::default());
        for step in 0..40 {
            let before = north_bound.token().expect("in step").expect("taken");
            let next = token(before.transitions + 1);
            site.cut(step % 12);
            let answer = north_bound.take_token(&next, Some(&before)).await;
            site.mend().await;
            let there = site.witness.token().expect("in step");
            let wanted = if step % 2 == 0 { vpc("w") } else { Vec::new() };
            let change = diff(&wanted, &north_bound.rows("w").expect("in step"));
            match answer {
                Ok(()) => assert_eq!(there.as_ref(), Some(&next), "step {step}"),
                Err(error) => {
                    assert_eq!(error.class(), ErrorClass::Unreachable, "step {step}: {error}");
                    let taken = there.as_ref() == Some(&next);
                    assert!(taken || there == Some(before), "step {step}: {there:?}");
                    unknown.count(taken);
                    if taken {
                        let refused = north_bound.apply(&change).await.expect_err("with the token of before");
                        assert!(matches!(refused, NorthBoundError::NotLeader(_)), "step {step}: {refused}");
                    }
                }
            }
            assert_eq!(north_bound.token().as_ref(), Ok(&there), "step {step}: what is read anew is what is there");
            north_bound.take_token(&next, there.as_ref()).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
            north_bound.apply(&change).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
            site.mend().await;
            assert!(site.is_done("w", &wanted), "step {step}");
        }
        unknown.assert_both(6);
        let ids = site.lab.tool("ovn-nbctl", &["get", "nb_global", ".", "external_ids"]);
        assert_eq!(ids.matches("metalplane-token-").count(), 1, "{ids}");
    });
}

/// The number that was asked for is never given to a later question.
#[test]
fn a_number_whose_answer_is_lost_is_never_given_again() {
    let name = "a_number_whose_answer_is_lost_is_never_given_again";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let site = Site::start().await;
        let mut unknown = Unknown::default();
        for step in 0..24 {
            let before = site.north_bound.number().expect("in step");
            site.cut(step % 8);
            let answer = site.north_bound.raise(0).await;
            site.mend().await;
            let there = site.witness.number().expect("in step");
            match answer {
                Ok(number) => assert_eq!(number, there, "step {step}"),
                Err(error) => {
                    assert_eq!(error.class(), ErrorClass::Unreachable, "step {step}: {error}");
                    assert!(there == before || there == before + 1, "step {step}: asked for once: {before}, {there}");
                    unknown.count(there > before);
                }
            }
            let next = site.north_bound.raise(0).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert!(next > there, "step {step}: {there}, {next}");
            site.mend().await;
        }
        unknown.assert_both(5);
    });
}
