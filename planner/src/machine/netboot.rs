//! The ladder of the next boot from the network: by what a BMC is asked for that.
//!
//! A BMC may take an override for one boot and boot the disk all the same, keep a mode that it was not asked for, or not know of such an override.
//! So there are several rungs: an override for the next boot alone, one for every boot, the boot option of the server's NIC first in the boot order,
//! and the installer's ISO in the BMC's virtual CD drive, by which the network is not asked at all. A rung that the BMC does not offer is left out,
//! and one that it does not show after it was told is passed over. A host that was started, and of which nothing was heard on the network although
//! its firmware is done, is powered off and started by the next rung: what ran meanwhile was some other system, so of the disk nothing is concluded.
//! Each rung is tried once; the last one waits for a person.
//!
//! By which rung a host was started is on record with its power action. The one that worked is kept at the Hardware, and is the first of the next
//! time. What was changed is put back once the server is installed ([`undo`]), and at its release ([`boot::restore`]).

use super::boot::{self, is_so, made, missing};
use super::claim::strategy;
use super::draft::Draft;
use super::medium;
use super::observed::Belongings;
use super::plan::{Action, PowerOrder};
use super::power;
use super::prepare::{ATTEMPTS, fresh};
use super::rung::Rung;
use super::situation::{Owned, unread};
use crate::about::About;
use crate::boot_option;
use crate::host::{
    BmcNeed, BootChange, BootConfiguration, BootMode, BootSource, HostObserved, Lack, Medium, Post, PowerAction,
};
use crate::meta::{annotation, name};
use crate::reason::{Blocked, Reason, Waiting};
use crate::writer::down;
use api::labels;
use api::tinkerbell::Hardware;
use jiff::{SignedDuration, Timestamp};

/// Firmware that is done with POST asks the network at once, or something else was booted.
const SILENT: SignedDuration = SignedDuration::from_mins(3);
/// As long as the BMC says that POST is not over the power stays: firmware may be being updated. Some never say that it is over.
const IN_POST: SignedDuration = SignedDuration::from_mins(40);
/// Some BMCs go on telling of the start before. No server is through POST so soon.
const STALE: SignedDuration = SignedDuration::from_secs(60);
/// How often it is looked whether POST is over.
const EVERY: SignedDuration = SignedDuration::from_secs(30);

/// What the BMC offers, the one that worked before first.
fn rungs(o: &Belongings, hardware: &Hardware, seen: &HostObserved) -> Vec<(Rung, BootChange)> {
    let dhcp = strategy::netboot(hardware).and_then(|interface| interface.dhcp.as_ref());
    let mode = match dhcp.and_then(|dhcp| dhcp.uefi) {
        Some(false) => BootMode::Legacy,
        Some(true) | None => BootMode::Uefi,
    };
    let (boot, source) = (&seen.boot, BootSource::Pxe);
    let option = || {
        let mac = boot::bytes(dhcp?.mac.as_deref()?, ':')?;
        boot_option::of_network(mac, &boot.options).map(|option| option.reference.clone())
    };
    // Of a BMC that does not tell what it takes, it is tried.
    let takes_once =
        boot.allowed_next.contains(&source) || boot.allowed_next.is_empty() && boot.allowed_always.is_empty();
    let change = |rung: Rung| match rung {
        Rung::Once => takes_once.then_some(BootChange::Next { source, mode }),
        Rung::Always => boot.allowed_always.contains(&source).then_some(BootChange::Always { source, mode }),
        Rung::Option if mode == BootMode::Legacy || missing(seen).is_some() => None,
        Rung::Option => option().map(|reference| BootChange::First { reference }),
        // The ISO is UEFI's.
        Rung::Medium if mode == BootMode::Legacy || seen.lacks(Lack::VirtualMedia) => None,
        Rung::Medium => {
            let takes = medium::image(o, hardware).is_some() && boot.allowed_next.contains(&BootSource::Cd);
            takes.then_some(BootChange::Next { source: BootSource::Cd, mode })
        }
    };
    let mut all: Vec<_> = Rung::ALL.into_iter().filter_map(|rung| Some((rung, change(rung)?))).collect();
    let worked = annotation(&hardware.metadata, labels::NETBOOT_BY).and_then(Rung::parse);
    let first = all.iter().position(|(rung, _)| Some(*rung) == worked).unwrap_or_default();
    all.rotate_left(first);
    all
}

