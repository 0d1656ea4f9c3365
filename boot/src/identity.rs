//! Who an agent is.
//!
//! | mode | an agent is known by |
//! |---|---|
//! | `Session` | a key that it made when it started, which redeemed the token: see `grpc/callers.rs`. TLS |
//! | `Bearer` | its identifier, a dot, and a token that was in the kernel arguments of its server: `AGENT.EXPIRY.TAG` |
//! | `Open` | its identifier alone, as upstream |
//!
//! An agent sends its `worker_id` as it is, so `Bearer` asks nothing of unmodified agents. A token is for one agent of one Hardware (by its
//! UID), while its server is claimed for the installation (or erasing) that was on record when the script was fetched, and for a day (60
//! hours), counted from the last full hour, so that a script or an image that is read in parts is one. It shows that
//! somebody fetched the script of that server while the server was to boot; in `Bearer` it may be used more than once. That of a server
//! that no Hardware names is for the agent alone, and is good for the Hardware that discovery makes of it until a machine claims that.
//!
//! Hardware that names a system of its own (`netboot.osie` with `baseURL`, `kernel` or `initrd`: HookOS, Captain) is for agents that others
//! wrote: in `Session` they are known as in `Bearer`.
//!
//! The server's own key is made of the tokens' key, so every replica has the same one, and nothing has to be renewed: the installer is
//! told its pin beside the token, and asks for no authority and no time.

use anyhow::{Context, Result, anyhow, bail, ensure};
use api::labels;
use api::tinkerbell::Hardware;
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use planner::enrol::report_name;
use planner::erase;
use planner::install::Record;
use planner::meta::{annotation, label};
use planner::netboot::session::names_its_system;
use planner::netboot::{Directory, Subject};
use ring::{hkdf, hmac};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use trust::pin::{self, Pin};

/// The longest that an agent is known by the arguments of one start.
const VALID: SignedDuration = SignedDuration::from_hours(24);
/// The same while the disks of its server are erased: the largest take longer than a day.
const VALID_FOR_ERASE: SignedDuration = SignedDuration::from_hours(60);
/// An image that is read by ranges is rendered for each of them, and holds the token.
const HOUR: i64 = 3600;
const SHORTEST_KEY: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Session,
    Bearer,
    Open,
}

#[derive(Clone)]
pub enum Identity {
    Open,
    Bearer(Arc<Keys>),
    Session(Arc<Keys>),
}

pub struct Keys {
    token: hmac::Key,
    server: pin::Key,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Bearer(_) => "bearer",
            Self::Session(_) => "session",
        })
    }
}

/// An agent whose token is its own.
#[derive(Debug)]
pub struct Known<'a, 'd> {
    pub agent: &'a str,
    /// `None`: no Hardware names its server, or none did when it was started.
    pub hardware: Option<&'d Hardware>,
    /// What the token is for.
    pub run: String,
    expiry: Option<i64>,
}

impl Known<'_, '_> {
    pub fn is_in_time(&self, now: Timestamp) -> bool {
        self.expiry.is_none_or(|expiry| now.as_second() < expiry)
    }

    /// The name of the report that its server has.
    pub fn report(&self) -> String {
        let of_hardware = self.hardware.and_then(|hardware| hardware.metadata.name.clone());
        of_hardware.unwrap_or_else(|| report_name(self.agent))
    }
}

impl Identity {
    pub fn read(mode: Mode, key: Option<&Path>) -> Result<Self> {
        let name = match mode {
            Mode::Open => return Ok(Self::Open),
            Mode::Bearer => "bearer",
            Mode::Session => "session",
        };
        let Some(path) = key else { bail!("--agents={name} needs a key: write --token-key=FILE, or --agents=open") };
        let key = std::fs::read(path).with_context(|| format!("--token-key: read {}", path.display()))?;
        let keys = Keys::of(&key).with_context(|| format!("--token-key: {}", path.display()))?;
        Ok(if mode == Mode::Bearer { Self::Bearer(Arc::new(keys)) } else { Self::Session(Arc::new(keys)) })
    }

    fn keys(&self) -> Option<&Arc<Keys>> {
        match self {
            Self::Open => None,
            Self::Bearer(keys) | Self::Session(keys) => Some(keys),
        }
    }

