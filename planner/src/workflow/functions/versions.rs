//! `semverCompare`: whether a version is one that a constraint asks for, by the rules of the library that sprig has for it (Masterminds'
//! semver): operators, `x` and `*` in place of numbers, ranges with a hyphen, commas and spaces for "and", `||` for "or". `semver` itself is
//! not served: it gives an object of Go's, with methods.

use super::{Function, Meter, fault, is_true, metered, str_of};
use gotmpl::{Result, Value};
use regex::Regex;
use std::cmp::Ordering;
use std::sync::LazyLock;

pub(super) const FUNCTIONS: &[Function] = &[metered("semverCompare", "ss", compare)];

/// Of a constraint, and of a version.
const LONGEST: usize = 1024;
const SPACE: &str = r"[\t\n\x0c\r\x20]";
const BEHIND: &str = r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?";
const OPERATORS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

static VERSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"^v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?{BEHIND}$")).ok());
static ONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let version = pattern();
    Regex::new(&format!("^{SPACE}*({OPERATORS}){SPACE}*({version}){SPACE}*$")).ok()
});
static RANGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let version = pattern();
    Regex::new(&format!("{SPACE}*({version}){SPACE}+-{SPACE}+({version}){SPACE}*")).ok()
});
static EACH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("({OPERATORS}){SPACE}*({})", pattern())).ok());
static SOUND: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let version = pattern();
    let one = format!("({OPERATORS}){SPACE}*({version}){SPACE}*");
    Regex::new(&format!("^({SPACE}*{one})((?:{SPACE}+|,{SPACE}*){one})*$")).ok()
});

/// A version as a constraint has it: with anything of these for a number.
fn pattern() -> String {
    format!(r"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?{BEHIND}")
}

struct Version {
    numbers: [u64; 3],
    /// Behind a hyphen.
    pre: String,
}

struct Constraint {
    operator: String,
    version: Version,
    /// A number is missing, or stands for any: which.
    any_minor: bool,
    any_patch: bool,
    any: bool,
}

fn compare(a: &[Value], meter: &Meter) -> Result<Value> {
    let (constraint, version) = (str_of(&a[0]), str_of(&a[1]));
    if constraint.len().max(version.len()) > LONGEST {
        return Err(fault(format!("semverCompare: a text is longer than {LONGEST} bytes")));
    }
    // It is read a few times.
    meter.spend(8 * LONGEST)?;
    let alternatives = constraints(constraint);
    let alternatives = alternatives.ok_or_else(|| fault("semverCompare: this is no constraint"))?;
    let version = read(version).ok_or_else(|| fault("semverCompare: this is no semantic version"))?;
    is_true(alternatives.iter().any(|all| all.iter().all(|constraint| constraint.takes(&version))))
}

fn read(text: &str) -> Option<Version> {
    let found = VERSION.as_ref()?.captures(text)?;
    let number = |group: usize| match found.get(group) {
        Some(digits) => digits.as_str().trim_start_matches('.').parse().ok(),
        None => Some(0),
    };
    let numbers = [number(1)?, number(2)?, number(3)?];
    let pre = found.get(5).map_or("", |pre| pre.as_str()).to_owned();
    let is_wrong =
        |part: &str| part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit());
    (!pre.split('.').any(is_wrong)).then_some(Version { numbers, pre })
}

/// One of the outer ones has to hold, and all in it.
fn constraints(text: &str) -> Option<Vec<Vec<Constraint>>> {
    let mut rewritten = text.to_owned();
    for range in RANGE.as_ref()?.captures_iter(text) {
        // Both versions have nine groups of their own.
        let (all, from, to) = (range.get(0)?.as_str(), range.get(1)?.as_str(), range.get(11)?.as_str());
        rewritten = rewritten.replacen(all, &format!(">= {from}, <= {to} "), 1);
    }
    let (each, sound) = (EACH.as_ref()?, SOUND.as_ref()?);
    let all = rewritten.split("||").map(|all| {
        let parts = each.find_iter(all).map(|one| Constraint::read(one.as_str()));
        if sound.is_match(all) { parts.collect::<Option<Vec<_>>>() } else { None }
    });
    all.collect()
}

