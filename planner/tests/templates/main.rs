//! Rendering is Go's: the same text and data through our engine and through Go's text/template with sprig (`tools/gotemplate`) give the
//! same bytes, or neither gives any. What differs on purpose is listed here by name, and in docs/design/pxe.md, section 7.

mod chosen;
mod drawn;
mod examples;
mod libraries;
mod regexes;

use planner::workflow::{functions, plain};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Functions of sprig's hermetic set that are refused by name, when a text is parsed.
const NOT_SERVED: &[&[&str]] = &[
    // They draw, or look at the clock or its zone.
    &["ago", "must_date_modify", "mustDateModify", "mustToDate", "toDate", "unixEpoch"],
    &["randInt", "shuffle"],
    // Keys and passwords: they would stand in a status.
    &["bcrypt", "htpasswd", "derivePassword", "encryptAES", "decryptAES", "genPrivateKey", "buildCustomCert", "genCA"],
    &["genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey"],
    // They change a dict in place.
    &["set", "unset", "merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite"],
    // Libraries of Go's own, whose answers no other gives.
    &["semver", "urlParse", "urlJoin"],
];

/// Why ours may refuse what Go renders: parts of its own words.
const REFUSED: &[&str] = &[
    "would end within a character",
    "this is no base64",
    "this is no base32",
    "this is no UTF-8",
    "are not compared here",
    "int or int64",
    "items at most",
    "256 KiB",
    "0 to 1024 columns",
    "splitn: write a separator",
    "a number is out of range",
    "expected map; got nil",
    "printf: ",
    "to assign to",
    "is not served in regular expressions",
    "words are told apart in ASCII alone",
];

/// Where ours may render what Go refuses: a whole number has one type here, a comment may have spaces about it, and a template may
/// be defined within a block.
const RENDERED: &[&str] = &[
    "expected int; got int64",
    "expected float64; got int64",
    "expected float64; got int",
    "unexpected \"/\" in command",
    "comment ends before closing delimiter",
    "unexpected <define> in command",
];

struct Question {
    template: String,
    data: Value,
}

fn question(template: impl Into<String>, data: &Value) -> Question {
    Question { template: template.into(), data: data.clone() }
}

#[derive(Deserialize)]
struct Told {
    /// In base64.
    text: Option<String>,
    error: Option<String>,
}

struct Go(PathBuf);

impl Go {
    /// `None`, after a word to whoever runs the test: there is no Go.
    fn find(test: &str) -> Option<Self> {
        if let Err(error) = Command::new("go").arg("version").output() {
            eprintln!("SKIP {test}: Go is missing ({error}), which builds gotemplate");
            return None;
        }
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/build.sh");
        let built = Command::new(build).arg("gotemplate").output().expect("tools/build.sh runs");
        assert!(built.status.success(), "tools/build.sh gotemplate: {}", String::from_utf8_lossy(&built.stderr));
        Some(Self(Path::new(String::from_utf8_lossy(&built.stdout).trim()).join("gotemplate")))
    }

    fn functions(&self) -> BTreeSet<String> {
        let listed = Command::new(&self.0).arg("--functions").output().expect("gotemplate runs");
        String::from_utf8(listed.stdout).expect("names").lines().map(str::to_owned).collect()
    }

    /// By files, for neither side has to wait for the other.
    fn ask(&self, test: &str, questions: &[Question]) -> Vec<Result<Vec<u8>, String>> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("templates-{test}.json"));
        let lines: Vec<_> =
            questions.iter().map(|q| json!({"template": q.template, "data": q.data}).to_string()).collect();
        std::fs::write(&path, lines.join("\n")).expect("written");
        let input = File::open(&path).expect("opened");
        let told = Command::new(&self.0).stdin(Stdio::from(input)).output().expect("gotemplate runs");
        assert!(told.status.success(), "gotemplate: {}", String::from_utf8_lossy(&told.stderr));
        std::fs::remove_file(&path).expect("removed");
        let answers = serde_json::Deserializer::from_slice(&told.stdout).into_iter::<Told>();
        let answers: Vec<_> = answers
            .map(|told| match told.expect("an answer") {
                Told { error: Some(error), .. } => Err(error),
                Told { text, .. } => {
                    Ok(data_encoding::BASE64.decode(text.unwrap_or_default().as_bytes()).expect("base64"))
                }
            })
            .collect();
        assert_eq!(answers.len(), questions.len());
        answers
    }

    /// How many were rendered, and how many by neither. All that differ are told at once.
    fn compare(&self, test: &str, questions: &[Question]) -> (usize, usize) {
        let (mut rendered, mut refused, mut differences) = (0, 0, Vec::new());
        for (question, go) in questions.iter().zip(self.ask(test, questions)) {
            match (plain(&question.template, &question.data), go) {
                (Ok(ours), Ok(go)) if ours.as_bytes() == go => rendered += 1,
                (Err(_), Err(_)) => refused += 1,
                (Err(why), Ok(_)) if REFUSED.iter().any(|part| why.contains(part)) => {}
                (Ok(_), Err(why)) if RENDERED.iter().any(|part| why.contains(part)) => {}
                (ours, go) => {
                    let go = go.map(|go| String::from_utf8_lossy(&go).into_owned());
                    differences.push(format!("{}\n  ours {ours:?}\n  Go   {go:?}", question.template));
                }
            }
        }
        let many = differences.len();
        let first: Vec<_> = differences.iter().take(40).map(String::as_str).collect();
        assert!(differences.is_empty(), "{many} of {} differ:\n{}", questions.len(), first.join("\n"));
        (rendered, refused)
    }
}