    /// What the server of this Hardware has in its kernel arguments.
    pub fn worker_id(&self, subject: &Subject<'_>, now: Timestamp) -> String {
        let agent = subject.agent();
        let Some(keys) = self.keys() else { return agent.to_owned() };
        let valid = if erase::is_recorded(&subject.hardware.metadata) { VALID_FOR_ERASE } else { VALID };
        let hour = now.as_second().div_euclid(HOUR) * HOUR;
        let expiry = hour.saturating_add(valid.as_secs());
        let tag = hmac::sign(&keys.token, &signed(agent, subject.hardware, expiry));
        let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{agent}.{expiry:x}.{tag}")
    }

    /// Whose token that is, in its time or not; `None`: it is not the agent's that it names.
    pub fn whose<'a, 'd>(&self, directory: &'d Directory, presented: &'a str) -> Option<Known<'a, 'd>> {
        let Some(keys) = self.keys() else {
            return Some(Known {
                agent: presented,
                hardware: directory.by_agent(presented).next(),
                run: String::new(),
                expiry: None,
            });
        };
        let (rest, tag) = presented.rsplit_once('.')?;
        let (agent, expiry) = rest.rsplit_once('.')?;
        let (tag, expiry) = (bytes(tag)?, i64::from_str_radix(expiry, 16).ok()?);
        let is_of = |hardware: &Hardware| hmac::verify(&keys.token, &signed(agent, hardware, expiry), &tag).is_ok();
        if let Some(hardware) = directory.by_agent(agent).find(|hardware| is_of(hardware)) {
            return Some(Known { agent, hardware: Some(hardware), run: run(hardware), expiry: Some(expiry) });
        }
        let stranger = Hardware::default();
        let is_strangers = directory.by_agent(agent).all(was_stranger) && is_of(&stranger);
        is_strangers.then(|| {
            let hardware = directory.by_agent(agent).next();
            Known { agent, hardware, run: run(&stranger), expiry: Some(expiry) }
        })
    }

    /// Workers of the older generation do not say who they are when they read a Workflow.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether there are any.
    pub fn has_sessions(&self) -> bool {
        matches!(self, Self::Session(_))
    }

    /// Whether the agent of this server has to redeem its token.
    pub fn wants_session(&self, hardware: Option<&Hardware>) -> bool {
        self.has_sessions() && !hardware.is_some_and(names_its_system)
    }

    /// Of the server's key, for agents that redeem their token.
    pub fn pin(&self, hardware: &Hardware) -> Option<Pin> {
        self.keys().filter(|_| self.wants_session(Some(hardware))).map(|keys| keys.server.pin())
    }

    /// By which TLS is spoken with those agents that do.
    pub fn tls(&self) -> Result<Option<rustls::ServerConfig>> {
        let config = self.keys().map(|keys| pin::server(&keys.server)).transpose();
        config.context("TLS with agents")
    }
}

impl Keys {
    fn of(key: &[u8]) -> Result<Self> {
        ensure!(key.len() >= SHORTEST_KEY, "the key has {} bytes: write {SHORTEST_KEY} at least", key.len());
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"metalplane boot");
        let mut seed = [0; 32];
        let made =
            salt.extract(key).expand(&[b"agents' server key 1"], hkdf::HKDF_SHA256).and_then(|key| key.fill(&mut seed));
        made.map_err(|_| anyhow!("no key can be made of it"))?;
        let server = pin::Key::of_seed(&seed).map_err(anyhow::Error::msg)?;
        Ok(Self { token: hmac::Key::new(hmac::HMAC_SHA256, key), server })
    }
}

/// Nothing was asked of the server since its agent was let in.
fn was_stranger(hardware: &Hardware) -> bool {
    let meta = &hardware.metadata;
    label(meta, labels::AUTO_DISCOVERED).is_some() && annotation(meta, labels::CLAIMED_BY).is_none()
}

/// What is on record for the server: an erasing, an installation, or nothing.
fn on_record(hardware: &Hardware) -> String {
    let meta = &hardware.metadata;
    let run = match erase::Record::of(meta) {
        Some(record) => Some(format!("erase/{}/{}", record.number, record.workflow)),
        None => Record::of(meta).map(|record| format!("{}/{}", record.number, record.workflow)),
    };
    run.unwrap_or_default()
}

pub fn run(hardware: &Hardware) -> String {
    format!("{}/{}", hardware.metadata.uid.as_deref().unwrap_or_default(), on_record(hardware))
}