impl Constraint {
    fn read(text: &str) -> Option<Self> {
        let found = ONE.as_ref()?.captures(text)?;
        let group = |at: usize| found.get(at).map_or("", |group| group.as_str());
        let is_any = |text: &str| matches!(text.trim_start_matches('.'), "" | "x" | "X" | "*");
        let (major, minor, patch, pre) = (group(3), group(4), group(5), group(6));
        let (mut any_minor, mut any_patch) = (false, false);
        let whole;
        let (any, version) = if is_any(major) {
            whole = format!("0.0.0{pre}");
            (true, whole.as_str())
        } else if is_any(minor) {
            any_minor = true;
            whole = format!("{major}.0.0{pre}");
            (true, whole.as_str())
        } else if is_any(patch) {
            any_patch = true;
            whole = format!("{major}{minor}.0{pre}");
            (true, whole.as_str())
        } else {
            (false, group(2))
        };
        Some(Self { operator: group(1).to_owned(), version: read(version)?, any_minor, any_patch, any })
    }

    /// A version before a release is taken by a constraint that names such a one alone.
    fn takes(&self, version: &Version) -> bool {
        let is_before_release = !version.pre.is_empty() && self.version.pre.is_empty();
        let order = version.order(&self.version);
        match self.operator.as_str() {
            "!=" => self.differs(version, is_before_release),
            _ if is_before_release => false,
            ">" => self.is_exceeded(version),
            "<" => order.is_lt(),
            ">=" | "=>" => order.is_ge(),
            "<=" | "=<" => self.is_reached(version),
            "~" | "~>" => self.is_near(version),
            "^" => self.is_compatible(version),
            _ if self.any => self.is_near(version),
            _ => order.is_eq(),
        }
    }

    fn differs(&self, version: &Version, is_before_release: bool) -> bool {
        if !self.any {
            return version.order(&self.version).is_ne();
        }
        let ([major, minor, patch], own) = (version.numbers, self.version.numbers);
        if is_before_release {
            false
        } else if major != own[0] || (minor != own[1] && !self.any_minor) {
            true
        } else if self.any_minor {
            false
        } else if patch != own[2] && !self.any_patch {
            true
        } else if self.any_patch {
            let has_pre = !version.pre.is_empty() || !self.version.pre.is_empty();
            has_pre && order_before_release(&version.pre, &self.version.pre).is_ne()
        } else {
            version.order(&self.version).is_ne()
        }
    }

    fn is_exceeded(&self, version: &Version) -> bool {
        let ([major, minor, _], own) = (version.numbers, self.version.numbers);
        match major.cmp(&own[0]) {
            _ if !self.any => version.order(&self.version).is_gt(),
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal if self.any_minor => false,
            Ordering::Equal if self.any_patch => minor > own[1],
            Ordering::Equal => version.order(&self.version).is_gt(),
        }
    }

    fn is_reached(&self, version: &Version) -> bool {
        if !self.any {
            return version.order(&self.version).is_le();
        }
        let ([major, minor, _], own) = (version.numbers, self.version.numbers);
        major < own[0] || (major == own[0] && (minor <= own[1] || self.any_minor))
    }

    fn is_near(&self, version: &Version) -> bool {
        if version.order(&self.version).is_lt() {
            return false;
        }
        let ([major, minor, _], own) = (version.numbers, self.version.numbers);
        // All zeros, or a star, is every version.
        (own == [0; 3] && !self.any_minor && !self.any_patch)
            || (major == own[0] && (minor == own[1] || self.any_minor))
    }

    fn is_compatible(&self, version: &Version) -> bool {
        if version.order(&self.version).is_lt() {
            return false;
        }
        let ([major, minor, patch], own) = (version.numbers, self.version.numbers);
        if own[0] > 0 || self.any_minor {
            return major == own[0];
        }
        if major > 0 {
            return false;
        }
        if own[1] > 0 || self.any_patch {
            return minor == own[1];
        }
        minor == 0 && patch == own[2]
    }
}

impl Version {
    fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.as_str(), other.pre.as_str()) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (own, other) => order_before_release(own, other),
        })
    }
}

/// By the parts between dots: numbers by their size and before all else, what is missing first.
fn order_before_release(one: &str, other: &str) -> Ordering {
    let (mut ones, mut others) = (one.split('.'), other.split('.'));
    loop {
        let (one, other) = (ones.next(), others.next());
        if one.is_none() && other.is_none() {
            return Ordering::Equal;
        }
        let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
        let order = match (one.parse::<u64>().ok(), other.parse::<u64>().ok()) {
            _ if one.is_empty() || other.is_empty() => one.len().cmp(&other.len()),
            (Some(one), Some(other)) => one.cmp(&other),
            (None, None) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
        };
        if order.is_ne() {
            return order;
        }
    }
}