/// By which the host was last started for this run, or shall be.
fn recorded(o: &Owned<'_>, run: &str) -> Option<Rung> {
    o.record.netboot_by.filter(|_| o.record.started_for == Some(run)).and_then(Rung::parse)
}

/// The rungs from the one on that is on record.
fn left(o: &Owned<'_>, hardware: &Hardware, run: &str, seen: &HostObserved) -> Vec<(Rung, BootChange)> {
    let mut all = rungs(o, hardware, seen);
    let at = recorded(o, run).and_then(|rung| all.iter().position(|(known, _)| *known == rung));
    all.drain(..at.unwrap_or_default());
    all
}

/// The next boot of a host that is off is from the network, by a reading of this moment; by which rung.
pub(super) fn ask(
    o: &Owned<'_>,
    hardware: &Hardware,
    run: &str,
    now: Timestamp,
    draft: &mut Draft,
) -> Result<&'static str, Reason> {
    let hardware_name = name(&hardware.metadata).to_owned();
    let Some(seen) = fresh(o, draft) else {
        return Err(Waiting::BootOrderSetting { hardware: hardware_name }.into());
    };
    let left = left(o, hardware, run, seen);
    let Some(last) = left.last() else {
        let allowed = allowed(&seen.boot);
        return Err(Blocked::NetbootUnsupported { hardware: hardware_name, allowed }.into());
    };
    // On record before the host asks the network: who answers there knows the server by it.
    if annotation(&hardware.metadata, labels::SYSTEM_UUID) != seen.system_uuid.as_deref() {
        draft.act(Action::RememberSystemUuid { name: hardware_name.clone(), uuid: seen.system_uuid.clone() });
        return Err(Waiting::Creating { what: About::ServerRecord(hardware_name) }.into());
    }
    // What was there before the last start is no answer to what is asked for now.
    let is_asked = o.bmc.boot_sent_at.is_some_and(|sent| o.record.at.is_none_or(|at| sent >= at));
    let has_medium = medium::is_inserted(o, hardware, seen);
    // The medium was asked for: what the BMC boots from comes next, whatever else is so.
    let medium = left.iter().find(|(rung, _)| *rung == Rung::Medium);
    let medium = medium.filter(|_| has_medium && is_asked && o.bmc.boot_attempts < ATTEMPTS);
    let told = match medium {
        Some(medium) => std::slice::from_ref(medium),
        None if is_asked => &left[..],
        None => &left[..1],
    };
    let is_taken =
        |(rung, change): &&(Rung, BootChange)| is_so(change, &seen.boot) && (*rung != Rung::Medium || has_medium);
    if let Some((rung, _)) = told.iter().find(is_taken) {
        return Ok(rung.word());
    }
    // What was told so often and is not shown is not taken.
    let passed = usize::try_from(o.bmc.boot_attempts / ATTEMPTS).unwrap_or_default();
    let (rung, change) = medium.unwrap_or_else(|| left.get(passed).unwrap_or(last));
    if *rung == Rung::Medium
        && let Some(reason) = medium::inserted(o, hardware, now, draft)
    {
        return Err(reason);
    }
    match made(o, hardware, change.clone(), now, draft) {
        Some(reason) => Err(reason),
        None => Ok(rung.word()),
    }
}

fn allowed(boot: &BootConfiguration) -> String {
    let list = |sources: &[BootSource]| match sources {
        [] => "none".to_owned(),
        sources => sources.iter().map(|source| format!("{source:?}")).collect::<Vec<_>>().join(", "),
    };
    format!("once {}, continuously {}", list(&boot.allowed_next), list(&boot.allowed_always))
}