#[test]
fn every_function_of_sprigs_is_served_or_refused_by_name() {
    let Some(go) = Go::find("every_function_of_sprigs_is_served_or_refused_by_name") else { return };
    let not_served: BTreeSet<String> = NOT_SERVED.iter().copied().flatten().map(|name| (*name).to_owned()).collect();
    let served: BTreeSet<String> = functions().map(str::to_owned).collect();
    assert!(served.is_disjoint(&not_served));
    let mut known: BTreeSet<String> = served.union(&not_served).cloned().collect();
    for own in ["formatPartition", "netmaskToPrefixLength"] {
        assert!(known.remove(own), "{own}");
    }
    assert_eq!(known, go.functions());
    for name in &not_served {
        let refused = plain(&format!("{{{{ if false }}}}{{{{ {name} }}}}{{{{ end }}}}"), &json!({}));
        assert!(refused.as_ref().is_err_and(|why| why.contains(name)), "{name}: {refused:?}");
    }
}

/// What the engine does another way, so that a newer one that does as Go is seen here.
#[test]
fn what_is_known_to_differ_still_does() {
    let Some(go) = Go::find("what_is_known_to_differ_still_does") else { return };
    let data = json!({"nothing": null, "ports": [80]});
    let known = [
        ("{{ 1000000.0 }}", Some("1000000"), Some("1e+06")),
        ("{{ if .nothing.field }}a{{ else }}b{{ end }}", Some("b"), None),
        ("{{ (index . \"absent\").field }}", Some("<no value>"), None),
        ("{{ rest (list) | toJson }}", Some("[]"), Some("null")),
        ("{{ has 80 .ports }}", None, Some("false")),
    ];
    let questions: Vec<_> = known.iter().map(|(text, ..)| question(*text, &data)).collect();
    for ((text, ours, go), told) in known.iter().zip(go.ask("known", &questions)) {
        let told = told.ok().map(|text| String::from_utf8(text).expect("a text"));
        assert_eq!((plain(text, &data).ok().as_deref(), told.as_deref()), (*ours, *go), "{text}");
    }
}

/// YAML is written by another library: what is read back is the same.
#[test]
fn yaml_comes_back_as_the_same_data() {
    let Some(go) = Go::find("yaml_comes_back_as_the_same_data") else { return };
    let data = json!({"all": {
        "text": "a", "empty": "", "number": "1", "boolean": "true", "yes": "yes", "null": "null", "colon": "a: b", "hash": "a #b",
        "lines": "a\n  b\n", "tab": "a\tb", "unicode": "é", "dash": "- a", "octal": "0600", "exponent": "1e3", "date": "2026-01-02",
        "list": [1, -2, 2.5, true, null, "x", [], {}, [[1]], {"a": {"b": []}}],
    }});
    let questions = [
        question("{{ toYaml .all | fromYaml | toJson }}", &data),
        question("{{ (fromYaml \"a: {b: [1, x]}\").a.b }}", &data),
        question("{{ fromYaml \"a: 0x10\\nb: 1.5\\nc: ~\\nd: 'x'\" | toJson }}", &data),
        question("{{ fromYaml \"  \" }}", &data),
        question("{{ fromYaml \"a: [\" }}", &data),
    ];
    assert_eq!(go.compare("yaml", &questions), (3, 2));
}