/// Fields with their lengths: no two lists of fields are the same bytes.
fn signed(agent: &str, hardware: &Hardware, expiry: i64) -> Vec<u8> {
    let uid = hardware.metadata.uid.clone().unwrap_or_default();
    let mut all = Vec::new();
    for field in ["metalplane agent 1", agent, &uid, &on_record(hardware), &expiry.to_string()] {
        all.extend(field.len().to_be_bytes());
        all.extend(field.as_bytes());
    }
    all
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| (0..32).filter_map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ONE: &str = "52:54:00:00:00:01";
    const TWO: &str = "52:54:00:00:00:02";

    fn hardware(name: &str, mac: &str) -> Hardware {
        let object = json!({"metadata": {"name": name, "uid": name}, "spec": {"interfaces": [{"dhcp": {"mac": mac}}]}});
        serde_json::from_value(object).expect("a Hardware")
    }

    fn directory(change: impl Fn(&mut Hardware)) -> Directory {
        let mut one = hardware("one", ONE);
        change(&mut one);
        Directory::new(vec![Arc::new(one), Arc::new(hardware("two", TWO))])
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_699_999_200 + seconds).expect("a time")
    }

    fn identity(byte: u8) -> Identity {
        Identity::Bearer(Arc::new(Keys::of(&[byte; 32]).expect("a key")))
    }

    fn who<'a>(identity: &Identity, directory: &Directory, presented: &'a str, now: Timestamp) -> Option<&'a str> {
        identity.whose(directory, presented).filter(|known| known.is_in_time(now)).map(|known| known.agent)
    }

    fn worker(identity: &Identity, directory: &Directory, mac: &str) -> String {
        identity.worker_id(&directory.by_mac(mac).expect("one"), at(0))
    }

    #[test]
    fn an_agent_is_known_by_its_own_token_alone() {
        let (identity, directory) = (identity(1), directory(|_| {}));
        let presented = worker(&identity, &directory, ONE);
        assert!(presented.starts_with(ONE) && !presented.contains(' ') && presented.len() < 120, "{presented}");
        assert_eq!(who(&identity, &directory, &presented, at(1)), Some(ONE));
        let (_, token) = presented.split_at(ONE.len());
        let other = worker(&identity, &directory, TWO);
        let others = &other[TWO.len()..];
        let longer = presented.replacen('.', ".f", 1);
        for guessed in [
            ONE.to_owned(),
            format!("{TWO}{token}"),
            format!("{ONE}{others}"),
            longer,
            format!("{ONE}.."),
            format!("{ONE}.ffffffff.{}", "0".repeat(64)),
            presented[..presented.len() - 2].to_owned(),
            String::new(),
        ] {
            assert_eq!(who(&identity, &directory, &guessed, at(1)), None, "{guessed}");
        }
        assert_eq!(who(&self::identity(2), &directory, &presented, at(1)), None, "another key");
        assert_eq!(who(&identity, &directory, &presented, at(24 * 3600)), None, "a day later");
        assert_eq!(who(&Identity::Open, &directory, ONE, at(1)), Some(ONE));
        assert_eq!(worker(&Identity::Open, &directory, ONE), ONE);
    }

    #[test]
    fn what_is_read_in_parts_within_an_hour_has_one_token() {
        let (identity, directory) = (identity(1), directory(|_| {}));
        let subject = directory.by_mac(ONE).expect("one");
        let token = |second| identity.worker_id(&subject, at(second));
        let full = 3600 - at(0).as_second().rem_euclid(3600);
        assert_eq!(token(full), token(full + 3599));
        assert_ne!(token(full), token(full + 3600));
        assert_eq!(who(&identity, &directory, &token(full + 3599), at(full + 24 * 3600 - 1)), Some(ONE));
        assert_eq!(who(&identity, &directory, &token(full + 3599), at(full + 24 * 3600)), None);
    }

    #[test]
    fn a_token_is_of_one_hardware_and_of_one_installation() {
        let identity = identity(1);
        let record = |text: &'static str| {
            directory(move |one| {
                let annotations = [("metalplane.io/claimed-by", "m"), ("metalplane.io/install", text)];
                one.metadata.annotations = Some(annotations.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
            })
        };
        let presented = worker(&identity, &record("1/Begun/w"), ONE);
        let known = |directory: &Directory| who(&identity, directory, &presented, at(1)).is_some();
        assert!(known(&record("1/Begun/w")) && known(&record("1/Done/w")), "its last report may come late");
        assert!(!known(&record("2/Begun/v")), "the next installation");
        assert!(!known(&directory(|_| {})), "released");
        let erases = |text: &'static str| {
            directory(move |one| {
                let annotations = [("metalplane.io/install", "1/Done/w"), ("metalplane.io/erase", text)];
                one.metadata.annotations = Some(annotations.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
            })
        };
        assert!(!known(&erases("1/Begun/w")), "an installer of before has no part in the erasing");
        let eraser = worker(&identity, &erases("1/Begun/e"), ONE);
        let day = at(25 * 3600);
        assert!(
            who(&identity, &erases("1/Done/e"), &eraser, day).is_some(),
            "the largest disks take longer than a day"
        );
        assert!(who(&identity, &erases("2/Begun/f"), &eraser, day).is_none(), "the next try");
        let presented = worker(&identity, &directory(|_| {}), ONE);
        let anew = directory(|one| one.metadata.uid = Some("anew".to_owned()));
        assert_eq!(who(&identity, &anew, &presented, at(1)), None, "a Hardware made anew");
    }

    #[test]
    fn a_strangers_token_is_good_until_its_server_is_claimed() {
        let identity = identity(1);
        let none = Directory::default();
        let presented = identity.worker_id(&none.by_mac_or_stranger(ONE, true).expect("a stranger"), at(0));
        let known = |directory: &Directory| who(&identity, directory, &presented, at(1)) == Some(ONE);
        assert!(known(&none));
        let made = |claimed: bool, label: &'static str| {
            directory(move |one| {
                one.metadata.labels = Some([(label.to_owned(), "true".to_owned())].into());
                let claim = [("metalplane.io/claimed-by".to_owned(), "m".to_owned())];
                one.metadata.annotations = claimed.then(|| claim.into());
            })
        };
        assert!(known(&made(false, "tinkerbell.org/auto-discovered")));
        assert!(!known(&made(true, "tinkerbell.org/auto-discovered")), "a machine's Workflow is not for it");
        assert!(!known(&made(false, "other")), "somebody has written it down");
        let (_, token) = presented.split_at(ONE.len());
        assert_eq!(who(&identity, &none, &format!("{TWO}{token}"), at(1)), None, "another agent's");
    }

    #[test]
    fn the_installer_has_sessions_and_what_others_wrote_has_not() {
        let session = |byte| Identity::Session(Arc::new(Keys::of(&[byte; 32]).expect("keys")));
        let osie = |osie: serde_json::Value| {
            let netboot = json!({"osie": osie});
            directory(move |one| {
                one.spec.interfaces[0].netboot = Some(serde_json::from_value(netboot.clone()).expect("netboot"));
            })
        };
        let pin = |identity: &Identity, directory: &Directory| {
            identity.pin(directory.by_mac(ONE).expect("one").hardware).map(|pin| pin.to_string())
        };
        let own = osie(json!({"kernelParams": ["a=b"]}));
        let pinned = pin(&session(1), &own);
        assert!(pinned.as_ref().is_some_and(|pin| pin.starts_with("sha256:")), "{pinned:?}");
        assert_eq!(pin(&session(1), &directory(|_| {})), pinned, "another process has the same key");
        assert_ne!(pin(&session(2), &own), pinned);
        for named in [json!({"baseURL": "http://images/hook"}), json!({"kernel": "k"}), json!({"initrd": "i"})] {
            assert_eq!(pin(&session(1), &osie(named.clone())), None, "{named}");
        }
        assert_eq!(pin(&identity(1), &own), None, "bearer");
        assert!(session(1).wants_session(None) && !identity(1).wants_session(None), "a stranger runs the installer");
        assert!(session(1).tls().expect("TLS").is_some() && Identity::Open.tls().expect("no TLS").is_none());
    }

    #[test]
    fn a_key_is_wanted_and_long_enough() {
        let said = |result: Result<Identity>| format!("{:#}", result.expect_err("refused"));
        assert!(said(Identity::read(Mode::Bearer, None)).contains("--token-key=FILE"));
        assert!(said(Identity::read(Mode::Session, None)).contains("--agents=session needs a key"));
        assert!(said(Keys::of(b"short").map(|_| Identity::Open)).contains("write 32 at least"));
        assert!(Identity::read(Mode::Open, None).is_ok_and(|identity| identity.is_open()));
    }
}