/// Of a host that was started for this run at `began`, and of which nothing was heard on the network: it is powered off, for the next rung.
/// `is_over`: it had the time of a server of whose POST nothing is known.
pub(super) fn next(
    o: &Owned<'_>,
    hardware: &Hardware,
    (run, began): (&str, Timestamp),
    is_over: bool,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let seen = o.bmc.host.last()?;
    let [_, (rung, _), ..] = left(o, hardware, run, seen)[..] else { return None };
    down::read_host(o.bmc.read_at, EVERY, now, draft);
    // What it told before the start, or has told since then, is of the start before.
    let since = o.bmc.listing_since.filter(|since| *since > began + STALE);
    let had_its_time = match (seen.post, since) {
        (Post::Running | Post::InSetup, _) => now >= began + IN_POST,
        (Post::Done, Some(since)) => o.bmc.read_at.is_some_and(|read| read >= since + SILENT),
        (Post::Done, None) | (Post::Unknown, _) => is_over,
    };
    if !had_its_time {
        return None;
    }
    let hardware = name(&hardware.metadata).to_owned();
    let order = PowerOrder {
        started_for: Some(run.to_owned()),
        netboot_by: Some(rung.word().to_owned()),
        ..PowerOrder::plain(PowerAction::ForceOff)
    };
    if o.bmc.host.fresh().is_none() {
        draft.need_bmc(BmcNeed::Now);
        return Some(unread(o, hardware));
    }
    let next = Waiting::NetbootNext { hardware: hardware.clone(), by: rung.told() };
    Some(power::send(o, &hardware, order, draft).unwrap_or_else(|| next.into()))
}

/// Which rungs a host was started by, for a person.
pub(super) fn tried(o: &Owned<'_>, hardware: &Hardware, run: &str) -> Option<String> {
    let last = recorded(o, run)?;
    let all = rungs(o, hardware, o.bmc.host.last()?);
    let at = all.iter().position(|(rung, _)| *rung == last).filter(|at| *at > 0)?;
    let tried = all.iter().take(at + 1).map(|(rung, _)| rung.told()).collect::<Vec<_>>().join(", then by ");
    Some(format!("it was started by {tried}"))
}

/// An agent has come: so it is asked first the next time.
pub(super) fn worked(o: &Owned<'_>, hardware: &Hardware, run: &str, draft: &mut Draft) {
    let Some(rung) = recorded(o, run) else { return };
    let known = annotation(&hardware.metadata, labels::NETBOOT_BY).and_then(Rung::parse).unwrap_or(Rung::Once);
    if rung != known {
        let by = Some(rung.word()).filter(|_| rung != Rung::Once).map(str::to_owned);
        draft.act(Action::RememberNetboot { name: name(&hardware.metadata).to_owned(), by });
    }
}

/// A server that is installed asks the network no more. `None`: it is so, nothing was changed, or the BMC cannot be brought to it.
pub(super) fn undo(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let before = annotation(&hardware.metadata, labels::BOOT_ORDER_BEFORE)?;
    let was = medium::has_worked(hardware) || o.record.netboot_by.and_then(Rung::parse) == Some(Rung::Medium);
    if o.bmc.host.last()?.medium == Medium::Unknown {
        medium::eject_unseen(o, hardware, was, draft);
    } else if let Some(reason) = medium::ejected(o, hardware, was, now, draft) {
        return Some(reason);
    }
    let seen = o.bmc.host.last().filter(|_| o.bmc.boot_attempts < ATTEMPTS)?;
    let was_first = |reference: &str| before.split(',').next() == Some(reference);
    let lasts = |(_, change): &(Rung, BootChange)| match change {
        BootChange::Always { .. } => is_so(change, &seen.boot),
        BootChange::First { reference } => is_so(change, &seen.boot) && !was_first(reference),
        _ => false,
    };
    match rungs(o, hardware, seen).iter().any(lasts) {
        true => made(o, hardware, boot::before(before), now, draft),
        false => None,
    }
}
